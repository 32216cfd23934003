"""Exposed names: unique, stable, legal, short, and with a way back."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus_gateway.server.names import ExposedNames

LEGAL = re.compile(r"[A-Za-z0-9_-]+")
PREFIXES = ("always", "collisions", "never")


def names(ids, prefix="always", max_length=48, reserved=()):
    return ExposedNames.build(ids, prefix=prefix, max_length=max_length, reserved=reserved)


def exposed(ids, **options):
    table = names(ids, **options)
    return [table.expose(*one) for one in ids]


def test_a_tool_is_named_after_its_server_and_itself():
    assert exposed([("files", "read_file")]) == ["files__read_file"]


@pytest.mark.parametrize("given_name", ["git_status", "git__status", "git-status", "git.status", "status"])
def test_a_server_that_prefixes_its_own_tools_is_not_prefixed_twice(given_name):
    assert exposed([("git", given_name)]) == ["git__status"]


def test_a_prefixed_and_a_plain_name_of_one_server_stay_apart_and_the_plain_one_keeps_its_name():
    one, two = exposed([("git", "status"), ("git", "git_status")])
    assert one == "git__status"
    assert two.startswith("git__status_")


def test_a_server_that_is_all_of_a_tools_name_is_left_alone():
    assert exposed([("echo", "echo"), ("echo", "echo_")]) == ["echo__echo", "echo__echo_"]


def test_long_names_are_cut_and_end_in_a_hash_of_the_whole():
    one, two = exposed([("files", "a" * 100), ("files", "a" * 101)], max_length=40)
    assert len(one) == len(two) == 40
    assert one != two
    assert one.startswith("files__aaa")


@pytest.mark.parametrize("odd", ["höhe 日本", "a.b", "a/b", "read my  notes", "日本", "\x00", "a:b"])
def test_characters_that_hosts_refuse_are_replaced(odd):
    (name,) = exposed([("s", odd)])
    assert LEGAL.fullmatch(name)


def test_names_that_read_alike_once_cleaned_stay_apart_whoever_comes_later():
    alone = exposed([("s", "a.b")])
    together = exposed([("s", "a.b"), ("s", "a b"), ("s", "a_b")])
    assert alone[0] == together[0]
    assert len(set(together)) == 3
    assert together[2] == "s__a_b"


def test_a_separator_inside_a_server_name_makes_no_two_tools_alike():
    ids = [("a", "b__c"), ("a__b", "c"), ("a_", "b"), ("a", "_b"), ("a.b", "c"), ("a_b", "c")]
    assert len(set(exposed(ids))) == len(ids)


def test_only_what_collides_is_prefixed_where_so_configured():
    ids = [("web", "search"), ("mail", "search"), ("mail", "send")]
    assert exposed([("git", "git_status")], prefix="collisions") == ["git_status"]
    assert exposed(ids, prefix="collisions") == ["web__search", "mail__search", "send"]


def test_a_reserved_name_is_not_given_away():
    assert exposed([("s", "find_tools")], prefix="collisions", reserved=["find_tools"]) == ["s__find_tools"]
    assert exposed([("s", "find_tools")], prefix="never", reserved=["find_tools"]) != ["find_tools"]


def test_without_prefixes_names_are_the_servers_own_and_the_second_of_a_kind_gets_a_hash():
    mail, web = exposed([("mail", "search"), ("web", "search")], prefix="never")
    assert mail == "search"
    assert web.startswith("search_")
    assert exposed([("git", "git_status")], prefix="never") == ["git_status"]


def test_a_name_of_nobody_resolves_to_nothing():
    assert names([("s", "t")]).resolve("s__u") is None
    assert names([("s", "t")]).resolve("t") is None


TEXT = st.text(alphabet="ab_-. /é", min_size=1, max_size=12)
IDS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=12, unique=True)


@given(ids=IDS, prefix=st.sampled_from(PREFIXES), max_length=st.integers(12, 64), order=st.randoms())
def test_any_set_of_ids_gets_unique_legal_reversible_names_whatever_its_order(ids, prefix, max_length, order):
    given_names = exposed(ids, prefix=prefix, max_length=max_length)
    assert len(set(given_names)) == len(ids)
    assert all(LEGAL.fullmatch(name) and len(name) <= max_length for name in given_names)
    table = names(ids, prefix=prefix, max_length=max_length)
    assert [table.resolve(name) for name in given_names] == ids
    shuffled = order.sample(ids, len(ids))
    again = names(shuffled, prefix=prefix, max_length=max_length)
    assert [again.expose(*one) for one in ids] == given_names


def test_a_thousand_servers_names_stay_what_they_were_when_another_server_comes():
    ids = [(f"server{n}", tool) for n, tool in product(range(50), ("search", "read.it", "x" * 90))]
    before, after = names(ids), names([*ids, ("late", "search"), ("late", "read.it")])
    assert all(before.expose(*one) == after.expose(*one) for one in ids)
