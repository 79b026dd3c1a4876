"""Whether what was built for a GPU runs on one. A device counts by its name and its memory, never because a list is not empty. Pure."""

from __future__ import annotations

import re
from typing import Iterable, List, Mapping, Optional, Sequence, Tuple

from wattherd.records import dataclass
from wattherd.resources import complaints
from wattherd.resources.complaints import lines
from wattherd.wire import finding

#: Names of llama.cpp's own devices. BLAS, CPU and RPC are none of this node's cards.
_GPU = re.compile(r"^(?:CUDA|ROCm|HIP|MUSA|Vulkan|Metal|MTL|SYCL|CANN|GPUOpenCL|OpenCL)\d*$")
_ROW = re.compile(r"^(?:- )?(?P<name>[A-Za-z]\w*)\s*:\s*(?P<words>.*?)\s*\((?P<total>\d{1,9}) MiB, (?P<free>\d{1,9}) MiB free\)")
_SHOWN = re.compile(
    r"registered device (?P<device>\w+)|found (?P<count>\d+) (?:CUDA|ROCm|MUSA|Vulkan) devices|using device (?P<used>\w+)"
    r"|(?P<buffer>\w+) model buffer size\s*=\s*(?P<mib>\d+(?:\.\d+)?)"
)
_BACKEND = re.compile(r"load_backend: loaded (?P<name>\w+) backend from")
#: What a process that works on a card holds open.
_NODES = re.compile(r"^/dev/(?:nvidia\d+|nvidia-uvm|nvmap|nvgpu/.*|dri/renderD\d+|kfd)$")
_MIB = 1024 * 1024
_LOAD_UVM = "nvidia-modprobe -u -c0 (or modprobe nvidia_uvm), then restart the server; the unit should wait for it at boot"


@dataclass(frozen=True)
class Device:
    name: str
    words: str
    total_mib: int
    free_mib: int

    @property
    def is_gpu(self) -> bool:
        return bool(_GPU.match(self.name)) and self.total_mib > 0


@dataclass(frozen=True)
class Scene:
    """What is known of the node and its release. `listed` None: nobody asked the release for its devices."""

    cards: int = 0
    jetson: bool = False
    backend: str = ""
    listed: Optional[Tuple[Device, ...]] = None
    list_words: str = ""
    uvm: bool = False
    available_bytes: int = 0

    @property
    def has_gpu(self) -> bool:
        return self.cards > 0 or self.jetson

    @property
    def lists_gpu(self) -> bool:
        return any(one.is_gpu for one in self.listed or ())


def read(text: str) -> List[Device]:
    """Rows of `--list-devices`, and the same rows where a log prints them."""
    rows = [_ROW.match(line.text[:500]) for line in lines.read(text.splitlines()[:2000])]
    return [Device(row.group("name"), row.group("words"), int(row.group("total")), int(row.group("free"))) for row in rows if row]


def backend_of(release: Mapping[str, object]) -> str:
    """The GPU back end that a release.json was built with, by its options or its plugins; empty for the CPU."""
    options = release.get("options")
    switches = options if isinstance(options, dict) else {}
    files = release.get("files")
    names = " ".join(str(one.get("path", "")) for one in files if isinstance(one, dict)) if isinstance(files, list) else ""
    for switch, name in (
        ("GGML_CUDA", "CUDA"),
        ("GGML_HIP", "ROCm"),
        ("GGML_VULKAN", "Vulkan"),
        ("GGML_SYCL", "SYCL"),
        ("GGML_MUSA", "MUSA"),
    ):
        if str(switches.get(switch, "")).upper() in {"ON", "1", "TRUE", "YES"} or f"libggml-{switch[5:].lower()}.so" in names:
            return name
    return ""


def holds_card(open_paths: Iterable[str]) -> bool:
    return any(_NODES.match(path) for path in open_paths)


def log_shows_gpu(log: Sequence[str]) -> bool:
    """A registered device, a found one or a buffer on one. Banners that speak of layers prove nothing."""
    for line in log:
        shown = _SHOWN.search(line[:500])
        if shown and (float(shown.group("mib") or shown.group("count") or 1) > 0):
            name = shown.group("device") or shown.group("used") or shown.group("buffer")
            if name is None or _GPU.match(name):
                return True
    return any(one.is_gpu for one in read("\n".join(log)))


