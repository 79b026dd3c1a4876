"""Bulk: whatever is cut, damaged, doubled or too large, the store holds whole blobs only, and what arrived is not sent twice."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattherd import errors, store
from wattherd import machine as machines
from wattherd.node import bulk

BODY = bytes(range(256)) * 700
DIGEST = hashlib.sha256(BODY).hexdigest()
CHECKOUT = Path(bulk.__file__).resolve().parents[2]
MIB = 1024 * 1024


@pytest.fixture
def machine(tmp_path: Path) -> machines.Machine:
    return machines.Machine(str(tmp_path))


@dataclass(frozen=True)
class Said:
    """What the node said and with which status it ended."""

    status: int
    lines: list[dict[str, Any]]

    @property
    def offset(self) -> int:
        return int(next(line for line in self.lines if line["event"] == "ready")["offset"])

    @property
    def end(self) -> Mapping[str, Any]:
        assert self.lines[-1]["event"] == "end"
        return self.lines[-1]

    @property
    def code(self) -> str:
        return str(self.end.get("problem", {}).get("code", ""))


def receive(machine: machines.Machine, source: IO[bytes], *, digest: str = DIGEST, size_bytes: int = len(BODY), **more: float) -> Said:
    sink = io.BytesIO()
    status = bulk.receive(machine, digest, size_bytes, source, sink, **more)
    check_store(machine)
    return Said(status, [json.loads(line) for line in sink.getvalue().splitlines()])


class Peer:
    """The sender: it listens for the offset, then sends from there, and may hang up on the way."""

    def __init__(self, machine: machines.Machine, body: bytes = BODY) -> None:
        self.machine = machine
        self.body = body
        self.sent_bytes = 0

    def send(self, cut: int | None = None, size_bytes: int = len(BODY), digest: str = DIGEST) -> Said:
        """`cut` is the position in the whole body at which the line goes dead."""
        begun = self.machine.lstat(store.partial(digest))
        offset = begun.st_size if begun is not None and begun.st_size <= size_bytes else 0
        if store.has(self.machine, digest):
            offset = len(self.body)
        source = io.BytesIO(self.body[offset : len(self.body) if cut is None else max(cut, offset)])
        said = receive(self.machine, source, digest=digest, size_bytes=size_bytes)
        self.sent_bytes += source.tell()
        if any(line["event"] == "ready" for line in said.lines):
            assert said.offset == offset
        return said


def check_store(machine: machines.Machine) -> None:
    """The promise: no name in the store that is a digest holds anything else."""
    for name in machine.names(store.BLOBS):
        if "." not in name:
            assert hashlib.sha256(machine.read(f"{store.BLOBS}/{name}") or b"").hexdigest() == name


def partial_bytes(machine: machines.Machine, digest: str = DIGEST) -> int | None:
    found = machine.lstat(store.partial(digest))
    return found.st_size if found else None


# -- receiving


def test_whole_blob_in_one_go(machine: machines.Machine) -> None:
    said = Peer(machine).send()
    assert said == Said(0, [{"event": "ready", "offset": 0}, {"event": "end", "received": len(BODY)}])
    found = machine.lstat(store.blob(DIGEST))
    assert found is not None
    assert machine.mode_text(found) == "0644"
    assert machine.names(store.BLOBS) == [DIGEST]


def test_empty_blob(machine: machines.Machine) -> None:
    empty = hashlib.sha256(b"").hexdigest()
    assert Peer(machine, b"").send(size_bytes=0, digest=empty).end == {"event": "end", "received": 0}
    assert store.has(machine, empty)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, len(BODY)), max_size=6))
def test_cut_anywhere_any_number_of_times_no_byte_is_sent_twice(tmp_path: Path, cuts: list[int]) -> None:
    root = tmp_path / os.urandom(6).hex()
    peer = Peer(machines.Machine(str(root)))
    for cut in sorted(cuts):
        said = peer.send(cut=cut)
        if cut < len(BODY):
            assert (said.status, said.code) == (1, "stream-cut")
            assert not store.has(peer.machine, DIGEST)
            assert partial_bytes(peer.machine) == cut
    said = peer.send()
    assert said.code == ""
    assert peer.sent_bytes == len(BODY)
    assert peer.machine.read(store.blob(DIGEST)) == BODY


def test_blob_that_is_there_already_is_not_sent(machine: machines.Machine) -> None:
    Peer(machine).send()
    again = Peer(machine)
    assert again.send().lines == [{"event": "ready", "offset": len(BODY)}, {"event": "end", "received": 0}]
    assert again.sent_bytes == 0
    assert machine.names(store.BLOBS) == [DIGEST]


def test_killed_between_last_byte_and_rename(machine: machines.Machine) -> None:
    """The partial is whole: nothing is sent, it is read again and named."""
    store.prepare(machine)
    machine.write(store.partial(DIGEST), BODY)
    assert Peer(machine).send().lines == [{"event": "ready", "offset": len(BODY)}, {"event": "end", "received": 0}]
    assert store.has(machine, DIGEST)


def test_damaged_blob_in_the_store_is_replaced(machine: machines.Machine) -> None:
    store.prepare(machine)
    machine.write(store.blob(DIGEST), b"bit rot")
    said = receive(machine, io.BytesIO(BODY))
    assert said.lines == [{"event": "ready", "offset": 0}, {"event": "end", "received": len(BODY)}]
    assert machine.read(store.blob(DIGEST)) == BODY


@pytest.mark.parametrize("position", [0, 1000, len(BODY) - 1])
def test_damaged_on_the_way_is_thrown_away(machine: machines.Machine, position: int) -> None:
    damaged = bytearray(BODY)
    damaged[position] ^= 1
    said = Peer(machine, bytes(damaged)).send()
    assert (said.status, said.code) == (0, "digest-mismatch")
    assert machine.names(store.BLOBS) == []
    assert Peer(machine).send().code == ""


def test_damaged_partial_is_found_at_the_end_and_starts_over(machine: machines.Machine) -> None:
    store.prepare(machine)
    machine.write(store.partial(DIGEST), b"?" * 100)
    assert Peer(machine).send().code == "digest-mismatch"
    assert partial_bytes(machine) is None
    assert Peer(machine).send().code == ""


def test_partial_longer_than_the_whole_starts_over(machine: machines.Machine) -> None:
    store.prepare(machine)
    machine.write(store.partial(DIGEST), BODY + b"!")
    said = Peer(machine).send()
    assert said.offset == 0
    assert said.end == {"event": "end", "received": len(BODY)}


@pytest.mark.parametrize("size_bytes", [len(BODY) - 1, 1])
def test_size_smaller_than_the_content_is_a_mismatch(machine: machines.Machine, size_bytes: int) -> None:
    assert Peer(machine).send(size_bytes=size_bytes).code == "digest-mismatch"
    assert machine.names(store.BLOBS) == []


def test_size_larger_than_the_content_is_a_cut(machine: machines.Machine) -> None:
    said = Peer(machine).send(size_bytes=len(BODY) + 1)
    assert (said.status, said.code) == (1, "stream-cut")
    assert partial_bytes(machine) == len(BODY)


def test_more_bytes_than_announced_are_left_unread(machine: machines.Machine) -> None:
    source = io.BytesIO(BODY + b"the next thing")
    assert receive(machine, source).code == ""
    assert source.read() == b"the next thing"


@pytest.mark.parametrize(("digest", "size_bytes"), [("../../etc/passwd", 1), ("A" * 64, 1), ("", 1), (DIGEST, -1)])
def test_nonsense_is_refused(machine: machines.Machine, digest: str, size_bytes: int) -> None:
    said = receive(machine, io.BytesIO(b"x"), digest=digest, size_bytes=size_bytes)
    assert (said.status, said.code) == (0, "manifest-invalid")
    assert machine.names(store.BLOBS) == []


def test_silent_sender_lets_go_of_the_lock_and_keeps_the_bytes(machine: machines.Machine) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as sender:
        sender.write(BODY[:5000])
        said = receive(machine, source, stall_s=0.05)
    assert (said.status, said.code) == (1, "stream-cut")
    assert "silent" in said.end["problem"]["message"]
    assert partial_bytes(machine) == 5000
    assert Peer(machine).send().code == ""


class SlowDisk(machines.Machine):
    """Every look at the clock is six seconds later: reading a partial again takes long."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._clock_s = 0.0

    def monotonic_s(self) -> float:
        self._clock_s += 6.0
        return self._clock_s


