"""Options in today's spelling, and an operator's raw words, in the spelling of one binary.

Decided by that binary's own help. What it cannot say is refused with the nearest name or the values that it takes. Pure.
"""

from __future__ import annotations

import difflib
import re
from typing import List, Optional, Sequence, Tuple

from wattherd import errors
from wattherd.records import dataclass
from wattherd.resources.flagging import manual, policy, renames
from wattherd.resources.flagging.renames import Words

_REPEATABLE = frozenset(("--spec-type",))
#: Their help lists every value; a wrong one is taken as something else without a word (any text is a template), or was born later.
_NAMED_IN_FULL = frozenset(("--spec-type", "--chat-template"))


@dataclass
class _Option:
    """On its way: `ours` came from a typed key, else from the operator's raw words. `words` empty: it needs no saying."""

    given: Words
    ours: bool
    words: Tuple[Words, ...] = ()
    done: bool = False

    def becomes(self, *words: Words) -> None:
        self.words, self.done = words, True


def translate(label: str, ours: Sequence[Words], extra: Sequence[str], known: manual.Manual) -> Tuple[Words, ...]:
    """Everything in order, ours first. `flag-unknown`, `flag-value` or `flag-refused` names the first thing that cannot be."""
    for words in ours:
        policy.check_words(label, words)
    raw = group(label, extra, known)
    for words in raw:
        policy.check_extra(label, words, known.find(words[0]))
    options = [_Option(words, ours=True) for words in ours] + [_Option(words, ours=False) for words in raw]
    for one in options:
        _respell(one, known)
    _join(options, known)
    for one in options:
        if not one.done and not _needless(one, known):
            raise _inexpressible(label, one, known)
    _refuse_doubles(label, options, known)
    said: List[Words] = []
    for one in options:
        said += [words for words in one.words if words not in said]
    return tuple(said)


# -- the operator's raw words


def group(label: str, extra: Sequence[str], known: manual.Manual) -> List[Words]:
    """Raw words as options: `--x y`, `--x=y`, and `--x y` written as one word. How many values follow a name, the binary's help says."""
    policy.check_words(label, extra)
    queue = list(extra)
    found: List[Words] = []
    while queue:
        name, attached = _split(queue.pop(0), known)
        if not manual.is_option(name):
            before = f"{found[-1][0]} takes {_taken(found[-1][0], known)}" if found else "no option stands before it"
            raise errors.Problem("flag-value", f"{label}: nothing takes the word '{name[:80]}': {before}", hint="look at extra_flags")
        name = manual.plain(name)
        count = _count(name, attached or queue[:1], known)
        if count is None:
            raise _unknown(label, name, known)
        values = list(attached)
        while len(values) < count and queue and not _names_option(queue[0], known):
            values.append(queue.pop(0))
        found.append((name, *values))
    return found


def _split(word: str, known: manual.Manual) -> Tuple[str, List[str]]:
    if manual.is_option(word) and known.find(word) is None:
        parted = re.match(r"(-{1,2}[A-Za-z][A-Za-z0-9_.-]*)(?:=|\s+)(.*)\Z", word)
        if parted:
            return parted.group(1), [parted.group(2)]
    return word, []


def _count(name: str, following: Sequence[str], known: manual.Manual) -> Optional[int]:
    """A bare option of an older binary still takes the value that a newer one would want, since the two are translated."""
    count = renames.arity(name, known)
    if count == 0 and following and any(turn.new == renames.newest((name, following[0])) for turn in renames.TURNS):
        return 1
    return count


def _names_option(word: str, known: manual.Manual) -> bool:
    """A value may begin with a dash, unless it is the name of an option: then the one before it has no value."""
    return manual.is_option(word) and renames.arity(_split(word, known)[0], known) is not None


# -- spelling


def _respell(one: _Option, known: manual.Manual) -> None:
    """As given, under another name, or as the options that an older binary has for it."""
    first = renames.newest(one.given)
    for name in (manual.plain(one.given[0]), *renames.names(one.given[0])):
        if _expressible((name, *one.given[1:]), known):
            return one.becomes((name, *one.given[1:]))
    for turn in renames.TURNS:
        old = [_spelled(words, known) for words in turn.old] if turn.new == first else [None]
        if None not in old:
            return one.becomes(*(words for spelled in old for words in spelled or ()))
    return None


def _spelled(words: Words, known: manual.Manual) -> Optional[Tuple[Words, ...]]:
    """The option under a name that the binary knows; nothing where it needs no saying; None when it cannot be said."""
    for name in renames.names(words[0]):
        if _expressible((name, *words[1:]), known):
            return ((name, *words[1:]),)
    return () if _is_default(words, known) else None


