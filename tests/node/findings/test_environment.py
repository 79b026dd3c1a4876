"""Variables, flags and files that set a server's options beside its unit. No value is ever shown."""

from __future__ import annotations

import pytest

from wattherd.node.findings import environment
from wattherd.wire import finding

UNIT = "llama@m.service"
KNOWN = environment.known_names(
    "--agent (env: LLAMA_ARG_AGENT)\n--x N (env: LLAMA_ARG_X)\n--mmap (env: LLAMA_ARG_MMAP)\n--api-key K (env: LLAMA_API_KEY)"
)


def codes(variables: dict[str, str]) -> list[str]:
    return [one.code for one in environment.judge(UNIT, variables, KNOWN)]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"LLAMA_ARG_X": "4"}, []),
        ({"LLAMA_ARG_X": ""}, ["env-empty"]),
        ({"LLAMA_ARG_X": "  "}, ["env-empty"]),
        ({"LLAMA_ARG_NO_MMAP": "1"}, []),
        ({"LLAMA_ARG_MLOCK": "1"}, ["env-unknown"]),
        ({"LLAMA_ARG_MLOCK": ""}, ["env-empty", "env-unknown"]),
        ({"LLAMA_API_KEY": ""}, ["key-empty"]),
        ({"LLAMA_API_KEY": "k"}, []),
        ({"LLAMA_ARG_TOOLS": "all"}, ["env-opens-machine"]),
        ({"LLAMA_ARG_AGENT": "1"}, ["env-opens-machine"]),
        ({"LLAMA_ARG_AGENT": "off"}, []),
        ({"LLAMA_ARG_MCP_SERVERS_CONFIG": "/x"}, ["env-opens-machine"]),
        ({"LLAMA_ARG_TOOLSET": "1"}, ["env-unknown"]),
        ({"LLAMA_CACHE": "/x", "PATH": "", "OTHER_LLAMA_ARG_X": ""}, []),
    ],
)
def test_variables(variables: dict[str, str], expected: list[str]) -> None:
    assert codes(variables) == expected


def test_without_the_binarys_help_no_name_is_called_unknown() -> None:
    assert environment.judge(UNIT, {"LLAMA_ARG_WHATEVER": "1"}, None) == []
    assert [one.code for one in environment.judge(UNIT, {"LLAMA_ARG_WHATEVER": ""}, None)] == ["env-empty"]


def test_values_never_leave() -> None:
    variables = {"LLAMA_API_KEY": "s3cret", "LLAMA_ARG_TOOLS": "s3cret", "LLAMA_ARG_ODD": "s3cret", "LLAMA_ARG_X": ""}
    found = environment.judge(UNIT, variables, KNOWN)
    assert len(found) == 3
    assert "s3cret" not in str(found)


def test_many_names_are_bounded() -> None:
    (found,) = environment.judge(UNIT, {f"LLAMA_ARG_{number}": "" for number in range(500)}, None)
    assert "and 494 more" in found.words
    assert len(found.words) < 400


def test_reading_the_three_places() -> None:
    assert environment.of_process(b"A=1\0LLAMA_ARG_X=\0B=x=y\0broken\0") == {"A": "1", "LLAMA_ARG_X": "", "B": "x=y"}
    text = "# LLAMA_ARG_C=1\nLLAMA_ARG_X=\nLLAMA_ARG_Y=\"\"\n  A = no\nexport B=1\nC='two words'\n"
    assert environment.of_file(text) == {"LLAMA_ARG_X": "", "LLAMA_ARG_Y": "", "C": "two words"}
    shown = "HOME=/nonexistent \"LLAMA_ARG_Z=two words\" LLAMA_ARG_X= $'D=e'"
    assert environment.of_unit(shown) == {"HOME": "/nonexistent", "LLAMA_ARG_Z": "two words", "LLAMA_ARG_X": "", "D": "e"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--model", "m", "--metrics"], []),
        (["--tools", "all"], ["flag-opens-machine"]),
        (["--agent"], ["flag-opens-machine"]),
        (["--mcp-servers-config=/x"], ["flag-opens-machine"]),
        (["--toolset"], []),
        (["--api-key", "s3cret"], ["key-in-argv"]),
        (["--api-key=s3cret"], ["key-in-argv"]),
        (["--api-key-file", "/x"], []),
        (["--ssl-key-file", "/k"], ["tls-half"]),
        (["--ssl-cert-file", "/c"], ["tls-half"]),
        (["--ssl-key-file", "/k", "--ssl-cert-file", "/c"], []),
    ],
)
def test_flags(words: list[str], expected: list[str]) -> None:
    found = environment.flags(UNIT, ["llama-server", *words])
    assert [one.code for one in found] == expected
    assert "s3cret" not in str(found)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "key-empty"),
        (b"# only\n\n   \n", "key-empty"),
        (b"s3cret\n", ""),
        (b"# x\ns3cret\n", ""),
        (b"s3cret \n", "key-file"),
        (b" s3cret", "key-file"),
    ],
)
def test_a_key_file_that_opens_the_server_or_can_never_match(body: bytes, code: str) -> None:
    found = environment.key_file(UNIT, "/etc/keys", body)
    assert [one.code for one in found] == ([code] if code else [])
    assert "s3cret" not in str(found)


@pytest.mark.parametrize(
    ("argv", "variables", "path"),
    [
        (["s", "--api-key-file", "/k"], {}, "/k"),
        (["s", "--api-key-file=/k"], {}, "/k"),
        (["s", "--api-key-file"], {}, ""),
        (["s"], {"LLAMA_ARG_API_KEY_FILE": "/e"}, "/e"),
        (["s", "--api-key-file", "/k"], {"LLAMA_ARG_API_KEY_FILE": "/e"}, "/k"),
        (["s"], {}, ""),
    ],
)
def test_where_the_keys_come_from(argv: list[str], variables: dict[str, str], path: str) -> None:
    assert environment.key_file_of(argv, variables) == path


def test_where_a_server_looks_for_config_ini() -> None:
    assert environment.config_places({}) == ("/etc/llama.cpp/config.ini",)
    assert environment.config_places({"HOME": "/home/x"}) == ("/etc/llama.cpp/config.ini", "/home/x/.config/llama.cpp/config.ini")
    assert environment.config_places({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == ("/etc/llama.cpp/config.ini", "/c/llama.cpp/config.ini")
    assert environment.config_places({"XDG_CONFIG_HOME": "relative"}) == ("/etc/llama.cpp/config.ini",)


def test_a_stray_file_is_worse_when_a_server_sees_it() -> None:
    seen = environment.stray("/etc/llama.cpp/config.ini", [UNIT])
    assert (seen.severity, UNIT in seen.words) == (finding.WARNING, True)
    assert environment.stray("/etc/llama.cpp/config.ini", []).severity == finding.NOTE
