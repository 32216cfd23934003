"""What must agree before a state of this engine is put back: the model, the library, the machine, the context.

The same in every process that runs the same files with the same options. What can't be found out becomes a
text that equals no other, so that nothing is reused. The number of threads is no part of it: it moves no bit
of a prompt's state.
"""

import hashlib
import secrets
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from adapters.llama_cpp import library
from adapters.llama_cpp.cache_types import cache_types, type_name
from adapters.llama_cpp.kinds import state_kind
from adapters.llama_cpp.metadata import architecture, metadata, metadata_keys, whole_number
from adapters.llama_cpp.model import Model
from adapters.llama_cpp.options import EngineOptions
from tool_registry.blocks.descriptor import RuntimeFacts
from tool_registry.blocks.kind import StateKind

_BINDING = "llama-cpp-python"
_LIBRARIES = frozenset({".so", ".dylib", ".dll"})
_DEVICE_KINDS = ("cpu", "gpu", "integrated gpu", "accelerator", "meta")
_ROPE_TYPES = {-1: "none", 0: "pairs in a row", 2: "pairs by halves"}
_LAYER_KEYS = ("attention.", "block_count", "embedding_length", "shortconv.", "ssm.", "wkv.")
_HALF, _SINGLE = 2, 4
_TYPICAL_TOKENS = 256


def runtime_facts(model: Model, context_handle: Any, options: EngineOptions) -> RuntimeFacts:
    """The facts of a context that was made of `llama_context_default_params`, these options and their `cache_types`."""
    llama = library.llama()
    defaults, (keys, values) = llama.llama_context_default_params(), cache_types(model, options)
    batch = min(options.n_batch, llama.llama_n_ubatch(context_handle))
    return RuntimeFacts(
        model=model.identity,
        build=_build(),
        backend=_backend(),
        device=f"{_devices_in_words()}; {options.n_gpu_layers} layers offloaded; batches of {batch}",
        key_type=type_name(keys) or _unknown(f"type {keys}"),
        value_type=type_name(values) or _unknown(f"type {values}"),
        transposed_values=not options.flash_attention,
        unified=_unified(context_handle),
        rope=_rope(model, context_handle),
        window=_window(model, full_size=defaults.swa_full),
        lora="",
        layers=_said(model, *_LAYER_KEYS),
        kind=state_kind(model),
    )


def bytes_per_token(model: Model) -> float:
    """Of a state with keys and values of 16 bits, roughly: a window counts as if it never ended.

    A state of constant size is spread over a prompt of 256 tokens. 0 where nothing can be kept.
    """
    kind, layers = state_kind(model), library.llama().llama_model_n_layer(model.handle)
    if kind is StateKind.UNSUPPORTED:
        return 0.0
    if kind is StateKind.RECURRENT:
        return float(layers) * _recurrent_bytes(model) / _TYPICAL_TOKENS
    if kind is StateKind.LATENT:
        row = _number(model, "attention.kv_lora_rank") + _number(model, "rope.dimension_count")
        return float(layers) * _HALF * row
    return float(layers) * _HALF * _key_value_elements(model)


def _key_value_elements(model: Model) -> int:
    """Of one token in one layer. Where heads differ by layer, the file has a list: all heads are counted."""
    heads = max(_number(model, "attention.head_count"), 1)
    width = _number(model, "embedding_length") // heads
    lengths = [whole_number(model, f"attention.{part}_length") or width for part in ("key", "value")]
    return (whole_number(model, "attention.head_count_kv") or heads) * sum(lengths)


def _recurrent_bytes(model: Model) -> int:
    """Of one layer: convolution and state (Mamba), or one of the embedding's size by 64 (RWKV)."""
    inner, state = _number(model, "ssm.inner_size"), _number(model, "ssm.state_size")
    if not inner:
        return _SINGLE * _number(model, "embedding_length") * (_number(model, "wkv.head_size") or 64)
    return _SINGLE * inner * (state + max(_number(model, "ssm.conv_kernel") - 1, 0))


def _number(model: Model, key: str) -> int:
    return whole_number(model, key) or 0


