"""The house's own rules, as tests: layers, the shipped set, error codes, cases for every type, words that may not be committed."""

from __future__ import annotations

import ast
import io
import pathlib
import re
import subprocess
import sys

import pytest

from wattherd import errors, resources, role
from wattherd import machine as machines
from wattherd.link import archive
from wattherd.node import session

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "wattherd"
SOURCES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "roles").glob("*.py"), *(ROOT / "benchmarks").glob("*.py"), ROOT / "tasks.py"])
SHIPPED = archive.modules(PACKAGE)


def imports(path: pathlib.Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def test_the_layers_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_ships_needs_only_the_standard_library(path: pathlib.Path) -> None:
    foreign = {name for name in imports(path) if name.split(".")[0] not in {*sys.stdlib_module_names, "wattherd"}}
    assert not foreign


def test_what_ships_runs_alone_without_site(tmp_path: pathlib.Path) -> None:
    """Unpacked as on a node, in isolated mode, every module can be imported: nothing that was left at home is missed."""
    import io
    import zipfile

    zipfile.ZipFile(io.BytesIO(archive.program().body)).extractall(tmp_path)
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__") for path in SHIPPED]
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport importlib\nfor name in {names!r}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_roles_know_only_their_surface() -> None:
    for path in (ROOT / "roles").glob("*.py"):
        assert {name for name in imports(path) if name.startswith("wattherd")} <= {
            name for name in imports(path) if name.startswith("wattherd.role")
        }, path.name


def test_only_one_file_imports_fabric() -> None:
    assert [
        path.name for path in SOURCES if "fabric" in {name.split(".")[0] for name in imports(path)} and "benchmarks" not in str(path)
    ] == ["ssh.py"]


def test_every_error_code_is_in_the_list_and_every_listed_one_is_used() -> None:
    listed = set(
        re.findall(r"\b[a-z0-9]+(?:-[a-z0-9]+)+\b|(?<=\s)permission\b|(?<=\s)internal\b", (errors.__doc__ or "").split("Codes by room")[1])
    )
    used: set[str] = set()
    for path in [*SOURCES, *(ROOT / "tests" / "lab").glob("*.py")]:
        text = path.read_text()
        used |= set(re.findall(r"Problem\(\s*\"([a-z0-9-]+)\"", text)) | {word for word in listed if f'"{word}"' in text}
    assert used - listed == set(), "raised but not listed in errors.py"
    assert listed - used == set(), "listed in errors.py but nowhere raised"
    described = set(re.findall(r"`([a-z0-9-]+)`", (ROOT / "docs" / "problems.md").read_text()))
    assert listed - described == set(), "not described in docs/problems.md"


def test_every_resource_type_is_documented() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text()
    for kind in resources.types():
        assert f"| `{kind.TYPE}` |" in text, f"docs/protocol.md has no row for {kind.TYPE}"


def test_every_verb_of_a_session_is_in_the_protocol() -> None:
    verbs = session.Session(machines.Machine(), io.BytesIO(), io.BytesIO()).verbs
    text = (ROOT / "docs" / "protocol.md").read_text()
    assert [verb for verb in verbs if f"| `{verb}` |" not in text] == []


def test_every_resource_type_is_offered_to_role_authors() -> None:
    text = (ROOT / "docs" / "how-to" / "role.md").read_text()
    offered = next(line for line in text.splitlines() if "resource types (`" in line)
    assert [kind.__name__ for kind in resources.types() if not hasattr(role, kind.__name__) or kind.__name__ not in offered] == []


def test_any_is_touched_in_few_places() -> None:
    allowed = {"fields.py"}
    for path in SHIPPED:
        used = re.findall(r"-> Any\b", path.read_text())
        assert not used or path.name in allowed, f"{path.name} returns Any"


def tracked() -> list[pathlib.Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_nothing_unfinished_and_nothing_of_one_machine_is_committed() -> None:
    unfinished = re.compile("raise NotImplemented" + "Error|\\bTO" + "DO\\b|\\bFIX" + "ME\\b|\\bXX" + "X\\b|not implemented " + "yet")
    places = re.compile("(^|[^A-Za-z0-9_.])/(wor" + "k|far" + "m)/|index-" + "url|extra-" + "index")
    for path in tracked():
        if path.suffix in {".py", ".md", ".yaml", ".toml", ".j2", ".sh", ""} and path.name != "LICENSE":
            text = path.read_text(errors="replace")
            assert not unfinished.search(text), path
            found = places.search(text)
            assert not found or (path.parent.name == "sources" and "index-" in (found.group() if found else "")), (
                f"{path}: {found.group() if found else ''}"
            )


def test_every_test_asserts_something() -> None:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                body = ast.dump(node)
                assert "Assert(" in body or "raises" in body or "assert" in body, f"{path.name}: {node.name}"
