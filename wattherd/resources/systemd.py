"""What systemd says of units: one `systemctl show` for many, and the journal's words for a start that failed.

Reads only. Knows systemd's words; which state is wanted belongs to unit.py, the way there to activation.py.
"""

from __future__ import annotations

import re
from typing import AbstractSet, Dict, List, Mapping, Optional, Sequence

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass

UNITS = "/etc/systemd/system"
INPUTS = "WATTHERD_INPUTS"
#: In the place of a digest of inputs: the process has a file of ours that is another one by now.
REPLACED = "a file that is gone"
#: A model's blob, or a program or library of a release, that was mended or replaced while a process has the old one.
_GONE = r"(?m)(?:/var/lib/wattherd/store/[0-9a-f]{64}|/opt/wattherd/releases/\S+) \(deleted\)$"
#: Load states in which systemd refuses the unit's file.
REJECTED = ("bad-setting", "error")
_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,MainPID,NeedDaemonReload,NRestarts,Type,Result,FragmentPath,"
    "InvocationID,Job,ControlGroup,ExecMainCode,ExecMainStatus,RemainAfterExit"
)
_JOURNAL_LIMIT_S = 20.0
LINE_LIMIT = 400
_SIGILL = 4
#: ExecMainCode, as in siginfo: how the main process ended.
_EXITED, _KILLED, _DUMPED = "1", "2", "3"
#: The first line that a program itself marks as an error; llama-server's form is "time E text".
_MARKED = r"(?:^|\s)E\s|^\[?(?:[Ee]rror|ERROR|[Ff]atal|FATAL|panic)\b"
#: What systemd's own child says when the program could not even be started.
_UNSTARTED = r"Failed to locate executable|Failed at step|Failed to set up|Changing to the requested working directory failed"
_LOOSE = r"(?i)error|fail|cannot|could not|unable|denied|no such file|not found|invalid|refus"
#: The manager's lines tell that it failed, never why.
_MANAGER = (
    r"^(?:Started|Starting|Stopped|Stopping|Finished|Failed to start) "
    r"|: (?:Main process exited|Failed with result|Scheduled restart|Consumed|Deactivated|Start request repeated)"
)


@dataclass(frozen=True)
class Seen:
    """One unit as systemd sees it now. Empty text and 0 stand for what this kind of unit does not have."""

    name: str
    load: str = ""
    active: str = ""
    sub: str = ""
    file_state: str = ""
    pid: int = 0
    stale: bool = False
    restarts: int = 0
    type: str = ""
    result: str = ""
    fragment: str = ""
    invocation: str = ""
    waiting: bool = False
    cgroup: str = ""
    exit_code: str = ""
    exit_status: int = 0
    remains: bool = False

    @property
    def masked(self) -> bool:
        return self.load == "masked"

    @property
    def found(self) -> bool:
        return self.load != "not-found"

    @property
    def running(self) -> bool:
        return self.active in {"active", "reloading", "refreshing"}

    @property
    def ended(self) -> bool:
        return self.active in {"inactive", "failed"}

    @property
    def runs_once(self) -> bool:
        """A oneshot that leaves nothing active behind: after a good end it looks as if it had never run."""
        return self.type == "oneshot" and not self.remains

    @property
    def exit_words(self) -> str:
        """How its main process ended last."""
        if self.exit_code in {_KILLED, _DUMPED}:
            cpu = " (illegal instruction: it was built for another CPU)" if self.exit_status == _SIGILL else ""
            return f"ended by signal {self.exit_status}{cpu}"
        if self.exit_code == _EXITED:
            return f"ended with exit status {self.exit_status}"
        return f"result: {self.result}" if self.result not in {"", "success"} else "did not start"


def look(machine: machines.Machine, names: Sequence[str]) -> Mapping[str, Seen]:
    if not names:
        return {}
    done = machine.must(["systemctl", "show", "-p", _PROPERTIES, "--", *names], timeout_s=60)
    return parse(done.text, names)


def look_one(machine: machines.Machine, name: str) -> Seen:
    return look(machine, [name])[name]


def parse(text: str, names: Sequence[str]) -> Mapping[str, Seen]:
    """Blocks parted by empty lines, in the order of the names: an alias answers under its real Id, so the Id is no key."""
    blocks = [block for block in re.split(r"\n\s*\n", text.strip("\n")) if block.strip()]
    if len(blocks) != len(names):
        raise errors.Problem("command-failed", f"systemctl show answered for {len(blocks)} of {len(names)} units")
    return {name: _seen(name, block) for name, block in zip(names, blocks)}


