"""A node's disk: an overlay over the common image, and the few files that make it this node and no other.

`<disks>/<node>/` holds upper and work (the node's own writes), root (where it is mounted), log, and node.json, which is written last:
a folder without it was never finished and is made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.lab import commands, places
from wattherd.errors import Problem

_SOURCE = "wattherd-lab"
_KINDS = ("ed25519", "ecdsa", "rsa")


@dataclass(frozen=True)
class Disk:
    """One node on disk: who it is and what it was made from."""

    node: str
    address: str
    image: str
    folder: str
    ccache: bool

    @property
    def root(self) -> Path:
        return Path(self.folder) / "root"

    @property
    def log(self) -> Path:
        return Path(self.folder) / "log"


def choose(lab: places.Places) -> Path:
    """The folder for node disks: the first of two on which overlayfs accepts the writes; where disks already are, there."""
    if used := next((folder for folder in lab.disks if any(folder.glob("*/node.json"))), None):
        return used
    said = ""
    for folder in lab.disks:
        folder.mkdir(parents=True, exist_ok=True)
        said = _try_overlay(folder)
        if not said:
            return folder
    remove_empty(lab)
    message = f"this machine cannot mount an overlay file system: {said}"
    hint = "the lab needs a kernel with overlayfs and a real disk; in a container: privileged, with a volume at /var/lib/wattherd-lab"
    raise Problem("lab-missing", message, hint=hint)


def find(lab: places.Places, node: str) -> Disk | None:
    return next((disk for disk in every(lab) if disk.node == node), None)


def every(lab: places.Places) -> tuple[Disk, ...]:
    """All finished nodes, in the order of their addresses."""
    kept = (Path(folder, "node.json") for folder in folders(lab))
    disks = [Disk(**json.loads(path.read_text())) for path in kept if path.is_file()]
    return tuple(sorted(disks, key=lambda disk: int(disk.address.rpartition(".")[2])))


def folders(lab: places.Places) -> tuple[Path, ...]:
    """All node folders, the unfinished ones too, and what a killed `choose` left."""
    return tuple(entry for disks in lab.disks if disks.is_dir() for entry in sorted(disks.iterdir()) if entry.is_dir())


def mount(disk: Disk) -> None:
    folder = Path(disk.folder)
    for name in ("upper", "work", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    if not disk.root.is_mount():
        options = f"lowerdir={disk.image},upperdir={folder / 'upper'},workdir={folder / 'work'}"
        commands.run(["mount", "-t", "overlay", _SOURCE, "-o", options, str(disk.root)])


def prepare(lab: places.Places, disk: Disk) -> None:
    """A bare disk with this node's name, address and keys."""
    remove(Path(disk.folder))
    mount(disk)
    root, node = disk.root, disk.node
    (root / "etc/hostname").write_text(f"{node}\n")
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {node}\n::1 localhost ip6-localhost\n")
    # Sorts before systemd's own 80-container-host0.network, which would ask for an address by DHCP.
    network = f"[Match]\nName=host0\n[Network]\nAddress={disk.address}/{lab.network.prefixlen}\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
    (root / "etc/systemd/network/10-host0.network").write_text(network)
    _put_host_keys(lab, node, root)
    _authorise(lab, root)
    commands.write(Path(disk.folder, "node.json"), json.dumps(asdict(disk), indent=2))


def remove(folder: Path) -> None:
    """Throw the node's writes away; nothing of it may run any more."""
    with contextlib.suppress(OSError):
        # systemd-nspawn locks a tree by its inode and leaves the empty file behind.
        root = (folder / "root").stat()
        Path(f"/run/systemd/nspawn/locks/inode-{root.st_dev}:{root.st_ino}").unlink()
    while mounted := _mounts_under(folder):
        commands.run(["umount", str(mounted[-1])])
    if folder.is_dir():
        # node.json first: what is left of a removal that was cut short is an unfinished node.
        (folder / "node.json").unlink(missing_ok=True)
        shutil.rmtree(folder)


def remove_empty(lab: places.Places) -> None:
    """The folders of a lab that has no node any more."""
    for folder in lab.disks:
        for path in (folder, folder.parent, folder.parent.parent):
            with contextlib.suppress(OSError):
                path.rmdir()


def make_key(lab: places.Places) -> None:
    """The one key that opens every node."""
    if not lab.key.is_file():
        _generate("ed25519", lab.key, "wattherd lab")


def _put_host_keys(lab: places.Places, node: str, root: Path) -> None:
    """The same host keys for as long as the cache lives: whoever has trusted a lab node once need not do it after every lab.up."""
    for kind in _KINDS:
        name = f"ssh_host_{kind}_key"
        kept = lab.host_keys / node / name
        if not kept.is_file():
            _generate(kind, kept, f"root@{node}")
        for source in (kept, kept.with_name(f"{name}.pub")):
            shutil.copy(source, root / "etc/ssh" / source.name)


def _generate(kind: str, path: Path, comment: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        commands.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", comment, "-f", str(made)])
        # The public half first: the private one is what says that the pair is whole.
        made.with_name(f"{path.name}.pub").replace(path.with_name(f"{path.name}.pub"))
        made.replace(path)


def _authorise(lab: places.Places, root: Path) -> None:
    public = lab.key.with_name(f"{lab.key.name}.pub").read_text()
    for home in ("root", "home/ops", "home/carol"):
        owner = (root / home).stat()
        folder = root / home / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        keys = folder / "authorized_keys"
        keys.write_text(public)
        keys.chmod(0o600)
        for path in (folder, keys):
            os.chown(path, owner.st_uid, owner.st_gid)


def _mounts_under(folder: Path) -> list[Path]:
    points = (Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [point for point in points if point.is_relative_to(folder)]


def _try_overlay(folder: Path) -> str:
    """Mount a small overlay and write through it; what the machine said if that failed, nothing if it worked."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="overlay-test-") as name:
        base = Path(name)
        for part in ("lower", "upper", "work", "root"):
            (base / part).mkdir()
        (base / "lower/file").write_text("")
        options = f"lowerdir={base / 'lower'},upperdir={base / 'upper'},workdir={base / 'work'}"
        done = commands.run(["mount", "-t", "overlay", _SOURCE, "-o", options, str(base / "root")], check=False)
        if done.returncode:
            return done.stderr.strip().partition("\n")[0]
        try:
            (base / "root/file").unlink()  # a removal needs the whiteouts that a poor upper file system refuses
        except OSError as refused:
            return str(refused)
        finally:
            with contextlib.suppress(Problem):
                commands.run(["umount", str(base / "root")])
    return ""
