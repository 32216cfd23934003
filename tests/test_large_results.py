"""Results over the limit: text alone is cut, it is said, and the whole can be read by who called, page by page."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gateways import SERVERS
from support.raw_host import MODERN, raw_host

from nexus_gateway.access.caller import Caller, Principal, Tenant
from nexus_gateway.server.large_results import META_KEY, LargeResults, beginning, cap, text_of, tokens

ME = Caller()
URI = "nexus://results/x"
NO_MODELS = ["[models]", 'argument = "/nowhere/a.gguf"', 'embedder = "/nowhere/e"']
BOTH_ERAS = ("legacy", MODERN)
IMAGE = {"type": "image", "data": "A" * 9_000, "mimeType": "image/png"}


def text(said, **more):
    return {"type": "text", "text": said, **more}


def results(max_tokens=200, **options):
    return LargeResults(max_tokens=max_tokens, keep_seconds=60, **options)


def uri_of(result):
    return result["_meta"][META_KEY]["uri"]


def shown(result):
    """The text that was kept, without the note."""
    return "\n".join(text_of(block) for block in result["content"][:-1] if text_of(block) is not None)


def read_all(store, uri, caller=ME):
    """Every page from `uri` on, following what the pages themselves say."""
    pages = []
    while uri:
        page, *note = store.read(uri, caller)["contents"]
        pages.append(page["text"])
        uri = note[0]["text"].rpartition("read on in ")[2].rstrip("]") if note else None
    return pages


@pytest.mark.parametrize(
    "result",
    [
        {"content": [text("x" * 800)]},
        {"content": []},
        {"content": [IMAGE] * 50},
        {"content": [{"type": "hologram", "text": "x" * 9_000}, "odd", None]},
        {"content": "none"},
        {"structuredContent": {"rows": ["x"] * 9_000}},
        {"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": "A" * 9_000}}]},
        {"resultType": "input_required", "inputRequests": {}},
    ],
)
def test_what_fits_or_has_no_text_is_the_very_same_object(result):
    store = results()
    assert store.fit(result, ME) is result
    assert store.statistics() == (0, 0)


def test_no_limit_cuts_nothing():
    result = {"content": [text("x" * 10_000_000)]}
    assert results(0).fit(result, ME) is result


def test_a_cut_says_how_much_and_where_the_whole_is():
    whole = "".join(f"{number:>9}\n" for number in range(1_000))
    store = results()
    result = store.fit({"content": [text(whole)]}, ME)
    first, note = result["content"]
    assert whole.startswith(first["text"])
    assert 0 < len(first["text"]) < 800
    assert "10,000 characters (about 2,500 tokens)" in note["text"]
    assert f"the first {len(first['text'])} are above" in note["text"]
    assert f"{uri_of(result)}?from={len(first['text'])}" in note["text"]
    assert sum(tokens(text_of(block)) for block in result["content"]) <= 200


def test_the_rest_is_read_on_from_where_the_cut_was():
    whole = "".join(f"{number:>9}\n" for number in range(1_000))
    store = results()
    result = store.fit({"content": [text(whole)]}, ME)
    rest = read_all(store, f"{uri_of(result)}?from={len(shown(result))}")
    assert shown(result) + "".join(rest) == whole
    assert "".join(read_all(store, uri_of(result))) == whole
    assert all(tokens(page) <= 200 for page in rest)


def test_everything_but_text_stays_as_it_was_said():
    original = {
        "content": [
            text("a" * 500, annotations={"priority": 1}),
            IMAGE,
            text("b" * 5_000),
            text("c"),
            {"type": "resource_link", "uri": "file:///x", "name": "x"},
            {"type": "resource", "resource": {"uri": "a:b", "text": "d" * 100}},
        ],
        "structuredContent": {"rows": list(range(5_000))},
        "isError": True,
        "futureField": [{"k": "v"}],
        "_meta": {"vendor.example/key": 1},
    }
    before = repr(original)
    result = cap(original, 250, lambda _: URI)
    assert repr(original) == before
    assert result["content"][0] == original["content"][0]
    assert [block for block in result["content"] if text_of(block) is None] == [
        IMAGE,
        original["content"][4],
    ]
    assert [block["text"][:1] for block in result["content"] if block["type"] == "text"] == ["a", "b", "["]
    for key in ("structuredContent", "isError", "futureField"):
        assert result[key] == original[key]
    assert result["_meta"]["vendor.example/key"] == 1


def test_an_embedded_text_resource_is_cut_within_its_own_shape():
    block = {
        "type": "resource",
        "resource": {"uri": "a:b", "mimeType": "text/x", "text": "d" * 9_000},
        "o": 1,
    }
    cut = cap({"content": [block]}, 200, lambda _: URI)["content"][0]
    assert set(cut) == set(block)
    assert cut["resource"]["uri"] == "a:b"
    assert 0 < len(cut["resource"]["text"]) < 800


def test_text_that_repeats_structured_content_is_cut_and_the_structure_is_not():
    rows = {"rows": ["x" * 10] * 1_000}
    result = cap({"content": [text(repr(rows))], "structuredContent": rows}, 200, lambda _: URI)
    assert result["structuredContent"] == rows
    assert len(shown(result)) < 800


def test_many_blocks_are_one_whole_text_with_one_position():
    blocks = [f"{number:04}" * 50 for number in range(100)]
    store = results(300)
    result = store.fit({"content": [text(block) for block in blocks]}, ME)
    position = result["_meta"][META_KEY]["shown"]
    whole = "\n".join(blocks)
    assert shown(result) == whole[:position].rstrip("\n")
    assert whole[:position] + "".join(read_all(store, f"{uri_of(result)}?from={position}")) == whole


@given(
    st.lists(
        st.text(alphabet=st.sampled_from("aß日\U0001f680\n\ud800"), max_size=400), min_size=1, max_size=8
    ),
    st.integers(min_value=1, max_value=400),
)
def test_whatever_the_text_nothing_is_lost_and_nothing_is_over_the_limit(texts, limit):
    store = results(limit)
    result = store.fit({"content": [text(block) for block in texts]}, ME)
    whole = "\n".join(texts)
    if META_KEY not in result.get("_meta", {}):
        assert sum(map(tokens, texts)) <= limit
        return
    position = result["_meta"][META_KEY]["shown"]
    assert whole[:position].rstrip("\n") == shown(result).rstrip("\n")
    assert whole[:position] + "".join(read_all(store, f"{uri_of(result)}?from={position}")) == whole
    assert sum(tokens(text_of(block)) for block in result["content"]) <= max(limit, 100) + len(texts)


@given(
    st.text(alphabet=st.sampled_from("aß日\U0001f680\ud800"), max_size=30),
    st.integers(min_value=0, max_value=60),
)
def test_a_beginning_is_the_longest_that_fits(whole, most):
    def size(part):
        return len(part.encode("utf-8", "surrogatepass"))

    part = beginning(whole, most)
    assert whole.startswith(part)
    assert size(part) <= most
    assert part == whole or size(whole[: len(part) + 1]) > most


def test_nobody_else_reads_a_result():
    store = results()
    uri = uri_of(store.fit({"content": [text("x" * 5_000)]}, ME))
    for other in (Caller(tenant=Tenant("other")), Caller(principal=Principal("other"))):
        assert store.read(uri, other) is None
    assert store.read(uri, ME)


def test_ids_cannot_be_guessed():
    store = results()
    uris = {uri_of(store.fit({"content": [text("x" * 5_000)]}, ME)) for _ in range(50)}
    assert len(uris) == 50
    assert all(len(uri.rpartition("/")[2]) >= 22 for uri in uris)


@pytest.mark.parametrize(
    "change",
    [
        lambda uri: uri + "x",
        lambda uri: uri + "/",
        lambda uri: uri + "?from=-1",
        lambda uri: uri + "?from=x",
        lambda uri: uri + "?from=" + "9" * 5_000,
        lambda uri: uri + "?from=٣",
        lambda uri: uri.replace("results", "other"),
        lambda uri: "nexus://results/",
        lambda uri: "nexus://results/[",
        lambda uri: "file:///etc/hosts",
        lambda uri: "",
    ],
)
def test_what_is_no_kept_result_is_none(change):
    store = results()
    assert store.read(change(uri_of(store.fit({"content": [text("x" * 5_000)]}, ME))), ME) is None


def test_reading_past_the_end_is_an_empty_page():
    store = results()
    uri = uri_of(store.fit({"content": [text("x" * 5_000)]}, ME))
    assert read_all(store, f"{uri}?from=6000") == [""]


def test_a_result_is_kept_for_its_time():
    now = [100.0]
    store = results(now=lambda: now[0])
    uri = uri_of(store.fit({"content": [text("x" * 5_000)]}, ME))
    now[0] += 59.9
    assert store.read(uri, ME)
    now[0] += 0.2
    assert store.read(uri, ME) is None
    assert store.statistics() == (0, 0)


def test_memory_is_bounded_and_the_oldest_go_first():
    store = results(keep_bytes=20_000)
    uris = [uri_of(store.fit({"content": [text("x" * 5_000)]}, ME)) for _ in range(5)]
    assert [store.read(uri, ME) is not None for uri in uris] == [False, False, True, True, True]
    kept, size = store.statistics()
    assert kept == 3
    assert size <= 20_000


def test_a_result_too_large_to_keep_says_so():
    store = results(keep_bytes=1_000)
    result = store.fit({"content": [text("x" * 5_000)]}, ME)
    assert "too large to keep" in result["content"][-1]["text"]
    assert "uri" not in result["_meta"][META_KEY]
    assert store.statistics() == (0, 0)


@pytest.mark.parametrize("era", BOTH_ERAS)
def test_a_host_gets_a_large_result_cut_and_reads_on_in_the_resource(era, tmp_path):
    command, args = json.dumps(sys.executable), json.dumps([str(SERVERS / "raw_server.py")])
    config = tmp_path / "nexus.toml"
    lines = [f"cache_dir = {json.dumps(str(tmp_path))}", *NO_MODELS, "[results]", "max_tokens = 50_000"]
    config.write_text(
        "\n".join([*lines, "[servers.raw]", f"command = {command}", f"args = {args}", 'confirm = "never"'])
    )
    with raw_host(config, era) as client:
        result = client.call("call_tool", {"tool": "raw/big", "arguments": {}})["result"]
        first, note = (block["text"] for block in result["content"])
        assert set(first) == {"x"}
        assert tokens(first) + tokens(note) <= 50_000
        assert "10,000,000 characters" in note
        assert result["_meta"][META_KEY]["characters"] == 10_000_000
        uri = f"{uri_of(result)}?from=9999990"
        (page,) = client.request("resources/read", {"uri": uri})["result"]["contents"]
        assert page == {"uri": uri, "mimeType": "text/plain", "text": "x" * 10}
        assert "error" in client.request("resources/read", {"uri": f"{uri_of(result)}x"})