def _said(model: Model, *starts: str) -> str:
    """All that the file says under some keys, in words."""
    return "; ".join(
        f"{key} {metadata(model, key)}" for key in metadata_keys(model) if key.startswith(starts)
    )


def _rope(model: Model, context_handle: Any) -> str:
    llama = library.llama()
    kind = llama.llama_model_rope_type(model.handle)
    parts = [_ROPE_TYPES.get(kind) or _unknown(f"type {kind}"), architecture(model), _said(model, "rope.")]
    trained = whole_number(model, "rope.scaling.original_context_length") or model.trained_context
    longer = llama.llama_n_ctx_seq(context_handle) > trained
    return "; ".join(
        [
            *filter(None, parts),
            f"scale {llama.llama_model_rope_freq_scale_train(model.handle)!r}",
            f"longer than trained {longer}",
        ]
    )


def _window(model: Model, *, full_size: bool) -> str:
    tokens = library.llama().llama_model_n_swa(model.handle)
    if not tokens:
        return ""
    pattern = metadata(model, "attention.sliding_window_pattern") or "of the architecture"
    return f"{tokens} tokens; pattern {pattern}; {'full' if full_size else 'short'} cache"


def _unified(context_handle: Any) -> bool:
    """A context that gives each sequence a part of its own has less for one than for all."""
    llama = library.llama()
    return bool(llama.llama_n_ctx_seq(context_handle) == llama.llama_n_ctx(context_handle))


@cache
def _build() -> str:
    """llama.cpp and binding by version, and the libraries by content: one version is built in many ways."""
    try:
        binding = version(_BINDING)
    except PackageNotFoundError:
        binding = _unknown("binding")
    folder = Path(_native()._name).parent  # noqa: SLF001 - ctypes' own name for the file it loaded
    digest, found = hashlib.blake2b(digest_size=8), False
    for path in sorted(folder.iterdir()):
        if path.suffix in _LIBRARIES and ("llama" in path.name or "ggml" in path.name):
            digest.update(path.name.encode() + path.read_bytes())
            found = True
    libraries = digest.hexdigest() if found else _unknown("libraries")
    return f"{library.build()}; {_BINDING} {binding}; libraries {libraries}"


@dataclass(frozen=True, slots=True)
class _Device:
    name: str
    description: str
    kind: str


def _backend() -> str:
    """Names of whatever computes beside the CPU, or "cpu". Large batches go there whatever the layers do."""
    others = [device.name for device in _devices() if device.kind != "cpu"]
    return ", ".join(others) or "cpu"


def _devices_in_words() -> str:
    """Devices other than the CPU with their models; the CPU by the kernels that are built in and usable."""
    others = [f"{device.kind} {device.description}" for device in _devices() if device.kind != "cpu"]
    kernels = library.llama().llama_print_system_info().decode("utf-8", "replace")
    return "; ".join(
        [*others, kernels.replace(" = ", "=").replace(" | ", " ").strip() or _unknown("kernels")]
    )


@cache
def _devices() -> tuple[_Device, ...]:
    native = _native()
    try:
        count, get = native.ggml_backend_dev_count, native.ggml_backend_dev_get
        name, description = native.ggml_backend_dev_name, native.ggml_backend_dev_description
        kind = native.ggml_backend_dev_type
    except AttributeError:
        return (_Device(_unknown("device"), "", "accelerator"),)
    count.restype, get.restype, kind.restype = c_size_t, c_void_p, c_int
    name.restype = description.restype = c_char_p
    get.argtypes, name.argtypes = [c_size_t], [c_void_p]
    description.argtypes = kind.argtypes = [c_void_p]
    return tuple(
        _Device(
            name(device).decode("utf-8", "replace"),
            description(device).decode("utf-8", "replace"),
            dict(enumerate(_DEVICE_KINDS)).get(kind(device)) or _unknown("device"),
        )
        for device in map(get, range(count()))
    )


def _native() -> Any:
    """The loaded library, for the few functions that the binding does not name."""
    return library.llama()._lib  # noqa: SLF001 - opening the file again might load another one


def _unknown(what: str) -> str:
    return f"unknown {what} {secrets.token_hex(8)}"
