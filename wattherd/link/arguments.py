"""The ssh options that an inventory may carry (ansible_ssh_common_args), sorted into what we ask ssh about and what is passed over.

Owns which options are understood; their meaning stays ssh's own, which reads them through `ssh -G`. An option that would change
what ssh does (a forwarding, a second host) is refused rather than ignored.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wattherd import errors
from wattherd.link import noise

_WITH_VALUE = "oJipl"
_BARE = "46"
_IDLE = "aAxXYCTtqvknN"  # talk less, no terminal, compression …: nothing that concerns the way to a host
_SPREADING = frozenset({"userknownhostsfile", "globalknownhostsfile", "identitiesonly", "identityagent", "addressfamily", "connecttimeout"})


@dataclass(frozen=True)
class Said:
    """`words` go to ssh -G for the host, `inherited` for each of its jump hosts, `identities` are the keys that both may use."""

    words: tuple[str, ...]
    inherited: tuple[str, ...]
    identities: tuple[Path, ...]
    config: str


def read(ssh_args: tuple[str, ...], name: str) -> Said:
    words: list[str] = []
    inherited: list[str] = []
    identities: list[Path] = []
    config = ""
    for flag, value in _pairs(ssh_args, name):
        if flag == "-F":
            config = os.path.expanduser(value)  # noqa: PTH111 - it stays a word of a command line
            continue
        words += [flag, value] if value else [flag]
        option, _, rest = value.strip().replace("=", " ", 1).partition(" ")
        if flag == "-i" or (flag == "-o" and option.lower() == "identityfile"):
            identities.append(Path(value if flag == "-i" else rest.strip().strip('"')).expanduser())
        if flag in {"-4", "-6"} or (flag == "-o" and option.lower() in _SPREADING):
            inherited += [flag, value] if value else [flag]
    return Said(tuple(words), tuple(inherited), tuple(path for path in identities if path.is_file()), config)


def _pairs(ssh_args: tuple[str, ...], name: str) -> Iterator[tuple[str, str]]:
    """Each understood option with its value, the idle ones dropped. `-p22`, `-p 22` and `-qvp22` are all one form."""
    rest = iter(ssh_args)
    for word in rest:
        if not word.startswith("-") or word in {"-", "--"}:
            raise _refused(word, name)
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in _WITH_VALUE or letter == "F":
                value = letters.strip() or next(rest, "")
                if not value or not value.isprintable():
                    raise _refused(word, name)
                yield f"-{letter}", value
                break
            if letter in _BARE:
                yield f"-{letter}", ""
            elif letter not in _IDLE:
                raise _refused(word, name)


def _refused(word: str, name: str) -> errors.Problem:
    return errors.Problem(
        "ssh-config",
        f"{name}: the ssh option {noise.plain(word)!r} is not understood in an inventory",
        hint="use -o, -J, -i, -F, -p or -l in ansible_ssh_common_args; put anything else into ~/.ssh/config",
    )
