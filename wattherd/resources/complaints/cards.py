"""Complaints about what the machine lacks, in the words of CUDA, the loader and the kernel: cards, drivers, libraries, memory, CPU."""

from __future__ import annotations

from typing import Tuple

from wattherd.resources.complaints.rule import Groups, Rule

#: How a line speaks of a CUDA error: at the start of the back end, by number or name, or by its text alone.
_CUDA = r"(?:failed to initialize (?:CUDA|ROCm|MUSA)|(?:CUDA|cuda\w*|ROCm|hip\w*)\b[^:\n]{0,80}?(?:error|failed|failure)\b|cudaError\w*)"
_MIB = 1024 * 1024


def cuda(number: int, name: str, text: str) -> str:
    """A stem that takes the number (after "error"), the constant's name, or the sentence after anything that speaks of CUDA."""
    return rf"(?:CUDA|cuda\w*) (?:unknown )?error:?\s*\(?{number}\b|\b{name}\b|{_CUDA}.*(?:{text})|(?:{text})\s*\({number}\)"


def _asked(groups: Groups) -> Groups:
    return {**groups, "size": f"{int(groups['bytes']) / _MIB:.1f} MiB"}


RULES: Tuple[Rule, ...] = (
    Rule(
        "library-missing",
        r"error while loading shared libraries: (?P<name>[^:\s]+)|(?P<other>\S+\.so[\w.]*): cannot open shared object",
        "the program lacks the library {name}",
        "ldd on the release's files names each; a CUDA release ships its libraries by their SONAME, libcuda comes with the driver",
        shape=lambda groups: {**groups, "name": groups["name"] if groups["name"] != "?" else groups["other"]},
    ),
    Rule(
        "libc-too-old",
        r"version [`'\"]?(?P<name>(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+)['\"]? not found",
        "this release was built on a newer system than this node: it needs {name}",
        "build it for this node: its own fingerprint, on the oldest system of the group",
    ),
    Rule(
        "wrong-cpu",
        r"status=4/ILL|signal 4\b|SIGILL|illegal instruction|trap invalid opcode"
        r"|exit(?:ed)?(?: with)?(?: code| status)?[ :=]*(?:132|-4)\b",
        "the program was built for another CPU: it met an instruction that this one lacks",
        "build for this CPU's level, or all variants (GGML_NATIVE=OFF, GGML_CPU_ALL_VARIANTS, GGML_BACKEND_DL); --version does not show it",
    ),
    Rule(
        "nvmap-limit",
        r"NvMapMemAlloc\w*: (?P<bytes>\d{1,18}) error 12\b",
        "the Jetson's kernel refused one buffer of {size}: a limit or fragmentation of its memory map, not a model that is too big",
        "restart the node and start this server first; else another L4T revision, or smaller buffers (fewer GPU layers, less context)",
        shape=_asked,
    ),
    Rule(
        "kv-needs-flash",
        r"(?:quantized|quantised) V cache (?:requires|was requested)|V cache quantization requires flash",
        "a quantised V cache needs flash attention, which is off",
        "set flash_attention: on, or a V type of f16",
    ),
    Rule(
        "gpu-memory-short",
        r"(?:allocating (?P<size>[\d.]+ MiB) on device (?P<device>\d+): )?cuda(?:Malloc|MemCreate)\w* failed: out of memory"
        r"|unable to allocate (?P<buffer>(?:CUDA|ROCm|Vulkan|SYCL|MUSA)\w*) buffer|CUDA error: out of memory|cudaErrorMemoryAllocation"
        r"|ErrorOutOfDeviceMemory",
        "the card's memory is too small for what was asked of it{asked}",
        "fewer GPU layers, a smaller context or KV type; nvidia-smi shows who else holds memory",
        shape=lambda groups: {**groups, "asked": f" ({groups['size']} on device {groups['device']})" if groups["size"] != "?" else ""},
    ),
    Rule(
        "memory-short",
        r"unable to allocate (?:CPU|host)\w* buffer|failed to allocate (?:buffer for kv cache|compute|output buffer|\d+ bytes)"
        r"|std::bad_alloc|cannot allocate memory|failed to (?:mmap|mlock)",
        "the node's memory is too small for model and context",
        "a smaller context, a quantised KV cache or a smaller model; cache_ram bounds the prompt cache",
    ),
    Rule(
        "driver-too-old",
        cuda(35, "cudaErrorInsufficientDriver", r"driver version is insufficient"),
        "the driver is too old for the CUDA that this release was built with; the server runs on the CPU",
        "upgrade the driver (CUDA 13 needs 580, CUDA 12 needs 525), or build for the oldest driver of the group",
        deadly=False,
    ),
    Rule(
        "driver-mismatch",
        cuda(803, "cudaErrorSystemDriverMismatch", r"unsupported display driver"),
        "the loaded driver and its installed library differ in version; new processes get no GPU",
        "let what still works go on; drain the node and reboot it",
        deadly=False,
    ),
    Rule(
        "driver-too-old",
        cuda(804, "cudaErrorCompatNotSupportedOnDevice", r"forward compatibility was attempted"),
        "a CUDA compatibility library is used on a card that does not allow it",
        "remove cuda-compat from the library path and install a driver that is new enough",
        deadly=False,
    ),
    Rule(
        "fabric-not-ready",
        cuda(802, "cudaErrorSystemNotReady", r"system not yet initialized"),
        "the NVSwitch fabric is not up: nvidia-fabricmanager does not run, or is of another version than the driver",
        "systemctl status nvidia-fabricmanager; install the one of the driver's exact version",
        deadly=False,
    ),
    Rule(
        "gpu-sandbox",
        cuda(304, "cudaErrorOperatingSystem", r"OS call failed"),
        "the driver could not reach what it needs of /proc: a rule of the unit's sandbox, not a device file",
        "look at the unit's ProcSubset, ProtectProc, InaccessiblePaths and at AppArmor: newer drivers read /proc/driver/nvidia",
        deadly=False,
    ),
    Rule(
        "gpu-after-suspend",
        cuda(999, "cudaErrorUnknown", r"unknown error"),
        "CUDA is in an unknown state, as after a suspend; nvidia-smi works all the same and proves nothing",
        "stop the server, modprobe -r nvidia_uvm, modprobe nvidia_uvm, start it; if it is in use: fuser -v /dev/nvidia-uvm",
        deadly=False,
    ),
    Rule(
        "no-gpu-visible",
        cuda(100, "cudaErrorNoDevice", r"no CUDA-capable device|no ROCm-capable device"),
        "a GPU build saw no card when it started; the server runs on the CPU",
        "ls -l /dev/nvidia*; load nvidia_uvm before the unit starts (nvidia-modprobe -u -c0), and check CUDA_VISIBLE_DEVICES",
        deadly=False,
    ),
    Rule(
        "arch-not-built",
        cuda(209, "cudaErrorNoKernelImageForDevice", r"no kernel image is available|invalid device function"),
        "this release has no code for this card's architecture",
        "name the card's compute capability in the inventory's cuda settings and build again",
    ),
    Rule(
        "gpu-busy",
        cuda(46, "cudaErrorDevicesUnavailable", r"busy or unavailable"),
        "the card is held by another process alone (exclusive mode), or its state is bad",
        "nvidia-smi -q -d COMPUTE; nvidia-smi shows who holds it",
    ),
    Rule(
        "gpu-ecc",
        cuda(214, "cudaErrorECCUncorrectable", r"uncorrectable ECC"),
        "the card met a memory error that it could not correct",
        "see the Xid lines of the kernel log; drain the node and reset the GPU",
    ),
    Rule(
        "gpu-failed",
        rf"(?P<what>{_CUDA}[:\s].*)",
        "CUDA reports an error: {what}",
        "see the Xid lines of the kernel log beside it",
    ),
    Rule(
        "gpu-unused",
        r"no usable GPU found|no GPU (?:found|detected).*(?:ignored|CPU)|not compiled with GPU offload support",
        "layers were meant for the GPU, and the server found none: it runs on the CPU",
        "llama-server --list-devices on the node; is the release a GPU build, and does the driver work (nvidia-smi)?",
        deadly=False,
    ),
)  # fmt: skip
