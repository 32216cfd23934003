"""The facts of a runtime: the same wherever the same thing runs, another as soon as anything differs."""

import dataclasses
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.raw_context import BATCH, raw_context, raw_model
from support.tiny_models import TINY, WINDOW, write_tiny_model

from adapters.llama_cpp import facts as facts_module
from adapters.llama_cpp.cache_types import type_name
from adapters.llama_cpp.facts import bytes_per_token, runtime_facts
from adapters.llama_cpp.options import EngineOptions
from tool_registry.blocks.kind import StateKind

DEFAULT = EngineOptions()
_ASKING = """
import dataclasses, json, sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from support.raw_context import raw_context, raw_model

from adapters.llama_cpp.facts import runtime_facts
from adapters.llama_cpp.options import EngineOptions

with raw_model(Path(sys.argv[2])) as model, raw_context(model) as context:
    print(json.dumps(dataclasses.asdict(runtime_facts(model, context.handle, EngineOptions()))))
"""


@contextmanager
def facts_of(path, options=DEFAULT, **context_options):
    with raw_model(path) as model, raw_context(model, **context_options) as context:
        yield runtime_facts(model, context.handle, options)


def differing(first, second):
    found, other = dataclasses.asdict(first), dataclasses.asdict(second)
    return {name for name, value in found.items() if value != other[name]}


def test_two_loads_and_two_processes_say_the_same(tmp_path):
    path = write_tiny_model(tmp_path, "windowed")
    with facts_of(path) as first, facts_of(path) as second:
        assert first == second
        command = [sys.executable, "-c", _ASKING, str(Path(__file__).parent), str(path)]
        other = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert json.loads(other.stdout) == dataclasses.asdict(first)


def test_nothing_is_unknown_of_the_kinds_that_are_kept(tmp_path):
    for name in sorted(TINY.keys() - {"many_positions"}):
        with facts_of(write_tiny_model(tmp_path, name)) as facts:
            assert "unknown" not in str(facts)
            assert facts.kind is StateKind(name)


def test_another_model_of_the_same_shape_differs_by_its_content_alone(tmp_path):
    paths = [write_tiny_model(tmp_path, "dense", seed=seed) for seed in (1, 2)]
    with facts_of(paths[0]) as first, facts_of(paths[1]) as second:
        assert differing(first, second) == {"model"}


def test_what_moves_numbers_or_layout_makes_other_facts(tmp_path):
    path = write_tiny_model(tmp_path, "dense")
    with facts_of(path) as facts:
        with facts_of(path, EngineOptions(flash_attention=False), flash=False) as other:
            assert differing(facts, other) == {"transposed_values", "value_type"}
        with facts_of(path, EngineOptions(n_gpu_layers=3)) as other:
            assert differing(facts, other) == {"device"}
        with facts_of(path, EngineOptions(n_batch=48)) as other:  # fewer than the sequences of a context
            assert differing(facts, other) == {"device"}
        with facts_of(path, unified=False, n_ctx=6 * 256) as other:
            assert differing(facts, other) == {"unified"}
        assert f"batches of {BATCH}" in facts.device


def test_threads_move_no_bit_of_a_state_and_are_no_fact(tmp_path):
    path, states, facts = write_tiny_model(tmp_path, "dense"), [], []
    for threads in (1, 2):
        with raw_model(path) as model, raw_context(model, threads=threads) as context:
            context.read_chunks(0, model.tokenise("The same text, read by one and by two."), [1, 2, 3])
            states.append(context.read(0))
            facts.append(runtime_facts(model, context.handle, EngineOptions(threads=threads)))
    assert states[0] == states[1]
    assert facts[0] == facts[1]


def test_types_are_those_that_a_context_writes(tmp_path):
    with raw_model(write_tiny_model(tmp_path, "dense")) as model, raw_context(model) as context:
        facts, (section,) = runtime_facts(model, context.handle, DEFAULT), context.shape().sections
        written = (section.keys[0].type, section.values[0].type)
        assert (facts.key_type, facts.value_type) == tuple(map(type_name, written)) == ("f16", "bf16")


def test_words_name_window_positions_and_layers(tmp_path):
    with facts_of(write_tiny_model(tmp_path, "windowed")) as facts:
        assert f"{WINDOW} tokens" in facts.window
        assert "gemma2" in facts.rope
        assert "attention.head_count_kv 2" in facts.layers
        assert "block_count 4" in facts.layers
    with facts_of(write_tiny_model(tmp_path, "dense")) as facts:
        assert facts.window == ""
        assert facts.lora == ""


def test_what_is_unknown_equals_nothing_not_even_itself(tmp_path, monkeypatch):
    with raw_model(write_tiny_model(tmp_path, "many_positions")) as model, raw_context(model) as context:
        first, second = (runtime_facts(model, context.handle, DEFAULT) for _ in range(2))
        assert first.kind is StateKind.UNSUPPORTED
        assert differing(first, second) == {"rope"}
    monkeypatch.setattr(facts_module, "_native", object)  # a library whose devices can't be asked for
    facts_module._devices.cache_clear()
    try:
        assert "unknown device" in facts_module._backend()
    finally:
        facts_module._devices.cache_clear()


@pytest.mark.parametrize("name", ["dense", "windowed", "latent"])
def test_the_estimate_of_bytes_is_what_a_state_takes(tmp_path, name):
    with raw_model(write_tiny_model(tmp_path, name)) as model, raw_context(model) as context:
        assert bytes_per_token(model) == context.shape().bytes_per_token


def test_the_estimate_of_bytes_is_of_the_right_order_where_states_do_not_grow_evenly(tmp_path):
    for name in ("recurrent", "hybrid"):
        with raw_model(write_tiny_model(tmp_path, name)) as model, raw_context(model, n_ctx=512) as context:
            context.read_chunks(0, *[list(range(64))] * 4)
            assert 0.5 < bytes_per_token(model) * 256 / len(context.read(0)) < 3
    with raw_model(write_tiny_model(tmp_path, "many_positions")) as model:
        assert bytes_per_token(model) == 0
