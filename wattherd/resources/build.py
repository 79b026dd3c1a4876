"""A finished build of a fingerprint in this node's store: shipped here, or compiled here when nobody shipped it.

Compiling outlives the connection: it is a transient systemd unit that runs the node program's own builder, and this
resource starts it, or attaches to the one that is running. How to compile is node/builder.py's; what to compile is a role's.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
import sys
from typing import AbstractSet, ClassVar, List, Mapping, Optional, Tuple

from wattherd import errors, records, store, units
from wattherd import machine as machines
from wattherd.records import dataclass, field
from wattherd.resources import base, means, outcome, package, place, toolkit, transient, tree, underway
from wattherd.wire import fields

HOME = "/var/cache/wattherd/build"
_DAMAGED = "(its release was damaged)"
_UNDER_WAY = "(being built)"
_STEP_S = 0.5
_LOOK_S = 3.0
_NAME = r"[a-z0-9][a-z0-9._-]{0,39}\Z"
_START = "import sys; sys.path.insert(0, sys.argv[1]); from wattherd.node import builder; builder.main(*sys.argv[2:])"


@dataclass(frozen=True)
class Build(base.Resource):
    """`source` is the sha256 of a .tar.gz, `options` go to cmake as -D, `products` are paths (or patterns) under the build folder.

    Each of `probes` is run in the release folder (`("bin/llama-server", "--version")`) and must end with 0. `packages` are
    installed and `tools` must then be found. `jobs` 0 means as many as cores and memory allow.

    `toolkit` is the folder of a CUDA toolkit; with `wheels` (digests and sizes) it is made of their folder `inside` first, and so
    are `programs` (such as a newer CMake), whose bin/ goes before all of PATH. Of the libraries that products need, those whose
    names begin with one of `ships` are taken along from the toolkit. A row of `expected` is the last word of a probe, a pattern
    that its output must hold, and what it means when it does not.
    """

    TYPE: ClassVar[str] = "build"

    name: str
    fingerprint: str
    source: str
    source_bytes: int
    options: Mapping[str, str]
    targets: Tuple[str, ...]
    products: Tuple[str, ...]
    probes: Tuple[Tuple[str, ...], ...] = ()
    packages: Tuple[str, ...] = ()
    tools: Tuple[str, ...] = ()
    jobs: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_per_job_mb: int = 700
    description: str = ""
    toolkit: str = ""
    wheels: Mapping[str, int] = field(default_factory=dict)
    inside: str = ""
    programs: str = ""
    program_wheels: Mapping[str, int] = field(default_factory=dict)
    programs_inside: str = ""
    ships: Tuple[str, ...] = ()
    expected: Tuple[Tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if not re.match(_NAME, self.name) or not re.match(r"[0-9a-z][0-9a-z.-]{11}", self.fingerprint):
            raise errors.Problem("manifest-invalid", f"{self.id}: the name or the fingerprint cannot be used in a path")
        store.blob(self.source)
        if any(len(row) != 3 for row in self.expected):
            raise errors.Problem("manifest-invalid", f"{self.id}: what is expected has three words: probe, pattern, meaning")
        for path, wheels in self.toolkits:
            place.plain_path(self.id, path)
            for digest in wheels:
                store.blob(digest)

    @property
    def toolkits(self) -> Tuple[Tuple[str, Mapping[str, int]], ...]:
        """The folders that are made of wheels, each with its wheels."""
        pairs = ((self.toolkit, self.wheels), (self.programs, self.program_wheels))
        return tuple((path, wheels) for path, wheels in pairs if path and wheels)

    def search(self, machine: machines.Machine) -> Mapping[str, str]:
        """The environment in which its tools are looked for: with a PATH that begins with its own programs."""
        if not self.programs:
            return self.environment
        return {**self.environment, "PATH": f"{machine.path(self.programs)}/bin:{self.environment.get('PATH') or means.USUAL_PATH}"}

    @property
    def id(self) -> str:
        return f"build:{self.name}@{self.short}"

    @property
    def short(self) -> str:
        return self.fingerprint[:12]

    @property
    def unit(self) -> str:
        return underway.unit(self.short)

    @property
    def folder(self) -> str:
        """Of this one build: what it was asked, how far it is, what came of it."""
        return f"{HOME}/{self.short}"

    @property
    def workplace(self) -> str:
        """Of every build with this name: the same path each time, since ccache's quickest hits need equal paths."""
        return f"{HOME}/{self.name}"

    @property
    def log(self) -> str:
        return f"{self.folder}/build.log"

    def wanted(self) -> base.State:
        return {"fingerprint": self.fingerprint}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        found = store.recorded(machine, self.fingerprint)
        if found is None:
            return {"fingerprint": _UNDER_WAY} if underway.is_running(machine, HOME, self.short) else None
        if not store.has(machine, found.digest):
            return {"fingerprint": "(its release is gone from the store)"}
        if machine.digest(store.blob(found.digest)) != found.digest:
            return {"fingerprint": _DAMAGED}
        return {"fingerprint": found.fingerprint}

    def needs(self, machine: machines.Machine) -> Mapping[str, int]:
        if self.actual(machine) == self.wanted():
            return {}
        lacking = store.missing(machine, {self.source: self.source_bytes})
        for path, wheels in self.toolkits:
            lacking.update(toolkit.missing(machine, path, wheels))
        return lacking

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        """Tools, room and memory for compiling, unless there is nothing to compile or the compiler is at work already."""
        if state != self.wanted() and not transient.look(machine, self.unit).running:
            means.check_room(machine, HOME, means.ROOM_BYTES * (2 if self.ships else 1))
            for path, wheels in self.toolkits:
                if not toolkit.is_whole(machine, path, wheels):
                    means.check_room(machine, path, toolkit.room_bytes(wheels))
            means.check_memory(machine, self.memory_per_job_mb)
            # What a package or wheels of this very build bring is looked for afterwards.
            whole = all(toolkit.is_whole(machine, path, wheels) for path, wheels in self.toolkits)
            if whole and not any(self._lacks(machine, name) for name in self.packages):
                self._check_tools(machine)

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:
        if delta.get("fingerprint", ("", ""))[0] == _DAMAGED:
            self._discard(machine, tell)
        found = transient.look(machine, self.unit)
        if found.running:
            tell(f"re-attached to a build that is running since {found.since}")
        else:
            if machine.exists(outcome.spec_path(self.folder)) and not machine.exists(outcome.result_path(self.folder)):
                tell("an earlier build was cut off before its end (power, or killed); it starts anew")
            underway.end_others(machine, HOME, self.name, self.short, tell)
            self._provide_tools(machine, tell)
            self._start(machine, tell)
        problem = self._follow(machine, tell)
        self._clean(machine)
        if problem is not None:
            raise problem

    def _discard(self, machine: machines.Machine, tell: base.Tell) -> None:
        found = store.recorded(machine, self.fingerprint)
        if found is not None:
            tell(f"the release of {self.name} was damaged in the store; it is removed and built anew")
            store.discard(machine, found.digest)

    def _provide_tools(self, machine: machines.Machine, tell: base.Tell) -> None:
        for name in self.packages:
            wanted = package.Package(name)
            difference = base.delta(wanted.wanted(), wanted.actual(machine))
            if difference:
                wanted.fix(machine, difference, tell)
        for path, wheels in self.toolkits:
            inside = self.inside if path == self.toolkit else self.programs_inside
            toolkit.assemble(machine, path, wheels, inside, tell)
        if self.toolkit and not machine.exists(f"{self.toolkit}/bin/nvcc"):
            raise errors.Problem(
                "build-tool-missing",
                f"there is no nvcc in {self.toolkit}/bin, and {self.name} is to be built with it",
                hint="install that CUDA toolkit, or cuda: {toolkit: wheels}, or let another node build and ship it",
                tool="nvcc",
            )
        self._check_tools(machine)

    @staticmethod
    def _lacks(machine: machines.Machine, name: str) -> bool:
        one = package.Package(name)
        return bool(base.delta(one.wanted(), one.actual(machine)))

    def _check_tools(self, machine: machines.Machine) -> None:
        for name in self.tools:
            if means.find_tool(machine, name, self.search(machine)) is None:
                again = (
                    f"its package is installed, so its file was lost: apt-get install --reinstall {name}; " if name in self.packages else ""
                )
                raise errors.Problem(
                    "build-tool-missing",
                    f"{name} is needed to build {self.name} and is not on this node (looked in PATH and /usr/local/cuda*/bin)",
                    hint=f"{again}or let another node build and ship it: llama_cpp: {{builder: HOST}}",
                    tool=name,
                )

    def _start(self, machine: machines.Machine, tell: base.Tell) -> None:
        import shutil

        cpus, memory_mb = len(os.sched_getaffinity(0)), means.available_mb(machine)
        jobs = means.job_count(cpus, memory_mb, self.memory_per_job_mb, self.jobs)
        tell(f"building {self.description or self.name} with {units.plural(jobs, 'job')}")
        if machine.exists(self.folder):
            machine.remove_tree(self.folder)
        store.prepare(machine)
        # The program's cache may be pruned while the build runs, so what runs is a copy of its own.
        machine.make_dirs(f"{self.folder}/program", 0o700)
        ours = posixpath.dirname(posixpath.abspath(errors.__file__))
        shutil.copytree(ours, machine.path(f"{self.folder}/program/wattherd"), ignore=shutil.ignore_patterns("__pycache__"))
        spec = fields.plain(records.replace(self, jobs=jobs))
        machine.write(outcome.spec_path(self.folder), json.dumps(spec, sort_keys=True).encode(), mode=0o600)
        machine.run(["systemctl", "reset-failed", self.unit])
        machine.must(
            transient.start_argv(
                self.unit, f"Wattherd builds {self.name} {self.short}", machine.path(f"{self.folder}/unit.log"), self.program(machine)
            )
        )

    def program(self, machine: machines.Machine) -> List[str]:
        """The builder's command line, run from its own copy of this program."""
        given = [machine.path(f"{self.folder}/program"), outcome.spec_path(self.folder), *([machine.root] if machine.root else [])]
        return [sys.executable, "-I", "-S", "-c", _START, *given]

    def _follow(self, machine: machines.Machine, tell: base.Tell) -> Optional[errors.Problem]:
        """Tell the builder's progress until it has left a result, or until its unit is gone without one."""
        shown: Optional[outcome.Progress] = None
        look_again_s = machine.monotonic_s() + _LOOK_S
        while True:
            problem, ended = outcome.read_result(machine, self.folder)
            if ended:
                return problem
            found = outcome.read_progress(machine, self.folder)
            if found is not None and found != shown:
                tell(found.words, found.done, found.total, found.unit)
                shown = found
            if machine.monotonic_s() >= look_again_s:
                unit = transient.look(machine, self.unit)
                if not unit.running:
                    problem, ended = outcome.read_result(machine, self.folder)
                    return problem if ended else self._vanished(machine, unit)
                look_again_s = machine.monotonic_s() + _LOOK_S
            machine.wait(_STEP_S)

    def _vanished(self, machine: machines.Machine, unit: transient.Unit) -> errors.Problem:
        said = [line for line in machine.text(f"{self.folder}/unit.log").splitlines() if line.strip()][-1:]
        return errors.Problem(
            "build-failed",
            f"building {self.name} was cut off: {' / '.join([unit.ending, *said])[:600]}",
            hint=f"deploy again to build anew (what was compiled is remembered by ccache); the log on the node: {self.log}",
            log=self.log,
        )

    def _clean(self, machine: machines.Machine) -> None:
        """The log and the result stay; a failed unit must not make the whole system read as degraded."""
        machine.run(["systemctl", "reset-failed", self.unit])
        if machine.exists(f"{self.folder}/program"):
            machine.remove_tree(f"{self.folder}/program")

    def ours(self, machine: machines.Machine) -> bool:
        return store.recorded(machine, self.fingerprint) is not None or underway.is_running(machine, HOME, self.short)

    def kept(self, machine: machines.Machine, gone: AbstractSet[str] = frozenset(), made: AbstractSet[str] = frozenset()) -> str:  # noqa: ARG002 - as everywhere
        """Why `remove` would leave the release in the store; empty when there is none."""
        return "the release stays in the store for a rollback" if store.recorded(machine, self.fingerprint) else ""

    def _clear_workplace(self, machine: machines.Machine) -> None:
        """What a build that was killed left behind, unless another build of this name is at work there."""
        busy = errors.Problem("node-busy", f"another build of {self.name} is running")
        if machine.exists(self.workplace):
            with contextlib.suppress(errors.Problem), store.locked(machine, f"{self.workplace}.lock", busy):
                machine.remove_tree(self.workplace)

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        """End a build that nobody wants any more. A finished one stays in the store."""
        if transient.look(machine, self.unit).running:
            tell(f"stopping the build of {self.name}")
            underway.end(machine, self.short)
        self._clear_workplace(machine)
        if self.kept(machine):
            tell(f"{self.name} {self.short}: {self.kept(machine)}")
        if machine.exists(self.folder):
            machine.remove_tree(self.folder)
        self._remove_toolkits(machine)

    def _remove_toolkits(self, machine: machines.Machine) -> None:
        """A toolkit that was made of wheels goes with the last build that was compiled with it."""
        others = "".join(machine.text(outcome.spec_path(f"{HOME}/{name}")) for name in machine.names(HOME))
        for path, _wheels in self.toolkits:
            if json.dumps(path) not in others and tree.is_marked(machine, path):
                machine.remove_tree(path)
                machine.rmdir(posixpath.dirname(path))
