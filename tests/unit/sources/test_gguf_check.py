"""The header reader: right about sound files, exact about cut ones, quick and calm about hostile ones."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from pathlib import Path

import gguf
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from tests.unit.sources import gguf_files
from tests.unit.sources.gguf_files import Tensor
from wattherd import errors, records
from wattherd.gguf import check, header, kinds, split, tables
from wattherd.gguf.shape import Shape
from wattherd.sources import models

SOUND = gguf_files.make()


def problem_of(path: Path) -> errors.Problem | None:
    """None for a file that passes; whatever is no Problem goes up."""
    try:
        check.read(path)
    except errors.Problem as problem:
        return problem
    return None


def refused(path: Path, body: bytes) -> errors.Problem:
    path.write_bytes(body)
    problem = problem_of(path)
    assert problem is not None
    return problem


def hostile(*, tensors: int = 0, keys: int = 0, body: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + body


def test_a_sound_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(SOUND)
    read = check.read(path)
    kinds.servable(read, "m.gguf")
    assert records.replace(read, tokens="") == header.Header(
        version=3,
        kind="model",
        architecture="llama",
        type="model",
        name="Tiny",
        file_type="Q4_1",
        context_length=8192,
        tensor_count=2,
        parameters=64 * 8 + 64,
        pre_tokenizer="smollm",
        token_count=4,
        chat_template=True,
        shape=Shape(architecture="llama", vocabulary=4, weights_bytes=(64 * 8 // 32) * 20 + 64 * 4),
        tensor_types={"Q4_1": 1, "F32": 1},
    )


@pytest.mark.parametrize("alignment", [1, 32, 4096])
def test_the_last_tensor_s_end_is_found_to_the_byte(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "tiny.gguf"
    body = gguf_files.make(
        {**gguf_files.MODEL, "general.alignment": alignment}, [Tensor("a", (3,)), Tensor("b", (5,))], alignment=alignment
    )
    last_bytes = 5 * 4
    padding = -last_bytes % alignment
    path.write_bytes(body[: len(body) - padding])
    assert problem_of(path) is None
    problem = refused(path, body[: len(body) - padding - 1])
    assert problem.code == "gguf-truncated"
    assert problem.context["missing_bytes"] == 1


def test_every_cut_is_called_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    end = len(SOUND)
    for length in range(end):
        problem = refused(path, SOUND[:length])
        assert problem.code == "gguf-truncated", length
        if length:
            missing = problem.context["missing_bytes"]
            assert isinstance(missing, int)
            assert 0 < missing <= end - length
    assert refused(path, b"").message.endswith("is empty")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"PK\x03\x04....", "zip archive"),
        (bytes(4096), "begins with zeros"),
        (b"lmgg\x01", "GGML, a format from before GGUF"),
        (b'{"error": "Invalid token"}', "a JSON text"),
        (b"<?xml version='1.0'?><Error>", "an XML text"),
        (b"\x7fELF", "begins with '?ELF' (7f 45 4c 46)"),
        (b"Entry not found", "begins with 'Entr'"),
        (b"x", "begins with 'x' (78)"),
    ],
)
def test_another_kind_of_file_is_named(tmp_path: Path, body: bytes, words: str) -> None:
    problem = refused(tmp_path / "x.gguf", body)
    assert problem.code == "gguf-magic"
    assert words in problem.message


@pytest.mark.parametrize("version", [0, 1, 4, 77])
def test_other_versions(tmp_path: Path, version: int) -> None:
    problem = refused(tmp_path / "x.gguf", gguf_files.make(version=version))
    assert problem.code == "gguf-version"
    assert str(version) in problem.message


def test_no_file_and_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "absent.gguf", tmp_path, tmp_path / "pipe"):
        problem = problem_of(path)
        assert problem is not None
        assert problem.code == "source-missing"
        assert str(path) in problem.message


def array(kind: int, count: int) -> bytes:
    return gguf_files.text("k") + struct.pack("<IIQ", tables.ARRAY, kind, count)


def tensor(name: bytes, dimensions: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset)


HUGE = (1 << 64) - 1
HOSTILE = {
    "tensors without end": hostile(tensors=HUGE),
    "keys without end": hostile(keys=HUGE),
    "more tensors than any model": hostile(tensors=1 << 20),
    "a key as long as the sea": hostile(keys=1, body=struct.pack("<Q", HUGE)),
    "an empty key": hostile(keys=1, body=struct.pack("<Q", 0) + bytes(8)),
    "a string as long as the sea": hostile(keys=1, body=gguf_files.text("k") + struct.pack("<IQ", tables.STRING, HUGE)),
    "an array of bytes without end": hostile(keys=1, body=array(0, HUGE)),
    "tokens without end": hostile(
        keys=1, body=gguf_files.text("tokenizer.ggml.tokens") + struct.pack("<IIQ", tables.ARRAY, tables.STRING, HUGE)
    ),
    "a token as long as the sea": hostile(
        keys=1, body=gguf_files.text("tokenizer.ggml.tokens") + struct.pack("<IIQQ", tables.ARRAY, tables.STRING, 1, HUGE)
    ),
    "a token as large as a header may be": hostile(
        keys=1, body=gguf_files.text("tokenizer.ggml.tokens") + struct.pack("<IIQQ", tables.ARRAY, tables.STRING, 1, 100 << 20)
    ),
    "an array of strings without end": hostile(keys=1, body=array(tables.STRING, HUGE)),
    "an array of arrays": hostile(keys=1, body=array(tables.ARRAY, 1)),
    "a type that is none": hostile(keys=1, body=gguf_files.text("k") + struct.pack("<I", 77)),
    "one key twice": hostile(keys=2, body=gguf_files.pair("k", 1) * 2),
    "an alignment of nothing": hostile(keys=1, body=gguf_files.pair("general.alignment", 0)),
    "a crooked alignment": hostile(keys=1, body=gguf_files.pair("general.alignment", 33)),
    "an alignment in words": hostile(keys=1, body=gguf_files.pair("general.alignment", "32")),
    "five dimensions": hostile(tensors=1, body=tensor(b"t", (1, 1, 1, 1, 1))),
    "a tensor of every atom": hostile(tensors=1, body=tensor(b"t", (HUGE, HUGE, HUGE, HUGE))),
    "a row that fits no block": hostile(tensors=1, body=tensor(b"t", (33,), 3)),
    "one tensor twice": hostile(tensors=2, body=tensor(b"t", (1,)) + tensor(b"t", (1,), 0, 32)),
    "tensors that overlap": hostile(tensors=2, body=tensor(b"t", (16,)) + tensor(b"u", (16,), 0, 32)),
    "a tensor far away": hostile(tensors=1, body=tensor(b"t", (1,), 0, 1 << 63)),
    "a tensor with a long name": hostile(tensors=1, body=tensor(b"t" * 64, (1,))),
    "an unknown type far away": hostile(tensors=2, body=tensor(b"t", (1,), 99) + tensor(b"u", (1,), 0, HUGE)),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("padded_bytes", [0, 4096, 1 << 40])
def test_a_hostile_header_costs_nothing(tmp_path: Path, name: str, padded_bytes: int) -> None:
    """The last size is a sparse file of 1 TiB, in which no count is larger than the file."""
    path = tmp_path / "hostile.gguf"
    path.write_bytes(HOSTILE[name])
    os.truncate(path, path.stat().st_size + padded_bytes)
    tracemalloc.start()
    begun = time.monotonic()
    problem = problem_of(path)
    seconds, peak_bytes = time.monotonic() - begun, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert problem is not None
    assert problem.code in {"gguf-corrupt", "gguf-truncated"}
    assert problem.code == "gguf-corrupt" or padded_bytes < 1 << 40
    assert seconds < 2
    assert peak_bytes < 8 * 1024 * 1024


def test_a_split_count_beyond_reason_is_no_loop(tmp_path: Path) -> None:
    said = split.name("m-00001-of-65535.gguf")
    assert said is not None
    assert "missing beside it: 00002 to 65535" in split.missing(said, said.every[1:], "m").message
    (tmp_path / "n.gguf").write_bytes(gguf_files.make({**gguf_files.MODEL, "split.count": (1 << 32) - 1}))
    assert check.read(tmp_path / "n.gguf").split_count == 1


def test_words_of_a_header_cannot_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_files.make({**gguf_files.MODEL, "general.name": "a\x1b[2J\nb" + "c" * 5000}))
    assert check.read(path).name == ("a\ufffd[2J b" + "c" * 5000)[:200]


@pytest.mark.parametrize(("key", "count"), [("merges", 800_000), ("tokens", 260_000)])
def test_a_large_vocabulary_is_read_in_a_moment(tmp_path: Path, key: str, count: int) -> None:
    path = tmp_path / "gemma.gguf"
    words = [f"t{number}" for number in range(count)]
    path.write_bytes(gguf_files.make({**gguf_files.MODEL, f"tokenizer.ggml.{key}": words}))
    begun = time.monotonic()
    check.read(path)
    assert time.monotonic() - begun < 5


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "x.gguf"


@settings(max_examples=300, deadline=1000)
@given(body=some.binary(max_size=600), version=some.sampled_from([2, 3]))
@example(body=b"", version=3)
def test_noise_behind_the_magic_is_a_problem(scratch: Path, body: bytes, version: int) -> None:
    scratch.write_bytes(b"GGUF" + struct.pack("<I", version) + body)
    problem = problem_of(scratch)
    assert problem is None or problem.code.startswith("gguf-")


@settings(max_examples=600, deadline=1000)
@given(
    at=some.integers(0, len(SOUND) - 1),
    inserted=some.one_of(some.binary(max_size=12), some.sampled_from([struct.pack("<Q", 1 << n) for n in range(0, 64, 3)])),
    replaced=some.integers(0, 16),
    length=some.one_of(some.just(1 << 20), some.integers(0, len(SOUND))),
)
def test_a_damaged_file_is_a_problem_or_a_header(scratch: Path, at: int, inserted: bytes, replaced: int, length: int) -> None:
    scratch.write_bytes((SOUND[:at] + inserted + SOUND[at + replaced :])[:length])
    problem = problem_of(scratch)
    assert problem is None or problem.code.startswith("gguf-")


@settings(max_examples=100, deadline=1000)
@given(body=some.binary(max_size=300))
def test_noise_of_any_kind_is_a_problem(scratch: Path, body: bytes) -> None:
    scratch.write_bytes(body)
    assert problem_of(scratch) is not None


def test_the_tables_are_llama_cpp_s() -> None:
    """Those of the gguf package, which may be a little older than the build that ours come from."""
    for kind in gguf.GGMLQuantizationType:
        assert tables.TENSOR_TYPES[kind.value] == (kind.name, *gguf.GGML_QUANT_SIZES[kind])
    for file_type in gguf.LlamaFileType:
        assert tables.FILE_TYPES[file_type.value] == file_type.name.removeprefix("MOSTLY_").removeprefix("ALL_")
    for pooling in gguf.PoolingType:
        assert tables.POOLING[pooling.value] == pooling.name.lower()


def test_the_real_model_reads_as_llama_cpp_s_own_reader_reads_it(smollm2: models.ResolvedModel) -> None:
    (path,) = smollm2.paths.values()
    read = check.read(path)
    reader = gguf.GGUFReader(path)

    def value(key: str) -> object:
        field = reader.get_field(key)
        return field.contents() if field else None

    types: dict[str, int] = {}
    for one in reader.tensors:
        types[one.tensor_type.name] = types.get(one.tensor_type.name, 0) + 1
    tokens = value("tokenizer.ggml.tokens")
    assert isinstance(tokens, list)
    assert records.replace(read, tokens="") == header.Header(
        version=reader.fields["GGUF.version"].contents(),
        kind="model",
        architecture=str(value("general.architecture")),
        type=str(value("general.type")),
        name=str(value("general.name")),
        file_type=gguf.LlamaFileType(int(str(value("general.file_type")))).name.removeprefix("MOSTLY_"),
        context_length=int(str(value("llama.context_length"))),
        tensor_count=len(reader.tensors),
        parameters=sum(int(one.n_elements) for one in reader.tensors),
        pre_tokenizer=str(value("tokenizer.ggml.pre")),
        tokenizer=str(value("tokenizer.ggml.model")),
        token_count=len(tokens),
        bos=int(str(value("tokenizer.ggml.bos_token_id"))),
        eos=int(str(value("tokenizer.ggml.eos_token_id"))),
        adds_bos="yes" if value("tokenizer.ggml.add_bos_token") else "no",
        license=str(value("general.license")),
        shape=Shape(
            architecture="llama",
            layers=int(str(value("llama.block_count"))),
            embedding=int(str(value("llama.embedding_length"))),
            vocabulary=len(tokens),
            weights_bytes=sum(int(one.n_bytes) for one in reader.tensors),
            heads=(int(str(value("llama.attention.head_count"))),),
            heads_kv=(int(str(value("llama.attention.head_count_kv"))),),
            feed_forward=(int(str(value("llama.feed_forward_length"))),),
        ),
        chat_template=bool(value("tokenizer.chat_template")),
        tensor_types=types,
    )
    last = reader.tensors[-1]
    assert int(last.data_offset + last.n_bytes) <= smollm2.model.size_bytes


def test_the_real_model_cut_by_a_few_bytes(smollm2: models.ResolvedModel, tmp_path: Path) -> None:
    """Its header alone is enough: the rest of the copy is a hole."""
    path = tmp_path / "cut.gguf"
    (real,) = smollm2.paths.values()
    with open(real, "rb") as whole:
        path.write_bytes(whole.read(4 * 1024 * 1024))
    os.truncate(path, smollm2.model.size_bytes)
    assert problem_of(path) is None
    os.truncate(path, smollm2.model.size_bytes - 1000)
    problem = problem_of(path)
    assert problem is not None
    assert problem.code == "gguf-truncated"
    assert problem.context["missing_bytes"] == 1000
