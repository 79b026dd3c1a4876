"""What a served instance was started with, from the files that its unit reads: its model, and the options for a llama-bench alike."""

from __future__ import annotations

import configparser
import re
import shlex
from typing import Dict, List, Mapping, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import place

_LINE = re.compile(r'(?m)^WATTHERD_FLAGS="((?:[^"\\]|\\.)*)"$')
#: As an environment file escapes in double quotes (systemd.exec(5)).
_ESCAPED = re.compile(r'\\(["\\`$])')
#: The server's option, under the names that it has had, and llama-bench's for the same.
_ALIKE: Mapping[str, str] = {
    "--cache-type-k": "-ctk",
    "--cache-type-v": "-ctv",
    "--n-gpu-layers": "-ngl",
    "--gpu-layers": "-ngl",
    "--n-cpu-moe": "-ncmoe",
    "--threads": "-t",
    "--batch-size": "-b",
    "--ubatch-size": "-ub",
}
_FLASH = ("--flash-attn", "-fa")
#: More layers than any model has, and which every build of llama-bench takes for all of them.
_ALL_LAYERS = "999"
_VALUE = re.compile(r"[\w.-]{1,32}\Z", re.ASCII)


@dataclass(frozen=True)
class Started:
    """`model` is a file of the node; `preset` is its name where the instance is a router."""

    model: str
    options: Tuple[str, ...] = ()
    preset: str = ""


def read(machine: machines.Machine, flags_file: str, preset: str = "") -> Optional[Started]:
    """None where the instance is not deployed here, or loads no model. Of a router the named model, or the first that it starts."""
    found = _LINE.search(machine.text(flags_file))
    if found is None:
        return None
    words = _pairs(shlex.split(_ESCAPED.sub(r"\1", found.group(1))))
    presets = words.get("--models-preset", "")
    name = ""
    if presets:
        sections = _sections(machine.text(place.plain_path("power-tune", presets)))
        if not sections or (preset and preset not in sections):
            return None
        name = preset or next((one for one, row in sections.items() if row.get("--load-on-startup") == "true"), next(iter(sections)))
        words = sections[name]
    model = words.get("--model", "")
    return Started(place.plain_path("power-tune", model), _alike(words), name) if model else None


def _pairs(words: List[str]) -> Dict[str, str]:
    """Option -> the word behind it; empty for a switch."""
    found: Dict[str, str] = {}
    for at, word in enumerate(words):
        if word.startswith("--") or word in _FLASH:
            after = words[at + 1] if at + 1 < len(words) else ""
            found[word] = "" if after.startswith("--") else after
    return found


def _sections(text: str) -> Dict[str, Dict[str, str]]:
    parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#", ";"), strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        words = f"a router's presets cannot be read: {str(error).splitlines()[0][:120]}"
        raise errors.Problem("tune-load", words, hint="invoke deploy writes them") from error
    return {name: {f"--{key}": value for key, value in parser.items(name)} for name in parser.sections()}


def _alike(words: Mapping[str, str]) -> Tuple[str, ...]:
    found: List[str] = []
    for name, value in words.items():
        if name in _ALIKE and _VALUE.match(value) and value != "auto":
            found += [_ALIKE[name], _ALL_LAYERS if value in {"all", "-1"} and _ALIKE[name] == "-ngl" else value]
        elif name in _FLASH and value in {"on", "off"}:
            found += ["-fa", "1" if value == "on" else "0"]
        elif name == "--cpu-moe":
            found += ["-ncmoe", _ALL_LAYERS]
    return tuple(found)
