"""The only door to the operating system: files under a root, programs, and the clock.

Everything that runs on a node takes a Machine, so that tests can give it another root, a strict runner and a clock of
their own. Paths are absolute as the node sees them; `root` is put in front. Knows nothing of resources.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import json
import os
import pwd
import stat
import time
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from wattherd import errors
from wattherd.process import Result, Runner, run_program

__all__ = ["BOOT_ID", "Machine", "Result", "Runner", "no_space", "run_program"]

BOOT_ID = "/proc/sys/kernel/random/boot_id"
_BLOCK_BYTES = 1024 * 1024
#: Programs run with a fixed locale and path: their words are parsed, and a login's environment must not change a result.
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


class Machine:
    """`digest_cache` False makes every digest a full read (an explicit verify)."""

    def __init__(self, root: str = "/", run: Runner = run_program, *, digest_cache: bool = True) -> None:
        self.root = root.rstrip("/")
        self._runner = run
        self._digests: Optional[Dict[str, List[object]]] = None
        self._digests_dirty = False
        self._digest_cache = digest_cache
        self._names: Dict[Tuple[str, int], str] = {}

    # -- clock

    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def boot_id(self) -> str:
        """Another one after every boot; empty where the kernel tells none."""
        return self.text(BOOT_ID).strip()

    def wait(self, seconds_s: float) -> None:
        """Pause between two looks at something outside that offers no event (a port, another program's state)."""
        time.sleep(seconds_s)

    # -- programs

    def run(
        self,
        argv: Sequence[str],
        *,
        given: Optional[bytes] = None,
        timeout_s: Optional[float] = None,
        environment: Optional[Mapping[str, str]] = None,
        held: Sequence[int] = (),
    ) -> Result:
        """`held` are open files that the program keeps for as long as it lives: a lock that outlives this process."""
        surroundings = {**_ENVIRONMENT, **(environment or {})}
        if held:
            return self._runner(argv, given, surroundings, timeout_s, held)
        return self._runner(argv, given, surroundings, timeout_s)

    def must(
        self,
        argv: Sequence[str],
        *,
        given: Optional[bytes] = None,
        timeout_s: Optional[float] = None,
        environment: Optional[Mapping[str, str]] = None,
    ) -> Result:
        """As `run`, but anything except exit status 0 is a `command-failed` with the program's last words."""
        done = self.run(argv, given=given, timeout_s=timeout_s, environment=environment)
        if done.code != 0:
            raise errors.Problem("command-failed", f"{' '.join(argv[:4])}: {_last_words(done)}", exit_status=done.code)
        return done

    def which(self, name: str) -> Optional[str]:
        import shutil

        return shutil.which(name, path=_ENVIRONMENT["PATH"])

    # -- files

    def path(self, path: str) -> str:
        return self.root + path if self.root else path

    def lstat(self, path: str) -> Optional[os.stat_result]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return os.lstat(self.path(path))
        return None

    def exists(self, path: str) -> bool:
        return self.lstat(path) is not None

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(self.path(path))

    def names(self, path: str) -> List[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(os.listdir(self.path(path)))
        return []

    def read(self, path: str) -> Optional[bytes]:
        """The whole file; None where there is none. For small files: bulk goes by `digest` and `blocks`."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, ProcessLookupError), open(self.path(path), "rb") as stream:
            return stream.read()
        return None

    def text(self, path: str) -> str:
        return (self.read(path) or b"").decode("utf-8", "replace")

    def readlink(self, path: str) -> Optional[str]:
        with contextlib.suppress(OSError):
            return os.readlink(self.path(path))
        return None

    def make_dirs(self, path: str, mode: int = 0o755) -> None:
        os.makedirs(self.path(path), mode=mode, exist_ok=True)

    def write(self, path: str, body: bytes, *, mode: int = 0o644, owner: Optional[Tuple[int, int]] = None) -> None:
        """Whole or not at all: a temporary file beside it, fsync, rename. A power cut leaves the old file or the new."""
        real = self.path(path)
        temporary = f"{real}.wattherd-{os.getpid()}"
        with no_space(path):
            try:
                handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(handle, "wb") as stream:
                    stream.write(body)
                    stream.flush()
                    if owner is not None and self._may_chown():
                        os.fchown(stream.fileno(), *owner)
                    os.fchmod(stream.fileno(), mode)
                    os.fsync(stream.fileno())
                os.rename(temporary, real)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
                raise
        self.sync_folder(os.path.dirname(path))

    def sync_folder(self, path: str) -> None:
        handle = os.open(self.path(path) or "/", os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def symlink(self, path: str, target: str) -> None:
        """Atomic replacement: a link beside it, then rename."""
        temporary = f"{self.path(path)}.wattherd-{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        os.symlink(target, temporary)
        os.rename(temporary, self.path(path))
        self.sync_folder(os.path.dirname(path))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.path(path), mode)

    def chown(self, path: str, owner: Tuple[int, int]) -> None:
        if self._may_chown():
            os.chown(self.path(path), owner[0], owner[1], follow_symlinks=False)

    def rename(self, old: str, new: str) -> None:
        os.rename(self.path(old), self.path(new))
        self.sync_folder(os.path.dirname(new))

    def unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(path))

    def rmdir(self, path: str) -> bool:
        """True when it is gone; False when something is still in it."""
        try:
            os.rmdir(self.path(path))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def remove_tree(self, path: str) -> None:
        import shutil

        shutil.rmtree(self.path(path), ignore_errors=False)

    def free_bytes(self, path: str) -> int:
        """Bytes that root may still write where `path` is, or will be."""
        real = self.path(path)
        while not os.path.exists(real) and real != "/":
            real = os.path.dirname(real) or "/"
        found = os.statvfs(real)
        return found.f_bavail * found.f_frsize

    # -- digests

    def blocks(self, path: str) -> Iterator[bytes]:
        with open(self.path(path), "rb", buffering=0) as stream:
            while True:
                block = stream.read(_BLOCK_BYTES)
                if not block:
                    return
                yield block

    def digest(self, path: str) -> str:
        """sha256 of a file. The full read is spared while size, mtime, ctime and inode are those of the last one (docs/protocol.md)."""
        found = os.stat(self.path(path))
        key: List[object] = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
        known = self._remembered(path, key)
        if self._digest_cache and known:
            return known
        summing = hashlib.sha256()
        for block in self.blocks(path):
            summing.update(block)
        value = summing.hexdigest()
        # A file changed within the clock's own grain of now could change again unseen: such a digest is not kept.
        if abs(time.time() - found.st_mtime) > 2:
            self._known_digests()[path] = [*key, value]
            self._digests_dirty = True
        return value

    def _remembered(self, path: str, key: List[object]) -> str:
        """What is known of this very state of the file; another process (a bulk copy) may have learnt it since we read the cache."""
        row = self._known_digests().get(path)
        if row is None or row[:4] != key:
            row = self._stored_digests().get(path)
        return str(row[4]) if row is not None and row[:4] == key else ""

    def know_digest(self, path: str, digest: str) -> None:
        """Take over a digest that was computed while the file was written, so that it is not read once more (40 GB take minutes)."""
        found = os.stat(self.path(path))
        self._known_digests()[path] = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, digest]
        self._digests_dirty = True

    def keep_digests(self) -> None:
        """Write the digest cache, Wattherd's own program cache: the one thing that a check may write."""
        if not self._digests_dirty or not self.is_dir("/var/cache/wattherd"):
            return
        rows = {path: row for path, row in {**self._stored_digests(), **self._known_digests()}.items() if self.exists(path)}
        body = json.dumps(rows, separators=(",", ":")).encode()
        with contextlib.suppress(OSError):
            self.write("/var/cache/wattherd/digests.json", body, mode=0o600)
        self._digests_dirty = False

    def _known_digests(self) -> Dict[str, List[object]]:
        if self._digests is None:
            self._digests = self._stored_digests()
        return self._digests

    def _stored_digests(self) -> Dict[str, List[object]]:
        with contextlib.suppress(ValueError, OSError):
            loaded = json.loads(self.read("/var/cache/wattherd/digests.json") or b"{}")
            return {path: row for path, row in loaded.items() if isinstance(row, list) and len(row) == 5}
        return {}

    # -- users

    def owner_name(self, uid: int) -> str:
        return self._cached("u", uid, lambda: pwd.getpwuid(uid).pw_name)

    def group_name(self, gid: int) -> str:
        return self._cached("g", gid, lambda: grp.getgrgid(gid).gr_name)

    def owner_ids(self, owner: str, group: str) -> Tuple[int, int]:
        return self._id(owner, "user", lambda: pwd.getpwnam(owner).pw_uid), self._id(group, "group", lambda: grp.getgrnam(group).gr_gid)

    @staticmethod
    def _id(name: str, kind: str, look: Callable[[], int]) -> int:
        try:
            return look()
        except KeyError as error:
            hint = "list it under base.users before what it owns"
            raise errors.Problem("user-unknown", f"there is no {kind} '{name}' on this node", hint=hint) from error

    def _cached(self, kind: str, number: int, look: Callable[[], str]) -> str:
        key = (kind, number)
        if key not in self._names:
            try:
                self._names[key] = look()
            except KeyError:
                return str(number)  # not kept: this very run may make the user
        return self._names[key]

    def _may_chown(self) -> bool:
        return os.geteuid() == 0

    @staticmethod
    def mode_text(found: os.stat_result) -> str:
        return f"{stat.S_IMODE(found.st_mode):04o}"


@contextlib.contextmanager
def no_space(path: str) -> Iterator[None]:
    """Turn the kernel's words for a full disk, a quota and a read-only file system into a Problem that names the place."""
    import errno

    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise errors.Problem(
                "disk-full", f"no space left while writing {path}", hint=f"df -h {os.path.dirname(path)}; nothing half written was kept"
            ) from error
        if error.errno == errno.EROFS:
            raise errors.Problem(
                "permission", f"{path} lies on a read-only file system", hint="mount | grep ' ro,' and dmesg tell why"
            ) from error
        raise


def _last_words(done: Result) -> str:
    lines: Union[List[str], Tuple[str, ...]] = [line for line in done.words.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[:600] or f"exit status {done.code}"
