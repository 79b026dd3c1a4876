"""Bulk bytes in and out of this node's store, each in a session of its own. docs/protocol.md is the normative text.

The wire is one JSON line, raw bytes, one JSON line. Resuming is the receiver's offset: it alone knows what arrived. Knows
nothing of what the bytes are for; the record that a blob is a build is made by the session (`store.record_build`).
"""

from __future__ import annotations

import hashlib
import select
from typing import IO, Callable, Iterable, Iterator, TypeVar

from wattherd import errors, store, units
from wattherd import machine as machines
from wattherd.wire import event, frame

_T = TypeVar("_T")
_CHUNK_BYTES = 256 * 1024
#: A sender that says nothing for this long is gone (a dropped link is not always told): the lock must not outlive it.
STALL_S = 60.0
#: While an earlier part is read again nothing else would be said, and silence means a dead link.
_ALIVE_S = 5.0


def receive(
    machine: machines.Machine, digest: str, size_bytes: int, source: IO[bytes], sink: IO[bytes], *, stall_s: float = STALL_S
) -> int:
    """Take a blob. Says `ready` with the offset to send from (after `alive` lines, perhaps), reads the rest, says `end`.

    Exit status 0 when the blob is in the store or the reason was told; 1 when the link broke, and then what arrived is kept.
    """
    writer = frame.Writer(sink)
    try:
        received_bytes = _receive(machine, digest, size_bytes, source, writer, stall_s)
    except errors.Problem as problem:
        writer.send(event.end(problem=problem))
        return 1 if problem.code == "stream-cut" else 0
    except BrokenPipeError:
        raise
    except OSError as error:
        writer.send(
            event.end(
                problem=errors.Problem(
                    "internal", f"{error.strerror or error}: {error.filename or store.BLOBS}", hint="dmesg on that node tells more"
                )
            )
        )
        return 0
    writer.send(event.end(received=received_bytes))
    return 0


def _receive(machine: machines.Machine, digest: str, size_bytes: int, source: IO[bytes], writer: frame.Writer, stall_s: float) -> int:
    if size_bytes < 0:
        raise errors.Problem("manifest-invalid", f"a blob of {size_bytes} bytes was refused")
    store.prepare(machine)
    place = store.partial(digest)
    busy = errors.Problem(
        "node-busy",
        f"{digest[:12]}… is being received by another session",
        hint="wait for it; a session whose link was lost ends within a minute",
    )
    with store.locked(machine, place, busy) as handle:
        if _already_here(machine, digest, writer):
            machine.unlink(place)
            writer.send({"event": "ready", "offset": size_bytes})
            return 0
        arrival = store.Arrival(machine, place, handle)
        _resume(machine, arrival, place, size_bytes, writer)
        store.check_room(machine, {digest: size_bytes})
        begun_bytes = arrival.size_bytes
        writer.send({"event": "ready", "offset": begun_bytes})
        _take(machine, arrival, place, size_bytes, _blocks(source, size_bytes - begun_bytes, stall_s))
        _settle(machine, arrival, place, digest)
        return size_bytes - begun_bytes


def _already_here(machine: machines.Machine, digest: str, writer: frame.Writer) -> bool:
    """A damaged blob does not count: it makes room for a good one."""
    if not store.has(machine, digest):
        return False
    summing = hashlib.sha256()
    for block in _alive(machine, writer, machine.blocks(store.blob(digest))):
        summing.update(block)
    if summing.hexdigest() == digest:
        return True
    store.discard(machine, digest)
    return False


def _resume(machine: machines.Machine, arrival: store.Arrival, place: str, size_bytes: int, writer: frame.Writer) -> None:
    """Read again what an earlier session left. More than the whole is not a beginning of it, so it is thrown away."""
    found = machine.lstat(place)
    if found is not None and found.st_size > size_bytes:
        arrival.clear()
    for _ in _alive(machine, writer, arrival.reread()):
        pass


def _alive(machine: machines.Machine, writer: frame.Writer, steps: Iterable[_T]) -> Iterator[_T]:
    """The same steps, with word now and then that they go on."""
    told_s = machine.monotonic_s()
    for one in steps:
        if machine.monotonic_s() - told_s > _ALIVE_S:
            writer.send(event.alive())
            told_s = machine.monotonic_s()
        yield one


