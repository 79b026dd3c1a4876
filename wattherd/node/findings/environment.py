"""What decides a server's options beside its unit: LLAMA_* variables, flags that open the machine, config.ini files. Pure.

Values stay here: a finding names a variable, never what is in it.
"""

from __future__ import annotations

import re
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from wattherd.resources.flagging import trial
from wattherd.wire import finding

#: They give a client a shell, files or other servers (upstream: out of scope for security fixes).
_OPENING = re.compile(r"^LLAMA_ARG_(?:TOOLS|AGENT|MCP_\w+|UI_MCP_\w+|WEBUI_MCP_\w+)$")
_OPENING_FLAGS = re.compile(r"^--(?:tools|agent|mcp-[\w-]+|ui-mcp-[\w-]+|webui-mcp-[\w-]+)(?:=|$)")
_OFF = frozenset(("0", "false", "off", "disabled"))
_KEYS = frozenset(("LLAMA_API_KEY", "LLAMA_ARG_API_KEY", "LLAMA_ARG_API_KEY_FILE"))
_NAMES_LIMIT = 2000


def of_process(body: bytes) -> Dict[str, str]:
    """/proc/PID/environ."""
    pairs = [pair.decode("utf-8", "replace").partition("=") for pair in body.split(b"\0")[:_NAMES_LIMIT] if b"=" in pair]
    return {name: value for name, _, value in pairs}


def of_file(text: str) -> Dict[str, str]:
    """A systemd EnvironmentFile. Quotes around a value are taken off, so that KEY="" is empty too."""
    found: Dict[str, str] = {}
    for line in text.splitlines()[:_NAMES_LIMIT]:
        name, mark, value = line.strip().partition("=")
        if mark and re.match(r"[A-Za-z_]\w*$", name):
            found[name] = value.strip().strip("\"'")
    return found


def of_unit(shown: str) -> Dict[str, str]:
    """The Environment property: words in the shell's quoting, as systemctl prints them."""
    words = re.findall(r"\"((?:[^\"\\]|\\.)*)\"|(\$?'(?:[^'\\]|\\.)*')|(\S+)", shown)
    pairs = [(double or single.strip("$'") or bare).partition("=") for double, single, bare in words[:_NAMES_LIMIT]]
    return {name: value.strip("\"'") for name, mark, value in pairs if mark}


