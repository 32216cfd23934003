"""What a GGUF file says of its model, by key. Lists are not among it: llama.cpp hands out single values only."""

import ctypes
from collections.abc import Iterator

from adapters.llama_cpp import library
from adapters.llama_cpp.model import Model

_VALUE_BYTES = 1 << 10


def architecture(model: Model) -> str:
    """Such as "llama"; empty where the file does not say."""
    return _text(model, "general.architecture") or ""


def metadata(model: Model, key: str) -> str | None:
    """A value below the architecture's name, such as "attention.key_length"; None where it is missing or a list."""
    return _text(model, f"{architecture(model)}.{key}")


def whole_number(model: Model, key: str) -> int | None:
    """As `metadata`, for counts and sizes."""
    found = metadata(model, key)
    return int(found) if found is not None and found.isdecimal() else None


def metadata_keys(model: Model) -> Iterator[str]:
    """All keys below the architecture's name that have a single value, in the order of the alphabet."""
    llama, start = library.llama(), f"{architecture(model)}."
    buffer = ctypes.create_string_buffer(_VALUE_BYTES)
    count = llama.llama_model_meta_count(model.handle)
    keys = []
    for place in range(count):
        llama.llama_model_meta_key_by_index(model.handle, place, buffer, _VALUE_BYTES)
        keys.append(buffer.value.decode("utf-8", "replace"))
    return (key.removeprefix(start) for key in sorted(keys) if key.startswith(start))


def _text(model: Model, key: str) -> str | None:
    buffer = ctypes.create_string_buffer(_VALUE_BYTES)
    length = library.llama().llama_model_meta_val_str(model.handle, key.encode(), buffer, _VALUE_BYTES)
    return buffer.value.decode("utf-8", "replace") if length >= 0 else None
