"""Which binary a unit really runs, and whether it is the one that was deployed. Pure."""

from __future__ import annotations

import re
from typing import List, Mapping, Optional

from wattherd import store
from wattherd.node.findings.service import Service
from wattherd.records import dataclass
from wattherd.wire import finding

_RELEASES = store.RELEASES + "/"
_GONE = " (deleted)"


@dataclass(frozen=True)
class Build:
    """As the binary itself says; 0 and empty where it does not."""

    number: int = 0
    commit: str = ""

    @property
    def words(self) -> str:
        return f"build {self.number}" + (f" ({self.commit})" if self.commit else "") if self.number else ""


@dataclass(frozen=True)
class Deployed:
    """The release that `current` leads to: its folder (empty: nothing is deployed) and the build number that it was built with."""

    path: str = ""
    number: int = 0


def version(text: str) -> Build:
    """`version: 0.6.0-dev (build N, commit H)` and the older `version: N (H)`. Zero means that none was built in."""
    met = re.search(r"version: \S+ \(build (\d{1,9}),? commit (\w{1,40})\)", text) or re.search(r"version: (\d{1,9}) \((\w{1,40})\)", text)
    return Build(int(met.group(1)), met.group(2)) if met else Build()


def numbered(release: Mapping[str, object]) -> int:
    """The build number that a release.json was built with; 0 when it names none."""
    options = release.get("options")
    value = str(options.get("LLAMA_BUILD_NUMBER", "")) if isinstance(options, dict) else ""
    return int(value) if re.match(r"\d{1,9}$", value) else 0


def judge(service: Service, exe: str, deployed: Deployed, running: Build) -> List[finding.Finding]:
    """`exe` is where /proc says that the process came from."""
    path = exe[: -len(_GONE)] if exe.endswith(_GONE) else exe
    if not path:
        return []
    build = running.words or "of an unknown build"
    wanted = f"build {deployed.number}" if deployed.number else "another"
    if deployed.path and not path.startswith(deployed.path.rstrip("/") + "/"):
        older = "an older" if 0 < running.number < deployed.number else "another"
        words = f"it runs {older} binary than the deployed one: {path}, {build}; current is {_short(deployed.path)}, {wanted}"
        do = _restart(service)
        if not path.startswith(_RELEASES):
            do = f"make the unit start {store.CURRENT}/bin/llama-server, by its whole path"
        return [finding.found("other-binary-runs", finding.ERROR, service.name, words, do=do, evidence=exe)]
    if exe.endswith(_GONE):
        words = f"it runs a binary whose file was replaced or removed since: {path}, {build}"
        return [finding.found("other-binary-runs", finding.ERROR, service.name, words, do=_restart(service), evidence=exe)]
    if deployed.path and deployed.number and running.number and running.number != deployed.number:
        words = f"its binary calls itself {build} and its release {wanted}: built under another number, or changed since"
        do = "invoke deploy verifies the release's files"
        return [finding.found("build-number-differs", finding.WARNING, service.name, words, do=do, evidence=exe)]
    return []


def _restart(service: Service) -> str:
    return f"invoke deploy restarts it when no request is in flight (by hand: systemctl restart {service.name})"


def _short(path: str) -> str:
    return path[len(_RELEASES) :] if path.startswith(_RELEASES) else path


def missing(text: str, path: str) -> Optional[finding.Finding]:
    """ldd's `not found` lines for one file of a release. A library there under another name than its SONAME counts as missing."""
    lost = list(dict.fromkeys(re.findall(r"^\s*(\S+\.so[\w.]*) => not found", text, re.MULTILINE)))
    needs = list(dict.fromkeys(re.findall(r"version [`'\"]((?:GLIBC|GLIBCXX|CXXABI)_[\d.]+)['\"] not found", text)))
    if needs:
        words = f"it was built on a newer system than this node: it needs {', '.join(needs[:4])}"
        return finding.found(
            "libc-too-old", finding.ERROR, path, words, do="build it for this node: its own fingerprint, or the group's oldest system"
        )
    if not lost:
        return None
    plugin = "; a back end that cannot be loaded is left out without a word" if "libggml-" in path.rpartition("/")[2] else ""
    if all(name.startswith("libcuda.so") for name in lost):
        return finding.found(
            "driver-not-installed",
            finding.ERROR,
            path,
            f"it needs libcuda, which comes with the NVIDIA driver: the driver is not installed{plugin}",
            do="install the driver's compute packages and load the module, then invoke doctor again",
            evidence=lost[0],
        )
    words = f"it needs {', '.join(lost[:6])}, not found on this node{plugin}"
    do = "a CUDA release ships its libraries under their SONAME (libcudart.so.12, not libcudart.so.12.0): build and deploy it again"
    return finding.found("library-missing", finding.ERROR, path, words, do=do, evidence=f"{lost[0]} => not found")
