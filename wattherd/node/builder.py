"""Compiles one release: source blob in, release blob and record out. Runs as a transient unit, apart from any connection.

Everything before the last rename can be lost: an interrupted build leaves a work folder that the next one throws away, and
objects that ccache remembers. Who starts and watches it is resources/build.py's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import traceback
from typing import Any, Dict, List, Mapping, Optional, Sequence

from wattherd import errors, store, units
from wattherd import machine as machines
from wattherd.node import complaint, libraries, release
from wattherd.resources import build, means, outcome, probes, tree
from wattherd.wire import facts, fields

CCACHE = "/var/cache/wattherd/ccache"
_PROBE_S = 120.0
_TELL_S = 0.4
_LOG_READ_BYTES = 4 * 1024 * 1024


def main(spec: str, root: str = "/") -> None:
    """The unit's program: build what the file `spec` asks for and leave result.json beside it, whatever happens."""
    os.umask(0o022)
    machine = machines.Machine(root)
    told = fields.build(build.Build, fields.document(json.loads(machine.read(spec) or b""), "spec"))
    result: Dict[str, Any] = {}
    try:
        result["build"] = fields.plain(Builder(machine, told).run())
    except errors.Problem as problem:
        result["problem"] = problem.to_dict()
    except Exception as error:  # noqa: BLE001 - a defect must come back as words, not as silence
        trace = traceback.format_exc(limit=8)
        result["problem"] = errors.Problem(
            "internal", f"{type(error).__name__}: {error}", hint="please report this", trace=trace[-1500:]
        ).to_dict()
    machine.write(outcome.result_path(told.folder), json.dumps(result).encode())


