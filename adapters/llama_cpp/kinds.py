"""How a model remembers, told from the model itself. Knows no context and no blob.

A memory that llama.cpp builds in a way not known here (indexers over keys, compressed rows, histories of
n-grams) counts as unsupported: its models read their prompts, nothing of them is kept.
"""

from adapters.llama_cpp import library
from adapters.llama_cpp.metadata import metadata, metadata_keys, whole_number
from adapters.llama_cpp.model import Model
from tool_registry.blocks.kind import REUSE, StateKind

_NOT_KNOWN_HERE = ("attention.indexer.", "ple.")
_PLAIN_KEYS = frozenset({"f32", "f16", "bf16"})
_RESCALING = frozenset({"yarn", "longrope"})


def state_kind(model: Model) -> StateKind:
    """The kind of a model's state, by its memory first and its attention second."""
    llama, handle = library.llama(), model.handle
    if _unsupported(model):
        return StateKind.UNSUPPORTED
    if llama.llama_model_is_recurrent(handle):
        return StateKind.RECURRENT
    if llama.llama_model_is_hybrid(handle):
        return StateKind.HYBRID
    if llama.llama_model_n_swa(handle) > 0:
        return StateKind.WINDOWED
    # Files without the second key are of an older form, whose cache holds full keys and values.
    latent = whole_number(model, "attention.kv_lora_rank") and whole_number(model, "attention.key_length_mla")
    return StateKind.LATENT if latent else StateKind.DENSE


def may_shift(model: Model, context: object, key_type: str) -> bool:
    """Whether a state in this context may be moved to other positions.

    Each shift rotates the keys again: quantised ones lose a little each time, and a scaling of positions that
    also scales keys (YaRN) does so each time. Attention without rotation may have learned its positions by heart.
    """
    llama, kind = library.llama(), state_kind(model)
    rotated = llama.llama_model_rope_type(model.handle) != llama.LLAMA_ROPE_TYPE_NONE
    if not REUSE[kind].shift or not (rotated or kind is StateKind.RECURRENT):
        return False
    if key_type not in _PLAIN_KEYS or metadata(model, "rope.scaling.type") in _RESCALING:
        return False
    return bool(llama.llama_memory_can_shift(llama.llama_get_memory(context)))


def _unsupported(model: Model) -> bool:
    llama, handle = library.llama(), model.handle
    several_positions = llama.llama_model_rope_type(handle) in {
        llama.LLAMA_ROPE_TYPE_MROPE,
        llama.LLAMA_ROPE_TYPE_IMROPE,
        llama.LLAMA_ROPE_TYPE_VISION,
    }
    no_plain_decoder = (
        llama.llama_model_has_encoder(handle)
        or not llama.llama_model_has_decoder(handle)
        or llama.llama_model_is_diffusion(handle)
        or metadata(model, "attention.causal") == "false"
    )
    return (
        several_positions
        or no_plain_decoder
        or any(key.startswith(_NOT_KNOWN_HERE) for key in metadata_keys(model))
    )
