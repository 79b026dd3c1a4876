"""What a node says of itself in `hello`: cheap to read, and enough to plan every role.

Unknown is None or an empty value, never an invented one. Facts come from a node and are data: reading them checks types.
"""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from wattherd.records import dataclass, field
from wattherd.wire import fields


@dataclass(frozen=True)
class System:
    """`os_id` and `os_version` as in /etc/os-release ("debian", "12"); `libc` as glibc names itself ("2.36"), `libstdcxx` the
    newest GLIBCXX that is there ("3.4.30"). `components` are the parts of the distribution that apt has lists of ("main", "non-free").
    """

    hostname: str
    os_id: str = ""
    os_version: str = ""
    os_name: str = ""
    kernel: str = ""
    libc: str = ""
    libstdcxx: str = ""
    components: Tuple[str, ...] = ()
    init: str = ""
    boot_id: str = ""
    uptime_s: float = 0.0


@dataclass(frozen=True)
class Cpu:
    """`architecture` as uname says (x86_64, aarch64); `level` is the psABI level of x86-64 (x86-64-v1 … v4), empty elsewhere."""

    architecture: str
    model: str = ""
    threads: int = 0
    level: str = ""


@dataclass(frozen=True)
class Python:
    path: str
    version: str


@dataclass(frozen=True)
class Disk:
    """Free bytes of the file system under one of Wattherd's places."""

    path: str
    free_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class Gpu:
    """One card, told without waking it: from /proc and sysfs, by its name, and for the rest by what nvidia-smi once said of it.

    `compute_capability` is as NVIDIA writes it ("8.6"); 0 MiB is unknown. The watts are what its power limit may be (none of them
    changes while a driver runs); None is unknown, or a card whose limit cannot be set. What it draws needs a costly probe and is not here.
    """

    bus: str
    vendor: str
    name: str = ""
    uuid: str = ""
    compute_capability: str = ""
    memory_mib: int = 0
    power_min_w: Optional[float] = None
    power_max_w: Optional[float] = None
    power_default_w: Optional[float] = None


@dataclass(frozen=True)
class Cuda:
    """A CUDA toolkit that is on this node: `path` has bin/nvcc. `stub` says that libcuda can be linked without a driver.

    `packaged` is the distribution's own, which lies in the system's folders. `lacks` names a part that a build needs and that is not there.
    """

    path: str
    version: str = ""
    stub: bool = False
    packaged: bool = False
    lacks: str = ""


@dataclass(frozen=True)
class Tools:
    """What compiles here: the major version of each g++ by its name ("g++", "g++-12"), and CMake's version. Empty is not installed."""

    compilers: Mapping[str, int] = field(default_factory=dict)
    cmake: str = ""


@dataclass(frozen=True)
class Built:
    """A finished build: the release with this fingerprint is the blob `digest`.

    `versions` are the newest of each kind of symbol version that any file in it needs ("GLIBC_2.34", "GLIBCXX_3.4.30").
    """

    fingerprint: str
    digest: str
    size_bytes: int
    seconds: float = 0.0
    description: str = ""
    versions: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Generation:
    """The last manifest that was applied whole: its number on this node and the sha256 of its canonical bytes."""

    number: int
    digest: str
    applied_at: str = ""


@dataclass(frozen=True)
class Interrupted:
    """A run that began and never ended: power cut, killed, or link lost."""

    started_at: str
    resource: str = ""
    verb: str = ""


@dataclass(frozen=True)
class Facts:
    """`power_modes` are the names that a Jetson's own nvpmodel.conf has, in its order.

    `simulated`: the cards or the board of this node are the lab's, and every figure of theirs is to be called simulated.
    """

    system: System
    cpu: Cpu
    python: Python
    memory_bytes: int = 0
    memory_available_bytes: int = 0
    disks: Tuple[Disk, ...] = ()
    gpus: Tuple[Gpu, ...] = ()
    driver: str = ""
    cuda: Tuple[Cuda, ...] = ()
    tools: Tools = field(default_factory=Tools)
    jetson: str = ""
    soc: str = ""
    power_modes: Tuple[str, ...] = ()
    simulated: bool = False
    user: str = ""
    builds: Tuple[Built, ...] = ()
    release: str = ""
    generation: Optional[Generation] = None
    interrupted: Optional[Interrupted] = None

    def build(self, fingerprint: str) -> Optional[Built]:
        return next((one for one in self.builds if one.fingerprint == fingerprint), None)


def decode(document: Mapping[str, object]) -> Facts:
    return fields.build(Facts, document, "facts")
