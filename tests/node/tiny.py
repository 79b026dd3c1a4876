"""A llama.cpp in miniature: a source archive that cmake really builds in a second, and the build that asks for it."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable, Mapping

from wattherd import store
from wattherd.machine import Machine
from wattherd.resources import build

SERVER_C = r"""
#include <stdio.h>
#include <string.h>
int number(void);
int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        fprintf(stderr, "version: 0.6.0-dev (build %d, commit tiny)\n", number());
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--list-devices") == 0) {
        printf("Available devices:\n");
        return 0;
    }
    return 1;
}
"""
CMAKE = r"""
cmake_minimum_required(VERSION 3.14)
project(x C)
add_library(number STATIC ggml/number.c)
target_compile_definitions(number PRIVATE NUMBER=${LLAMA_BUILD_NUMBER})
foreach(name llama-server llama-bench)
  add_executable(${name} server.c)
  target_link_libraries(${name} number)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endforeach()
"""
FILES: Mapping[str, str] = {
    "PKG-INFO": "Name: tiny\n",
    "tiny/CMakeLists.txt": CMAKE,
    "tiny/server.c": SERVER_C,
    "tiny/ggml/CMakeLists.txt": "# a decoy: deeper than the real one\n",
    "tiny/ggml/number.c": "int number(void) { return NUMBER; }\n",
}
PROBES: tuple[tuple[str, ...], ...] = (("bin/llama-server", "--version"), ("bin/llama-server", "--list-devices"))
FINGERPRINT = "0123456789abcdef0123456789abcdef"


def archive(changes: Mapping[str, str] | None = None) -> bytes:
    """The source as an sdist has it: one folder at the top, the project in a folder below."""
    return pack_tar({f"tiny-1.0/{name}": text.encode() for name, text in {**FILES, **(changes or {})}.items()})


def pack_tar(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> bytes:
    entries: list[tuple[tarfile.TarInfo, bytes]] = []
    for name, body in sorted(files.items()):
        entry = tarfile.TarInfo(name)
        entry.size = len(body)
        entry.mode = 0o4755 if name.startswith("bin/") else 0o600
        entries.append((entry, body))
    for name, target in (links or {}).items():
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        entries.append((entry, b""))
    return pack_entries(entries)


def pack_entries(entries: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """A .tar.gz of whatever entries a test dreams up, the same bytes each time."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for entry, body in entries:
            tar.addfile(entry, io.BytesIO(body))
    return buffer.getvalue()


def put(machine: Machine, body: bytes) -> str:
    """Lay bytes into a node's store, as a finished transfer leaves them."""
    store.prepare(machine)
    digest = hashlib.sha256(body).hexdigest()
    machine.write(store.blob(digest), body)
    return digest


def wanted(machine: Machine, changes: Mapping[str, str] | None = None, fingerprint: str = FINGERPRINT, **fields: object) -> build.Build:
    """A build of the miniature whose source is in the store already."""
    body = archive(changes)
    values: dict[str, object] = {
        "options": {"LLAMA_BUILD_NUMBER": "11434"},
        "targets": ("llama-server", "llama-bench"),
        "products": ("bin/llama-server", "bin/llama-bench"),
        "probes": PROBES,
        "tools": ("cmake",),
        "description": "tiny b11434",
        **fields,
    }
    return build.Build(name="tiny", fingerprint=fingerprint, source=put(machine, body), source_bytes=len(body), **values)  # type: ignore[arg-type]
