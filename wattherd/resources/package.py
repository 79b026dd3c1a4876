"""A Debian package that is installed, from whatever repositories the node has.

Asks dpkg's own file for the state and apt-get for every change. Repairs one thing in passing: a dpkg that was
interrupted. Knows nothing of versions: which one comes is the repositories' affair.
"""

from __future__ import annotations

import re
from typing import AbstractSet, ClassVar, List, Mapping, Optional, Sequence

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import base, dpkg

LISTS = "/var/lib/apt/lists"
_NAME = re.compile(r"[a-z0-9][a-z0-9+.]*(?:-+[a-z0-9+.]+)*(?::[a-z0-9-]+)?\Z")
#: No question is asked, no conffile of the operator is replaced, no service restarted by needrestart.
_QUIET = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
_WAIT_FOR_LOCK = ("-o", "DPkg::Lock::Timeout=120")
_REMOVE = ("apt-get", "remove", "-y", "-o", "APT::Get::AutomaticRemove=false", *_WAIT_FOR_LOCK)
_KEEP_CONFFILES = ("-o", "Dpkg::Options::=--force-confold")
_LOCK_LIMIT_S = 120.0
_LOCK_PAUSE_S = 5.0
_LOCKED = r"Could not get lock|frontend lock was locked|is locked by another process|is another process using it"
_INTERRUPTED = "dpkg was interrupted"
_UNKNOWN = r"Unable to locate package|has no installation candidate|Couldn't find any package"
#: The lists name a file that the repository no longer has.
_STALE = r"Failed to fetch|Unable to fetch some archives|Hash Sum mismatch"
_VIRTUAL = r"is a virtual package provided by"
_GENERIC = r"E: (?:Sub-process|Unable to correct problems|Unmet dependencies|Errors were encountered)"
_USERINFO = r"(://)[^/\s@]+@"
_TOUCHED = r"(?m)^(?:Remv|Inst|Purg) ([^\s:]+)"


@dataclass(frozen=True)
class Package(base.Resource):
    TYPE: ClassVar[str] = "package"

    name: str

    def __post_init__(self) -> None:
        # apt-get reads a trailing '-' as "remove", and a leading one as an option.
        if not _NAME.match(self.name):
            raise errors.Problem("manifest-invalid", f"package:{self.name} is not the name of a Debian package")

    @property
    def id(self) -> str:
        return f"package:{self.name}"

    def wanted(self) -> base.State:
        return {"status": dpkg.INSTALLED}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        return self.observe(machine, [self])[self.id]

    @classmethod
    def observe(cls, machine: machines.Machine, batch: Sequence[Package]) -> Mapping[str, Optional[base.State]]:
        found = dpkg.states(machine, [one.name for one in batch])
        return {one.id: None if found[one.name] is None else {"status": found[one.name]} for one in batch}

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:
        half_done = delta.get("status", (None, None))[0] is not None
        if half_done or dpkg.interrupted(machine):
            _configure(machine, tell)
        asked = not _has_lists(machine)
        complaint = _update(machine, tell) if asked else ""
        done = self._install(machine, tell)
        if done.code != 0 and _INTERRUPTED in done.words:
            _configure(machine, tell)
            done = self._install(machine, tell)
        if done.code != 0 and not asked and (re.search(_UNKNOWN, done.words) or re.search(_STALE, done.words)):
            complaint = _update(machine, tell)
            done = self._install(machine, tell)
        if done.code != 0 and self.actual(machine) != self.wanted():
            raise self._problem(machine, done, complaint)
        if done.code != 0:  # it is installed, and another broken package made apt-get complain
            tell(f"{self.name} is installed, but apt-get also says: {_first_error(done.words)}")

    def kept(self, machine: machines.Machine, gone: AbstractSet[str], made: AbstractSet[str] = frozenset()) -> str:  # noqa: ARG002 - as everywhere
        return self._reason_to_keep(machine.run([*_REMOVE, "-s", self.name], environment=_QUIET), gone)

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        if dpkg.parse(machine.read(dpkg.STATUS) or b"", [self.name])[self.name] is None:
            return
        trial = machine.run([*_REMOVE, "-s", self.name], environment=_QUIET)
        kept = self._reason_to_keep(trial)
        if kept:
            tell(f"{self.name} was left as it is: {kept}")
            return
        tell(f"removing {self.name}")
        done = machine.run([*_REMOVE, self.name], environment=_QUIET)
        if done.code != 0:
            raise self._failed(done.words)

    def _reason_to_keep(self, trial: machines.Result, gone: AbstractSet[str] = frozenset()) -> str:
        """Why the simulated removal must not be done for real; empty when it touches this package alone."""
        touched = re.findall(_TOUCHED, trial.text)
        if trial.code != 0 or not touched:
            return f"apt-get would not remove it ({_first_error(trial.words) or 'another package provides it'})"
        others = sorted(set(touched) - {self.name.partition(":")[0], *gone})
        more = " and more" if len(others) > 5 else ""
        return f"{', '.join(others[:5])}{more} would go or change with it" if others else ""

    def _install(self, machine: machines.Machine, tell: base.Tell) -> machines.Result:
        tell(f"installing {self.name}")
        argv = ["apt-get", "install", "-y", "--no-install-recommends", *_WAIT_FOR_LOCK, *_KEEP_CONFFILES, self.name]
        return machine.run(argv, environment=_QUIET)

    def _problem(self, machine: machines.Machine, done: machines.Result, complaint: str) -> errors.Problem:
        if not re.search(_UNKNOWN, done.words):
            return self._failed(done.words, complaint)
        virtual = next((line.strip() for line in done.words.splitlines() if re.search(_VIRTUAL, line)), "")
        read = ", ".join(_repositories(machine)) or "none"
        hint = "check the name (apt-cache search), or add the repository that has it"
        if complaint:
            hint = "let the node reach its repositories first: apt-get update on it must end without a complaint"
        return errors.Problem(
            "package-unavailable",
            f"{self.id}: {virtual or 'no repository of this node offers it'}. Repositories read: {read}{_also(complaint)}",
            hint="name one of the packages that provide it" if virtual else hint,
        )

    def _failed(self, words: str, complaint: str = "") -> errors.Problem:
        line = _first_error(words) or "apt-get failed and named no reason"
        held = re.search(_LOCKED, words)
        hint = (
            "another package program runs on the node: let it end, then run again" if held else "apt-get -f install on the node tells more"
        )
        return errors.Problem("package-failed", f"{self.id}: {line}{_also(complaint)}", hint=hint)


