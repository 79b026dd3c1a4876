"""What a node says of itself in `hello`: cheap to read, and enough to plan every role.

Unknown is None or an empty value, never an invented one. Facts come from a node and are data: reading them checks types.
"""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from wattherd.records import dataclass
from wattherd.wire import fields


@dataclass(frozen=True)
class System:
    """`os_id` and `os_version` as in /etc/os-release ("debian", "12"); `libc` as glibc names itself ("2.36")."""

    hostname: str
    os_id: str = ""
    os_version: str = ""
    os_name: str = ""
    kernel: str = ""
    libc: str = ""
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
    """One card as /proc and sysfs tell without waking it. `compute_capability` and watts need a costly probe, so they are not here."""

    bus: str
    vendor: str
    name: str = ""
    uuid: str = ""


@dataclass(frozen=True)
class Built:
    """A finished build: the release with this fingerprint is the blob `digest`."""

    fingerprint: str
    digest: str
    size_bytes: int
    seconds: float = 0.0
    description: str = ""


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
    system: System
    cpu: Cpu
    python: Python
    memory_bytes: int = 0
    memory_available_bytes: int = 0
    disks: Tuple[Disk, ...] = ()
    gpus: Tuple[Gpu, ...] = ()
    jetson: str = ""
    user: str = ""
    builds: Tuple[Built, ...] = ()
    release: str = ""
    generation: Optional[Generation] = None
    interrupted: Optional[Interrupted] = None

    def build(self, fingerprint: str) -> Optional[Built]:
        return next((one for one in self.builds if one.fingerprint == fingerprint), None)


def decode(document: Mapping[str, object]) -> Facts:
    return fields.build(Facts, document, "facts")
