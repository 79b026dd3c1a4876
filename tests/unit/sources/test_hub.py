"""Models from the web: a hub that sends people elsewhere for the bytes, cut connections, gates, tokens, and what is never fetched twice."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.sources import gguf_files, hub_server
from tests.unit.sources.gguf_files import Tensor, U16Value
from wattherd import errors
from wattherd.inventory import settings
from wattherd.sources import cache as caches
from wattherd.sources import models, transfer

BIG = gguf_files.make(tensors=[*gguf_files.TENSORS, Tensor("blk.0.ffn_up.weight", (4096, 64))])
SHA256 = hashlib.sha256(BIG).hexdigest()
FILE = "hf:org/repo/m.Q4_1.gguf"
TOKEN = "hf_right"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.Hub]:
    made = hub_server.Hub(hub_server.Site(), hub_server.Site())
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with hub_server.served(made.home, made) as url, hub_server.served(made.store):
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield made


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate for loopback in one file."""
    path = tmp_path_factory.mktemp("tls") / "loopback.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run(argv, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


@pytest.fixture
def safe_hub(monkeypatch: pytest.MonkeyPatch, certificate: Path) -> Iterator[hub_server.Hub]:
    """As the real one: https at both ends."""
    made = hub_server.Hub(hub_server.Site(), hub_server.Site())
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    with hub_server.served(made.home, made, certificate) as url, hub_server.served(made.store, None, certificate):
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield made


def get(
    cache: Path, source: str = FILE, *, token: str = "", fetches: bool = True, told: list[int] | None = None, **more: object
) -> models.ResolvedModel:
    def on_bytes(done: int, _total: int) -> None:
        if told is not None:
            told.append(done)

    entry = settings.Model.model_validate({"source": source, **more})
    return models.model("m", entry, cache, cache, on_bytes, token=(lambda: token) if token else None, fetches=fetches)


def refused(call: Callable[[], object]) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        call()
    assert caught.value.hint
    return caught.value


def partials(cache: Path) -> list[Path]:
    return sorted((cache / "models" / "arriving").glob("*.partial"))


def test_a_file_of_the_hub(hub: hub_server.Hub, cache: Path) -> None:
    assert hub.add("org/repo", "m.Q4_1.gguf", BIG) == SHA256
    told: list[int] = []
    found = get(cache, told=told)
    assert found.paths == {SHA256: cache / "models" / f"{SHA256}.gguf"}
    assert found.paths[SHA256].read_bytes() == BIG
    assert found.model.files[0].file_name == "m.Q4_1.gguf"
    assert max(told) == len(BIG)
    assert partials(cache) == []


