"""`find_tools`: relevance, details, pages over one ranking, and a plain word where nothing fits."""

import re

import anyio
import pytest
from support.fake_turns import FILES, service_of
from support.making_tools import STRING, catalog_of, definition

from nexus_gateway.access.caller import Caller
from nexus_gateway.access.visibility import NameFilter
from nexus_gateway.server.found_rendering import render_found
from nexus_gateway.turn.cursors import CursorError, to_cursor
from nexus_gateway.turn.finding import DEPTH, LISTING_PAGE, NEAREST
from tool_registry.routing import Gate

CALLER = Caller()
pytestmark = pytest.mark.anyio


def many(count):
    return {"s": [definition(f"get_item_{n}", f"Get item number {n}", {"id": STRING}) for n in range(count)]}


async def find(service, query, caller=CALLER, **more):
    with anyio.fail_after(30):
        return await service.find(query, caller, **more)


async def pages(service, query, limit, caller=CALLER):
    """Every page, following the cursors."""
    found, cursor = [], None
    while True:
        page = await find(service, query, caller, limit=limit, cursor=cursor)
        found.append(page)
        cursor = page.cursor
        if cursor is None:
            return found
        assert len(found) < 100


def names(page):
    return [str(found.tool.id) for found in page.tools]


async def test_the_best_tool_is_first_and_relevance_is_within_0_and_1_and_never_grows():
    service, calls = await service_of()
    page = await find(service, "read the text of a file")
    assert names(page)[0] == "files/read_file"
    relevance = [found.relevance for found in page.tools]
    assert all(0 <= one <= 1 for one in relevance)
    assert relevance == sorted(relevance, reverse=True)
    assert not calls.calls


async def test_a_tool_that_the_query_names_has_relevance_1():
    service, _ = await service_of()
    assert (await find(service, "read_file")).tools[0].relevance == 1.0


async def test_pages_are_one_ranking_cut_in_pieces_and_end():
    service, _ = await service_of(many(23))
    whole = names((await pages(service, "get item", 50))[0])
    cut = await pages(service, "get item", 4)
    assert [name for page in cut for name in names(page)] == whole
    assert len(whole) == 23
    assert len(cut) == 6


async def test_a_ranking_ends_after_so_many_tools():
    service, _ = await service_of(many(DEPTH + 20))
    assert sum(len(page.tools) for page in await pages(service, "get item", 50)) == DEPTH


async def test_a_cursor_of_changed_tools_or_of_another_query_says_so():
    service, _ = await service_of(many(9))
    cursor = (await find(service, "get item", limit=2)).cursor
    other, _ = await service_of(many(10))
    with pytest.raises(CursorError, match=r"the tools have changed .* search again without a cursor"):
        await find(other, "get item", limit=2, cursor=cursor)
    with pytest.raises(CursorError, match="belongs to another query"):
        await find(service, "get other", limit=2, cursor=cursor)


async def test_a_cursor_is_good_in_another_process_with_the_same_tools():
    service, _ = await service_of(many(9))
    twin, _ = await service_of(many(9))
    cursor = (await find(service, "get item", limit=2)).cursor
    expected = names(await find(service, "get item", limit=2, cursor=cursor))
    assert names(await find(twin, " get item ", limit=2, cursor=cursor)) == expected


@pytest.mark.parametrize(
    "cursor", ["x", "é", "A" * 5_000, "bnVsbA", to_cursor(-1, search="", tools=""), "{}"]
)
async def test_a_cursor_that_is_none_of_ours_says_so(cursor):
    service, _ = await service_of()
    with pytest.raises(CursorError, match="not one that find_tools gave"):
        await find(service, "read a file", cursor=cursor)


