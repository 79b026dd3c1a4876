"""nvpmodel.conf: the power modes that this very board has, by name. The numbers differ from board to board, so nobody may rely on one.

Reads also what `nvpmodel -p --verbose` prints. Pure text, and two small files; the tool itself is in nvpmodel.py.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.power.jetson import tools
from wattherd.records import dataclass, field

CONF = "/etc/nvpmodel.conf"
#: The name that an inventory gives to "whatever is fastest on this board".
FASTEST = "fastest"
_TAG = re.compile(r"<\s*(POWER_MODEL|PM_CONFIG|FAN_CONFIG|PARAM)\b([^<>]*)>|(POWER_MODEL):\s*(ID=.*)")
_PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S+)")
_LINE = re.compile(r"(\w+)\s+(\w+)\s+(\S+)\s*\Z")
_WATTS = re.compile(r"(?<![A-Z0-9])(\d{1,3})W(?![A-Z])")


@dataclass(frozen=True)
class Mode:
    """One power mode. `values` are its settings as the file has them: (parameter, argument) -> value: (GPU, MAX_FREQ) -> 918000000."""

    number: int
    name: str
    values: Mapping[Tuple[str, str], str] = field(default_factory=dict)

    @property
    def masks(self) -> Mapping[Tuple[str, str], str]:
        """What it gates of the GPU: a change of these is what a board cannot do while the GPU is in use."""
        return {key: value for key, value in self.values.items() if key[1].endswith("_PG_MASK")}


@dataclass(frozen=True)
class Conf:
    """`default` is the mode of a fresh board, by number; `paths` where a setting lies: (parameter, argument) -> file."""

    modes: Tuple[Mode, ...] = ()
    default: Optional[int] = None
    fan: str = ""
    paths: Mapping[Tuple[str, str], str] = field(default_factory=dict)

    @property
    def numbers(self) -> Mapping[str, int]:
        """Name -> number, in the file's order."""
        return {mode.name: mode.number for mode in self.modes}

    def named(self, name: str) -> Optional[Mode]:
        """By its name as written, or in other capitals where that leaves no doubt; `fastest` is worked out."""
        if name == FASTEST:
            return fastest(self.modes)
        exact = [mode for mode in self.modes if mode.name == name]
        close = exact or [mode for mode in self.modes if mode.name.lower() == name.lower()]
        return close[0] if len(close) == 1 else None

    def numbered(self, number: Optional[int]) -> Optional[Mode]:
        return next((mode for mode in self.modes if mode.number == number), None)

    def regates(self, before: Optional[Mode], after: Mode) -> bool:
        """Whether the GPU is gated otherwise in the one than in the other: most boards do that only while they boot."""
        return before is not None and bool(before.masks or after.masks) and before.masks != after.masks


def read(machine: machines.Machine) -> Conf:
    """Of this board; empty where it has no such file."""
    return parse(tools.text(machine, CONF))


def parse(text: str) -> Conf:
    """Every form that is in the field: the file's tags in any spacing, and the listing of `nvpmodel -p --verbose`."""
    modes: List[Mode] = []
    default: Optional[int] = None
    fan = ""
    paths: Dict[Tuple[str, str], str] = {}
    values: Optional[Dict[Tuple[str, str], str]] = None
    parameter = ""
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("#"):
            continue
        tag = _TAG.search(bare)
        if tag is None:
            _keep(bare, parameter, paths, values)
            continue
        kind, pairs = tag.group(1) or tag.group(3), _pairs(tag.group(2) or tag.group(4) or "")
        parameter, values = "", None
        if kind == "POWER_MODEL" and pairs.get("ID", "").isdigit() and pairs.get("NAME"):
            values = {}
            if int(pairs["ID"]) not in {mode.number for mode in modes}:
                modes.append(Mode(int(pairs["ID"]), pairs["NAME"], values))
        elif kind == "PM_CONFIG" and pairs.get("DEFAULT", "").isdigit():
            default = int(pairs["DEFAULT"])
        elif kind == "FAN_CONFIG":
            fan = pairs.get("DEFAULT", "")
        elif kind == "PARAM":
            parameter = pairs.get("NAME", "")
    return Conf(tuple(modes), default, fan, paths)


def find(conf: Conf, name: str) -> Mode:
    """The mode of that name; `mode-unknown` names the nearest, and all that the board has."""
    found = conf.named(name)
    if found is not None:
        return found
    import difflib  # no session pays for a slip that it does not make

    names = [mode.name for mode in conf.modes]
    near = difflib.get_close_matches(name.upper(), [one.upper() for one in names], n=1, cutoff=0.5)
    nearest = next((one for one in names if near and one.upper() == near[0]), "")
    raise errors.Problem(
        "mode-unknown",
        f"this board has no power mode '{name}'" + (f"; did you mean {nearest}?" if nearest else ""),
        hint=f"its nvpmodel.conf has: {', '.join(names)}",
    )


def fastest(modes: Tuple[Mode, ...]) -> Optional[Mode]:
    """The one without caps (MAXN, MAXN_SUPER), whatever its number; else the one with the most watts, then cores, in its name.

    Mode 0 is no answer: on an Orin Nano Super that is 15W, and MAXN_SUPER is 2.
    """
    return max(modes, key=lambda mode: _rank(mode.name), default=None)


def _rank(name: str) -> Tuple[int, int, int, int]:
    upper = name.upper()
    free = 2 if upper.startswith("MAXN_SUPER") else 1 if upper == "MAXN" or upper.startswith("MAXN_") else 0
    watts = [int(one) for one in _WATTS.findall(upper.replace("_", " "))]
    cores = re.findall(r"(\d+)CORE", upper)
    return free, max(watts, default=0), 99 if upper.endswith("_ALL") else max((int(one) for one in cores), default=0), -len(name)


def _pairs(text: str) -> Dict[str, str]:
    return {key: value.strip('"') for key, value in _PAIR.findall(text)}


def _keep(line: str, parameter: str, paths: Dict[Tuple[str, str], str], values: Optional[Dict[Tuple[str, str], str]]) -> None:
    """A line between two tags: of a parameter `ARGUMENT path`, of a mode `PARAMETER ARGUMENT value`."""
    if values is not None:
        setting = _LINE.match(line)
        if setting is not None:
            values[setting.group(1), setting.group(2)] = setting.group(3)
    elif parameter:
        name, _, path = line.partition(" ")
        if path.strip().startswith("/"):
            paths[parameter, name] = path.strip()
