"""The types of a context's keys and values. Knows the options and the model's kind, no context."""

from adapters.llama_cpp import library
from adapters.llama_cpp.kinds import state_kind
from adapters.llama_cpp.model import Model
from adapters.llama_cpp.options import EngineOptions
from tool_registry.blocks.kind import StateKind

_BF16 = 30
"""ggml's number; the binding has no name for it."""


def cache_types(model: Model, options: EngineOptions) -> tuple[int, int]:
    """The ggml types of keys and of values.

    On a CPU with flash attention, values are bf16: where both are f16 or f32, llama.cpp cuts long sums by the
    number of the cell (tiles of 64 for batches of 64 and more, one part for each thread for a single token), and
    numbers move with the neighbours. Measured on SmolLM2: KL up to 2e-2 with f16, exactly 0 with these types, for
    6 % more time a token and 18 % more a prompt of 490 tokens. A model with latent rows has one type for both.
    """
    llama = library.llama()
    defaults = llama.llama_context_default_params()
    on_cpu = not options.n_gpu_layers or not llama.llama_supports_gpu_offload()
    if options.flash_attention and on_cpu and state_kind(model) is not StateKind.LATENT:
        return defaults.type_k, _BF16
    return defaults.type_k, defaults.type_v


def type_name(number: int) -> str | None:
    """What ggml calls a type, such as "f16"; None for a number not known here."""
    llama = library.llama()
    names = (name for name in dir(llama) if name.startswith("GGML_TYPE_") and getattr(llama, name) == number)
    found = "GGML_TYPE_BF16" if number == _BF16 else next(names, None)
    return None if found is None else found.removeprefix("GGML_TYPE_").lower()