async def test_where_nothing_fits_the_nearest_are_shown_as_such():
    service, _ = await service_of(gate=Gate(floor=0.99))
    page = await find(service, "sing a song", limit=50)
    assert not page.fits
    assert len(page.tools) == NEAREST
    assert page.cursor is None
    rendered = render_found(page, "names")
    assert rendered["structuredContent"]["tools"] == []
    assert len(rendered["structuredContent"]["nearest"]) == NEAREST
    text = rendered["content"][0]["text"]
    assert text.startswith("No tool fits: no tool is close to the request.\nNearest, though probably not")


async def test_no_tools_at_all_is_said_for_a_search_and_for_a_list():
    service, _ = await service_of({"empty": []})
    for query in ("read a file", ""):
        page = await find(service, query)
        assert not page.fits
        said = render_found(page, "names")
        assert said["content"][0]["text"] == "No tool fits: no tool is available."
        assert said["structuredContent"]["tools"] == []


async def test_a_blank_query_lists_every_tool_by_server_and_needs_no_model():
    async def never(*_):
        raise AssertionError

    service, _ = await service_of({**many(LISTING_PAGE), **FILES}, ready=never, embedder_of=never)
    found = await pages(service, " \n", None)
    assert [len(page.tools) for page in found] == [LISTING_PAGE, 4]
    everything = [name for page in found for name in names(page)]
    assert everything == [str(tool.id) for tool in catalog_of(**many(LISTING_PAGE), **FILES)]
    text = render_found(found[0], "signatures")["content"][0]["text"]
    assert text.startswith(f"{LISTING_PAGE + 4} tools in all, by server:\nfiles/copy_file: copy_file(source")
    assert found[0].tools[0].relevance is None


async def test_the_details_are_names_signatures_and_whole_schemas():
    service, _ = await service_of()
    page = await find(service, "read the text of a file", limit=1)
    by_detail = {
        detail: render_found(page, detail)["structuredContent"]["tools"][0]
        for detail in ("names", "signatures", "schemas")
    }
    assert set(by_detail["names"]) == {"tool", "relevance"}
    assert by_detail["signatures"]["signature"] == "read_file(path: string)"
    assert by_detail["schemas"]["inputSchema"] == page.tools[0].tool.input_schema
    assert "signature" not in by_detail["schemas"]


async def test_the_text_has_all_that_the_structure_has_and_says_how_to_go_on():
    service, _ = await service_of(many(9))
    page = await find(service, "get item", limit=2)
    rendered = render_found(page, "signatures")
    text, structured = rendered["content"][0]["text"], rendered["structuredContent"]
    assert re.match(r"0\.\d\d s/get_item_\d: get_item_\d\(id\?: string\) - Get item number \d\n", text)
    assert f'cursor "{structured["nextCursor"]}"' in text


async def test_the_same_tool_of_other_servers_is_named_beside_it():
    service, _ = await service_of({**FILES, "more": FILES["files"][:1], "third": FILES["files"][:1]})
    page = await find(service, "files/read_file", limit=1)
    assert [str(other) for other in page.tools[0].also_on] == ["more/read_file", "third/read_file"]
    rendered = render_found(page, "names")
    assert rendered["structuredContent"]["tools"][0]["also_on"] == ["more/read_file", "third/read_file"]
    assert "(also on: more/read_file, third/read_file)" in rendered["content"][0]["text"]
    blind = Caller(visible=NameFilter(denied=("third/*",)))
    assert len((await find(service, "files/read_file", blind, limit=1)).tools[0].also_on) == 1


async def test_what_a_caller_does_not_see_is_on_no_page():
    service, _ = await service_of(many(12))
    blind = Caller(visible=NameFilter(denied=("s/get_item_1*",)))
    for query in ("get item", ""):
        seen = [name for page in await pages(service, query, 3, blind) for name in names(page)]
        assert len(seen) == 9
        assert not [name for name in seen if name.startswith("s/get_item_1")]
    cursor = (await find(service, "get item", limit=2)).cursor
    with pytest.raises(CursorError):
        await find(service, "get item", blind, limit=2, cursor=cursor)
