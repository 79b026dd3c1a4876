"""The texts that a server is started from: an environment file whose WATTHERD_FLAGS systemd splits into words, and a router's presets.

The first lines of an environment file carry two digests: of what was asked for, and of what was written, so that a look at the files
tells both without asking the binary again. Knows systemd's and llama.cpp's rules of quoting, and no option.
"""

from __future__ import annotations

import hashlib
import re
from typing import Mapping, Optional, Sequence, Tuple

from wattherd import errors
from wattherd.resources.flagging import manual
from wattherd.resources.flagging.renames import Words

VARIABLE = "WATTHERD_FLAGS"
_HEAD = re.compile(r"# wattherd asked ([0-9a-f]{64}) wrote ([0-9a-f]{64})\Z")
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,+@%-]+\Z")
_SECTION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?\Z")
#: Where a section's model can come from, and the only one of these that a section of ours has.
_SOURCES = ("--model", "--model-url", "--hf-repo", "--docker-repo")
_MODEL = "--model"
#: Keys of a preset that are no options of the program.
PRESET_ONLY = frozenset(("load-on-startup", "stop-timeout"))


def environment_text(title: str, asked: str, words: Sequence[Words], environment: Mapping[str, str], preset: str) -> str:
    """The environment file, head and body."""
    line = " ".join(quoted(word) for option in words for word in option)
    pairs = {VARIABLE: line, **{name: environment[name] for name in sorted(environment)}}
    body = "".join(f"{name}={_assigned(value)}\n" for name, value in pairs.items())
    head = f"# {title}; a change here is undone by the next deploy\n# wattherd asked {asked} wrote {written(body, preset)}\n"
    return head + body


def written(body: str, preset: str) -> str:
    return hashlib.sha256(f"{body}\0{preset}".encode()).hexdigest()


def read(text: str, preset: str) -> Tuple[str, bool]:
    """(the digest of what was asked for, whether both files are as they were written then); ("", False) for a foreign file."""
    lines = text.split("\n", 2)
    head = _HEAD.match(lines[1]) if len(lines) == 3 else None
    return (head.group(1), head.group(2) == written(lines[2], preset)) if head else ("", False)


def quoted(word: str) -> str:
    """One word for systemd's splitting of a variable: there a backslash takes the meaning from whatever follows it."""
    if _PLAIN.match(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _assigned(value: str) -> str:
    """One value of an environment file, where a backslash in double quotes escapes these four alone (systemd.exec(5))."""
    return '"' + re.sub(r'(["\\`$])', r"\\\1", value) + '"'


def preset_text(title: str, sections: Mapping[str, Sequence[Words]], known: Optional[manual.Manual]) -> str:
    """The router's INI file: a section for each model, keys are long options without dashes."""
    lines = [f"# {title}; a change here is undone by the next deploy"]
    for name in sorted(sections):
        lines += ["", f"[{name}]", *(_pair(name, words, known) for words in sections[name])]
    return "\n".join(lines) + "\n"


def _pair(section: str, words: Words, known: Optional[manual.Manual]) -> str:
    """A switch that was turned off is its positive name with `false`: both kinds of build read that."""
    entry = known.find(words[0]) if known is not None else None
    name, value = words[0].lstrip("-"), words[1] if len(words) > 1 else "true"
    if len(words) == 1 and name.startswith("no-") and entry is not None and f"--{name[3:]}" in entry.names:
        name, value = name[3:], "false"
    if len(words) > 2 or not value or value != value.strip() or re.search(r"[;#]", value) or not value.isprintable():
        raise errors.Problem(
            "flag-value",
            f"section [{section}]: {' '.join(words)} cannot be written into a preset file",
            hint="there ';' and '#' begin a comment, nothing is quoted, and an option has one value",
        )
    return f"{name} = {value}"


def lint(label: str, sections: Mapping[str, Sequence[Words]]) -> None:
    """What llama-server's router takes without a word and then serves wrongly. `flag-value` names the section."""
    called = dict.fromkeys(sections, "its name")
    for name, options in sections.items():
        if not _SECTION.match(name) or name == "default":
            raise _wrong(
                label, name, "its name is no plain slug of small letters, digits and '-'", "a '/' or ':' makes it a repository to fetch"
            )
        found = [words for words in options if words[0] in _SOURCES]
        if len(found) != 1 or found[0][0] != _MODEL or len(found[0]) != 2:
            raise _wrong(
                label, name, f"it has {len(found)} sources of a model, not one --model", "without one its process is another router"
            )
        for alias in (alias for words in options if words[0] == "--alias" for alias in words[1].split(",")):
            if called.setdefault(alias, name) != name:
                raise _wrong(
                    label, name, f"its alias '{alias}' is taken by another section", "give each model a name and an alias of its own"
                )


def _wrong(label: str, section: str, reason: str, hint: str) -> errors.Problem:
    return errors.Problem("flag-value", f"{label}: section [{section}] of the router: {reason}", hint=hint)
