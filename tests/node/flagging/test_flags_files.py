"""What is written: words that survive systemd's splitting, heads that tell, and presets that a router reads as meant."""

from __future__ import annotations

import configparser
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import corpus
from wattherd import errors
from wattherd.resources.flagging import files, manual

ASKED = "a" * 64
printable = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cf", "Cn", "Co", "Zs"), include_characters=" "), min_size=1
)


def words_of(text: str) -> list[str]:
    """Both rounds of unquoting: an environment file's double quotes, then the splitting of a variable in ExecStart=.

    The shell's rules for double quotes are the file's; splitting is the shell's without `$` and '`', where a backslash always escapes.
    """
    line = next(line for line in text.splitlines() if line.startswith("WATTHERD_FLAGS="))
    value = line.partition("=")[2]
    assert value[0] == value[-1] == '"'
    once, index = "", 1
    while index < len(value) - 1:
        if value[index] == "\\" and value[index + 1] in '"\\`$':
            index += 1
        once += value[index]
        index += 1
    return shlex.split(once)


@given(st.lists(printable, min_size=1, max_size=6))
def test_flags_words_come_out_as_they_went_in(words: list[str]) -> None:
    text = files.environment_text("t", ASKED, [tuple(words)], {}, "")
    assert words_of(text) == words


def test_flags_a_file_tells_what_was_asked_and_whether_it_is_as_written() -> None:
    text = files.environment_text("t", ASKED, [("--model", "/m.gguf")], {"B": "2", "A": "1"}, "preset")
    assert files.read(text, "preset") == (ASKED, True)
    assert files.read(text, "preset ") == (ASKED, False)
    assert files.read(text.replace("/m.gguf", "/n.gguf"), "preset") == (ASKED, False)
    assert files.read(text.replace('B="2"', 'B="3"'), "preset") == (ASKED, False)
    assert files.read("", "") == ("", False)
    assert files.read("A=1\nB=2\nC=3\n", "") == ("", False)
    assert text.index('A="1"') < text.index('B="2"')
    assert all(line.startswith("#") for line in text.splitlines()[:2])


def test_flags_a_preset_is_read_as_meant() -> None:
    known = manual.parse(corpus.helped("b11434"))
    sections = {
        "a": (("--model", "/a.gguf"), ("--no-kv-unified",), ("--jinja",), ("load-on-startup", "true")),
        "b": (("--model", "/b c.gguf"), ("--ctx-size", "512")),
    }
    read = configparser.RawConfigParser(inline_comment_prefixes=("#", ";"))
    read.read_string(files.preset_text("t", sections, known))
    assert {name: dict(read[name]) for name in read.sections()} == {
        "a": {"model": "/a.gguf", "kv-unified": "false", "jinja": "true", "load-on-startup": "true"},
        "b": {"model": "/b c.gguf", "ctx-size": "512"},
    }


def test_flags_a_lone_negative_switch_keeps_its_name_in_a_preset() -> None:
    known = manual.parse("--no-host   bypass host buffer\n")
    assert "no-host = true" in files.preset_text("t", {"a": (("--no-host",),)}, known)


@pytest.mark.parametrize("value", ["a;b", "a#b", " a", "a ", "", "a\nb"])
def test_flags_what_a_preset_cannot_hold_is_refused(value: str) -> None:
    with pytest.raises(errors.Problem, match="cannot be written into a preset file"):
        files.preset_text("t", {"a": (("--reverse-prompt", value),)}, None)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"org/model-GGUF:Q4_K_XL": (("--model", "/path/x.gguf"),)}, "its name is no plain slug"),
        ({"default": (("--model", "/x"),)}, "its name is no plain slug"),
        ({"*": (("--model", "/x"),)}, "its name is no plain slug"),
        ({"broken": (("--ctx-size", "512"),)}, "0 sources of a model"),
        ({"two": (("--model", "/x"), ("--hf-repo", "a/b"))}, "2 sources of a model"),
        ({"fetched": (("--hf-repo", "a/b"),)}, "1 sources of a model"),
        ({"a": (("--model", "/x"), ("--alias", "A")), "b": (("--model", "/y"), ("--alias", "A"))}, "its alias 'A' is taken"),
        ({"a": (("--model", "/x"),), "b": (("--model", "/y"), ("--alias", "c,a"))}, "its alias 'a' is taken"),
    ],
)
def test_flags_b08_router_section_names(sections: dict[str, tuple[tuple[str, ...], ...]], words: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        files.lint("flags:smol", sections)
    assert caught.value.code == "flag-value"
    assert words in caught.value.message
    assert any(f"[{name}]" in caught.value.message for name in sections)


def test_flags_sound_sections_pass_the_lint() -> None:
    sections = {"a": (("--model", "/x"), ("--alias", "b1")), "b": (("--model", "/y"), ("--alias", "b2,b3"))}
    files.lint("flags:smol", sections)
    assert files.preset_text("t", sections, None).count("[") == 2
