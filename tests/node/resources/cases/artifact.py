"""Cases of the artifact type: a model as a link, a release as a folder."""

from __future__ import annotations

from tests.node import strict, tiny
from wattherd import store
from wattherd.resources import artifact

MODEL = b"GGUF" + bytes(range(256)) * 8
MODEL_PATH = "/var/lib/wattherd/models/tiny.gguf"
RELEASE_PATH = "/opt/wattherd/releases/r1"


def absent(bench: strict.Bench) -> artifact.Artifact:
    """A model that has arrived in the store and is not in its place."""
    digest = tiny.put(bench.machine, MODEL)
    return artifact.Artifact(MODEL_PATH, digest=digest, size_bytes=len(MODEL))


def drifted(bench: strict.Bench) -> artifact.Artifact:
    """A release of which somebody removed a file."""
    one = settled(bench)
    bench.machine.unlink(RELEASE_PATH + "/bin/llama-server")
    return one


def settled(bench: strict.Bench) -> artifact.Artifact:
    body = tiny.pack_tar({"bin/llama-server": b"#!/bin/sh\n", "bin/lib.so.1": b"elf"}, links={"bin/lib.so": "lib.so.1"})
    one = artifact.Artifact(RELEASE_PATH, kind="tree", digest=tiny.put(bench.machine, body), size_bytes=len(body))
    one.fix(bench.machine, {}, bench.tell)
    return one


def checked(bench: strict.Bench) -> artifact.Artifact:
    """A release whose build is to come in the same run: a check says `create`, although nobody knows its digest yet."""
    store.prepare(bench.machine)
    return artifact.Artifact(RELEASE_PATH, kind="tree", build=tiny.FINGERPRINT)