def started_with(machine: machines.Machine, pid: int) -> Optional[str]:
    """The digest of the inputs that this process was started from; None when it carries none, or is gone."""
    mark = f"{INPUTS}=".encode()
    for pair in (machine.read(f"/proc/{pid}/environ") or b"").split(b"\0") if pid else ():
        if pair.startswith(mark):
            # What was mended has another inode: a process that still maps the damaged file was started from something else.
            return REPLACED if re.search(_GONE, machine.text(f"/proc/{pid}/maps")) else pair[len(mark) :].decode("ascii", "replace")
    return None


def runs_from(machine: machines.Machine, pid: int, paths: AbstractSet[str]) -> bool:
    """Whether this process has one of these files mapped, or one below these folders."""
    mapped = re.findall(r"(?m)\s(/\S+)(?: \(deleted\))?$", machine.text(f"/proc/{pid}/maps")) if pid else []
    return any(name == path or name.startswith(f"{path}/") for name in mapped for path in paths)


def why_it_failed(machine: machines.Machine, name: str, invocation: str, since_s: float) -> str:
    """The first telling line of this start. Empty when there is none: how it ended is then all that is known."""
    _sync(machine)
    line = ""
    if invocation:
        line = first_error(_journal(machine, f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"))
    # The journal can lose the id of a process that ended at once: its lines are then found by the unit and the time.
    return line or first_error(_journal(machine, "--since", f"@{since_s:.6f}", "-u", name))


def why_rejected(machine: machines.Machine, name: str, since_s: float) -> str:
    """What systemd itself said of the unit's file when it read it: the reason last, what it passed over before it."""
    _sync(machine)
    lines = _journal(machine, "--since", f"@{since_s:.6f}", "_PID=1", f"UNIT={name}").splitlines()
    own = list(dict.fromkeys(line.strip() for line in lines if line.strip() and not re.search(_MANAGER, line)))
    return " / ".join(own[-3:])[:LINE_LIMIT]


def first_error(text: str) -> str:
    """The line that tells why: generic last lines ("exiting", "Failed with result") are of no use to anyone."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if not re.search(_MANAGER, line)]
    chosen = _first(own, _MARKED) or _after_traceback(text) or _first(own, _UNSTARTED) or _first(own, _LOOSE)
    return (chosen or (own or [""])[-1])[:LINE_LIMIT]


def _sync(machine: machines.Machine) -> None:
    machine.run(["journalctl", "--sync"], timeout_s=_JOURNAL_LIMIT_S)


def _journal(machine: machines.Machine, *words: str) -> str:
    return machine.run(["journalctl", "--no-pager", "--quiet", "-o", "cat", *words], timeout_s=_JOURNAL_LIMIT_S).text


def _first(lines: Sequence[str], pattern: str) -> str:
    return next((line for line in lines if re.search(pattern, line)), "")


def _after_traceback(text: str) -> str:
    """Python names the error in the first line behind the traceback that is not indented."""
    lines: List[str] = text.splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")), len(lines))
    return next((line for line in lines[start + 1 :] if line.strip() and not line.startswith(" ")), "")


def _seen(name: str, block: str) -> Seen:
    rows: Dict[str, str] = {}
    for line in block.splitlines():
        key, _, value = line.partition("=")
        rows[key] = value.strip()
    return Seen(
        name=name,
        load=rows.get("LoadState", ""),
        active=rows.get("ActiveState", ""),
        sub=rows.get("SubState", ""),
        file_state=rows.get("UnitFileState", ""),
        pid=_number(rows, "MainPID"),
        stale=rows.get("NeedDaemonReload") == "yes",
        restarts=_number(rows, "NRestarts"),
        type=rows.get("Type", ""),
        result=rows.get("Result", ""),
        fragment=rows.get("FragmentPath", ""),
        invocation=rows.get("InvocationID", ""),
        waiting=_number(rows, "Job") > 0,
        cgroup=rows.get("ControlGroup", ""),
        exit_code=rows.get("ExecMainCode", ""),
        exit_status=_number(rows, "ExecMainStatus"),
        remains=rows.get("RemainAfterExit") == "yes",
    )


def _number(rows: Mapping[str, str], key: str) -> int:
    value = rows.get(key, "")
    return int(value) if value.isdigit() else 0


def setting(text: str, key: str) -> str:
    """The last value of a key in the [Service] sections."""
    section, value = "", ""
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            section = line.strip()[1:].partition("]")[0]
        elif section == "Service" and line.partition("=")[0].strip() == key:
            value = line.partition("=")[2].strip()
    return value
