"""Every field case of tests/cases/gguf.yaml, one test each, named after the case."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import yaml

from tests.unit.sources import gguf_files
from tests.unit.sources.gguf_files import Tensor, U16Value
from wattherd import errors
from wattherd.gguf import check, demand, kinds
from wattherd.inventory import settings
from wattherd.sources import models

_CASES = Path(__file__).parents[2] / "cases" / "gguf.yaml"


def refused(path: Path, body: bytes) -> errors.Problem:
    path.write_bytes(body)
    with pytest.raises(errors.Problem) as caught:
        check.read(path)
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


def unservable(path: Path, body: bytes) -> str:
    path.write_bytes(body)
    header = check.read(path)
    with pytest.raises(errors.Problem) as caught:
        kinds.servable(header, path.name)
    assert caught.value.code == "gguf-not-servable"
    return f"{caught.value.message} -> {caught.value.hint}"


def test_every_case_has_its_test() -> None:
    cases = yaml.safe_load(_CASES.read_text("utf-8"))["cases"]
    wanted = {f"test_{case['id'].replace('-', '_')}" for case in cases}
    assert cases
    assert wanted <= set(globals())


def test_c01_lfs_pointer(tmp_path: Path) -> None:
    oid = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 98362432\n".encode()
    problem = refused(tmp_path / "m.gguf", pointer)
    assert problem.code == "gguf-lfs-pointer"
    assert "Git LFS pointer" in problem.message
    assert f"98,362,432 bytes with sha256 {oid}" in problem.message
    assert f"sha256: {oid}" in problem.hint
    assert problem.context["oid"] == oid
    assert problem.context["size_bytes"] == 98362432
    assert refused(tmp_path / "m.gguf", b"version https://git-lfs.github.com/spec/v1\n").code == "gguf-lfs-pointer"
    for magic in (b"ggjt", b"tjgg"):
        old = refused(tmp_path / "m.gguf", magic + b"\1\0\0\0")
        assert old.code == "gguf-magic"
        assert "GGJT, a format from before GGUF" in old.message
        assert magic.hex(" ") in old.message


@pytest.mark.parametrize(
    "beginning",
    [b"<!doctype html>", b"<!DOCTYPE HTML PUBLIC>", b"\xef\xbb\xbf\r\n\t <HTML lang=en>", "\ufeff<!doctype html>".encode("utf-16-le")],
)
def test_c02_html_or_proxy_page(tmp_path: Path, beginning: bytes) -> None:
    utf16 = beginning.startswith(b"\xff\xfe")
    page = "<head><title>\n  TheBloke/X-GGUF &middot; Hugging Face\x1b[31m </title></head>" + "x" * 48000
    problem = refused(tmp_path / "X.gguf", beginning + page.encode("utf-16-le" if utf16 else "utf-8"))
    assert problem.code == "gguf-html"
    assert "TheBloke/X-GGUF · Hugging Face\ufffd[31m" in problem.message
    assert "/blob/" in problem.hint
    assert "/resolve/" in problem.hint


def test_c02_a_page_with_the_download_behind_it(tmp_path: Path) -> None:
    assert refused(tmp_path / "X.gguf", b"<html>no title</html>" + gguf_files.make()).code == "gguf-html"


def part(number: int, count: int) -> bytes:
    split = {"split.no": U16Value(number - 1), "split.count": U16Value(count)}
    return gguf_files.make({**gguf_files.MODEL, **split})


def whole(path: Path, **more: object) -> models.ResolvedModel:
    entry = settings.Model.model_validate({"source": f"file:{path}", **more})
    return models.model("m", entry, path.parent / "cache", path.parent, lambda _done, _total: None)


def split_problem(path: Path, body: bytes = b"") -> errors.Problem:
    if body:
        path.write_bytes(body)
    with pytest.raises(errors.Problem) as caught:
        whole(path)
    assert caught.value.code == "gguf-split"
    return caught.value


def test_c04_parts_missing_or_wrong_first(tmp_path: Path) -> None:
    first = split_problem(tmp_path / "big-00001-of-00013.gguf", part(1, 13))
    assert "missing beside it: 00002 to 00013" in first.message
    assert first.context["missing"] == "2,3,4,5,6,7,8,9,10,11,12,13"
    for number in (1, 2, 3, 5):
        (tmp_path / f"m-{number:05d}-of-00005.gguf").write_bytes(part(number, 5))
    assert "missing beside it: 00004" in split_problem(tmp_path / "m-00001-of-00005.gguf").message
    (tmp_path / "m-00004-of-00005.gguf").write_bytes(part(4, 5))
    third = split_problem(tmp_path / "m-00003-of-00005.gguf")
    assert "is named by its first part" in third.message
    assert "m-00001-of-00005.gguf" in third.hint
    found = whole(tmp_path / "m-00001-of-00005.gguf")
    assert [file.file_name for file in found.model.files] == [f"m-{number:05d}-of-00005.gguf" for number in range(1, 6)]
    assert found.model.size_bytes == sum(len(part(number, 5)) for number in range(1, 6))
    assert found.model.path == "/var/lib/wattherd/models/m/m-00001-of-00005.gguf"
    assert len(found.paths) == len(found.model.artifact_ids()) == 5
    assert found.header is not None
    assert found.header.tensor_count == 10


def test_c04_names_that_lie(tmp_path: Path) -> None:
    assert "should end in -00002-of-00005.gguf" in split_problem(tmp_path / "renamed.gguf", part(2, 5)).message
    misnamed = tmp_path / "whole-00001-of-00013.gguf"
    misnamed.write_bytes(part(1, 1))
    assert len(whole(misnamed).model.files) == 1
    for number, count in ((1, 2), (2, 3)):
        (tmp_path / f"x-0000{number}-of-00002.gguf").write_bytes(part(number, count))
    foreign = split_problem(tmp_path / "x-00001-of-00002.gguf")
    assert "should be part 2 of 2 of a split model, and its header says that it is part 2 of 3" in foreign.message
    for number in (1, 2):
        (tmp_path / f"y-0000{number}-of-00002.gguf").write_bytes(part(1, 2))
    assert "is part 1 of 2" in split_problem(tmp_path / "y-00001-of-00002.gguf").message


def test_c04_the_catalogue_pins_every_part(tmp_path: Path) -> None:
    bodies = [part(1, 2), part(2, 2)]
    for number, body in enumerate(bodies, 1):
        (tmp_path / f"m-0000{number}-of-00002.gguf").write_bytes(body)
    digests = [hashlib.sha256(body).hexdigest() for body in bodies]
    first = tmp_path / "m-00001-of-00002.gguf"
    assert [file.sha256 for file in whole(first, parts=digests).model.files] == digests
    for pins, code in (({"parts": [digests[0], "1" * 64]}, "digest-mismatch"), ({"sha256": digests[0]}, "model-mismatch")):
        with pytest.raises(errors.Problem) as caught:
            whole(first, **pins)
        assert caught.value.code == code
    (tmp_path / "one.gguf").write_bytes(gguf_files.make())
    with pytest.raises(errors.Problem) as caught:
        whole(tmp_path / "one.gguf", parts=digests)
    assert "one whole file, and the catalogue pins 2" in caught.value.message


PROJECTOR: dict[str, gguf_files.Value] = {"general.architecture": "clip", "general.type": "mmproj", "clip.vision.projection_dim": 2048}


def test_c05_mmproj_pairing(tmp_path: Path) -> None:
    """The kind stands in the header, the pair in the catalogue; another width is only a warning."""
    model, projector = tmp_path / "m.gguf", tmp_path / "weights-BF16.gguf"
    projector.write_bytes(gguf_files.make(PROJECTOR))
    (tmp_path / "mmproj-other-F16.gguf").write_bytes(gguf_files.make(PROJECTOR))
    for width, notes in ((2048, 0), (2560, 1), (8192, 1)):
        model.write_bytes(gguf_files.make({**gguf_files.MODEL, "llama.embedding_length": width}))
        assert whole(model).model.projector is None, "never by folder"
        found = whole(model, projector={"source": f"file:{projector}"})
        assert found.model.projector is not None
        assert found.model.projector.file_name == "weights-BF16.gguf"
        assert len(found.notes) == notes
        assert all("2048" in note and str(width) in note for note in found.notes)
        assert found.model.artifact_ids()[1] == "artifact:/var/lib/wattherd/models/m.mmproj.gguf"
        assert len(found.paths) == 2
    (tmp_path / "mmproj-named.gguf").write_bytes(gguf_files.make({**gguf_files.MODEL, "general.name": "Text"}))
    with pytest.raises(errors.Problem) as caught:
        whole(model, projector={"source": f"file:{tmp_path}/mmproj-named.gguf"})
    assert caught.value.code == "gguf-not-servable"
    assert "is no projector" in caught.value.message
    with pytest.raises(errors.Problem) as caught:
        whole(projector)
    assert "needs its text model" in caught.value.message


def test_c06_things_ending_gguf_that_are_not_models(tmp_path: Path) -> None:
    path = tmp_path / "smallest.gguf"
    lora: dict[str, gguf_files.Value] = {
        "general.architecture": "llama",
        "general.type": "adapter",
        "general.base_model.0.name": "Llama 3.1 8B",
    }
    assert "--lora" in unservable(path, gguf_files.make(lora, [Tensor("blk.0.attn_q.weight.lora_a")]))
    assert "serve Llama 3.1 8B" in unservable(path, gguf_files.make(lora))
    unmarked: dict[str, gguf_files.Value] = {"general.architecture": "llama", "llama.context_length": 8192}
    assert "LoRA adapter" in unservable(path, gguf_files.make(unmarked, [Tensor("blk.0.attn_q.weight.lora_a")]))
    assert unservable(path, gguf_files.make(lora)).startswith(path.name), "the file is named, whatever its header calls it"
    assert "importance matrix" in unservable(path, gguf_files.make({"general.type": "imatrix"}))
    for projector in ({"general.type": "mmproj"}, {"general.type": "clip-vision"}, {"general.architecture": "clip"}):
        assert "--mmproj" in unservable(path, gguf_files.make(projector))
    assert "vocabulary" in unservable(path, gguf_files.make(gguf_files.MODEL, []))
    assert "'qwen_image' has no context length" in unservable(path, gguf_files.make({"general.architecture": "qwen_image"}))
    assert "names no architecture" in unservable(path, gguf_files.make({}))


def test_c07_build_too_old_for_file(tmp_path: Path) -> None:
    """What a build has to know is in the header: architecture, pre-tokenizer, tensor types. A type from the future is no damage."""
    path = tmp_path / "new.gguf"
    values: dict[str, gguf_files.Value] = {
        "general.architecture": "minimax-m3",
        "minimax-m3.context_length": 4096,
        "tokenizer.ggml.pre": "gpt-4o",
    }
    path.write_bytes(gguf_files.make(values, [Tensor("a", (32,), 39), Tensor("b", (4,), 0), Tensor("c", (64,), 99)]))
    header = check.read(path)
    assert (header.architecture, header.pre_tokenizer) == ("minimax-m3", "gpt-4o")
    assert header.tensor_types == {"MXFP4": 1, "F32": 1, "type 99": 1}
    kinds.servable(header, "m.gguf")
    wanted = demand.Demand("minimax-m3", "gpt-4o", tuple(header.tensor_types))
    known = {"llama", "falcon", "gpt2", "starcoder", "bert", "llama-bpe", "deepseek-llm", "command-r", "gpt-2"}
    known |= {"q4_0", "q4_1", "q5_0", "q8_0", "q6_K", "f32"}
    assert demand.lacking(wanted, known.__contains__) == (
        "the architecture 'minimax-m3'",
        "the pre-tokenizer 'gpt-4o'",
        "the tensor type 'mxfp4'",
    )
    assert demand.lacking(wanted, (known | {"minimax-m3", "gpt-4o", "mxfp4"}).__contains__) == ()
    assert demand.lacking(wanted, {"mxfp4"}.__contains__) == (), "a binary whose words cannot be found tells nothing"


def test_c08_wrong_endianness(tmp_path: Path) -> None:
    problem = refused(tmp_path / "be.gguf", bytes.fromhex("47 47 55 46 00 00 00 03") + b"\0" * 7 + b"\x22")
    assert problem.code == "gguf-endian"
    assert "big-endian GGUF v3" in problem.message
    assert refused(tmp_path / "be.gguf", b"GGUF" + (0).to_bytes(4, "little") + bytes(64)).code == "gguf-version"


@pytest.mark.parametrize(("number", "name"), [(0, "none"), (1, "mean"), (2, "cls"), (3, "last"), (4, "rank"), (7, "type 7")])
def test_c09_embedding_and_rerank_modes(tmp_path: Path, number: int, name: str) -> None:
    path = tmp_path / "e.gguf"
    values: dict[str, gguf_files.Value] = {"general.architecture": "bert", "bert.context_length": 512, "bert.pooling_type": number}
    path.write_bytes(gguf_files.make(values))
    header = check.read(path)
    assert header.pooling == name
    kinds.servable(header, "m.gguf")
    needed = {1: "embedding", 2: "embedding", 3: "embedding", 4: "reranking"}.get(number, "")
    assert kinds.option_kind(header) == needed
    for kind in ("chat", "embedding", "reranking"):
        fits = kind == needed if needed else kind != "reranking"
        if fits:
            kinds.check_option("titan: smol", header.pooling, kind)
            continue
        with pytest.raises(errors.Problem) as caught:
            kinds.check_option("titan: smol", header.pooling, kind)
        assert caught.value.code == "model-mismatch"
        assert caught.value.message.startswith("titan: smol")
        assert f"kind: {needed}" in caught.value.hint or not needed
