"""What counts as an answer, by kind of model: a 200 with a vector of zeros is none."""

from __future__ import annotations

import pytest

from wattherd import errors
from wattherd.node import questions


def question(kind: str, **more: object) -> questions.Question:
    return questions.of_kind(kind, {"prompt": "Hi", **more})


def test_each_kind_is_asked_at_its_own_path() -> None:
    assert question("chat", max_tokens=5).body == {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "temperature": 0.0}
    assert (question("embedding").path, question("embedding").body) == ("/v1/embeddings", {"input": "Hi"})
    assert question("reranking", model="ranks").body == {"query": "Hi", "documents": ["Hi", "zzz"], "model": "ranks"}


def test_a_vector_is_told_by_its_size_and_length() -> None:
    assert question("embedding").read({"data": [{"embedding": [3, 4.0]}]}) == "a vector of 2 numbers, length 5.000"


@pytest.mark.parametrize(
    ("kind", "answer", "said"),
    [
        ("chat", {"choices": []}, "without a choice"),
        ("embedding", {"data": [{"embedding": [0.0, 0, -0.0]}]}, "a vector of zeros"),
        ("embedding", {"data": [{"embedding": [float("nan"), None, "1"]}]}, "without a vector"),
        ("embedding", {"data": []}, "without a vector"),
        ("embedding", {"data": [{"embedding": "AAAA"}]}, "without a vector"),
        (
            "reranking",
            {"results": [{"index": 0, "relevance_score": 0.0}, {"index": 1, "relevance_score": 0}]},
            "telling two documents apart",
        ),
        ("reranking", {"results": [{"index": 0, "relevance_score": 0.5}]}, "telling two documents apart"),
    ],
)
def test_an_answer_that_says_nothing_is_a_problem(kind: str, answer: dict[str, object], said: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        question(kind).read(answer)
    assert caught.value.code == "server-answer"
    assert said in caught.value.message


def test_a_ranking_tells_both_scores() -> None:
    rows = [{"index": 1, "relevance_score": -9.5}, {"index": 0, "relevance_score": 2}]
    assert question("reranking").read({"results": rows}) == "the question itself scores 2.000, an unrelated word -9.500"


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(errors.Problem) as caught:
        question("prose")
    assert caught.value.code == "protocol-mismatch"