def of_release(scene: Scene, where: str) -> List[finding.Finding]:
    """The release by itself, as root starts it."""
    if not scene.backend:
        if scene.has_gpu:
            words = "this node has a GPU, and its release was built without a GPU back end (built without CUDA)"
            do = "unless that is on purpose: llama_cpp backend cuda, then invoke deploy; nvcc may lie in /usr/local/cuda*/bin only"
            return [finding.found("built-without-cuda", finding.WARNING, where, words, do=do)]
        return []
    if scene.listed is None or scene.lists_gpu:
        return []
    told = next((one for one in complaints.living(scene.list_words.splitlines(), where)), None)
    if told is not None:
        return [refined(told, scene)]
    others = ", ".join(f"{one.name} ({one.total_mib} MiB)" for one in scene.listed) or "none"
    words = f"this release was built for {scene.backend}, and its list of devices has no GPU (it lists: {others})"
    do = "ls -l /dev/nvidia* and nvidia-smi on the node; a plugin that lacks a library is left out without a word: ldd on libggml-*.so"
    return [finding.found("no-gpu-visible", finding.ERROR, where, words, do=do, evidence=_first_row(scene.list_words))]


def of_server(scene: Scene, where: str, log: Sequence[str], open_paths: Optional[Sequence[str]]) -> List[finding.Finding]:
    """A running server: what it said when it started, and what it holds open now (None: unknown)."""
    found = [refined(one, scene) for one in complaints.living(log, where)]
    if not scene.backend or any(one.severity == finding.ERROR for one in found):
        return found
    if log_shows_gpu(log) or (open_paths is not None and holds_card(open_paths)):
        return found
    loaded = [met.group("name") for met in (_BACKEND.search(line) for line in log) if met]
    cpu_only = bool(loaded) and not any(_GPU.match(name) for name in loaded)
    if cpu_only or open_paths is not None:
        words = f"this release was built for {scene.backend}, and the running server uses no card"
        words += f": it loaded only {', '.join(loaded)}" if cpu_only else ": it holds no card's device file open"
        told = finding.found("no-gpu-visible", finding.ERROR, where, words, do=f"ls -l /dev/nvidia*; then systemctl restart {where}")
        found.append(refined(told, scene))
    return found


def refined(one: finding.Finding, scene: Scene) -> finding.Finding:
    """What the log alone could not know: what the node is, what it lists now, what it has."""
    if one.code == "gpu-unused" and not scene.backend:
        words = "layers were meant for the GPU, and this release was built without CUDA (or another GPU back end): it runs on the CPU"
        do = "llama_cpp backend cuda (or auto), then invoke deploy; or take gpu_layers out"
        return finding.found("built-without-cuda", one.severity, one.where, words, do=do, evidence=one.evidence)
    if one.code == "no-gpu-visible" and scene.lists_gpu:
        do = f"systemctl restart {one.where}; and let the unit wait for /dev/nvidia-uvm (nvidia-modprobe -u -c0 first)"
        return finding.found(
            one.code, one.severity, one.where, f"{one.words}. By hand the release lists one: it came later", do=do, evidence=one.evidence
        )
    if one.code == "no-gpu-visible" and scene.cards and not scene.uvm:
        words = f"{one.words}. /dev/nvidia-uvm is not there"
        return finding.found(one.code, one.severity, one.where, words, do=_LOAD_UVM, evidence=one.evidence)
    if one.code in {"unit-failed", "crash-loop"} and "beside the server" in f"{one.words} {one.evidence}" and scene.cards and not scene.uvm:
        words = f"{one.words}. /dev/nvidia-uvm is not there, and the unit waits for it"
        return finding.found(one.code, one.severity, one.where, words, do=_LOAD_UVM, evidence=one.evidence)
    if one.code == "nvmap-limit":
        return _nvmap(one, scene)
    return one


def _nvmap(one: finding.Finding, scene: Scene) -> finding.Finding:
    asked = re.search(r": (\d{1,18}) error", one.evidence)
    if asked and 0 < scene.available_bytes < int(asked.group(1)):
        words = f"the card asked for {int(asked.group(1)) / _MIB:.1f} MiB in one piece, and {scene.available_bytes / _MIB:.1f} MiB are free"
        return finding.found("gpu-memory-short", one.severity, one.where, words, do="a smaller model or context", evidence=one.evidence)
    if asked and scene.available_bytes:
        words = f"{one.words} ({scene.available_bytes / _MIB:.0f} MiB are free)"
        return finding.found(one.code, one.severity, one.where, words, do=one.do, evidence=one.evidence)
    return one


def _first_row(text: str) -> str:
    return next((line.raw for line in lines.read(text.splitlines()) if _ROW.match(line.text)), "")