def known_names(help_text: str) -> FrozenSet[str]:
    """The variables that this very binary reads, by its own --help. Switches also listen to their negative form."""
    names = set(re.findall(r"\(env: (LLAMA_\w+)\)", help_text))
    return frozenset(names | {name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_", 1) for name in names})


def judge(where: str, variables: Mapping[str, str], known: Optional[FrozenSet[str]]) -> List[finding.Finding]:
    """`known` None: the binary's help could not be read, so no name is called unknown."""
    ours = {name: value for name, value in sorted(variables.items()) if name.startswith("LLAMA_")}
    opening = [name for name, value in ours.items() if _OPENING.match(name) and value.strip().lower() not in _OFF]
    keys = [name for name, value in ours.items() if name in _KEYS and not value.strip()]
    empty = [name for name, value in ours.items() if not value.strip() and name not in keys and name not in opening]
    unknown = [name for name in ours if name.startswith("LLAMA_ARG_") and known and name not in known and name not in opening]
    found: List[finding.Finding] = []
    if opening:
        found.append(
            _about(
                "env-opens-machine",
                finding.ERROR,
                where,
                opening,
                "gives clients a shell, files or other servers",
                "take it out and restart",
            )
        )
    if keys:
        found.append(
            _about(
                "key-empty",
                finding.ERROR,
                where,
                keys,
                "is empty: the server then asks nobody for a key",
                "give the key (serve: api_key in the inventory), or take the variable out",
            )
        )
    if empty:
        do = "take it out where it is set (systemctl show -p Environment,EnvironmentFiles UNIT), or give it a value"
        found.append(
            _about("env-empty", finding.ERROR, where, empty, "is empty: a server that knows it does not start", do.replace("UNIT", where))
        )
    if unknown:
        do = "the server ignores it without a word: use the typed option in the inventory, or llama-server --help for the name"
        found.append(_about("env-unknown", finding.WARNING, where, unknown, "is no variable that this binary reads", do))
    return found


def _about(code: str, severity: str, where: str, names: Sequence[str], words: str, do: str) -> finding.Finding:
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return finding.found(code, severity, where, f"{shown} {words}", do=do, evidence=f"{names[0]}=" if "empty" in code else names[0])


def flags(where: str, argv: Sequence[str]) -> List[finding.Finding]:
    """What the command line opens, shows to every user of the node, or leaves half said."""
    found: List[finding.Finding] = []
    opening = [word.partition("=")[0] for word in argv[1:] if _OPENING_FLAGS.match(word)]
    if opening:
        words = f"{', '.join(opening)} gives clients a shell, files or other servers"
        found.append(finding.found("flag-opens-machine", finding.ERROR, where, words, do="take it out and restart"))
    names = [word.partition("=")[0] for word in argv[1:]]
    if "--api-key" in names:
        words = "the key stands in the command line, where every user of the node can read it"
        found.append(
            finding.found(
                "key-in-argv", finding.ERROR, where, words, do="serve: api_key in the inventory, then invoke deploy; change the key"
            )
        )
    if ("--ssl-key-file" in names) != ("--ssl-cert-file" in names):
        words = "only one of the two TLS files is given: the server speaks plain HTTP without a word"
        found.append(finding.found("tls-half", finding.ERROR, where, words, do="give both files, or neither"))
    return found


def key_file_of(argv: Sequence[str], variables: Mapping[str, str]) -> str:
    """The file that the server takes its keys from; empty when there is none."""
    for word, value in zip(argv, [*argv[1:], ""]):
        name, mark, given = word.partition("=")
        if name == "--api-key-file":
            return given if mark else value
    return variables.get("LLAMA_ARG_API_KEY_FILE", "")


def key_file(where: str, path: str, body: bytes) -> List[finding.Finding]:
    """Lines are taken as they are, except blank ones and comments: a file of only those asks nobody for a key."""
    lines = [line for line in body.decode("utf-8", "replace").splitlines() if line.strip() and not line.startswith("#")]
    do = "give the key (serve: api_key in the inventory), then invoke deploy"
    if not lines:
        return [finding.found("key-empty", finding.ERROR, where, f"{path} holds no key: the server then asks nobody for one", do=do)]
    if any(line != line.strip() for line in lines):
        words = f"a key in {path} begins or ends with a blank, which is taken as part of it: no client can match it"
        return [finding.found("key-file", finding.WARNING, where, words, do=do)]
    return []


def config_places(variables: Mapping[str, str]) -> Tuple[str, ...]:
    """The files that a llama.cpp program with this environment reads at every start."""
    home = variables.get("HOME", "")
    base = variables.get("XDG_CONFIG_HOME", "") or (f"{home}/.config" if home else "")
    places = [trial.STRAY, f"{base}/llama.cpp/config.ini" if base.startswith("/") else ""]
    return tuple(dict.fromkeys(place for place in places if place))


def stray(path: str, readers: Iterable[str]) -> finding.Finding:
    """A configuration file that no deploy wrote. `readers` are the units that see it; without one it still steers tools run by hand."""
    units = sorted(readers)
    if units:
        words = f"{', '.join(units)} reads options from this file at every start, beside those that were deployed"
        return finding.found("stray-config", finding.WARNING, path, words, do=f"put what is needed into the inventory, then remove {path}")
    words = "no server of this node sees this file, but every llama.cpp tool that is run by hand reads it silently"
    return finding.found("stray-config", finding.NOTE, path, words, do=f"remove {path} unless somebody wants it")