def test_what_is_here_is_asked_of_nobody(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    first = get(cache)
    asked = len(hub.home.asked)
    assert get(cache) == first
    assert get(cache, "https://huggingface.co/org/repo/blob/main/m.Q4_1.gguf").model == first.model
    assert get(cache, "hf:other/mirror/x.gguf", sha256=SHA256).paths == first.paths, "the same bytes under another address"
    assert len(hub.home.asked) == asked


def test_without_fetching_only_the_cache_counts(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    for source in (FILE, "hf:org/repo:Q4_1"):
        assert refused(lambda source=source: get(cache, source, fetches=False)).code == "source-not-fetched"  # type: ignore[misc]
    assert hub.home.asked == []
    assert get(cache).model == get(cache, fetches=False).model


def test_a_link_to_the_page_is_corrected_and_said(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    (note,) = get(cache, f"{hub.home.url}/org/repo/blob/main/m.Q4_1.gguf").notes
    assert "/blob/" in note
    assert "/resolve/" in note


def test_a_cut_download_goes_on_in_the_same_run_and_in_the_next(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    third = len(BIG) // 3
    hub.store.cuts = [third]
    get(cache)
    assert [one.range for one in hub.store.gets()] == ["", f"bytes={third}-"]


def test_a_run_that_is_given_up_leaves_what_arrived(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    hub.store.cuts = [10_000, 0]
    problem = refused(lambda: get(cache))
    assert problem.code == "source-unreachable"
    assert "have arrived and are kept" in problem.message
    (begun,) = partials(cache)
    assert begun.stat().st_size == 10_000
    get(cache)
    assert hub.store.gets()[-1].range == "bytes=10000-"


def test_c02_nothing_is_resumed_onto_a_page(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    hub.store.cuts = [10_000, 0]
    refused(lambda: get(cache))
    (begun,) = partials(cache)
    begun.write_bytes(b"<!doctype html><title>Log in</title>" + bytes(2000))
    assert get(cache).paths[SHA256].read_bytes() == BIG
    assert hub.store.gets()[-1].range == ""


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"<!doctype html><title>Sign in to Proxy</title>" + b"x" * 48000, "gguf-html", "'Sign in to Proxy'"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 5\n", "gguf-lfs-pointer", "a" * 64),
        (b"ggjt" + bytes(100), "gguf-magic", "GGJT"),
        (b"", "gguf-truncated", "empty"),
        (BIG[: len(BIG) - 1000], "gguf-truncated", "1,000 bytes are missing"),
    ],
)
def test_what_is_no_model_is_known_and_not_kept(hub: hub_server.Hub, cache: Path, body: bytes, code: str, words: str) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", body)
    problem = refused(lambda: get(cache))
    assert problem.code == code
    assert words in problem.message + problem.hint
    assert not list((cache / "models").rglob("*.gguf*"))


def test_a_page_stops_the_download_at_its_first_bytes(hub: hub_server.Hub, cache: Path) -> None:
    hub.digests = False
    page = b"<!doctype html>" + os.urandom(4 << 20)
    hub.add("org/repo", "m.Q4_1.gguf", page)
    told: list[int] = []
    assert refused(lambda: get(cache, told=told)).code == "gguf-html"
    assert told == []


def test_bytes_that_are_not_what_the_hub_says(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    hub.store.files[f"/{SHA256}"] = BIG[:-1] + b"!"
    problem = refused(lambda: get(cache))
    assert problem.code == "digest-mismatch"
    assert "the server says" in problem.message
    assert not list((cache / "models").rglob("*.gguf*"))


def test_another_file_than_the_catalogue_pins_is_not_even_fetched(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    problem = refused(lambda: get(cache, sha256="1" * 64))
    assert problem.code == "digest-mismatch"
    assert SHA256 in problem.message
    assert "@REVISION" in problem.hint
    assert hub.store.asked == []


def test_a_begun_file_of_another_state_is_not_continued(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    hub.store.cuts = [10_000, 0]
    refused(lambda: get(cache))
    newer = gguf_files.make({**gguf_files.MODEL, "general.name": "Newer"}, [Tensor("a", (4096, 64))])
    sha256 = hub.add("org/repo", "m.Q4_1.gguf", newer)
    assert get(cache).paths[sha256].read_bytes() == newer
    assert partials(cache) == []


# -- plain servers


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.Site]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = hub_server.Site(files={"/m.gguf": BIG}, etags={"/m.gguf": '"one"'})
    with hub_server.served(made):
        yield made


def test_a_plain_address_is_resumed_by_its_etag(site: hub_server.Site, cache: Path) -> None:
    site.cuts = [10_000, 0]
    refused(lambda: get(cache, f"{site.url}/m.gguf"))
    assert get(cache, f"{site.url}/m.gguf").paths[SHA256].read_bytes() == BIG
    last = site.gets()[-1]
    assert (last.range, last.if_range) == ("bytes=10000-", '"one"')


def test_a_plain_address_whose_file_was_exchanged_begins_anew(site: hub_server.Site, cache: Path) -> None:
    site.cuts = [10_000, 0]
    refused(lambda: get(cache, f"{site.url}/m.gguf"))
    newer = gguf_files.make({**gguf_files.MODEL, "general.name": "Newer"}, [Tensor("a", (4096, 64))])
    site.files["/m.gguf"], site.etags["/m.gguf"] = newer, '"two"'
    (path,) = get(cache, f"{site.url}/m.gguf").paths.values()
    assert path.read_bytes() == newer
    assert site.gets()[-1].range == ""


@pytest.mark.parametrize("etag", ["", 'W/"weak"'])
def test_without_a_sure_word_nothing_is_resumed(site: hub_server.Site, cache: Path, etag: str) -> None:
    site.etags["/m.gguf"] = etag
    site.cuts = [10_000, 0]
    refused(lambda: get(cache, f"{site.url}/m.gguf"))
    get(cache, f"{site.url}/m.gguf")
    assert site.gets()[-1].range == ""


def test_a_pinned_file_is_resumed_from_a_server_without_head(site: hub_server.Site, cache: Path) -> None:
    site.knows_head = False
    site.cuts = [10_000, 0]
    refused(lambda: get(cache, f"{site.url}/m.gguf", sha256=SHA256))
    get(cache, f"{site.url}/m.gguf", sha256=SHA256)
    assert site.gets()[-1].range == "bytes=10000-"


def test_a_way_that_leaves_tls_is_gone_only_to_a_file_that_is_pinned(safe_hub: hub_server.Hub, cache: Path) -> None:
    plain = hub_server.Site(files={"/m.gguf": BIG})
    with hub_server.served(plain):
        safe_hub.store.gives["/m.gguf"] = (302, {"Location": f"{plain.url}/m.gguf"}, b"")
        source = f"{safe_hub.store.url}/m.gguf"
        problem = refused(lambda: get(cache, source))
        assert (problem.code, "without TLS" in problem.message) == ("source-forbidden", True)
        assert partials(cache) == []
        assert get(cache, source, sha256=SHA256).paths[SHA256].read_bytes() == BIG


def test_a_file_of_unknown_length_may_not_fill_the_disk(site: hub_server.Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files["/m.gguf"], site.says_length = BIG, False
    monkeypatch.setattr(transfer, "_ROOM_EVERY_BYTES", 1 << 62)
    assert get(cache, f"{site.url}/m.gguf").paths, "where there is room it arrives"
    site.files["/n.gguf"] = BIG
    monkeypatch.setattr(transfer, "_ROOM_EVERY_BYTES", 64 * 1024)
    monkeypatch.setattr(caches, "_MARGIN_BYTES", 1 << 62)
    assert refused(lambda: get(cache, f"{site.url}/n.gguf")).code == "disk-full"


def test_a_plain_address_that_is_not_there(site: hub_server.Site, cache: Path) -> None:
    assert refused(lambda: get(cache, f"{site.url}/x.gguf")).code == "source-missing"
    assert refused(lambda: get(cache, "http://127.0.0.1:1/x.gguf")).code == "source-unreachable"


# -- gates and tokens


def test_a_gated_model_and_names_that_are_wrong(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    hub.add("org/gated", "m.gguf", BIG)
    hub.gated.add("org/gated")
    gated = refused(lambda: get(cache, "hf:org/gated/m.gguf"))
    assert gated.code == "source-forbidden"
    assert "gated" in gated.message
    assert "https://huggingface.co/org/gated" in gated.hint
    assert "token:" in gated.hint
    absent = refused(lambda: get(cache, "hf:org/nothing/m.gguf"))
    assert (absent.code, "org/nothing" in absent.message, "private" in absent.hint) == ("source-missing", True, True)
    near = refused(lambda: get(cache, "hf:org/repo/m.Q4_0.gguf"))
    assert (near.code, "m.Q4_1.gguf" in near.hint) == ("source-missing", True)
    revision = refused(lambda: get(cache, f"{FILE}@v9"))
    assert (revision.code, "v9" in revision.message) == ("source-missing", True)


def test_the_token_goes_to_its_host_alone(safe_hub: hub_server.Hub, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    safe_hub.add("org/gated", "m.gguf", BIG)
    safe_hub.gated.add("org/gated")
    safe_hub.store.cuts = [10_000]
    found = get(cache, "hf:org/gated/m.gguf", token=TOKEN)
    assert found.paths[SHA256].read_bytes() == BIG
    assert {one.authorization for one in safe_hub.home.asked} == {f"Bearer {TOKEN}"}
    assert {one.authorization for one in safe_hub.store.asked} == {""}
    assert len(safe_hub.store.gets()) == 2
    everything = [path.read_bytes() for path in cache.rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in body for body in everything)
    assert TOKEN not in caplog.text
    assert "s3cret" not in "".join(path.name for path in cache.rglob("*"))


def test_a_wrong_token_is_said_and_not_shown(safe_hub: hub_server.Hub, cache: Path) -> None:
    safe_hub.add("org/gated", "m.gguf", BIG)
    safe_hub.gated.add("org/gated")
    problem = refused(lambda: get(cache, "hf:org/gated/m.gguf", token="hf_wrong"))
    assert problem.code == "source-forbidden"
    assert "does not accept the token" in problem.message
    assert "hf_wrong" not in str(problem.to_dict())


def test_a_token_is_not_sent_without_tls(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    problem = refused(lambda: get(cache, token=TOKEN))
    assert problem.code == "source-forbidden"
    assert "https" in problem.message
    assert TOKEN not in str(problem.to_dict())
    assert hub.home.asked == []


def test_a_password_of_netrc_is_not_sent(hub: hub_server.Hub, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    get(cache)
    assert {one.authorization for one in hub.home.asked} == {""}


def test_the_secret_is_read_only_when_something_is_fetched(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m.Q4_1.gguf", BIG)
    get(cache)

    def never() -> str:
        raise AssertionError("nothing has to be fetched")

    entry = settings.Model(source=FILE)
    assert models.model("m", entry, cache, cache, lambda _d, _t: None, token=never).model.name == "m"


# -- quantisations and parts


def test_a_quantisation_of_a_repository(hub: hub_server.Hub, cache: Path) -> None:
    for name in ("m.Q4_1.gguf", "m.Q4_1_L.gguf", "mmproj-Q4_1.gguf", "m.IQ4_1.gguf", "imatrix.Q4_1.gguf", "README.md"):
        hub.add("org/repo", name, BIG)
    found = get(cache, "hf:org/repo:q4_1")
    assert found.model.files[0].file_name == "m.Q4_1.gguf"
    asked = len(hub.home.asked)
    assert get(cache, "hf:org/repo:q4_1") == found
    assert len(hub.home.asked) == asked
    none = refused(lambda: get(cache, "hf:org/repo:Q8_0"))
    assert (none.code, "m.Q4_1.gguf" in none.message, "mmproj" in none.message) == ("source-missing", True, False)
    hub.add("org/repo", "other.Q4_1_L.gguf", BIG)
    several = refused(lambda: get(cache, "hf:org/repo:Q4_1_L"))
    assert "has 2 files of the quantisation Q4_1_L: m.Q4_1_L.gguf, other.Q4_1_L.gguf" in several.message
    assert "hf:org/repo/m.Q4_1_L.gguf" in several.hint
    assert refused(lambda: get(cache, "hf:org/absent:Q4_1")).code == "source-missing"


def part(number: int, count: int) -> bytes:
    split = {"split.no": U16Value(number - 1), "split.count": U16Value(count)}
    return gguf_files.make({**gguf_files.MODEL, **split}, [Tensor(f"blk.{number}.a", (4096, 4))])


def test_all_parts_of_a_split_model_are_fetched(hub: hub_server.Hub, cache: Path) -> None:
    for number in (1, 2, 3):
        hub.add("org/repo", f"Q4_1/m-Q4_1-0000{number}-of-00003.gguf", part(number, 3))
    found = get(cache, "hf:org/repo:Q4_1")
    assert [file.file_name[-19:] for file in found.model.files] == [f"-0000{number}-of-00003.gguf"[-19:] for number in (1, 2, 3)]
    assert found.model.size_bytes == sum(len(part(number, 3)) for number in (1, 2, 3))
    asked = len(hub.home.asked)
    assert get(cache, "hf:org/repo:Q4_1") == found
    assert len(hub.home.asked) == asked


def test_missing_parts_are_named_before_gigabytes_move(hub: hub_server.Hub, cache: Path) -> None:
    for number in (1, 3):
        hub.add("org/repo", f"m-0000{number}-of-00005.gguf", part(number, 5))
    problem = refused(lambda: get(cache, "hf:org/repo/m-00001-of-00005.gguf"))
    assert problem.code == "gguf-split"
    assert "00002, 00004, 00005" in problem.message
    assert hub.store.asked == []


def test_a_whole_file_under_the_name_of_a_part(hub: hub_server.Hub, cache: Path) -> None:
    hub.add("org/repo", "m-00001-of-00005.gguf", BIG)
    assert len(get(cache, "hf:org/repo/m-00001-of-00005.gguf").model.files) == 1
