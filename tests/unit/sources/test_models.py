"""An entry of the catalogue as a whole: what it says against what the headers say, and what belongs beside a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.sources import gguf_files
from tests.unit.sources.gguf_files import Tensor
from wattherd import errors
from wattherd.inventory import settings
from wattherd.sources import models

WORDS = tuple(f"word{number}" for number in range(300))


def put(folder: Path, name: str, values: Mapping[str, gguf_files.Value], tensors: tuple[Tensor, ...] = gguf_files.TENSORS) -> str:
    (folder / name).write_bytes(gguf_files.make({**gguf_files.MODEL, **values}, tensors))
    return f"file:{folder / name}"


def get(folder: Path, source: str, name: str = "m", **more: object) -> models.ResolvedModel:
    entry = settings.Model.model_validate({"source": source, **more})
    return models.model(name, entry, folder / "cache", folder, lambda _done, _total: None)


def refused(folder: Path, source: str, **more: object) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        get(folder, source, "m", **more)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("key", "said", "told"), [("architecture", "qwen3", "llama"), ("quantisation", "Q4_K_M", "Q4_1"), ("context", 4096, "8192")]
)
def test_the_catalogue_and_the_header_must_agree(tmp_path: Path, key: str, said: object, told: str) -> None:
    source = put(tmp_path, "m.gguf", {})
    problem = refused(tmp_path, source, **{key: said})
    assert problem.code == "model-mismatch"
    assert f"the {key} {said}" in problem.message
    assert told in problem.message
    assert f"{key}: {told}" in problem.hint


def test_what_agrees_or_is_unknown_is_no_fault(tmp_path: Path) -> None:
    source = put(tmp_path, "m.gguf", {})
    assert get(tmp_path, source, architecture="llama", quantisation="q4_1", context=8192).model.quantisation == "Q4_1"
    guessed = put(tmp_path, "g.gguf", {"general.file_type": 1024})
    assert get(tmp_path, guessed, quantisation="Q4_K_M").model.architecture == "llama"


def test_an_adapter_and_its_base(tmp_path: Path) -> None:
    source = put(tmp_path, "m.gguf", {})
    lora = (Tensor("blk.0.attn_q.weight.lora_a"),)
    fits = put(tmp_path, "fits.gguf", {"general.type": "adapter"}, lora)
    found = get(tmp_path, source, adapters=[{"name": "poet", "source": fits}])
    assert found.model.adapters["poet"].file_name == "fits.gguf"
    assert found.model.artifact_ids()[-1] == "artifact:/var/lib/wattherd/models/m.lora-poet.gguf"
    assert found.model.adapters["poet"].sha256 in found.paths
    other: dict[str, gguf_files.Value] = {
        "general.architecture": "qwen2",
        "general.type": "adapter",
        "general.base_model.0.name": "Qwen2 7B",
    }
    foreign = put(tmp_path, "foreign.gguf", other, lora)
    problem = refused(tmp_path, source, adapters=[{"name": "poet", "source": foreign}])
    assert problem.code == "model-mismatch"
    assert "qwen2 (of Qwen2 7B), and the model is llama" in problem.message
    assert "is no LoRA adapter" in refused(tmp_path, source, adapters=[{"name": "poet", "source": source}]).message
    twice = [{"name": "poet", "source": fits}, {"name": "poet", "source": fits}]
    assert "two adapters are called 'poet'" in refused(tmp_path, source, adapters=twice).message


BASE: Mapping[str, gguf_files.Value] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": WORDS,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.add_eos_token": False,
}


def pair(folder: Path, **draft: gguf_files.Value) -> errors.Problem | None:
    """What is said of a draft model that differs from its target in these keys of its tokenizer."""
    target = get(folder, put(folder, "target.gguf", BASE), "target")
    own = {f"tokenizer.ggml.{key}": value for key, value in draft.items()}
    small = get(folder, put(folder, "draft.gguf", {**BASE, **own, "general.name": "Draft"}), "draft")
    try:
        models.check_draft(target, small)
    except errors.Problem as problem:
        return problem
    return None


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ({}, ""),
        ({"tokens": (*WORDS, "more", "and more")}, ""),
        ({"tokens": WORDS[:200]}, ""),
        ({"tokens": ("a", "b", "c", "d", "e", *WORDS[5:])}, ""),
        ({"tokens": (*WORDS[:150], "another", *WORDS[151:])}, "its tokens have other texts"),
        ({"tokens": (*WORDS[:150], "another", *WORDS[151:], "more")}, "its tokens have other texts"),
        ({"tokens": ("first", *WORDS)}, "its tokens have other texts"),
        ({"tokens": WORDS[:100]}, "it has 100 tokens, not 300"),
        ({"model": "llama"}, "its tokenizer is llama, not gpt2"),
        ({"bos_token_id": 7}, "its bos is token 7, not 1"),
        ({"eos_token_id": 7}, ""),
        ({"add_bos_token": False}, "one of the two adds bos"),
        ({"add_eos_token": True}, "one of the two adds eos"),
    ],
)
def test_a_draft_model_has_its_target_s_vocabulary(tmp_path: Path, draft: Mapping[str, gguf_files.Value], words: str) -> None:
    """The rules of llama.cpp: the first tokens may differ, and up to 128 at the end may be missing."""
    problem = pair(tmp_path, **draft)
    if not words:
        assert problem is None
        return
    assert problem is not None
    assert problem.code == "model-mismatch"
    assert problem.message.startswith("draft cannot draft for target: ")
    assert words in problem.message
    assert problem.hint


def test_all_that_differs_is_said_at_once(tmp_path: Path) -> None:
    problem = pair(tmp_path, model="llama", tokens=WORDS[:100], bos_token_id=7)
    assert problem is not None
    assert problem.message.count(";") == 2


def test_a_model_on_the_node_needs_nothing_here(tmp_path: Path) -> None:
    found = get(tmp_path, "path:/mnt/nas/Big.gguf", architecture="qwen3", context=40960, quantisation="Q8_0", sha256="1" * 64)
    assert (found.paths, found.header) == ({}, None)
    (file,) = found.model.files
    assert (file.place, file.sha256) == ("/mnt/nas/Big.gguf", "1" * 64)
    assert (found.model.architecture, found.model.context, found.model.quantisation) == ("qwen3", 40960, "Q8_0")
    assert found.model.path == "/var/lib/wattherd/models/m.gguf"
    assert found.model.artifact_ids() == ("weights:/var/lib/wattherd/models/m.gguf",)


def test_a_split_model_on_the_node(tmp_path: Path) -> None:
    found = get(tmp_path, "path:/mnt/nas/Big-00001-of-00003.gguf")
    assert [file.place for file in found.model.files] == [f"/mnt/nas/Big-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert found.model.artifact_ids() == ("weights:/var/lib/wattherd/models/m/m-00001-of-00003.gguf",)
    later = refused(tmp_path, "path:/mnt/nas/Big-00002-of-00003.gguf")
    assert (later.code, "Big-00001-of-00003.gguf" in later.hint) == ("gguf-split", True)
    assert refused(tmp_path, "path:/mnt/nas/Big-00001-of-00003.gguf", parts=["1" * 64]).code == "model-mismatch"
    whole = get(tmp_path, "path:/mnt/nas/Big-00001-of-00003.gguf", sha256="1" * 64)
    assert len(whole.model.files) == 1, "pinned as one file, it is one"


def test_a_projector_may_lie_on_the_node_and_the_model_here(tmp_path: Path) -> None:
    found = get(tmp_path, put(tmp_path, "m.gguf", {}), projector={"source": "path:/srv/mmproj.gguf"})
    assert found.model.artifact_ids() == (
        "artifact:/var/lib/wattherd/models/m.gguf",
        "weights:/var/lib/wattherd/models/m.mmproj.gguf",
    )
