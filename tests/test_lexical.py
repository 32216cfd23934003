"""BM25 over the fields of tools: the formula, its weights, and what has no words in common."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tool_registry.lexical import Bm25Parameters, LexicalIndex

WORDS = st.sampled_from(["read", "file", "write", "list", "issue", "mail", "send"])
DOCUMENTS = st.lists(
    st.fixed_dictionaries(
        {"name": st.lists(WORDS, max_size=3)}, optional={"description": st.lists(WORDS, max_size=9)}
    ),
    max_size=8,
)


def _reference(documents, query, parameters):
    """The published formula, a document and a word at a time."""
    means = {
        name: max(sum(len(document.get(name, [])) for document in documents), 1) / len(documents)
        for name in parameters.weights
        if documents
    }
    scores = []
    for document in documents:
        score = 0.0
        for word in set(query):
            containing = sum(any(word in words for words in other.values()) for other in documents)
            weight = 0.0
            for name, words in document.items():
                norm = 1 - parameters.b + parameters.b * len(words) / means[name]
                weight += parameters.weights[name] * Counter(words)[word] / norm if word in words else 0.0
            idf = math.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))
            score += idf * weight * (parameters.k1 + 1) / (parameters.k1 + weight)
        scores.append(score)
    return np.array(scores, np.float32)


@given(DOCUMENTS, st.lists(WORDS | st.just("unknown"), max_size=5), st.floats(0, 1), st.floats(0.1, 2))
@settings(deadline=None)
def test_scores_are_those_of_the_formula(documents, query, b, k1):
    parameters = Bm25Parameters(k1=k1, b=b)
    scores = LexicalIndex.build(documents, parameters).scores(query)
    np.testing.assert_allclose(scores, _reference(documents, query, parameters), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("query", [[], ["unknown"]])
def test_a_request_without_known_words_scores_nothing(query):
    index = LexicalIndex.build([{"name": ["read"]}, {"name": ["write"]}])
    assert index.scores(query).tolist() == [0, 0]


def test_no_documents_give_no_scores():
    assert LexicalIndex.build([]).scores(["read"]).shape == (0,)
    assert LexicalIndex.build([{}, {"name": []}]).scores(["read"]).tolist() == [0, 0]


def test_a_word_of_the_name_weighs_more_than_one_of_the_server():
    documents = [{"name": ["issue"], "server": ["git"]}, {"name": ["git"], "server": ["issue"]}]
    scores = LexicalIndex.build(documents).scores(["issue"])
    assert scores[0] > scores[1] > 0


def test_a_rare_word_weighs_more_than_a_common_one():
    documents = [{"name": ["list", "issue"]}, {"name": ["list", "file"]}, {"name": ["list", "mail"]}]
    index = LexicalIndex.build(documents)
    assert index.scores(["issue"])[0] > 2 * index.scores(["list"])[0]


def test_repeating_a_word_in_the_request_changes_nothing():
    index = LexicalIndex.build([{"name": ["read"]}, {"name": ["read", "file"]}])
    assert np.array_equal(index.scores(["read", "read"]), index.scores(["read"]))


def test_a_field_without_a_weight_is_named():
    with pytest.raises(ValueError, match="'title' has no weight; those with one: name"):
        LexicalIndex.build([{"title": ["read"]}])


def test_ten_thousand_documents_are_searched():
    documents = [
        {"name": [f"word{n}", "tool"], "description": [f"group{n % 100}"] * 20} for n in range(10_000)
    ]
    scores = LexicalIndex.build(documents).scores(["word1234", "group34", "tool"])
    assert int(scores.argmax()) == 1234
    assert (scores > scores.min()).sum() == 100


@given(DOCUMENTS, DOCUMENTS, st.lists(st.booleans(), min_size=8, max_size=8), st.lists(WORDS, max_size=5))
@settings(deadline=None)
def test_an_edited_index_scores_as_a_fresh_one(first, more, staying, query):
    index = LexicalIndex.build(first)
    kept = [at for at in range(len(first)) if staying[at]]
    source = np.array([*(-1 for _ in more[1:]), *kept, *(-1 for _ in more[:1])], np.intp)
    added = [*more[1:], *more[:1]]
    edited = index.edited(source, added, [first[at] for at in range(len(first)) if not staying[at]])
    fresh = LexicalIndex.build([*more[1:], *(first[at] for at in kept), *more[:1]])
    assert np.array_equal(edited.scores(query), fresh.scores(query))
    assert edited.postings.keys() == fresh.postings.keys()
    assert np.array_equal(index.scores(query), LexicalIndex.build(first).scores(query)), (
        "the last is as it was"
    )


def test_a_word_is_as_telling_as_it_is_rare():
    index = LexicalIndex.build([{"name": ["list", "issue"]}, {"name": ["list"]}, {"server": ["list"]}])
    assert index.idf("issue") == pytest.approx(math.log(1 + 2.5 / 1.5))
    assert 0 < index.idf("list") < index.idf("issue")
    assert index.idf("unknown") == 0


def test_slots_are_used_again():
    documents = [{"name": [f"word{n}"]} for n in range(50)]
    index = LexicalIndex.build(documents)
    for n in range(200):
        source = np.array([*range(1, 50), -1])
        documents.append({"name": [f"word{50 + n}"]})
        index = index.edited(source, [documents[-1]], [documents[n]])
    assert len(index.lengths) <= 51
    assert len(index.postings) == 50
    assert int(index.scores(["word249"]).argmax()) == 49


def test_who_forgets_a_document_must_say_its_words():
    with pytest.raises(ValueError, match="1 documents are gone, and the words of 0 are given"):
        LexicalIndex.build([{"name": ["read"]}]).edited(np.array([], np.intp), [], [])
