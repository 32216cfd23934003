"""Tiny GGUF models of every kind of state, with random but seeded weights: written in milliseconds, below 1 MB each.

What they say is noise; how they remember is what the real architectures do. The tokenizer knows single bytes.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

WIDTH, HEADS, HEAD, FEED, LAYERS = 64, 2, 32, 64, 4
CONTEXT = 512
WINDOW = 16
"""Tokens that the windowed models see: short, so that a test soon leaves it."""

STATE, CONVOLUTION, RANK = 8, 4, 4
LATENT, ROTATED, PLAIN = 32, 16, 16


@dataclass(frozen=True, slots=True)
class TinyModel:
    """One architecture.

    Attributes:
        architecture: as llama.cpp calls it.
        settings: metadata below the architecture's name.
        tensors: name and shape as numpy has it (rows first); a name with `{}` is one a layer that has it.
        only: for such names, the layers that have it; all others have it in every layer.
    """

    architecture: str
    settings: Mapping[str, object]
    tensors: Mapping[str, tuple[int, ...]]
    only: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


_EVERY = {
    "block_count": LAYERS,
    "context_length": CONTEXT,
    "embedding_length": WIDTH,
    "feed_forward_length": FEED,
    "attention.head_count": HEADS,
    "attention.head_count_kv": HEADS,
    "attention.layer_norm_rms_epsilon": 1e-6,
}
_FEED = {
    "blk.{}.ffn_norm": (WIDTH,),
    "blk.{}.ffn_gate": (FEED, WIDTH),
    "blk.{}.ffn_up": (FEED, WIDTH),
    "blk.{}.ffn_down": (WIDTH, FEED),
}
_ATTENTION = {
    "blk.{}.attn_q": (WIDTH, WIDTH),
    "blk.{}.attn_k": (WIDTH, WIDTH),
    "blk.{}.attn_v": (WIDTH, WIDTH),
    "blk.{}.attn_output": (WIDTH, WIDTH),
}
_ENDS = {"output_norm": (WIDTH,), "blk.{}.attn_norm": (WIDTH,)}
_MAMBA = {
    "blk.{}.ssm_in": (4 * WIDTH, WIDTH),
    "blk.{}.ssm_conv1d": (2 * WIDTH, CONVOLUTION),
    "blk.{}.ssm_conv1d.bias": (2 * WIDTH,),
    "blk.{}.ssm_x": (RANK + 2 * STATE, 2 * WIDTH),
    "blk.{}.ssm_dt": (2 * WIDTH, RANK),
    "blk.{}.ssm_dt.bias": (2 * WIDTH,),
    "blk.{}.ssm_a": (2 * WIDTH, STATE),
    "blk.{}.ssm_d": (2 * WIDTH,),
    "blk.{}.ssm_out": (WIDTH, 2 * WIDTH),
}
_SHORT_CONVOLUTION = {
    "blk.{}.shortconv.conv": (WIDTH, 3),
    "blk.{}.shortconv.in_proj": (3 * WIDTH, WIDTH),
    "blk.{}.shortconv.out_proj": (WIDTH, WIDTH),
}
_GEMMA_NORMS = {"blk.{}.post_attention_norm": (WIDTH,), "blk.{}.post_ffw_norm": (WIDTH,)}
_LATENT = {
    "blk.{}.attn_q": (HEADS * (PLAIN + ROTATED), WIDTH),
    "blk.{}.attn_kv_a_mqa": (LATENT + ROTATED, WIDTH),
    "blk.{}.attn_kv_a_norm": (LATENT,),
    "blk.{}.attn_k_b": (HEADS, LATENT, PLAIN),
    "blk.{}.attn_v_b": (HEADS, PLAIN, LATENT),
    "blk.{}.attn_output": (WIDTH, HEADS * PLAIN),
}

TINY: Mapping[str, TinyModel] = {
    "dense": TinyModel("llama", _EVERY | {"rope.dimension_count": HEAD}, _ENDS | _FEED | _ATTENTION),
    "windowed": TinyModel(
        "gemma2",
        _EVERY
        | {
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "attention.sliding_window": WINDOW,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
        _ENDS | _FEED | _ATTENTION | _GEMMA_NORMS,
    ),
    "recurrent": TinyModel(
        "mamba",
        {
            "block_count": 2,
            "context_length": CONTEXT,
            "embedding_length": WIDTH,
            "feed_forward_length": 0,
            "attention.head_count": 0,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "ssm.conv_kernel": CONVOLUTION,
            "ssm.inner_size": 2 * WIDTH,
            "ssm.state_size": STATE,
            "ssm.time_step_rank": RANK,
        },
        _ENDS | _MAMBA,
    ),
    "hybrid": TinyModel(
        "lfm2",
        _EVERY | {"attention.head_count_kv": [0, HEADS, 0, HEADS], "shortconv.l_cache": 3},
        {"token_embd_norm": (WIDTH,), "blk.{}.attn_norm": (WIDTH,)}
        | _FEED
        | _ATTENTION
        | {"blk.{}.attn_q_norm": (HEAD,), "blk.{}.attn_k_norm": (HEAD,)}
        | _SHORT_CONVOLUTION,
        only=dict.fromkeys(_SHORT_CONVOLUTION, (0, 2))
        | dict.fromkeys([*_ATTENTION, "blk.{}.attn_q_norm", "blk.{}.attn_k_norm"], (1, 3)),
    ),
    "latent": TinyModel(
        "deepseek2",
        _EVERY
        | {
            "attention.head_count_kv": 1,
            "attention.key_length": LATENT + ROTATED,
            "attention.value_length": LATENT,
            "attention.key_length_mla": PLAIN + ROTATED,
            "attention.value_length_mla": PLAIN,
            "attention.kv_lora_rank": LATENT,
            "attention.q_lora_rank": 0,
            "rope.dimension_count": ROTATED,
            "leading_dense_block_count": LAYERS,
            "expert_feed_forward_length": FEED,
            "expert_shared_count": 0,
        },
        _ENDS | _FEED | _LATENT,
    ),
    "many_positions": TinyModel(
        "qwen2vl", _EVERY | {"rope.dimension_sections": [4, 6, 6, 0]}, _ENDS | _FEED | _ATTENTION
    ),
}
"""By what they stand for; `many_positions` is M-RoPE, of which nothing may be kept."""


def write_tiny_model(folder: Path, name: str, *, seed: int = 1) -> Path:
    """Write one of `TINY` into a folder; another seed makes another model of the same shape."""
    model, path = TINY[name], folder / f"tiny-{name}-{seed}.gguf"
    writer = gguf.GGUFWriter(path, model.architecture)
    for key, value in model.settings.items():
        _add(writer, f"{model.architecture}.{key}", value)
    _add_vocabulary(writer)
    for tensor, shape in _tensors(model):
        writer.add_tensor(tensor, _weights(tensor, shape, seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(model: TinyModel) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (len(_tokens()), WIDTH)
    blocks = range(model.settings["block_count"])
    for name, shape in model.tensors.items():
        # ssm_a and ssm_d have no suffix in a file; of biases it is in the name already.
        suffix = "" if name.endswith((".bias", "ssm_a", "ssm_d")) else ".weight"
        for block in model.only.get(name, blocks) if "{}" in name else (0,):
            yield name.format(block) + suffix, shape


def _weights(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    chance = np.random.default_rng([seed, zlib.crc32(name.encode())])
    drawn = chance.standard_normal(shape, dtype=np.float32)
    if "norm" in name:
        return 1 + 0.1 * drawn
    if name.endswith("ssm_a"):
        return -np.exp(drawn)  # decays
    return drawn if len(shape) == 1 or "embd" in name else drawn / np.float32(np.sqrt(shape[-1]))


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_array(key, value)


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    tokens = _tokens()
    ordinary = len(tokens) - 2
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * ordinary + [gguf.TokenType.CONTROL] * 2)
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(ordinary)
    writer.add_eos_token_id(ordinary + 1)
    writer.add_add_bos_token(True)


def _tokens() -> list[str]:
    """Each byte as GPT-2 spells it, one word, and two control tokens."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = {byte: chr(byte) for byte in printable}
    spelled |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    return [*(spelled[byte] for byte in range(256)), "th", "<start>", "<end>"]
