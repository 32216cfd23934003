"""The llama.cpp binding: imported on first use, silenced, started once. Knows nothing of models or prompts.

The binding, and llguidance's bridge to it, load native libraries; the gateway answers its first
`tools/list` before any model loads, so this is the one place that imports them, and lazily.
"""

import os
import threading
import warnings
from collections import deque
from typing import Any

_ERROR_LEVEL = 4  # ggml_log_level: 0 none, 1 debug, 2 info, 3 warn, 4 error, 5 continuation

_lock = threading.Lock()
_errors: deque[str] = deque(maxlen=8)
_binding: Any = None
_log_callback: Any = None  # llama.cpp keeps only the pointer: without this reference it would dangle


def llama() -> Any:
    """The low-level binding (`llama_cpp.llama_cpp`), with its backend started and its log silenced."""
    with _lock:
        return _binding or _start()


def _start() -> Any:
    global _binding, _log_callback  # noqa: PLW0603 - the native library is one per process
    # OpenMP reads it once, when it is loaded. By default its threads spin at barriers: with another process on
    # the cores, 160 ms of decoding became up to 11 s.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from llama_cpp import llama_cpp as binding  # noqa: PLC0415 - see the module docstring

    _log_callback = binding.llama_log_callback(_log)
    binding.llama_log_set(_log_callback, None)
    binding.llama_backend_init()
    _binding = binding
    return binding


def _log(level: int, text: bytes, _user_data: object) -> None:
    if level == _ERROR_LEVEL:
        _errors.append(text.decode("utf-8", "replace").strip())


def forget_errors() -> None:
    """Drop the errors logged so far, so that `logged_errors` speaks of what follows."""
    _errors.clear()


def logged_errors() -> str:
    """What llama.cpp logged as errors, oldest first, or an empty string."""
    return "; ".join(_errors)


def build() -> str:
    """Which llama.cpp this is."""
    return f"llama.cpp {llama().llama_version().decode()}"


def mask_tokenizer(vocab: Any) -> Any:
    """Make llguidance's tokenizer of a llama.cpp vocabulary. Takes 0.2 to 1 s: keep it.

    Returns:
        An `llguidance.LLTokenizer`.
    """
    llama()
    from llguidance import llamacpp  # noqa: PLC0415 - it imports the binding

    # One warning a token, about a name that llguidance uses and only it can change.
    warnings.filterwarnings("ignore", "llama_token_get_attr is deprecated", DeprecationWarning)
    return llamacpp.lltokenizer_from_vocab(vocab)