def _join(options: Sequence[_Option], known: manual.Manual) -> None:
    """Options of older builds that together are one option of today."""
    for turn in sorted(renames.TURNS, key=lambda turn: -len(turn.old)):
        left = {renames.newest(one.given): one for one in options if not one.done}
        parts = [left[words] for words in turn.old if words in left]
        new = _spelled(turn.new, known)
        if parts and len(parts) == len(turn.old) and new:
            parts[0].becomes(*new)
            for one in parts[1:]:
                one.becomes()


def _needless(one: _Option, known: manual.Manual) -> bool:
    """What the binary does anyway; or what we set of our own accord, and a binary without it has nothing to switch off or bound."""
    known_at_all = any(known.find(name) for name in renames.names(one.given[0]))
    negligible = one.ours and not known_at_all and renames.newest(one.given)[0] in renames.NEGLIGIBLE
    return negligible or _is_default(one.given, known)


def _is_default(words: Words, known: manual.Manual) -> bool:
    """A switch of which the binary knows only the opposite: so this is what it does when nothing is said."""
    same = renames.names(words[0])
    if len(words) > 1 or any(known.find(name) for name in same):
        return False
    opposites = {"--" + name[5:] if name.startswith("--no-") else "--no-" + name[2:] for name in same if name.startswith("--")}
    entries = [known.find(called) for opposite in opposites for called in renames.names(opposite)]
    return any(entry is not None and entry.arity == 0 for entry in entries)


def _expressible(words: Words, known: manual.Manual) -> bool:
    entry = known.find(words[0])
    return entry is not None and entry.arity == len(words) - 1 and all(entry.takes(value) for value in words[1:]) and _named(words, entry)


def _named(words: Words, entry: manual.Entry) -> bool:
    """Values that the binary would swallow, or know by another word: kinds of speculation, and names of built-in chat templates."""
    if not entry.values or (words[0] == "--chat-template" and "{" in words[1]):
        return True
    return words[0] not in _NAMED_IN_FULL or all(value in entry.values for value in words[1].split(","))


# -- what cannot be


def _inexpressible(label: str, one: _Option, known: manual.Manual) -> errors.Problem:
    name = one.given[0]
    key = policy.key_of(name) if one.ours else ""
    said = f"{label}: {' '.join(one.given)}" + (f" (serve: {key})" if key else "")
    entry = next((found for found in map(known.find, renames.names(name)) if found), None)
    if entry is None:
        return _unknown(label, name, known, key)
    if entry.arity and len(one.given) == 1:
        return errors.Problem("flag-value", f"{said} lacks its value", hint=f"{name} takes {manual.shown(entry)}", flag=name)
    hint = f"{name} takes {manual.shown(entry)}" if entry.arity else f"{name} takes no value"
    return errors.Problem("flag-value", f"{said} is no value that this llama-server takes", hint=hint, flag=name)


def _unknown(label: str, name: str, known: manual.Manual, key: str = "") -> errors.Problem:
    removal = next((words for words in map(known.removal, renames.names(name)) if words), "")
    where = f" (serve: {key})" if key else ""
    if removal:
        return errors.Problem(
            "flag-unknown", f"{label}: {name}{where}: this llama-server says: {removal}", hint="use what it names", flag=name
        )
    hint = f"did you mean {near}?" if (near := nearest(name, known)) else "llama-server --help on the node lists what it knows"
    if key:
        hint = f"leave {key}: out on this host, or deploy a newer llama.cpp"
    hint = policy.remedy(name) or hint
    return errors.Problem("flag-unknown", f"{label}: this llama-server has no option {name}{where}", hint=hint, flag=name)


def nearest(name: str, known: manual.Manual) -> str:
    found = difflib.get_close_matches(manual.plain(name), known.names, n=1, cutoff=0.6)
    return found[0] if found else ""


def _taken(name: str, known: manual.Manual) -> str:
    entry = known.find(name)
    return manual.shown(entry) if entry is not None else "no more"


def _refuse_doubles(label: str, options: Sequence[_Option], known: manual.Manual) -> None:
    """llama-server only warns and takes the last one; which of the two was meant, nobody can know."""
    seen: List[Tuple[Tuple[str, ...], _Option, Words]] = []
    for one in options:
        for words in one.words:
            entry = known.find(words[0])
            names = entry.names if entry is not None else (words[0],)
            before = next((row for row in seen if row[0] == names and row[1] is not one), None)
            if before is not None and (before[2] != words or before[1].ours != one.ours) and words[0] not in _REPEATABLE:
                raise _double(label, before[1], one)
            seen.append((names, one, words))


def _double(label: str, first: _Option, second: _Option) -> errors.Problem:
    key = policy.key_of(first.given[0]) if first.ours else ""
    by = f"by {key}: as {' '.join(first.given)}" if key else f"as {' '.join(first.given)}"
    hint = f"keep {key}: and take it out of extra_flags" if key else "keep one of the two (a list is one option with commas)"
    return errors.Problem("flag-refused", f"{label}: {' '.join(second.given)} is set already, {by}", hint=hint, flag=second.given[0])
