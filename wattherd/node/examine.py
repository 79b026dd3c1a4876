"""Looks at the served units of a node: what systemd, /proc and the journal say of each, handed to findings/. Changes nothing.

A unit is looked at when the newest manifest names it, when its name begins with `llama`, or when a llama-server runs in it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from wattherd import machine as machines
from wattherd.node import generations
from wattherd.node.findings import binary, devices, environment, journal, service, systemctl
from wattherd.power import holders
from wattherd.records import dataclass, field
from wattherd.resources import drain, systemd
from wattherd.wire import fields, finding

_UNITS_LIMIT = 100
_JOURNAL_LINES = 6000
#: A server that has run for long has pushed its start out of the newest lines: so long after the start, all that matters was said.
_STARTING_S = 600.0
_SHORT_S, _LONG_S = 20.0, 60.0
_PROGRAM = "llama-server"
_LOG_LINES = 4000
_FILE_LIMIT_BYTES = 256 * 1024


@dataclass(frozen=True)
class Examined:
    """One unit with what was read of it. `configured` is its environment as systemd has it; values stay on the node."""

    unit: service.Service
    found: bool = True
    masked: bool = False
    serves: bool = False
    program: str = ""
    configured: Mapping[str, str] = field(default_factory=dict, repr=False)
    shown: Mapping[str, List[str]] = field(default_factory=dict, repr=False)
    drain: Mapping[str, str] = field(default_factory=dict)


def services(machine: machines.Machine) -> List[Examined]:
    wanted = _wanted(machine)
    by_process = _running(machine)
    names = sorted({*wanted, *_named(machine), *by_process} - {""})[:_UNITS_LIMIT]
    if not names:
        return []
    seen = systemd.look(machine, names)
    done = machine.run(["systemctl", "show", "-p", systemctl.PROPERTIES, "--", *names], timeout_s=_LONG_S)
    shown = systemctl.blocks(done.text)
    more = shown if len(shown) == len(names) else [{} for _ in names]
    examined = [_examined(machine, seen[name], rows, by_process.get(name, []), wanted.get(name)) for name, rows in zip(names, more)]
    # What ran once and is done is as wanted; what merely bears a name like ours and was never started is nobody's fault.
    return [one for one in examined if one.unit.wanted or one.unit.active not in {"inactive", ""}]


def _examined(
    machine: machines.Machine,
    seen: systemd.Seen,
    rows: Mapping[str, List[str]],
    pids: Sequence[int],
    drained_by: Optional[Mapping[str, str]],
) -> Examined:
    """`drained_by` None is a unit that the newest manifest does not want."""
    program, words = systemctl.command(rows)
    # A unit's main process can be a script around the server; a router's children are servers too, and younger.
    pid = seen.pid if seen.pid in pids else min(pids, default=0)
    argv = _argv(machine, pid) or words
    configured: Dict[str, str] = {}
    for value in rows.get("Environment", []):
        configured.update(environment.of_unit(value))
    for path in systemctl.environment_files(rows):
        configured.update(environment.of_file((_small_file(machine, path) or b"").decode("utf-8", "replace")))
    unit = service.Service(
        name=seen.name,
        active=seen.active,
        sub=seen.sub,
        result=seen.result,
        restarts=seen.restarts,
        pid=pid,
        exit_code=seen.exit_code,
        exit_status=seen.exit_status,
        restart_s=systemctl.seconds(rows, "RestartUSec"),
        limit_s=systemctl.seconds(rows, "StartLimitIntervalUSec"),
        burst=systemctl.number(rows, "StartLimitBurst"),
        argv=argv,
        wanted=drained_by is not None and not seen.runs_once,
    )
    serves = bool(pids) or seen.name.startswith("llama@") or program.endswith(f"/{_PROGRAM}")
    return Examined(unit, seen.found, seen.masked, serves, program, configured, rows, drained_by or {})


def _wanted(machine: machines.Machine) -> Dict[str, Mapping[str, str]]:
    """Units that the newest manifest wants to run, each with how the front proxy is told to keep requests from it."""
    latest = generations.latest(machine)
    rows = fields.objects(latest.manifest, "resources") if latest is not None else ()
    specs = [fields.document(row.get("spec", {}), "spec") for row in rows if row.get("type") == "unit"]
    return {fields.text(spec, "name"): _drain(spec) for spec in specs if spec.get("state", "started") == "started"}


def _drain(spec: fields.Document) -> Mapping[str, str]:
    told = fields.document(spec.get("drain", {}), "drain")
    return {key: fields.text(told, key) for key in told}


def _named(machine: machines.Machine) -> List[str]:
    done = machine.run(["systemctl", "list-units", "--all", "--plain", "--no-legend", "--type=service", "llama*"], timeout_s=_SHORT_S)
    return re.findall(r"^\W*(\S+\.service)\s", done.text, re.MULTILINE)


def _running(machine: machines.Machine) -> Dict[str, List[int]]:
    """The llama-servers that run, by the unit that they run in, whatever it is called; under "" those of no unit."""
    found: Dict[str, List[int]] = {}
    for name in machine.names("/proc"):
        if name.isdigit() and _read(machine, f"/proc/{name}/comm").strip() == _PROGRAM.encode():
            unit = holders.service_of(_read(machine, f"/proc/{name}/cgroup").decode("utf-8", "replace"))
            found.setdefault(unit, []).append(int(name))
    return found


def _argv(machine: machines.Machine, pid: int) -> Tuple[str, ...]:
    body = _read(machine, f"/proc/{pid}/cmdline") if pid else b""
    return tuple(word.decode("utf-8", "replace") for word in body.split(b"\0") if word)


# -- one unit after the other


def look(machine: machines.Machine, examined: Sequence[Examined], scene: devices.Scene, deployed: binary.Deployed) -> List[finding.Finding]:
    found: List[finding.Finding] = []
    readers: Dict[str, List[str]] = {place: [] for place in environment.config_places({"HOME": "/root"})}
    machine.run(["journalctl", "--sync"], timeout_s=_SHORT_S)
    for one in examined:
        if not one.found or one.masked:
            words = "it is masked" if one.masked else "its file is gone"
            found.append(finding.found("unit-missing", finding.ERROR, one.unit.name, words, do="invoke deploy writes it anew"))
            continue
        program = _program(machine, one)
        build = _version(machine, program) if one.serves else binary.Build()
        told = journal.parse(_journal(machine, one.unit.name))
        starts = journal.starts(told)
        found += [devices.refined(each, scene) for each in service.judge(one.unit, starts, machine.now_s(), build.words)]
        if one.serves:
            found += _set(machine, one, program, readers)
            found += binary.judge(one.unit, _exe(machine, one.unit.pid), deployed, build)
            found += _held_back(machine, one)
            if one.unit.running and starts:
                log = starts[-1].lines[:_LOG_LINES]
                if len(told) >= _JOURNAL_LINES:
                    log = _first_lines(machine, one)
                found += devices.of_server(scene, one.unit.name, log, _open_paths(machine, one.unit.pid))
    return [*found, *_strays(machine, readers), *_unowned(machine)]


def _held_back(machine: machines.Machine, one: Examined) -> List[finding.Finding]:
    """A deploy whose node program was killed leaves it so, or somebody who drained it by hand; then its clients wait for nothing."""
    if not one.drain or drain.admitted(machine, drain.read(one.unit.name, one.drain)):
        return []
    words = "the front proxy keeps every request from it (it is drained), so its clients wait, and then get 503"
    return [finding.found("held-back", finding.ERROR, one.unit.name, words, do="unless a deploy is at work right now: invoke deploy")]


def _set(machine: machines.Machine, one: Examined, program: str, readers: Dict[str, List[str]]) -> List[finding.Finding]:
    """What sets this server's options beside its unit. Its process's own root shows which files its sandbox hides."""
    known = environment.known_names(_help(machine, program))
    variables = {**one.configured, **environment.of_process(_read(machine, f"/proc/{one.unit.pid}/environ") if one.unit.pid else b"")}
    for place in environment.config_places(variables) if one.unit.pid else ():
        if _exists(machine, f"/proc/{one.unit.pid}/root{place}") and not systemctl.hides(one.shown, place):
            readers.setdefault(place, []).append(one.unit.name)
    found = [*environment.judge(one.unit.name, variables, known or None), *environment.flags(one.unit.name, one.unit.argv)]
    keys = environment.key_file_of(one.unit.argv, variables)
    body = _small_file(machine, keys) if keys else None
    return [*found, *(environment.key_file(one.unit.name, keys, body) if body is not None else [])]


def _strays(machine: machines.Machine, readers: Mapping[str, Sequence[str]]) -> List[finding.Finding]:
    ours = generations.Owned.load(machine).rows
    there = [place for place, units in readers.items() if units or _exists(machine, place)]
    return [environment.stray(place, readers[place]) for place in there if f"file:{place}" not in ours]


def _journal(machine: machines.Machine, name: str, *more: str) -> str:
    words = ["journalctl", "-b", "-u", name, "--no-pager", "--quiet", "-o", "json", f"--output-fields={journal.FIELDS}"]
    return machine.run([*words, "-n", str(_JOURNAL_LINES), *more], timeout_s=_LONG_S).text


def _first_lines(machine: machines.Machine, one: Examined) -> Tuple[str, ...]:
    """What the running process said when it started. systemd tells that instant by the clock that no step of time moves."""
    ago_s = machine.monotonic_s() - systemctl.number(one.shown, "ExecMainStartTimestampMonotonic") / 1e6
    begun_s = machine.now_s() - ago_s
    text = _journal(machine, one.unit.name, "--since", f"@{begun_s - 1:.6f}", "--until", f"@{begun_s + _STARTING_S:.6f}")
    starts = journal.starts(journal.parse(text))
    return starts[-1].lines[:_LOG_LINES] if starts else ()


def _unowned(machine: machines.Machine) -> List[finding.Finding]:
    """Servers that run in no unit of the system: started by hand, or in a container. They hold a card all the same."""
    found: List[finding.Finding] = []
    for pid in _running(machine).get("", [])[:_UNITS_LIMIT]:
        program = _exe(machine, pid) or "its program cannot be seen"
        words = f"a llama-server runs outside any unit ({program}): nobody restarts it, and its log is elsewhere"
        found.append(
            finding.found("server-without-unit", finding.NOTE, f"process {pid}", words, do="serve it from the inventory, or stop it")
        )
    return found


def _program(machine: machines.Machine, one: Examined) -> str:
    """The binary that runs, or would: as the kernel knows it, else as the unit names it."""
    return _exe(machine, one.unit.pid) or one.program


def _exe(machine: machines.Machine, pid: int) -> str:
    return (machine.readlink(f"/proc/{pid}/exe") or "") if pid else ""


def _version(machine: machines.Machine, program: str) -> binary.Build:
    return binary.version(machine.run([program, "--version"], timeout_s=_SHORT_S).words) if _trusted(machine, program) else binary.Build()


def _help(machine: machines.Machine, program: str) -> str:
    return machine.run([program, "--help"], timeout_s=_SHORT_S).words if _trusted(machine, program) else ""


def _trusted(machine: machines.Machine, program: str) -> bool:
    """Only root could have written it, in folders that only root writes: it may be started to ask it for its version."""
    if not program.startswith("/") or program.rpartition("/")[2] != _PROGRAM:
        return False
    return os.path.isfile(machine.path(program)) and _only_root_writes(machine, program)


def library_path(machine: machines.Machine, configured: Mapping[str, str]) -> Mapping[str, str]:
    """A unit's LD_LIBRARY_PATH for root's own programs: without the folders in which somebody else could put a library."""
    folders = configured.get("LD_LIBRARY_PATH", "").split(":")
    safe = [folder for folder in folders if folder.startswith("/") and _only_root_writes(machine, folder)]
    return {"LD_LIBRARY_PATH": ":".join(safe)} if safe else {}


def _only_root_writes(machine: machines.Machine, path: str) -> bool:
    """It and everything above it; what is not there yet is judged by where it would be."""
    real, root = os.path.realpath(machine.path(path)), os.path.realpath(machine.root or "/")
    while real not in {root, "/"}:
        with contextlib.suppress(FileNotFoundError):
            seen = os.lstat(real)
            if seen.st_uid not in {0, os.geteuid()} or seen.st_mode & 0o022:
                return False
        real = os.path.dirname(real)
    return True


def _open_paths(machine: machines.Machine, pid: int) -> Optional[List[str]]:
    """What the process holds open; None where it cannot be seen."""
    names: List[str] = []
    with contextlib.suppress(OSError):
        names = machine.names(f"/proc/{pid}/fd") if pid else []
    paths = [machine.readlink(f"/proc/{pid}/fd/{name}") for name in names]
    return [path for path in paths if path] or None


def _read(machine: machines.Machine, path: str) -> bytes:
    """Without root's rights, or when the process has just ended, there is nothing to see: that is no fault of the node."""
    with contextlib.suppress(OSError):
        return machine.read(path) or b""
    return b""


def _small_file(machine: machines.Machine, path: str) -> Optional[bytes]:
    """A file that a process names: never a device or a pipe, on which reading would not end, and nothing big."""
    with contextlib.suppress(OSError):
        seen = os.stat(machine.path(path))
        if stat.S_ISREG(seen.st_mode) and seen.st_size <= _FILE_LIMIT_BYTES:
            return machine.read(path)
    return None


def _exists(machine: machines.Machine, path: str) -> bool:
    with contextlib.suppress(OSError):
        return machine.exists(path)
    return False
