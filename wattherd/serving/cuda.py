"""Which CUDA toolkit builds for a host: its cards, driver, compiler, C library and CMake against what each toolkit knows. Pure.

The tables are NVIDIA's, per release. Knows nothing of llama.cpp's options, and decides only by what facts and inventory say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattherd import errors, material
from wattherd.serving import cards, toolkits
from wattherd.wire import facts

if TYPE_CHECKING:
    from wattherd.inventory import settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A toolkit that could be used: one that is there, the distribution's package, or a set of wheels."""

    origin: str
    version: tuple[int, int]
    path: str = ""
    stub: bool = False
    packages: tuple[str, ...] = ()
    compiler: str = ""
    lacks: str = ""
    wheels: material.Toolkit | None = None

    @property
    def words(self) -> str:
        kinds = {
            "installed": f"the CUDA {self.text} in {self.path}",
            "distribution": f"the distribution's CUDA {self.text}",
            "wheels": f"CUDA {self.text} from wheels",
        }
        return kinds.get(self.origin, f"CUDA {self.text}, {self.origin}")

    @property
    def text(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a build is told. `compiler` is for where the usual g++ will not do, `driver` the oldest branch that runs the result."""

    major: int
    version: str
    architectures: tuple[str, ...]
    origin: str
    path: str
    stub: bool
    driver: int
    gcc: int
    compiler: str = ""
    packages: tuple[str, ...] = ()
    wheels: material.Toolkit | None = None
    cmake: material.Toolkit | None = None


@dataclass(frozen=True, slots=True)
class _Misfit:
    reason: str
    fix: str


def choose(name: str, setting: settings.Cuda, told: facts.Facts, offers: Sequence[material.Toolkit], *, builder: str = "") -> Choice:
    """The first toolkit that serves every card of the host; `cuda-unfit` with the reason and the fix when none does.

    With another host named as `builder` and a version in the inventory, this host needs no toolkit of its own: it receives.
    """
    if told.gpus and not told.driver and not cards.is_tegra(told):
        raise cards.unfit(
            f"{name} has {told.gpus[0].name or 'an NVIDIA card'}, and no NVIDIA driver is loaded there",
            f"install the distribution's driver (Wattherd never does), reboot, and nvidia-smi must list the card; {cards.ON_PURPOSE}",
        )
    asked = cards.asked_of(name, setting, told)
    candidates = list(_candidates(setting, told, offers))
    if builder not in ("", name) and setting.version and not any(one.text == setting.version for one in candidates):
        candidates.append(_built_elsewhere(builder, setting.version))
    refused: list[tuple[Candidate, _Misfit]] = []
    for candidate in candidates:
        knows = toolkits.knows(candidate.version)
        if knows is None or candidate.version < toolkits.OLDEST:
            refused.append((candidate, _too_old(told)))
            continue
        misfit = next(_misfits(candidate, knows, asked, setting, told), None)
        if misfit is None:
            return _choice(candidate, knows, asked, setting, told, offers)
        refused.append((candidate, misfit))
    raise _none_serves(name, asked, setting, refused)


def _none_serves(name: str, asked: cards.Asked, setting: settings.Cuda, refused: Sequence[tuple[Candidate, _Misfit]]) -> errors.Problem:
    has = f"{name} has {asked.words}"
    if not refused:
        kind = f"to be had as cuda: {{toolkit: {setting.toolkit}}}"
        where = f"in {setting.path}" if setting.path else "installed there" if setting.toolkit == "installed" else kind
        wanted = f"CUDA {setting.version}" if setting.version else "CUDA toolkit"
        hint = "put one in /usr/local/cuda-N, or name another place and its version: cuda: {path: …, version: …}"
        if setting.toolkit != "auto" or setting.version:
            hint += ", or let Wattherd choose one: cuda: {toolkit: auto} without a version"
        return cards.unfit(f"{has}, and no {wanted} is {where}", f"{hint}; {cards.ON_PURPOSE}")
    by_kind = {
        candidate.origin + candidate.path * (candidate.origin == "installed"): (candidate, misfit) for candidate, misfit in refused[::-1]
    }
    shown = list(by_kind.values())[::-1]
    reasons = "; ".join(f"{candidate.words}: {misfit.reason}" for candidate, misfit in shown)
    fixes = " or ".join(dict.fromkeys(misfit.fix for _, misfit in shown if misfit.fix))
    return cards.unfit(
        f"{has}, and no CUDA that is to be had builds for it ({reasons})", "; ".join(filter(None, (fixes, cards.ON_PURPOSE)))
    )


def _candidates(setting: settings.Cuda, told: facts.Facts, offers: Sequence[material.Toolkit]) -> Iterator[Candidate]:
    """In the order of preference; the inventory's path, version and kind leave fewer."""
    for candidate in _all_candidates(setting, told, offers):
        kind = "installed" if setting.path else setting.toolkit
        if kind in ("auto", candidate.origin) and (setting.version is None or candidate.text == setting.version):
            yield candidate


def _all_candidates(setting: settings.Cuda, told: facts.Facts, offers: Sequence[material.Toolkit]) -> Iterator[Candidate]:
    there = _at_path(setting.path, told)
    if setting.path and not there and setting.version:
        yield Candidate(origin="installed", version=toolkits.pair(setting.version), path=setting.path)
    packaged = toolkits.PACKAGED.get((told.system.os_id, told.system.os_version))
    for one in there:
        if one.version:
            yield Candidate(
                origin="distribution" if one.packaged else "installed",
                version=toolkits.pair(one.version),
                path=one.path,
                stub=one.stub,
                packages=(packaged[2],) if packaged and packaged[2] and one.packaged else (),
                compiler=packaged[2] if packaged and one.packaged else "",
                lacks=one.lacks,
            )
    if packaged and packaged[1] in told.system.components and not any(one.packaged for one in told.cuda):
        names = ("nvidia-cuda-toolkit", *([packaged[2]] if packaged[2] else []))
        yield Candidate(
            origin="distribution", version=toolkits.pair(packaged[0]), path="/usr", stub=True, packages=names, compiler=packaged[2]
        )
    for offer in offers:
        if offer.name == "cuda" and offer.architecture == told.cpu.architecture:
            yield Candidate(origin="wheels", version=toolkits.pair(offer.version), path=offer.place, wheels=offer)


def _built_elsewhere(builder: str, version: str) -> Candidate:
    """What compiles there is that host's affair; here its driver and card count, and a path that nothing will look at."""
    return Candidate(origin=f"the toolkit of {builder}", version=toolkits.pair(version), path=f"/usr/local/cuda-{version}", compiler="g++")


def _at_path(path: str | None, told: facts.Facts) -> list[facts.Cuda]:
    """All, or the one that the inventory names; /usr/local/cuda is a link to the first of those that are not packaged."""
    if path == "/usr/local/cuda":
        return [one for one in told.cuda if not one.packaged][:1]
    return [one for one in told.cuda if path in (None, one.path)]


def _too_old(told: facts.Facts) -> _Misfit:
    on_jetpack_4 = 0 < cards.l4t(told) < toolkits.L4T_WITH_11
    fix = "no newer CUDA comes for a board with JetPack 4" if on_jetpack_4 else "install a newer toolkit in /usr/local"
    return _Misfit(f"llama.cpp needs CUDA {toolkits.text_of(toolkits.OLDEST)} or newer", fix)


def _misfits(
    candidate: Candidate, knows: toolkits.Knows, asked: cards.Asked, setting: settings.Cuda, told: facts.Facts
) -> Iterator[_Misfit]:
    """What keeps this toolkit from building for this host, the reason that the operator can least change first."""
    if candidate.origin == "wheels" and cards.is_tegra(told) and cards.l4t(told) < toolkits.L4T_AS_SERVERS:
        yield _Misfit("they are for JetPack 7 and newer", "")
    for number in asked.cards:
        known = toolkits.number_to(number, candidate.version)
        if known not in knows.architectures and known < min(knows.architectures):
            yield _Misfit(
                f"sm_{number} is older than it knows (from sm_{min(knows.architectures)})",
                f"use a CUDA {toolkits.newest_for(number)} toolkit: put it in /usr/local/cuda-{toolkits.newest_for(number)}",
            )
        elif known not in knows.architectures:
            yield _Misfit(
                f"it is too old to know sm_{number}", f"install CUDA {toolkits.oldest_for(number)} or newer, or cuda: {{toolkit: wheels}}"
            )
    if candidate.lacks:
        yield _Misfit(f"it lacks {candidate.lacks}", "install the whole toolkit, or cuda: {toolkit: wheels}")
    yield from _system_misfits(candidate, knows, setting, told)


def _system_misfits(candidate: Candidate, knows: toolkits.Knows, setting: settings.Cuda, told: facts.Facts) -> Iterator[_Misfit]:
    driver = _leading(told.driver)
    if driver is not None and not cards.is_tegra(told) and driver < knows.driver:
        yield _Misfit(
            f"it needs driver {knows.driver} or newer, and {told.driver} is loaded",
            f"upgrade the driver to {knows.driver}, or build with an older toolkit",
        )
    libc = toolkits.pair(told.system.libc) if told.system.libc else (0, 0)
    if libc >= toolkits.STRICT_LIBC and candidate.version < toolkits.LIBC_FIXED:
        yield _Misfit(
            f"its headers contradict glibc {told.system.libc}, whatever the compiler",
            f"use CUDA {toolkits.LIBC_FIXED[0]}.{toolkits.LIBC_FIXED[1]} or newer, or build on a node with an older distribution and ship",
        )
    if setting.host_compiler is None and not candidate.compiler and _compiler(knows, told) is None:
        usual = _usual(told)[1]
        yield _Misfit(
            f"it takes g++ up to {knows.gcc}, and the host's is {told.tools.compilers.get('g++', usual)}",
            f"cuda: {{host_compiler: g++-{knows.gcc}}} names an older one, and the build installs it",
        )
    named = _named_major(setting, told)
    if named is not None and named > knows.gcc:
        yield _Misfit(
            f"it takes g++ up to {knows.gcc}, and the inventory names {setting.host_compiler}", f"cuda: {{host_compiler: g++-{knows.gcc}}}"
        )


def _choice(
    candidate: Candidate,
    knows: toolkits.Knows,
    asked: cards.Asked,
    setting: settings.Cuda,
    told: facts.Facts,
    offers: Sequence[material.Toolkit],
) -> Choice:
    numbers = [toolkits.number_to(number, candidate.version) for number in asked.cards]
    architectures = tuple(asked.suffixed.get(number, str(number)) for number in sorted(numbers))
    cmake = told.tools.cmake or _usual(told)[0]
    needed = toolkits.CMAKE_FOR_FAMILIES if any(one.endswith("f") for one in architectures) else toolkits.CMAKE
    newer = next((one for one in offers if one.name == "cmake" and one.architecture == told.cpu.architecture), None)
    return Choice(
        major=candidate.version[0],
        version=candidate.text,
        architectures=architectures,
        origin=candidate.origin,
        path=candidate.path,
        stub=candidate.stub,
        driver=0 if cards.is_tegra(told) else knows.driver,
        gcc=knows.gcc,
        compiler=setting.host_compiler or candidate.compiler or _compiler(knows, told) or "",
        packages=candidate.packages,
        wheels=candidate.wheels,
        cmake=newer if cmake and toolkits.pair(cmake) < needed else None,
    )


def _compiler(knows: toolkits.Knows, told: facts.Facts) -> str | None:
    """'' where the usual g++ will do, the name of another one that is installed and will do, None where none is known to."""
    usual = told.tools.compilers.get("g++", _usual(told)[1])
    if usual <= knows.gcc:
        return ""
    fitting = [(major, name) for name, major in told.tools.compilers.items() if major <= knows.gcc]
    return max(fitting)[1] if fitting else None


def _named_major(setting: settings.Cuda, told: facts.Facts) -> int | None:
    if setting.host_compiler is None:
        return None
    found = re.search(r"g\+\+-(\d+)\Z", setting.host_compiler)
    return told.tools.compilers.get(setting.host_compiler, int(found[1]) if found else 0) or None


def _usual(told: facts.Facts) -> tuple[str, int]:
    return toolkits.USUAL.get((told.system.os_id, told.system.os_version), ("", 0))


def _leading(text: str) -> int | None:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else None