def test_reading_a_long_partial_again_is_not_silence(tmp_path: Path) -> None:
    machine = SlowDisk(str(tmp_path))
    store.prepare(machine)
    machine.write(store.partial(DIGEST), BODY[:-1])
    said = receive(machine, io.BytesIO(BODY[-1:]))
    assert [line["event"] for line in said.lines] == ["alive", "ready", "end"]


# -- two at once


def spawn(root: str) -> subprocess.Popen[bytes]:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from wattherd import machine\n"
        "from wattherd.node import bulk\n"
        "sys.exit(bulk.receive(machine.Machine(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.stdin.buffer, sys.stdout.buffer))"
    )
    argv = [sys.executable, "-I", "-S", "-c", code, str(CHECKOUT), root, DIGEST, str(len(BODY))]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def listen(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    told: dict[str, Any] = json.loads(process.stdout.readline())
    return told


def give(process: subprocess.Popen[bytes], body: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(body)
    process.stdin.flush()


def finish(process: subprocess.Popen[bytes]) -> int:
    with process:
        pass
    return process.returncode


def test_second_receiver_is_told_that_the_node_is_busy(machine: machines.Machine) -> None:
    first = spawn(machine.root)
    assert listen(first) == {"event": "ready", "offset": 0}
    give(first, BODY[:70_000])
    said = receive(machine, io.BytesIO(BODY))
    assert (said.status, said.code) == (0, "node-busy")
    give(first, BODY[70_000:])
    assert listen(first) == {"event": "end", "received": len(BODY)}
    assert finish(first) == 0
    assert machine.read(store.blob(DIGEST)) == BODY


def test_killed_receiver_leaves_what_it_had(machine: machines.Machine) -> None:
    first = spawn(machine.root)
    assert listen(first)["offset"] == 0
    give(first, BODY[:131_072])
    wait_for(lambda: (partial_bytes(machine) or 0) == 131_072)
    first.kill()
    finish(first)
    check_store(machine)
    peer = Peer(machine)
    assert peer.send().end == {"event": "end", "received": len(BODY) - 131_072}
    assert peer.sent_bytes == len(BODY) - 131_072


def wait_for(found: Callable[[], bool]) -> None:
    ticker = threading.Event()
    for _ in range(400):
        if found():
            return
        ticker.wait(0.02)
    raise AssertionError("it never came to that")


def test_many_receivers_at_once_end_with_one_whole_blob(machine: machines.Machine) -> None:
    codes: list[str] = []

    def one() -> None:
        codes.append(receive(machine, io.BytesIO(BODY)).code)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(codes) <= {"", "node-busy", "stream-cut"}
    assert Peer(machine).send().code == ""
    assert machine.names(store.BLOBS) == [DIGEST]


# -- room


def test_no_room_is_said_before_a_byte_moves(machine: machines.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_bytes", lambda _path: store.MARGIN_BYTES + len(BODY) - 1)
    source = io.BytesIO(BODY)
    said = receive(machine, source)
    assert [line["event"] for line in said.lines] == ["end"]
    assert (said.status, said.code) == (0, "disk-full")
    assert source.tell() == 0


def test_room_counts_what_has_arrived(machine: machines.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    Peer(machine).send(cut=len(BODY) // 2)
    monkeypatch.setattr(machine, "free_bytes", lambda _path: store.MARGIN_BYTES + len(BODY) // 2)
    assert Peer(machine).send().code == ""


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system, which only root may")


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[None]:
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class Zeros(io.RawIOBase):
    """A long stream of nothing; `at` is called once, before the byte with that number is given."""

    def __init__(self, size_bytes: int, at: int, then: Callable[[], None]) -> None:
        super().__init__()
        self.left = size_bytes
        self.at = size_bytes - at
        self.then: Callable[[], None] | None = then

    def read1(self, count: int) -> bytes:
        if self.then and self.left <= self.at:
            self.then()
            self.then = None
        given = min(count, self.left)
        self.left -= given
        return bytes(given)


def zeros_digest(size_bytes: int) -> str:
    return hashlib.sha256(bytes(size_bytes)).hexdigest()


def fill(folder: Path, leave_bytes: int) -> None:
    """Somebody else writes to the same disk."""
    free = os.statvfs(folder)
    with (folder / "filler").open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, free.f_bavail * free.f_frsize - leave_bytes)


@needs_root
def test_disk_that_fills_up_meanwhile_loses_the_partial(machine: machines.Machine, tmp_path: Path) -> None:
    """A root file system that is full at night is worse than bytes sent twice."""
    folder = tmp_path / "var/lib/wattherd"
    size_bytes = 40 * MIB
    with small_disk(folder, store.MARGIN_BYTES + 60 * MIB):
        source = Zeros(size_bytes, 8 * MIB, lambda: fill(folder, 2 * MIB))
        said = receive(machine, source, digest=zeros_digest(size_bytes), size_bytes=size_bytes)  # type: ignore[arg-type]
        assert (said.status, said.code) == (0, "disk-full")
        assert "was removed" in said.end["problem"]["message"]
        assert machine.names(store.BLOBS) == []
        (folder / "filler").unlink()
        again = Zeros(size_bytes, 0, lambda: None)
        assert receive(machine, again, digest=zeros_digest(size_bytes), size_bytes=size_bytes).code == ""  # type: ignore[arg-type]


@needs_root
def test_disk_that_gets_narrow_while_the_margin_holds_keeps_the_partial(machine: machines.Machine, tmp_path: Path) -> None:
    folder = tmp_path / "var/lib/wattherd"
    size_bytes = store.SYNC_BYTES + 40 * MIB
    with small_disk(folder, store.MARGIN_BYTES + size_bytes + 4 * MIB):
        source = Zeros(size_bytes, store.SYNC_BYTES // 2, lambda: fill(folder, store.MARGIN_BYTES + store.SYNC_BYTES // 2 + 20 * MIB))
        said = receive(machine, source, digest=zeros_digest(size_bytes), size_bytes=size_bytes)  # type: ignore[arg-type]
        assert (said.status, said.code) == (0, "disk-full")
        assert "goes on from what has arrived" in said.end["problem"]["hint"]
        assert partial_bytes(machine, zeros_digest(size_bytes)) == store.SYNC_BYTES
        (folder / "filler").unlink()
        rest = Zeros(size_bytes - store.SYNC_BYTES, 0, lambda: None)
        again = receive(machine, rest, digest=zeros_digest(size_bytes), size_bytes=size_bytes)  # type: ignore[arg-type]
        assert (again.offset, again.code) == (store.SYNC_BYTES, "")


# -- sending


def send(machine: machines.Machine, digest: str = DIGEST, offset: int = 0) -> tuple[dict[str, Any], bytes]:
    sink = io.BytesIO()
    assert bulk.send(machine, digest, offset, sink) == 0
    line, _, rest = sink.getvalue().partition(b"\n")
    return json.loads(line), rest


@pytest.mark.parametrize("offset", [0, 1, 100_000, len(BODY)])
def test_blob_is_given_from_any_offset(machine: machines.Machine, offset: int) -> None:
    Peer(machine).send()
    assert send(machine, offset=offset) == ({"event": "ready", "size": len(BODY)}, BODY[offset:])


def test_blob_that_is_not_there_is_said_so(machine: machines.Machine) -> None:
    said, rest = send(machine)
    assert said["problem"]["code"] == "artifact-missing"
    assert rest == b""


@pytest.mark.parametrize(("digest", "offset"), [(DIGEST, -1), (DIGEST, len(BODY) + 1), ("../x", 0)])
def test_nonsense_is_not_sent(machine: machines.Machine, digest: str, offset: int) -> None:
    Peer(machine).send()
    said, _ = send(machine, digest, offset)
    assert said["problem"]["code"] == "manifest-invalid"


def test_partial_is_never_sent(machine: machines.Machine) -> None:
    Peer(machine).send(cut=1000)
    assert send(machine)[0]["problem"]["code"] == "artifact-missing"


def test_closed_listener_is_a_broken_pipe(machine: machines.Machine) -> None:
    Peer(machine).send()
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError), os.fdopen(writing, "wb", buffering=0) as sink:
        bulk.send(machine, DIGEST, 0, sink)


def test_io_error_is_told_and_not_a_trace(machine: machines.Machine) -> None:
    machine.make_dirs(store.partial(DIGEST))
    said = receive(machine, io.BytesIO(BODY))
    assert (said.status, said.code) == (0, "internal")


# -- the lock that both sides of a rename rest on


def test_lock_on_a_file_that_was_renamed_away_is_taken_anew(machine: machines.Machine) -> None:
    store.prepare(machine)
    busy = errors.Problem("node-busy", "busy")
    with store.locked(machine, store.partial(DIGEST), busy) as first:
        machine.rename(store.partial(DIGEST), store.blob(DIGEST))
        with store.locked(machine, store.partial(DIGEST), busy) as second:
            assert os.fstat(first).st_ino != os.fstat(second).st_ino
        with pytest.raises(errors.Problem) as caught, store.locked(machine, store.blob(DIGEST), busy):
            pass
    assert caught.value.code == "node-busy"
