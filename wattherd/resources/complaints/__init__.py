"""What llama-server, its loader and CUDA complain of, as findings. Pure: log lines in, findings out.

The kind of a complaint is told by stems and structure, never by whole sentences: upstream rewords them. What no rule knows is
quoted as it stands. Imported only where a log is really read.
"""

from __future__ import annotations

import re
from typing import Iterable, Iterator, List, Optional, Set, Tuple

from wattherd.resources.complaints import cards, lines, model, options
from wattherd.resources.complaints.rule import Rule
from wattherd.wire import finding

#: Order decides where a line fits two: what names a cause stands before what names a symptom.
_RULES: Tuple[Rule, ...] = (*options.RULES, *cards.RULES, *model.RULES)
#: In a log that still grows, only what a server says of its cards and options counts: requests fail for reasons of their own.
_LIVING: Tuple[Rule, ...] = tuple(rule for rule in cards.RULES if not rule.deadly)
#: Lines that tell that it failed and never why, and one that is said by builds in which nothing is wrong.
_EMPTY = (
    r"failed to load model|exiting due to|error loading model(?: \w+)?:?\s*$|unable to load model|failed to find ggml_backend_init"
    r"|failed to create_?\s?(?:llama_)?context|cleaning up|common_init_from_params|failed to initialize HTTP server|for example: --no-jinja"
    r"|failed to fit params|llama_params_fit|error initializing model"
)
#: At least one of these is in everything that a rule knows (a test compares).
_WORDS = (
    "error", "fail", "invalid", "unknown", "unable", "illegal", "cannot", "could", "n't", "not ", "no ", "missing", "mismatch",
    "unsupported", "too old", "expected", "deprecated", "specified multiple", "only supports", "exceeds", "requires",
    "was requested", "template",
    "sigill", "signal 4", "invalid opcode", "/ill", "exit", "bad", "wrong", "duplicate", "encountered", "out of memory", "busy",
    "first split", "lora", "architecture", "end of file", "has offset", "has an", "without ssl", "large",
)  # fmt: skip
_CANDIDATES_LIMIT = 400
_MARKED = r"^\[?(?:error|fatal|panic|terminate called|abort)"


def explain(texts: Iterable[str], where: str = "") -> Optional[finding.Finding]:
    """Why a start failed: the first complaint that ends a server, else the first milder one, else the first error line as it is."""
    read = lines.read(texts)
    known = _known(read, where, _RULES)
    deadly = [one for rule, one in known if rule.deadly]
    milder = [one for rule, one in known if not rule.deadly]
    if deadly and deadly[0].code == "device-unknown" and milder:
        return milder[0]  # the card that was named is missing because the back end could not start
    return next(iter(deadly + milder), None) or _quoted(read, where)


def living(texts: Iterable[str], where: str = "") -> List[finding.Finding]:
    """What a server that runs has said of its cards, and of options that will not last: each once, in order."""
    read = lines.read(texts)
    found = [one for _, one in _known(read, where, _LIVING)] + _deprecations(read, where)
    causes = {one.code for one in found} - {"gpu-unused"}
    # `no usable GPU` is what follows from each of the others.
    mute = causes & {rule.code for rule in _LIVING}
    return [one for one in found if not (one.code == "gpu-unused" and mute)]


def _known(read: Iterable[lines.Line], where: str, rules: Tuple[Rule, ...]) -> List[Tuple[Rule, finding.Finding]]:
    """Errors of the model's load come twice, because llama.cpp tries to fit it first: each finding is kept once."""
    kept: List[Tuple[Rule, finding.Finding]] = []
    for line in _candidates(read):
        for rule in rules:
            one = rule.match(line, where)
            if one is not None:
                if all((one.code, one.words) != (other.code, other.words) for _, other in kept):
                    kept.append((rule, one))
                break
    return kept


def _candidates(read: Iterable[lines.Line]) -> Iterator[lines.Line]:
    """Lines worth the rules' time: no news, nothing said before, and a word in it that complaints are made of."""
    seen: Set[str] = set()
    for line in read:
        if line.level in {"I", "D"} or line.text in seen:
            continue
        lower = line.text.lower()
        if any(word in lower for word in _WORDS):
            seen.add(line.text)
            yield line
            if len(seen) >= _CANDIDATES_LIMIT:
                return


def _deprecations(read: Iterable[lines.Line], where: str) -> List[finding.Finding]:
    warned = [line for line in read if line.level in {"W", ""} or re.search(r"\bDEPRECATED\b", line.text)]
    return [one for _, one in _known([lines.Line("W", line.text, line.raw) for line in warned], where, options.WARNINGS)]


def _quoted(read: List[lines.Line], where: str) -> Optional[finding.Finding]:
    marked = [line for line in read if line.level == "E" or re.search(_MARKED, line.text, re.IGNORECASE)]
    telling = [line for line in marked if not re.search(_EMPTY, line.text, re.IGNORECASE)]
    chosen = next(iter(telling + marked), None)
    if chosen is None:
        return None
    return finding.found(
        "server-error",
        finding.ERROR,
        where,
        f"the server says: {finding.plain_line(chosen.text)}",
        do="journalctl -u UNIT shows what stood around it".replace("UNIT", where or "UNIT"),
        evidence=chosen.raw,
    )
