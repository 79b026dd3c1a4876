"""Every link that a person may copy, and what is said about the ones that lead to no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattherd import errors
from wattherd.sources import links, spec

FILE = "https://huggingface.co/org/repo/resolve/main/m.Q4_K_M.gguf"


def parse(text: str) -> spec.Source:
    return spec.parse_model(text, Path("/project"))


def web(text: str) -> links.WebFile:
    found = parse(text)
    assert isinstance(found, links.WebFile)
    return found


@pytest.mark.parametrize(
    ("text", "url", "corrected"),
    [
        ("hf:org/repo/m.Q4_K_M.gguf", FILE, False),
        ("hf:org/repo/m.Q4_K_M.gguf@main", FILE, False),
        ("hf:org/repo/sub/x.gguf@refs/pr/3", "https://huggingface.co/org/repo/resolve/refs%2Fpr%2F3/sub/x.gguf", False),
        (FILE, FILE, False),
        (f"{FILE}?download=true", FILE, False),
        (FILE.replace("/resolve/", "/blob/"), FILE, True),
        (FILE.replace("/resolve/", "/raw/"), FILE, True),
        (FILE.replace("huggingface.co", "hf.co"), FILE, False),
        (FILE.replace("https://", "http://"), FILE, False),
        ("https://huggingface.co/org/repo?show_file_info=m.Q4_K_M.gguf", FILE, True),
        ("https://huggingface.co/org/repo/blob/v1.0/a%20b.gguf", "https://huggingface.co/org/repo/resolve/v1.0/a%20b.gguf", True),
        ("https://example.org/models/m.gguf?X-Signature=abc", "https://example.org/models/m.gguf?X-Signature=abc", False),
    ],
)
def test_a_link_leads_to_the_file(text: str, url: str, corrected: bool) -> None:
    found = web(text)
    assert found.url == url
    assert bool(found.note) == corrected
    assert "?" not in str(found)


def test_one_file_has_one_key_however_it_is_written() -> None:
    keys = {str(web(text)) for text in ("hf:org/repo/m.Q4_K_M.gguf", FILE, FILE.replace("/resolve/", "/blob/"), f"{FILE}?download=true")}
    assert keys == {"hf:org/repo/m.Q4_K_M.gguf"}
    assert str(web("hf:org/repo/m.gguf@v2")) == "hf:org/repo/m.gguf@v2"


def test_a_quantisation_of_a_repository() -> None:
    assert parse("hf:org/repo:Q4_K_M") == links.Quantised(repository="org/repo", quantisation="Q4_K_M")
    assert str(parse("hf:org/repo:UD-Q4_K_XL@v2")) == "hf:org/repo:UD-Q4_K_XL@v2"


def test_a_mirror_is_named_by_the_usual_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/hf/")
    assert web("hf:org/repo/m.gguf").url == "https://mirror.example/hf/org/repo/resolve/main/m.gguf"
    assert web("https://mirror.example/hf/org/repo/blob/main/m.gguf").url == "https://mirror.example/hf/org/repo/resolve/main/m.gguf"


def test_parts_lie_beside_the_first() -> None:
    first = web("hf:org/repo/Q4/m-00001-of-00002.gguf@v1")
    assert first.sibling("m-00002-of-00002.gguf") == web("hf:org/repo/Q4/m-00002-of-00002.gguf@v1")
    plain = web("https://example.org/a/m-00001-of-00002.gguf?key=1")
    assert plain.sibling("m-00002-of-00002.gguf").url == "https://example.org/a/m-00002-of-00002.gguf?key=1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hf:m.gguf", "names no repository"),
        ("hf:org/repo", "names no .gguf"),
        ("hf:org/repo/../x.gguf", "names no .gguf"),
        ("hf:org/repo/model.safetensors", "names no .gguf"),
        ("hf:org:Q4_K_M", "names no quantisation"),
        ("hf:org/repo/x.gguf@a b", "names no revision"),
        ("https://huggingface.co/org/repo", "write hf:org/repo/FILE.gguf"),
        ("https://huggingface.co/org/repo/tree/main", "write hf:org/repo/FILE.gguf"),
        ("https://huggingface.co/datasets/org/repo/resolve/main/x.gguf", "names no model repository"),
        ("https://example.org/", "names no .gguf"),
        ("https://example.org/model.zip", "names no .gguf"),
        ("https://user:s3cret@example.org/x.gguf", "holds a user or a password"),
        ("ftp://example.org/x.gguf", "on the web"),
        ("path:relative.gguf", "a file on this controller is file:"),
        ("path:/srv/../x.gguf", "names no file on a node"),
        ("/srv/x.gguf", "has no kind in front"),
    ],
)
def test_what_leads_to_no_file_says_what_to_write(text: str, words: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        parse(text)
    assert caught.value.code == "source-unknown"
    assert words in caught.value.message
    assert "hf:ORG/REPO/FILE.gguf" in caught.value.hint
    assert "s3cret" not in str(caught.value.to_dict())


def test_a_file_on_the_node_is_not_one_on_the_controller() -> None:
    assert parse("path:/mnt/models/x.gguf") == spec.NodeFile(path="/mnt/models/x.gguf")
    assert parse("file:/mnt/models/x.gguf") == spec.LocalFile(path=Path("/mnt/models/x.gguf"))
