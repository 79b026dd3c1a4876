"""Reading the help of real builds: every option, what it takes, and which are only listed to say that they are gone."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import corpus
from wattherd.resources.flagging import manual

every_build = pytest.mark.parametrize("build", corpus.helps())


def heads(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r"-{1,2}[A-Za-z]", line)]


def test_flags_corpus_has_four_real_builds() -> None:
    assert len(corpus.helps()) >= 4
    assert {"b9093", "b11434"} <= set(corpus.helps())


@every_build
def test_flags_no_option_of_a_real_help_is_missed(build: str) -> None:
    text = corpus.helped(build)
    known = manual.parse(text)
    listed = {
        name
        for line in heads(text)
        for name in re.findall(r"(?:^|, +)(-{1,2}[A-Za-z][\w.-]*)", line.split("   ")[0] if "," not in line else line[:200])
    }
    missed = {name for name in listed if known.find(name) is None and not known.removal(name)}
    assert missed == set()
    assert len(known.entries) > 180


@every_build
def test_flags_what_every_server_needs_is_read_from_every_build(build: str) -> None:
    known = manual.parse(corpus.helped(build))
    taking = {"--model": 1, "--ctx-size": 1, "-np": 1, "--flash-attn": 1, "--metrics": 0, "--kv-unified": 0, "--no-kv-unified": 0, "-a": 1}
    assert {name: entry.arity for name in taking if (entry := known.find(name))} == taking
    flash = known.find("-fa")
    assert flash is not None
    assert set(flash.values) == {"on", "off", "auto"}
    context = known.find("--ctx_size")
    assert context is not None
    assert (context.environment, context.numeric) == ("LLAMA_ARG_CTX_SIZE", True)
    layers = known.find("-ngl")
    assert layers is not None
    assert layers.takes("99")
    assert layers.takes("all")
    assert not layers.takes("most")
    cache = known.find("-ctk")
    assert cache is not None
    assert {"f16", "q8_0", "iq4_nl"} <= set(cache.values)


@every_build
def test_flags_entries_that_say_they_were_removed_are_no_options(build: str) -> None:
    known = manual.parse(corpus.helped(build))
    for name in ("--draft", "--draft-n", "--draft-max", "--draft-min", "--spec-ngram-size-n"):
        assert known.find(name) is None
        assert known.removal(name).startswith("the argument has been removed. use ")
    assert "LLAMA_ARG_DRAFT_MAX" not in known.environment
    assert known.removal("--model") == ""


@every_build
def test_flags_risks_and_deprecations_are_the_binarys_own_words(build: str) -> None:
    known = manual.parse(corpus.helped(build))
    risks = {
        name: entry.risk
        for name in ("--tools", "--version", "--list-devices", "--fim-qwen-7b-spec", "--model", "--temp")
        if (entry := known.find(name))
    }
    assert risks == {
        "--tools": "untrusted",
        "--version": "ends",
        "--list-devices": "ends",
        "--fim-qwen-7b-spec": "downloads",
        "--model": "",
        "--temp": "",
    }
    defrag = known.find("--defrag-thold")
    assert defrag is not None
    assert defrag.deprecated


def test_flags_values_that_a_real_help_names() -> None:
    known = manual.parse(corpus.helped("b11434"))
    named = {
        "--load-mode": ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio"),
        "--split-mode": ("none", "layer", "row", "tensor"),
        "--reasoning-format": ("none", "deepseek", "deepseek-legacy", "auto"),
        "--cpu-strict": ("0", "1"),
        "--tensor-split": (),
        "--fit-target": (),
        "--device": (),
        "--log-verbosity": (),
    }
    assert {name: entry.values for name in named if (entry := known.find(name))} == named
    speculation, templates, two = known.find("--spec-type"), known.find("--chat-template"), known.find("--control-vector-layer-range")
    assert speculation is not None
    assert {"none", "draft-simple", "draft-eagle3", "ngram-map-k4v"} <= set(speculation.values)
    assert templates is not None
    assert {"chatml", "granite-4.1", "zephyr"} <= set(templates.values)
    assert two is not None
    assert two.arity == 2


@pytest.mark.parametrize(
    ("entry", "arity", "values"),
    [
        ("-fa,   --flash-attn                     enable Flash Attention (default: disabled)\n", 0, ()),
        (
            "-fa,   --flash-attn FA                  set Flash Attention use ('on', 'off', or 'auto', default: 'auto')\n",
            1,
            ("on", "off", "auto"),
        ),
        ("-fa,   --flash-attn [on|off|auto]       set Flash Attention use\n", 1, ("on", "off", "auto")),
    ],
)
def test_flags_three_wordings_of_one_option(entry: str, arity: int, values: tuple[str, ...]) -> None:
    found = manual.parse(entry).find("--flash-attn")
    assert found is not None
    assert (found.arity, found.values, found.names) == (arity, values, ("-fa", "--flash-attn"))


def test_flags_log_lines_before_a_help_are_passed_over() -> None:
    noise = "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: x\n----- common params -----\n\n- a bullet\n"
    known = manual.parse(noise + "-t,    --threads N    number of threads\n                 (env: LLAMA_ARG_THREADS)\n")
    assert [entry.names for entry in known.entries] == [("-t", "--threads")]
    assert known.entries[0].environment == "LLAMA_ARG_THREADS"


def test_flags_a_help_without_end_is_cut() -> None:
    known = manual.parse("--x N  y\n" * 1_000_000)
    assert 0 < len(known.entries) <= 4001


@given(st.text(max_size=400))
def test_flags_any_text_can_be_read(text: str) -> None:
    for entry in manual.parse(text).entries:
        assert entry.names
        assert entry.arity in {0, 1, 2}
        assert manual.shown(entry)


def test_flags_negative_numbers_are_no_options() -> None:
    assert [word for word in ("-1", "-0.5", "-", "--", "-ngl", "--x") if manual.is_option(word)] == ["-ngl", "--x"]
