"""Runs one program of this machine, for a limited time, and never waits for what cannot be killed. Knows no root, no locale, no meaning."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from typing import Dict, Mapping, Optional, Protocol, Sequence, Tuple

from wattherd.records import dataclass

#: How long a program that ran past its time may take to end once it was asked to, and again once it was killed.
_GRACE_S = 1.0
#: What a program that holds a lock may say: nvidia-smi's longest report of 16 cards has less, and a resident of few MiB has to hold it.
MOST_BYTES = 4 * 1024 * 1024
_PART_BYTES = 64 * 1024
_TOO_MUCH = 125


@dataclass(frozen=True)
class Result:
    """What a program left behind. `code` is its exit status, or minus the signal that ended it; 124 where its time ran out.

    `left_pid` is the process that could not even be killed (it waits in the kernel for a device); it is nobody's any more.
    """

    code: int
    out: bytes
    err: bytes
    left_pid: Optional[int] = None

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace")

    @property
    def words(self) -> str:
        """Everything that it said, errors first, for a message."""
        return (self.err + self.out).decode("utf-8", "replace").strip()


class Runner(Protocol):
    """`held` are open files that the program keeps for as long as it lives; it is given only where there are any."""

    def __call__(
        self,
        argv: Sequence[str],
        given: Optional[bytes],
        environment: Mapping[str, str],
        timeout_s: Optional[float],
        held: Sequence[int] = (),
        /,
    ) -> Result: ...


def run_program(
    argv: Sequence[str], given: Optional[bytes], environment: Mapping[str, str], timeout_s: Optional[float], held: Sequence[int] = ()
) -> Result:
    """Run it to its end, or for `timeout_s`: then it is asked to end, killed, and left alone if it does not die of that either.

    A process that waits in the kernel (state D) dies of no signal, and a pipe that its children hold never ends: neither is waited for.
    One with something `held` that says more than `MOST_BYTES` is ended too: code 125, and nothing of what it said.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            pass_fds=tuple(held),
        )
    except FileNotFoundError:
        return Result(127, b"", f"{argv[0]}: not found".encode())
    try:
        out, err = _heard(process, timeout_s) if held and given is None else process.communicate(given, timeout=timeout_s)
    except _TooMuch:
        _stopped(process)
        return Result(_TOO_MUCH, b"", f"{argv[0]}: more than {MOST_BYTES >> 20} MiB of words, which nobody reads".encode())
    except subprocess.TimeoutExpired as error:
        words = f"{argv[0]}: no end after {timeout_s} s"
        said = error.stdout or b""
        if _stopped(process):
            return Result(124, said, words.encode())
        return Result(124, said, f"{words}, and process {process.pid} cannot be killed".encode(), process.pid)
    except BaseException:
        _stopped(process)
        raise
    return Result(process.returncode, out, err)


class _TooMuch(Exception):  # noqa: N818 - becomes a Result, and is seen by nobody
    """More than `MOST_BYTES`."""


def _heard(process: subprocess.Popen[bytes], timeout_s: Optional[float]) -> Tuple[bytes, bytes]:
    """As Popen.communicate, which has no bound. Raises _TooMuch, or TimeoutExpired with what was said so far."""
    pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    said: Dict[int, bytearray] = {pipe.fileno(): bytearray() for pipe in pipes}
    out, err = said.values()
    with selectors.DefaultSelector() as waiting:
        for handle in said:
            waiting.register(handle, selectors.EVENT_READ)
        while waiting.get_map():
            left_s = None if end_s is None else end_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise subprocess.TimeoutExpired(process.args, timeout_s or 0.0, bytes(out))
            for key, _ in waiting.select(left_s):
                part = os.read(key.fd, _PART_BYTES)
                if not part:
                    waiting.unregister(key.fd)
                said[key.fd] += part
                if len(out) + len(err) > MOST_BYTES:
                    raise _TooMuch
    process.wait(None if end_s is None else max(0.0, end_s - time.monotonic()))
    for pipe in pipes:
        pipe.close()
    return bytes(out), bytes(err)


def _stopped(process: subprocess.Popen[bytes]) -> bool:
    """True when it is gone. Asked first: a probe of a card that is killed at once can leave the card stuck."""
    for end in (process.terminate, process.kill):
        end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
            break
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    return process.returncode is not None
