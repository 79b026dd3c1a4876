"""What a served model of each kind is asked, and what a good answer is: words, a vector that is not all zeros, an order of documents.

A status of 200 alone proves little: a server that was started as another kind answers an embedding request with zeros. Pure.
"""

from __future__ import annotations

import json
import math
from typing import Any, Callable, Dict, List, Mapping

from wattherd import errors
from wattherd.records import dataclass
from wattherd.wire import fields

#: A document that has nothing to do with anything that is asked.
_ASIDE = "zzz"


@dataclass(frozen=True)
class Question:
    """Where to ask, what is sent, and how the text of the answer is read."""

    path: str
    body: Mapping[str, Any]
    read: Callable[[fields.Document], str]


def of_kind(kind: str, order: fields.Document) -> Question:
    prompt, model = fields.text(order, "prompt"), fields.text(order, "model", "")
    named: Dict[str, Any] = {"model": model} if model else {}  # a router has several behind its one port
    if kind == "embedding":
        return Question("/v1/embeddings", {"input": prompt, **named}, _vector)
    if kind == "reranking":
        return Question("/v1/rerank", {"query": prompt, "documents": [prompt, _ASIDE], **named}, _ranking)
    if kind != "chat":
        raise errors.Problem("protocol-mismatch", f"nobody knows how to ask a model of kind '{kind[:40]}'")
    body = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": fields.integer(order, "max_tokens", 128),
        "temperature": fields.number(order, "temperature", 0.0),
        **named,
    }
    return Question("/v1/chat/completions", body, _words)


def _words(answer: fields.Document) -> str:
    choices = fields.objects(answer, "choices")
    if not choices:
        raise _poor("without a choice", answer)
    return fields.text(fields.document(choices[0].get("message"), "message"), "content", "")


def _vector(answer: fields.Document) -> str:
    rows = fields.objects(answer, "data")
    found = rows[0].get("embedding") if rows else None
    numbers = _numbers(found) if isinstance(found, list) else []
    length = math.sqrt(sum(number * number for number in numbers))
    if not numbers or length == 0:
        raise _poor("with a vector of zeros" if numbers else "without a vector", answer)
    return f"a vector of {len(numbers)} numbers, length {length:.3f}"


def _ranking(answer: fields.Document) -> str:
    rows = fields.objects(answer, "results")
    scores = {fields.integer(row, "index"): fields.number(row, "relevance_score") for row in rows}
    if set(scores) != {0, 1} or len(set(scores.values())) == 1:
        raise _poor("without telling two documents apart", answer)
    return f"the question itself scores {scores[0]:.3f}, an unrelated word {scores[1]:.3f}"


def _numbers(found: List[Any]) -> List[float]:
    return [float(item) for item in found if isinstance(item, (int, float)) and math.isfinite(item)]


def _poor(words: str, answer: fields.Document) -> errors.Problem:
    return errors.Problem(
        "server-answer",
        f"the server answered {words}",
        hint="is its kind: what the model is? invoke models shows what its header says",
        answer=json.dumps(answer)[:300],
    )
