"""What of a request is routed by: values that say nothing of the tool are left out."""

import pytest

from nexus_gateway.routing.routing_text import ROUTING_CHARACTERS, in_other_script, routing_text


@pytest.mark.parametrize(
    ("request_text", "routed"),
    [
        ("read packing-list.txt", "read file.txt"),
        ("read the file '/home/me/search/delete-me.md'.", "read the file 'file.md'."),
        ("merge a.csv and b.xlsx", "merge file.csv and file.xlsx"),
        ("open https://example.org/list.html", "open https://example.org/list.html"),
        ("all movies in mflix.movies", "all movies in mflix.movies"),
        ("use spotify.play on v1.2", "use spotify.play on v1.2"),
        ("search", "search"),
    ],
)
def test_folders_and_stems_of_files_are_no_words_for_a_tool(request_text, routed):
    assert routing_text(request_text) == routed


def test_the_beginning_counts():
    assert routing_text("x" * 5_000) == "x" * ROUTING_CHARACTERS


def test_bytes_that_are_no_text_become_question_marks():
    assert routing_text("read \udcff") == "read ?"


def test_another_script_is_told_from_a_word_of_it():
    assert in_other_script("прочитай файл a.txt")
    assert not in_other_script("read the файл please")