def _has_lists(machine: machines.Machine) -> bool:
    return any("_Packages" in name for name in machine.names(LISTS))


def _update(machine: machines.Machine, tell: base.Tell) -> str:
    """Read the repositories again. Gives the first complaint: one broken repository must not hide what the others offer."""
    tell("reading the package lists")
    done = _unlocked(machine, ["apt-get", "update", *_WAIT_FOR_LOCK], tell)
    return next((_clean(line) for line in done.words.splitlines() if line.startswith(("E: ", "W: ", "Err:"))), "")


def _configure(machine: machines.Machine, tell: base.Tell) -> None:
    tell("dpkg was interrupted before: finishing that first (dpkg --configure -a)")
    done = _unlocked(machine, ["dpkg", "--force-confold", "--configure", "-a"], tell)
    if done.code != 0:
        raise errors.Problem(
            "package-failed",
            f"dpkg was interrupted before and cannot finish: {_first_error(done.words) or 'dpkg --configure -a failed'}",
            hint="run dpkg --configure -a on the node and see to what it says",
        )


def _unlocked(machine: machines.Machine, argv: Sequence[str], tell: base.Tell) -> machines.Result:
    """Run what has no lock timeout of its own; while another package program holds the lock, wait for it."""
    begun_s = machine.monotonic_s()
    while True:
        done = machine.run(argv, environment=_QUIET)
        waited_s = machine.monotonic_s() - begun_s
        if done.code == 0 or not re.search(_LOCKED, done.words) or waited_s >= _LOCK_LIMIT_S:
            return done
        tell("waiting for another package program", waited_s, _LOCK_LIMIT_S, "s")
        machine.wait(_LOCK_PAUSE_S)


def _repositories(machine: machines.Machine) -> List[str]:
    """From the names of the lists: deb.example.org_debian_dists_bookworm_InRelease -> deb.example.org/debian bookworm."""
    found: List[str] = []
    for name in machine.names(LISTS):
        where, known, _ = name.rpartition("_InRelease") if name.endswith("_InRelease") else name.rpartition("_Packages")
        if known:
            place, _, suite = where.partition("_dists_")
            found.append(f"{place.replace('_', '/')} {suite.partition('_')[0]}".strip())
    return list(dict.fromkeys(found))


def _first_error(words: str) -> str:
    """apt's last E: line is often generic ("Sub-process … returned an error code"): the cause stands in dpkg's lines above it."""
    lines = [line.rstrip() for line in words.splitlines()]
    for index, line in enumerate(lines):
        if line.startswith("E: ") and not re.match(_GENERIC, line):
            return _clean(line)
        if line.startswith(("dpkg: error", "dpkg: dependency problems")):
            return _clean(f"{line} {''.join(lines[index + 1 : index + 2]).strip()}")
    broken = next((line.strip() for line in lines if re.search(r" : (?:Pre)?Depends: | : Conflicts: | : Breaks: ", line)), "")
    return _clean(broken or next((line for line in lines if line.startswith("E: ")), ""))


def _clean(line: str) -> str:
    """Without the user and password that a repository's address can carry."""
    return re.sub(_USERINFO, r"\1", line.strip())[:400]


def _also(complaint: str) -> str:
    return f"; apt-get update: {complaint}" if complaint else ""
