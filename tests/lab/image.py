"""The nodes' common root file system: made once by mmdebstrap, kept in the cache under a fingerprint of its recipe.

It is made in a folder beside its place and renamed when whole, so that a killed make leaves nothing that looks finished.
What belongs to one node (name, address, keys) is not here; see `disk`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.lab import commands, mirror, places
from wattherd.errors import Problem

SUITE = "bookworm"
_BARE = ("systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "sudo", "iproute2", "procps")
# Nodes have no way out: what the roles need from the distribution is in the image already.
_FULL = (
    *("ca-certificates", "curl", "rsync", "aria2", "haproxy"),
    *("cmake", "g++", "ccache", "ninja-build", "libssl-dev"),
)
_LOCK = "image.lock"
_CUSTOMISE = Path(__file__).with_name("customise.sh")


@dataclass(frozen=True)
class Recipe:
    """All that decides what is in an image."""

    suite: str
    packages: tuple[str, ...]
    customise: str

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def recipe(suite: str = SUITE, include: Sequence[str] | None = None) -> Recipe:
    """The ordinary node's recipe; another suite is a bare machine with Python and SSH unless told more."""
    packages = tuple(include) if include is not None else (*_BARE, *_FULL) if suite == SUITE else _BARE
    return Recipe(suite, packages, _CUSTOMISE.read_text())


def path(wanted: Recipe, lab: places.Places) -> Path:
    return lab.cache / f"image-{wanted.fingerprint}"


def make(
    suite: str = SUITE, include: Sequence[str] | None = None, *, lab: places.Places | None = None, say: places.Say = places.quiet
) -> Path:
    """The image's folder, made now if the cache has none."""
    where = lab or places.here()
    wanted = recipe(suite, include)
    done = path(wanted, where)
    if done.is_dir():
        return done
    commands.require_root()
    commands.require_programs(say)
    where.cache.mkdir(parents=True, exist_ok=True)
    with _only_one(where.cache / _LOCK, say):
        if not done.is_dir():
            _remove_making(where)
            _make(wanted, done, say)
    return done


def _make(wanted: Recipe, done: Path, say: places.Say) -> None:
    say(f"making the {wanted.suite} node image, once on this machine (half a minute on a fast mirror)")
    with tempfile.TemporaryDirectory(dir=done.parent, prefix="making-") as folder:
        tree = Path(folder) / "tree"
        ended = commands.run(_argv(wanted, tree, Path(folder)), check=False, timeout_s=None)
        if ended.returncode:
            message = f"mmdebstrap could not make the {wanted.suite} image: {commands.tail(ended.stderr)}"
            raise Problem("lab-failed", message, hint="check with `apt-get update` that this machine reaches its package mirror")
        tree.chmod(0o755)
        os.sync()
        tree.rename(done)


def _argv(wanted: Recipe, tree: Path, folder: Path) -> list[str]:
    settings = folder / "apt.conf"
    settings.write_text(mirror.settings())
    customise = folder / "customise.sh"
    customise.write_text(wanted.customise)
    customise.chmod(0o755)
    return [
        # The whole make dies with this process, however that ends: its own process namespace, killed when the parent is gone.
        *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase", f"--include={','.join(wanted.packages)}"),
        *(f"--aptopt={settings}", f"--customize-hook={customise}", wanted.suite, str(tree)),
        *mirror.lines(wanted.suite),
    ]


def remove_leftovers(lab: places.Places) -> None:
    """What killed makes left, unless one is at work just now."""
    with contextlib.suppress(BlockingIOError), (lab.cache / _LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_making(lab)


def _remove_making(lab: places.Places) -> None:
    """Folders of makes that were killed: the lock says that none is at work."""
    for left in lab.cache.glob("making-*"):
        shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _only_one(lock: Path, say: places.Say) -> Iterator[None]:
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting: another run is making the image")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
