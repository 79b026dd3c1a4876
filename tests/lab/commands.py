"""The machine's own programs that the lab calls: running one, and installing the Debian packages that bring a missing one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab import places
from wattherd.errors import Problem

# program -> the Debian package that brings it
_NEEDED: Mapping[str, str] = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "tc": "iproute2",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "setsid": "util-linux",
    "mount": "mount",
    "gcc": "g++",  # which brings the C library's headers along
}
_TAIL_LINES = 12
# sbin is not on every user's PATH, and that is where Debian keeps some of them.
PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def environment(**more: str) -> dict[str, str]:
    """This process's environment with all programs within reach, in the language that the lab can read."""
    return {**os.environ, "PATH": PATH, "LC_ALL": "C.UTF-8", **more}


def run(
    argv: Sequence[str], *, check: bool = True, timeout_s: float | None = 60, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; with `check`, a failure is a Problem that carries its last words."""
    try:
        done = subprocess.run(
            argv,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env=environment() if env is None else env,
            close_fds=False,  # the lab's lock is the one inheritable file; see claim.alone
        )
    except subprocess.TimeoutExpired as late:
        raise Problem("lab-failed", f"{argv[0]} did not end within {timeout_s:.0f} s", hint=f"the command was: {' '.join(argv)}") from late
    if check and done.returncode:
        message = f"{argv[0]} ended with {done.returncode}: {tail(done.stderr or done.stdout) or 'it said nothing'}"
        raise Problem("lab-failed", message, hint=f"the command was: {' '.join(argv)}")
    return done


def tail(text: str, lines: int = _TAIL_LINES) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])


def require_root() -> None:
    if os.geteuid() != 0:
        message = "the lab needs root: it mounts file systems, makes a network bridge and boots containers"
        raise Problem("lab-needs-root", message, hint="run the same command as root, for example through `sudo -E`")


def require_programs(say: places.Say = places.quiet) -> None:
    """Install what is missing, as a person would: apt-get install, and apt-get update first where that alone did not do."""
    packages = _missing_packages()
    if not packages:
        return
    if not shutil.which("apt-get"):
        message = f"these programs are missing: {', '.join(_missing())}"
        raise Problem(
            "lab-missing", message, hint=f"install what Debian calls {', '.join(packages)}; the lab installs it itself where apt-get exists"
        )
    say(f"installing {', '.join(packages)}")
    if _install(packages).returncode or _missing_packages():
        run(["apt-get", "update", "-q"], timeout_s=600)
        done = _install(packages)
        if done.returncode or _missing_packages():
            message = f"apt-get could not install {', '.join(packages)}: {tail(done.stderr or done.stdout)}"
            raise Problem("lab-missing", message, hint="install these packages by hand, then run lab.up again")


def _install(packages: Sequence[str]) -> subprocess.CompletedProcess[str]:
    argv = ["apt-get", "install", "-qy", "--no-install-recommends", *packages]
    return run(argv, check=False, timeout_s=900, env=environment(DEBIAN_FRONTEND="noninteractive"))


def _missing() -> tuple[str, ...]:
    return tuple(program for program in _NEEDED if not shutil.which(program, path=PATH))


def _missing_packages() -> tuple[str, ...]:
    return tuple(sorted({_NEEDED[program] for program in _missing()}))


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Put a text in place whole: a killed lab leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text)
    beside.chmod(mode)
    beside.replace(path)
