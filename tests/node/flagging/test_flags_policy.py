"""Options that no server gets, wherever they come from and however they are spelled; and values that one key owns."""

from __future__ import annotations

import pytest

from tests import corpus
from wattherd import errors
from wattherd.resources.flagging import manual, policy, renames

every_build = pytest.mark.parametrize("build", corpus.helps())


def refused(*words: str, entry: manual.Entry | None = None) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        policy.check_extra("flags:smol", words, entry)
    assert caught.value.code == "flag-refused"
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("name", sorted({name for one in policy.REFUSALS for name in one.names}))
def test_flags_that_open_the_machine_are_refused_without_asking_a_binary(name: str) -> None:
    assert name in refused(name, "x").message


@every_build
def test_flags_that_open_the_machine_are_refused_under_every_name_that_a_build_has_for_them(build: str) -> None:
    """Also what a binary calls dangerous and nobody here has heard of."""
    known = manual.parse(corpus.helped(build))
    listed = {name for one in policy.REFUSALS for name in one.names}
    for entry in known.entries:
        if entry.risk or listed & set(entry.names):
            for name in entry.names:
                if not name.startswith(("--no-", "-no-")):
                    assert name in refused(name, *["x"] * entry.arity, entry=entry).message


def test_flags_an_option_from_the_future_is_refused_by_what_its_help_says() -> None:
    entry = manual.parse("--agents-v2 N   start 9 agents - do not enable in untrusted environments\n").entries[0]
    assert "--agents-v2" in refused("--agents-v2", "3", entry=entry).message
    policy.check_extra("flags:smol", ("--agents-v2", "3"))


@every_build
def test_flags_switching_a_danger_off_is_no_danger(build: str) -> None:
    known = manual.parse(corpus.helped(build))
    for name in ("--no-agent", "--no-ui-mcp-proxy", "--no-webui-mcp-proxy"):
        policy.check_extra("flags:smol", (name,), known.find(name))
    assert policy.key_of("--no-agent") == ""


@every_build
def test_flags_values_that_other_places_read_have_one_key(build: str) -> None:
    known = manual.parse(corpus.helped(build))
    for name, key in policy.OWNED.items():
        entry = known.find(name)
        for called in entry.names if entry is not None else (name,):
            if not called.startswith(("--no-", "-no-")) or called == name:
                assert f"use {key}:" in refused(called, "1", entry=entry).hint
    assert "use context:" in refused("-c", "1").hint, "a short name without a binary"


@every_build
def test_flags_every_key_is_an_option_of_some_build_under_its_newest_name(build: str) -> None:
    known = manual.parse(corpus.helped(build))
    missing = {name for name in policy.KEYS if not any(known.find(other) for other in renames.names(name))}
    assert missing <= {"--load-mode", "--rpc"}


def test_flags_devices_by_number_are_refused_and_none_is_no_device() -> None:
    assert "UUID" in refused("--device", "CUDA0").hint
    assert "UUID" in refused("-mg", "1").hint
    policy.check_extra("flags:smol", ("--device", "none"))
    assert "none" not in refused("--hf-repo", "none").hint


@pytest.mark.parametrize("value", ["", "1"])
@pytest.mark.parametrize(
    "name", ["LLAMA_ARG_TOOLS", "LLAMA_ARG_AGENT", "LLAMA_ARG_MCP_SERVERS_JSON", "LLAMA_API_KEY", "LD_PRELOAD", "HOME", "a b", "AIP_MODE"]
)
def test_flags_environment_names_that_no_server_gets(name: str, value: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        policy.check_environment("flags:smol", name, value, None)
    assert caught.value.code == "flag-refused"


@every_build
def test_flags_b09_empty_env_value(build: str) -> None:
    """An empty value of a known name ends the server; an unknown name is passed over silently. Neither gets there."""
    known = manual.parse(corpus.helped(build))
    for name, value, code in (
        ("LLAMA_ARG_N_CPU_MOE", "", "flag-value"),
        ("CUDA_VISIBLE_DEVICES", "", "flag-value"),
        ("LLAMA_ARG_MLOK", "1", "flag-unknown"),
        ("LLAMA_ARG_CTX_SIZE", "512", "flag-refused"),
    ):
        with pytest.raises(errors.Problem) as caught:
            policy.check_environment("flags:smol", name, value, known)
        assert caught.value.code == code, name
        assert name in caught.value.message or code == "flag-refused"
    policy.check_environment("flags:smol", "CUDA_VISIBLE_DEVICES", "GPU-1", known)
    policy.check_environment("flags:smol", "HOMEPAGE", "1", known)
    policy.check_environment("flags:smol", "LLAMA_ARG_N_CPU_MOE", "3", known)


def test_flags_the_names_that_a_unit_takes_out_are_those_of_refused_options() -> None:
    known = manual.parse(corpus.helped("b11434"))
    listed = {name for one in policy.REFUSALS for name in one.names}
    dangerous = {name for name, entry in known.environment.items() if entry.risk in {"untrusted", "downloads"} or listed & set(entry.names)}
    ours = {"LLAMA_ARG_MODELS_PRESET", "LLAMA_ARG_MODELS_MAX", "LLAMA_ARG_MODELS_AUTOLOAD", "LLAMA_API_KEY"}
    harmless = {"LLAMA_ARG_DEVICE", "LLAMA_ARG_MAIN_GPU", "MTMD_BACKEND_DEVICE"}
    assert dangerous - ours - harmless <= set(policy.STRIPPED)
