"""A GGUF model: loading, content identity, tokens. Knows nothing of contexts, prompts or masks."""

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NewType

from adapters.llama_cpp import library
from adapters.ports import ModelMissing, ModelUnusable

ModelHash = NewType("ModelHash", str)
"""Hex BLAKE2b-128 over the size of a file and samples of its content."""

LoadProgress = Callable[[float], bool]
"""Told the share done; returns False to give up loading. Called on the loading thread."""

_MAGIC = b"GGUF"
_MIB = 1 << 20
_SAMPLES = 16
_PIECE_BYTES = 1 << 10


class Model:
    """A loaded model; `close` frees it."""

    def __init__(self, path: Path, handle: Any) -> None:
        llama = library.llama()
        self.path = path
        self.handle = handle
        self.vocab = llama.llama_model_get_vocab(handle)
        self.vocabulary_size: int = llama.llama_vocab_n_tokens(self.vocab)
        self.trained_context: int = llama.llama_model_n_ctx_train(handle)
        self.identity = model_hash(path)
        self._closed = False

    def close(self) -> None:
        """Free the weights. No context may be left; tokens are refused from now on."""
        library.llama().llama_model_free(self.handle)
        self._closed = True

    def tokenise(self, text: str, *, special: bool = False) -> list[int]:
        """Tokens of a text, alone: no BOS, no EOS. Texts of control tokens count as such only if `special`."""
        if self._closed:  # llama.cpp would read freed memory
            raise ModelUnusable(f"{self.path.name} is closed")
        data = text.encode("utf-8", "replace")
        room = len(data) + 8  # a token has at least one byte; some tokenizers add a leading space
        tokens = (ctypes.c_int32 * room)()
        count = library.llama().llama_tokenize(self.vocab, data, len(data), tokens, room, False, special)
        if count < 0:
            raise ModelUnusable(f"{self.path.name} can't tokenise a text of {len(text):,} characters")
        return list(tokens[:count])

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token stands for; control tokens are empty unless `special`."""
        buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        count = library.llama().llama_token_to_piece(self.vocab, token, buffer, _PIECE_BYTES, 0, special)
        return buffer.raw[: max(count, 0)]

    def detokenise(self, tokens: Sequence[int]) -> bytes:
        """The bytes of a run of tokens; may end inside a UTF-8 character."""
        return b"".join(self.piece(token) for token in tokens)

    def is_markup(self, token: int) -> bool:
        """Whether a token is no ordinary text (control or user-defined)."""
        llama = library.llama()
        attributes: int = llama.llama_vocab_get_attr(self.vocab, token)
        return bool(attributes & (llama.LLAMA_TOKEN_ATTR_CONTROL | llama.LLAMA_TOKEN_ATTR_USER_DEFINED))

    @property
    def bos(self) -> int | None:
        """The token that starts a text, if the vocabulary has one."""
        token: int = library.llama().llama_vocab_bos(self.vocab)
        return token if token >= 0 else None

    @property
    def eos(self) -> int | None:
        """The token that ends a text, if the vocabulary has one."""
        token: int = library.llama().llama_vocab_eos(self.vocab)
        return token if token >= 0 else None

    @property
    def wants_bos(self) -> bool:
        """Whether the model was trained with BOS before each text."""
        return bool(library.llama().llama_vocab_get_add_bos(self.vocab))

    @property
    def chat_template(self) -> str | None:
        """The Jinja template in the file's metadata (`tokenizer.chat_template`)."""
        template: bytes | None = library.llama().llama_model_chat_template(self.handle, None)
        return template.decode("utf-8", "replace") if template else None


def load_model(
    path: Path, *, n_gpu_layers: int, on_progress: LoadProgress, vocabulary_only: bool = False
) -> Model:
    """Map a GGUF file and make a model of it; of its vocabulary alone, no weights, if so wanted.

    Raises:
        ModelMissing: no such file.
        ModelUnusable: not a GGUF file, truncated, of an unknown architecture, or too big for the memory.
    """
    _check_header(path)
    llama = library.llama()
    parameters = llama.llama_model_default_params()
    parameters.n_gpu_layers = n_gpu_layers
    parameters.vocab_only = vocabulary_only
    parameters.load_mode = llama.LLAMA_LOAD_MODE_MMAP
    callback = llama.llama_progress_callback(lambda share, _: on_progress(share))
    parameters.progress_callback = callback
    library.forget_errors()
    handle = llama.llama_model_load_from_file(str(path).encode(), parameters)
    if not handle:
        raise ModelUnusable(
            f"{path} can't be loaded: {library.logged_errors() or 'llama.cpp gives no reason'}"
        )
    return Model(path, handle)


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        raise ModelMissing(
            f"{path} does not exist; name another model, or fetch one with `nexus-gateway models pull`"
        ) from None
    except OSError as error:
        raise ModelUnusable(f"{path} can't be read: {error.strerror or error}") from error
    if magic != _MAGIC:
        raise ModelUnusable(f"{path} is not a GGUF file; llama.cpp loads GGUF files only")


def model_hash(path: Path) -> ModelHash:
    """Hash a file's size and 16 samples of 1 MiB, evenly spread from its first byte to its last.

    Hashing all of a 9 GB file would take longer than loading it. Models that differ in metadata or tensor
    layout differ in the first sample; a retrained one differs in practically every sample.
    """
    size = path.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=16)
    last_start = max(size - _MIB, 0)
    with path.open("rb") as file:
        for start in sorted({last_start * sample // (_SAMPLES - 1) for sample in range(_SAMPLES)}):
            file.seek(start)
            digest.update(file.read(_MIB))
    return ModelHash(digest.hexdigest())
