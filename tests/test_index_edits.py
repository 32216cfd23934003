"""An index that followed the catalogue step by step is the one that is built fresh, and older ones stay valid."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.making_tools import ADDS, READS, STRING, compiled

from tool_registry import lookaside
from tool_registry.index import RoutingIndex, build_index
from tool_registry.routing import rank

WORDS = [
    "read",
    "write",
    "list",
    "get",
    "file",
    "issue",
    "mail",
    "branch",
    "commit",
    "search",
    "page",
    "user",
    "team",
    "send",
    "open",
    "close",
]
DIMENSIONS = 24
EDITS = 10_000
REQUESTS = [
    "list the files of a user",
    "close an issue",
    "use read_mail_7_0 now",
    "nothing of it",
    "mail mail",
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """So that a few hundred rows fill, split and join blocks."""
    for name, rows in {"BLOCK_ROWS": 16, "_LEAST_ROWS": 4, "_MOST_ROWS": 32}.items():
        monkeypatch.setattr(lookaside, name, rows)


def made(rng, number):
    """A tool of one of 200 ids and one of several definitions, with its vectors."""
    name = f"{rng.choice(WORDS)}_{rng.choice(WORDS)}_{number}" if number % 3 else f"{WORDS[number % 16]}_all"
    properties = dict.fromkeys(rng.sample(WORDS, rng.randrange(3)), STRING)
    description = " ".join(rng.choices(WORDS, k=rng.randrange(9)))
    hints = rng.choice([{}, {"annotations": READS}, {"annotations": ADDS}])
    tool = compiled(f"server{number % 9}_{number}", name, description, properties, **hints)
    return tool, np.array(
        [[rng.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(rng.choice([1, 1, 1, 0, 2]))], np.float32
    ).reshape(-1, DIMENSIONS)


def stepped(index, epoch, known, new):
    """The next index, of the tools in `known`; the vectors of those that `index` has are not given again."""
    ordered = sorted(known, key=lambda tool: tool.id)
    had = {id(tool) for tool in index.tools}
    return index.moved(epoch, ordered, [new[id(tool)] for tool in ordered if id(tool) not in had])


def assert_same(one, other):
    assert one.tools == other.tools
    assert dict(one.position) == dict(other.position)
    assert (one.writing == other.writing).all()
    assert list(one.names) == list(other.names)
    assert set(one.equivalents.groups) == set(other.equivalents.groups)
    for seed, request in enumerate(REQUESTS):
        query = np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)
        assert one.lookaside.scan(query).tobytes() == other.lookaside.scan(query).tobytes()
        words = request.split()
        assert [one.lexical.idf(word) for word in words] == [other.lexical.idf(word) for word in words]
        np.testing.assert_allclose(one.lexical.scores(words), other.lexical.scores(words), rtol=1e-5)
        ranked = [candidate.tool_id for candidate in rank(one, request, query)]
        assert ranked == [candidate.tool_id for candidate in rank(other, request, query)]


def test_ten_thousand_inserts_and_removes_give_the_index_that_is_built_fresh():
    rng, pool, index = random.Random(4), {}, RoutingIndex()
    vectors, known, edits, step = {}, {}, 0, 0
    for number in range(200):
        pool[number] = [made(random.Random(f"{number} {version}"), number) for version in range(3)]
        vectors |= {id(tool): rows for tool, rows in pool[number]}
    while edits < EDITS:
        step += 1
        for number in rng.sample(range(200), rng.choice([1, 1, 2, 5, 20])):
            edits += 1
            if number in known and rng.random() < 0.5 + 0.2 * (step // 200 % 2):  # it grows, then shrinks
                del known[number]
            else:
                edits += number in known  # another definition comes, the last one goes
                known[number] = rng.choice(pool[number])[0]
        index = stepped(index, step, known.values(), vectors)
        if step % 60 == 0:
            assert_same(index, build_index(step, index.tools, [vectors[id(tool)] for tool in index.tools]))
    assert len({len(block.codes) for block in index.lookaside.blocks}) > 1, "blocks were split and joined"
    assert_same(index, build_index(step, index.tools, [vectors[id(tool)] for tool in index.tools]))


def test_an_index_in_use_stays_as_it_is_while_the_next_ones_are_made():
    rng = random.Random(5)
    entries = [made(rng, number) for number in range(120)]
    vectors = {id(tool): rows for tool, rows in entries}
    first = index = stepped(RoutingIndex(), 1, [tool for tool, _ in entries[:100]], vectors)
    query = np.random.default_rng(1).standard_normal(DIMENSIONS).astype(np.float32)

    def seen():
        return first.lookaside.scan(query).tobytes(), first.lexical.scores(WORDS).tobytes()

    expected = seen()
    with ThreadPoolExecutor(2) as threads:
        readers = [threads.submit(seen) for _ in range(200)]
        for step in range(60):
            chosen = rng.sample(entries, 80)
            index = stepped(index, step, [tool for tool, _ in chosen], vectors)
        assert {reader.result(timeout=30) for reader in readers} == {expected}
    assert len(first.tools) == 100


def test_a_changed_tool_leaves_the_other_blocks_and_words_alone():
    entries = [made(random.Random(number), number) for number in range(200)]
    vectors = {id(tool): rows for tool, rows in entries}
    index = stepped(RoutingIndex(), 1, [tool for tool, _ in entries], vectors)
    place = next(at for at, tool in enumerate(index.tools) if len(vectors[id(tool)]) == 1)
    old = index.tools[place]
    new = compiled(old.id.server, old.id.name, "quite another description")
    vectors[id(new)] = np.ones((1, DIMENSIONS), np.float32)
    following = stepped(index, 2, [new, *(tool for tool in index.tools if tool is not old)], vectors)
    replaced = [block for block in following.lookaside.blocks if block not in index.lookaside.blocks]
    assert len(replaced) == 1
    assert following.tools[place] is new
    words = {**index.lexical.postings}
    changed = {
        word for word in following.lexical.postings if words.get(word) is not following.lexical.postings[word]
    }
    assert changed <= new.vocabulary | old.vocabulary | {"server", *(str(n) for n in range(200))}


def test_tools_that_stay_may_not_change_their_order():
    entries = [made(random.Random(number), number) for number in range(3)]
    index = build_index(1, [tool for tool, _ in entries], [rows for _, rows in entries])
    with pytest.raises(ValueError, match="order"):
        index.moved(2, index.tools[::-1], [])


def test_vectors_of_another_model_are_refused():
    (one, _), (other, _) = (made(random.Random(number), number) for number in (1, 2))
    index = build_index(1, [one], [np.ones((1, DIMENSIONS), np.float32)])
    with pytest.raises(ValueError, match="different embedders"):
        index.moved(2, [one, other], [np.ones((1, DIMENSIONS + 1), np.float32)])


def test_memory_is_counted():
    tools = [made(random.Random(number), number)[0] for number in range(100)]
    index = build_index(1, tools, [np.ones((1, 384), np.float32)] * 100)
    assert 2 * 100 * 384 < index.lookaside.memory_bytes < index.memory_bytes < 100 * 384 * 4
    assert RoutingIndex().memory_bytes < 100
