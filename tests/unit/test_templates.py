"""Rendering: Jinja's whitespace rules, folders in their order, laziness, and errors with file, line and host."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from wattherd import errors, templates


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "templates"


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


class _Lazy(Mapping[str, object]):
    """Fails when more than the names in use are looked up."""

    def __getitem__(self, name: str) -> object:
        if name == "broken":
            raise errors.Problem("bad-variable", "worked out without need")
        return {"port": 80}[name]

    def __iter__(self) -> Iterator[str]:
        return iter(["broken", "port"])

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("port={{ port }}\n", "port=80\n"),
        ("no newline", "no newline"),
        ("{% if port %}\nyes\n{% endif %}\n", "yes\n"),
        ("a\n    {% for x in [1, 2] %}\n  {{ x }}\n    {% endfor %}\nb\n", "a\n  1\n  2\nb\n"),
        ("{{ '<&>' }}\n", "<&>\n"),
        ("{{ absent | default('x') }}{{ absent is defined }}", "xFalse"),
        ("{% for n in range(2) %}{{ n }}{% endfor %}", "01"),
        ("{% set a = namespace(v=1) %}{{ a.v }}{{ dict(x=1).x }}", "11"),
        ("{% macro m(x) %}<{{ x }}{{ port }}>{% endmacro %}{{ m(1) }}", "<180>"),
    ],
)
def test_renders(folder: Path, text: str, rendered: str) -> None:
    _write(folder, {"base/x.j2": text})
    assert templates.render([folder], "base/x.j2", {"port": 80}, host="titan") == rendered


def test_the_first_folder_wins_and_the_next_fills_in(tmp_path: Path) -> None:
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    _write(own, {"base/x.j2": "own"})
    _write(shipped, {"base/x.j2": "shipped", "base/y.j2": "shipped {% include 'base/x.j2' %}"})
    assert templates.render([own, shipped], "base/x.j2", {}, host="h") == "own"
    assert templates.render([own, shipped], "base/y.j2", {}, host="h") == "shipped own"
    assert templates.render([shipped], "base/x.j2", {}, host="h") == "shipped"


def test_a_changed_file_is_read_again(folder: Path) -> None:
    _write(folder, {"x.j2": "one"})
    assert templates.render([folder], "x.j2", {}, host="h") == "one"
    _write(folder, {"x.j2": "two, longer"})
    assert templates.render([folder], "x.j2", {}, host="h") == "two, longer"


@pytest.mark.parametrize(
    "text",
    ["{{ port }}", "{% include 'i.j2' %}", "{% set mine = 1 %}{% include 'i.j2' %}", "{% import 'm.j2' as m with context %}{{ m.m() }}"],
)
def test_a_lazy_mapping_stays_lazy(folder: Path, text: str) -> None:
    _write(folder, {"x.j2": text, "i.j2": "{{ port }}", "m.j2": "{% macro m() %}{{ port }}{% endmacro %}"})
    assert templates.render([folder], "x.j2", _Lazy(), host="h") == "80"
    assert templates.render([folder], "x.j2", ChainMap({"more": 1}, _Lazy()), host="h") == "80"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "code", "said", "hint"),
    [
        (
            "a\n{{ site }}\n",
            "template-variable",
            "templates/base/x.j2:2: 'site' is not defined for titan",
            "define 'site' in group_vars/all.yaml",
        ),
        ("a\n\n{{ prot }}\n", "template-variable", "templates/base/x.j2:3: 'prot' is not defined for titan", "did you mean 'port'?"),
        ("{{ table.zzz }}\n", "template-variable", "templates/base/x.j2:1: 'zzz' is not defined for titan", "host_vars/titan.yaml"),
        ("{% for x in zzz %}{% endfor %}", "template-variable", "templates/base/x.j2:1: 'zzz'", ""),
        ("a\n{% include 'base/inner.j2' %}\n", "template-variable", "templates/base/inner.j2:2: 'deep' is not defined for titan", ""),
        ("a\n{{ port + 'x' }}\n", "template-variable", "templates/base/x.j2:2: cannot be rendered for titan", ""),
        ("{{ 1 / 0 }}", "template-variable", "division by zero", ""),
        ("a\n{% if %}\n", "template-syntax", "templates/base/x.j2:2: ", ""),
        ("a\n{{ port\n", "template-syntax", "templates/base/x.j2:", ""),
        ("{{ port | nosuch }}", "template-syntax", "templates/base/x.j2:1: No filter named 'nosuch'", ""),
        (
            "{% include 'base/iner.j2' %}",
            "template-missing",
            "base/iner.j2, which base/x.j2 includes, is not in",
            "did you mean 'base/inner.j2'",
        ),
    ],
)
def test_failures(folder: Path, text: str, code: str, said: str, hint: str) -> None:
    _write(folder, {"base/x.j2": text, "base/inner.j2": "\n{{ deep }}"})
    with pytest.raises(errors.Problem) as caught:
        templates.render([folder], "base/x.j2", {"port": 80, "table": {}}, host="titan")
    assert caught.value.code == code
    assert said in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.context["host"] == "titan"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("base/mtod.j2", "did you mean 'base/motd.j2'?"), ("zzz", "there are base/motd.j2"), ("../secret", "there are base/motd.j2")],
)
def test_a_missing_template_names_the_nearest(folder: Path, name: str, hint: str) -> None:
    _write(folder, {"base/motd.j2": "x", "../secret": "x"})
    with pytest.raises(errors.Problem) as caught:
        templates.render([folder], name, {}, host="h")
    assert caught.value.code == "template-missing"
    assert name in caught.value.message
    assert str(folder) in caught.value.message
    assert caught.value.hint == hint


def test_without_any_template(tmp_path: Path) -> None:
    with pytest.raises(errors.Problem) as caught:
        templates.render([tmp_path / "none"], "x.j2", {}, host="h")
    assert (caught.value.code, caught.value.hint) == ("template-missing", "no folder holds a template")
    with pytest.raises(errors.Problem):
        templates.render([], "x.j2", {}, host="h")


def test_a_problem_of_a_variable_comes_through_as_it_is(folder: Path) -> None:
    _write(folder, {"x.j2": "{{ broken }}"})
    with pytest.raises(errors.Problem, match="worked out without need"):
        templates.render([folder], "x.j2", _Lazy(), host="h")