def _blocks(source: IO[bytes], count: int, stall_s: float) -> Iterator[bytes]:
    """Exactly `count` bytes in pieces as they come, or `stream-cut`. The sender starts after `ready`, so nothing waits in a buffer."""
    read: Callable[[int], bytes] = getattr(source, "read1", source.read)
    left = count
    while left:
        _await(source, stall_s, count - left, count)
        block = read(min(_CHUNK_BYTES, left))
        if not block:
            raise errors.Problem(
                "stream-cut", f"the sender ended after {count - left} of {count} bytes", hint="run again: it goes on from there"
            )
        left -= len(block)
        yield block


def _await(source: IO[bytes], stall_s: float, done: int, count: int) -> None:
    try:
        handle = source.fileno()
    except OSError:
        return
    if not select.select([handle], [], [], stall_s)[0]:
        raise errors.Problem(
            "stream-cut",
            f"the sender was silent for {units.duration(stall_s)} after {done} of {count} bytes",
            hint="run again: it goes on from there",
        )


def _take(machine: machines.Machine, arrival: store.Arrival, place: str, size_bytes: int, blocks: Iterator[bytes]) -> None:
    """Write the blocks. However it ends, what is kept was forced to disk.

    A disk that others fill meanwhile: the partial stays for a later run while the margin holds, and goes when the margin is
    broken. A root file system that is full at night is worse than bytes sent twice.
    """
    try:
        for block in blocks:
            if arrival.write(block):
                _look_at_room(machine, size_bytes - arrival.size_bytes)
    except errors.Problem as problem:
        if problem.code == "disk-full" and machine.free_bytes(store.BLOBS) < store.MARGIN_BYTES:
            machine.unlink(place)
            raise errors.Problem(
                "disk-full",
                f"{store.BLOBS} is full after {units.size(arrival.size_bytes)} of {units.size(size_bytes)}; what had arrived was removed",
                hint="free space there, then run again: it starts from the beginning",
            ) from problem
        arrival.sync()
        raise


def _look_at_room(machine: machines.Machine, todo_bytes: int) -> None:
    free_bytes = machine.free_bytes(store.BLOBS)
    if todo_bytes + store.MARGIN_BYTES > free_bytes:
        raise errors.Problem(
            "disk-full",
            f"{units.size(todo_bytes)} are still to come, but only {units.size(free_bytes)} are left under {store.BLOBS}",
            hint="free space there, then run again: it goes on from what has arrived",
            needed_bytes=todo_bytes,
            free_bytes=free_bytes,
        )


def _settle(machine: machines.Machine, arrival: store.Arrival, place: str, digest: str) -> None:
    if arrival.digest != digest:
        machine.unlink(place)
        raise errors.Problem(
            "digest-mismatch",
            f"{units.size(arrival.size_bytes)} arrived, but their sha256 is {arrival.digest[:12]}…, not {digest[:12]}…; they were removed",
            hint="run again; if it stays so, the sender's own copy is damaged",
            digest=digest,
        )
    arrival.settle()


def send(machine: machines.Machine, digest: str, offset: int, sink: IO[bytes]) -> int:
    """Give a blob: `ready` with its whole size, then the bytes from `offset`. Whoever receives compares the sha256."""
    writer = frame.Writer(sink)
    try:
        size_bytes = _size(machine, digest, offset)
    except errors.Problem as problem:
        writer.send(event.end(problem=problem))
        return 0
    writer.send({"event": "ready", "size": size_bytes})
    with open(machine.path(store.blob(digest)), "rb", buffering=0) as stream:
        stream.seek(offset)
        for block in iter(lambda: stream.read(_CHUNK_BYTES), b""):
            sink.write(block)
    sink.flush()
    return 0


def _size(machine: machines.Machine, digest: str, offset: int) -> int:
    if not store.has(machine, digest):
        raise errors.Problem("artifact-missing", f"{digest[:12]}… is not in this node's store", digest=digest)
    size_bytes = store.size_bytes(machine, digest)
    if not 0 <= offset <= size_bytes:
        raise errors.Problem("manifest-invalid", f"offset {offset} lies outside a blob of {size_bytes} bytes")
    return size_bytes
