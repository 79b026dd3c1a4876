"""Whether a build knows a model, by the words in its binary: a made-up one here, the real one in the lab."""

from __future__ import annotations

import pytest

from tests.node import strict
from wattherd import errors
from wattherd.gguf import demand
from wattherd.resources import knowledge

BINARY = "/opt/wattherd/current/bin/llama-server"
OLD = (*("llama", "falcon", "gpt2", "starcoder", "bert", "qwen2"), *("llama-bpe", "deepseek-llm", "command-r", "gpt-2"))
TYPES = ("q4_0", "q4_1", "q5_0", "q8_0", "q6_K", "q4_K", "f32")


def binary(bench: strict.Bench, *words: str) -> None:
    bench.put(BINARY, b"\x7fELF" + b"".join(b"\0" + word.encode() + b"\0" for word in words) + b"gpt-4o-mini\0")


def test_what_an_old_build_lacks_is_one_finding_with_the_build_s_number(bench: strict.Bench) -> None:
    binary(bench, *OLD, *TYPES)
    bench.runner.plan(BINARY, "--version", err="version: 3680 (abc1234)\nbuilt with cc\n")
    wanted = demand.Demand("minimax-m3", "gpt-4o", ("F32", "Q4_K", "MXFP4", "type 99"))
    with pytest.raises(errors.Problem) as caught:
        knowledge.check(bench.machine, BINARY, wanted, "big")
    assert caught.value.code == "build-too-old"
    assert caught.value.context["build"] == 3680
    for words in ("build 3680", "big", "architecture 'minimax-m3'", "pre-tokenizer 'gpt-4o'", "tensor type 'mxfp4'"):
        assert words in caught.value.message
    assert "q4_K" not in caught.value.message


def test_the_architecture_may_be_known_and_the_pre_tokenizer_not(bench: strict.Bench) -> None:
    binary(bench, *OLD, *TYPES)
    bench.runner.plan(BINARY, "--version", err="version: 0.6.0-dev (build 11434, commit abc)\n")
    with pytest.raises(errors.Problem) as caught:
        knowledge.check(bench.machine, BINARY, demand.Demand("qwen2", "deepseek-r1-qwen", ("Q4_K",)), "r1")
    assert "does not know the pre-tokenizer 'deepseek-r1-qwen'" in caught.value.message
    assert "build 11434" in caught.value.message


def test_libraries_beside_the_binary_count(bench: strict.Bench) -> None:
    binary(bench)
    bench.put("/opt/wattherd/current/bin/libllama.so.0", b"\0".join(word.encode() for word in (*OLD, "gemma3")) + b"\0")
    bench.put("/opt/wattherd/current/bin/libggml-base.so", b"\0".join(word.encode() for word in TYPES) + b"\0")
    knowledge.check(bench.machine, BINARY, demand.Demand("gemma3", "default", ("Q4_K", "F32")), "g")
    assert knowledge.holds(bench.machine, BINARY, "gemma3")
    assert not knowledge.holds(bench.machine, BINARY, "gemma4")


def test_a_binary_without_words_is_no_evidence(bench: strict.Bench) -> None:
    binary(bench, "llama")
    knowledge.check(bench.machine, BINARY, demand.Demand("brand-new", "new-bpe", ("MXFP4",)), "m")
    bench.put(BINARY, b"")
    knowledge.check(bench.machine, BINARY, demand.Demand("brand-new"), "m")
    assert not knowledge.holds(bench.machine, "/nowhere/llama-server", "llama")