class Builder:
    """One build. Lives for one call of `run`."""

    def __init__(self, machine: machines.Machine, wanted: build.Build) -> None:
        self.machine = machine
        self.wanted = wanted
        self.work = wanted.workplace
        self.source, self.objects, self.release = f"{self.work}/src", f"{self.work}/out", f"{self.work}/release"
        self.environment = _environment(machine, wanted)
        self._told_s = 0.0

    def run(self) -> facts.Built:
        for folder in (self.wanted.folder, build.HOME, CCACHE):
            self.machine.make_dirs(folder)
        self.tell("waiting", f"starting (one build of {self.wanted.name} at a time)")
        with store.locked(self.machine, f"{self.work}.lock"):
            done = store.built(self.machine, self.wanted.fingerprint)
            if done is not None:
                return done
            begun_s = self.machine.monotonic_s()
            self.clean()
            try:
                with machines.no_space(build.HOME):
                    return self._make(begun_s)
            finally:
                self.clean()

    def _make(self, begun_s: float) -> facts.Built:
        self.unpack()
        self.configure()
        self.compile(max(1, self.wanted.jobs))
        self.assemble()
        self.probe()
        self.tell("pack", "packing the release")
        digest = release.pack(self.machine, self.release, self.wanted.short)
        seconds = round(self.machine.monotonic_s() - begun_s, 1)
        size_bytes = store.size_bytes(self.machine, digest)
        versions = libraries.versions(self.machine, f"{self.release}/{release.FOLDER}")
        built = facts.Built(self.wanted.fingerprint, digest, size_bytes, seconds, self.wanted.description, versions)
        # Before the record: once there is one, no later build would come by and clear what a kill had left here.
        self.clean()
        store.record_build(self.machine, built)
        return built

    def clean(self) -> None:
        if self.machine.exists(self.work):
            self.machine.remove_tree(self.work)

    # -- steps

    def unpack(self) -> None:
        """The source always comes to lie at the same path, whatever its archive calls it: ccache finds more that way."""
        self.tell("unpack", "unpacking the source")
        archive = store.verified(self.machine, self.wanted.source, f"the source of {self.wanted.name}")
        self.machine.make_dirs(self.work)
        unpacked = f"{self.work}/unpacked"
        tree.unpack(self.machine, archive, unpacked)
        os.rename(find_source(self.machine.path(unpacked)), self.machine.path(self.source))
        if self.machine.exists(unpacked):
            self.machine.remove_tree(unpacked)

    def configure(self) -> None:
        self.tell("configure", "configuring")
        options = {"CMAKE_BUILD_TYPE": "Release", **self.wanted.options}
        generator = ["-G", "Ninja"] if self._tool("ninja") else []
        given = [f"-D{key}={value}" for key, value in sorted({**options, **self._toolkit_options()}.items())]
        self._step(
            "configure",
            [self._need("cmake"), *generator, "-S", self.machine.path(self.source), "-B", self.machine.path(self.objects), *given],
        )

    def _toolkit_options(self) -> Mapping[str, str]:
        """Which nvcc, by its full path: another one on PATH, or CMake's own search, must not decide."""
        if not self.wanted.toolkit:
            return {}
        place = self.machine.path(self.wanted.toolkit)
        return {"CMAKE_CUDA_COMPILER": f"{place}/bin/nvcc", "CUDAToolkit_ROOT": place}

    def compile(self, jobs: int) -> None:
        """On a machine that runs out of memory half as many compilers are tried, down to one: slow is better than not at all."""
        targets = ["--target", *self.wanted.targets] if self.wanted.targets else []
        self.tell("compile", f"compiling with {units.plural(jobs, 'job')}")
        argv = [self._need("cmake"), "--build", self.machine.path(self.objects), "--parallel", str(jobs), *targets]
        try:
            self._step("compile", argv)
        except errors.Problem as problem:
            if jobs == 1 or "Killed signal terminated" not in problem.message:
                raise
            self.compile(jobs // 2)

    def assemble(self) -> None:
        release.gather(self.machine, self.objects, self.wanted.products, self.release)
        binaries = f"{self.release}/{release.FOLDER}"
        libraries.ship(self.machine, binaries, self.wanted.toolkit, self.wanted.ships)
        libraries.check(self.machine, binaries)
        release.describe(self.machine, self.wanted, self.release)

    def probe(self) -> None:
        """The products are run before anything ships them: a binary that cannot start here would not start elsewhere."""
        for argv in self.wanted.probes:
            self.tell("probe", f"trying {' '.join(argv)}"[:80])
            done = self.machine.run([self.machine.path(f"{self.release}/{argv[0]}"), *argv[1:]], timeout_s=_PROBE_S)
            self._note(f"$ {' '.join(argv)}\n{done.words}\n")
            if done.code != 0:
                raise errors.Problem(
                    "release-does-not-run",
                    f"{self.wanted.name} was built, but {' '.join(argv)} {ending(done.code)}: {done.words[:300]}",
                    hint=_SIGNALS.get(_signal(done.code), "") or f"the whole output is in {self.wanted.log} on the node",
                    log=self.wanted.log,
                )
            lacking = probes.lacking(argv, self.wanted.expected, done)
            if lacking:
                raise errors.Problem(
                    "release-does-not-run",
                    f"{self.wanted.name} was built, but {lacking}",
                    hint=f"nothing was shipped; the whole output is in {self.wanted.log} on the node",
                    log=self.wanted.log,
                )

    # -- programs

    def _tool(self, name: str) -> Optional[str]:
        return means.find_tool(self.machine, name, self.wanted.search(self.machine))

    def _need(self, name: str) -> str:
        found = self._tool(name)
        if found is None:
            raise errors.Problem(
                "build-tool-missing", f"{name} is not on this node", hint="add its package to the build's packages", tool=name
            )
        return found

    def _step(self, phase: str, argv: Sequence[str]) -> None:
        """Run one program into the log, telling its progress; a failure becomes the first error that it printed."""
        with open(self.machine.path(self.wanted.log), "ab", buffering=0) as log:
            begun = log.tell()
            log.write(f"$ {' '.join(argv)}\n".encode())
            code = self._stream(phase, argv, log.write)
        if code == 0:
            return
        error = (
            complaint.first_error(self._log_from(begun))
            .replace(self.machine.path(self.source) + "/", "")
            .replace(self.machine.path(self.objects) + "/", "")
        )
        raise errors.Problem(
            "build-failed",
            f"{self.wanted.description or self.wanted.name} did not {phase}: {error}",
            hint="; ".join(part for part in (complaint.hint(error), f"the log on the node: {self.wanted.log}") if part),
            log=self.wanted.log,
            phase=phase,
        )

    def _stream(self, phase: str, argv: Sequence[str], write: Any) -> int:
        process = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment
        )
        try:
            for line in process.stdout or ():
                write(line)
                count = complaint.step(line.decode("utf-8", "replace"))
                if count is not None:
                    self.tell(phase, "compiling", *count, unit="objects" if count[1] != 100 else "")
            return process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _log_from(self, begun: int) -> str:
        with open(self.machine.path(self.wanted.log), "rb") as log:
            log.seek(begun)
            return log.read(_LOG_READ_BYTES).partition(b"\n")[2].decode("utf-8", "replace")

    def _note(self, text: str) -> None:
        with open(self.machine.path(self.wanted.log), "ab") as log:
            log.write(text.encode())

    def tell(self, phase: str, words: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        """Leave word of how far it is, now and then. Not forced to disk: it is worth nothing after a power cut."""
        now_s = self.machine.monotonic_s()
        if total and done != total and now_s - self._told_s < _TELL_S:
            return
        self._told_s = now_s
        place = self.machine.path(outcome.progress_path(self.wanted.folder))
        row = outcome.Progress(phase, words, done, total, unit)
        with open(place + ".new", "w", encoding="utf-8") as stream:
            json.dump(fields.plain(row), stream)
        os.rename(place + ".new", place)


_SIGNALS: Mapping[int, str] = {
    signal.SIGILL: "it was built for another CPU than this one: keep GGML_NATIVE off, or llama_cpp: {cpu_variants: true}",
    signal.SIGKILL: "it was killed, perhaps for want of memory",
}


def _signal(code: int) -> int:
    """The signal that ended it; a shell between says so with 128 added. 0 for an exit status of its own."""
    return -code if code < 0 else code - 128 if code - 128 in _SIGNALS else 0


def ending(code: int) -> str:
    """How a program ended, in words: its status, or the signal that ended it."""
    number = _signal(code)
    if not number:
        return f"ended with {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(number).name}"
    return f"was ended by signal {number}"


def _environment(machine: machines.Machine, wanted: build.Build) -> Mapping[str, str]:
    """A clean one: no login's variables, no git repository above the source, and a cache that does not depend on the folder.

    Nothing in it may decide an option. So no SOURCE_DATE_EPOCH: where it is set, llama.cpp changes the defaults of GGML_NATIVE
    and of every instruction set, and the result is a baseline binary that works, slowly.
    """
    return {
        "LC_ALL": "C.UTF-8",
        "HOME": machine.path(build.HOME),
        "CCACHE_DIR": machine.path(CCACHE),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_COMPILERCHECK": "content",
        "CCACHE_SLOPPINESS": "time_macros",
        "CCACHE_MAXSIZE": "2G",
        "GIT_DIR": "/nonexistent",
        "GIT_CEILING_DIRECTORIES": machine.path(build.HOME),
        "NINJA_STATUS": "[%f/%t] ",
        **wanted.environment,
        "PATH": means.search_path(machine, wanted.search(machine)),
    }


def find_source(unpacked: str) -> str:
    """The shallowest CMakeLists.txt with a `ggml` folder beside it (an sdist carries llama.cpp deeper), else the shallowest."""
    found: List[str] = []
    for folder, folders, files in os.walk(unpacked):
        folders.sort()
        if "CMakeLists.txt" in files:
            found.append(folder)
    if not found:
        raise errors.Problem(
            "build-failed",
            "the source archive holds no CMakeLists.txt",
            hint="compare the source in the inventory with what was downloaded",
        )
    found.sort(key=lambda folder: (folder.count(os.sep), folder))
    return next((folder for folder in found if os.path.isdir(f"{folder}/ggml")), found[0])
