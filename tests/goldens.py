"""Golden cases: a host and recorded facts in, the whole manifest out, kept as text that a reviewer can read.

`invoke golden` rewrites the manifests; tests/test_golden.py compares them. A case whose roles refuse has problem.json instead.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import yaml

from wattherd import errors, inventory, material, plan, role
from wattherd.inventory import settings
from wattherd.serving import secrets
from wattherd.sources import toolkit
from wattherd.wire import facts, manifest

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "golden"
#: In the place of the node program's digest, which every change of its code changes.
PROGRAM = "0123456789abcdef" * 4


def cases() -> list[pathlib.Path]:
    return sorted(path.parent for path in FOLDER.glob("*/host.yaml"))


def host_of(case: pathlib.Path) -> role.Host:
    """host.yaml: name, groups, vars (own and free), and what the controller would have resolved (archive, models)."""
    told: Mapping[str, Any] = yaml.safe_load((case / "host.yaml").read_text())
    variables: dict[str, Any] = told.get("vars", {})
    own = {key: value for key, value in variables.items() if key in inventory.OWN}
    archive = told.get("archive")
    models = {name: _model(name, row) for name, row in told.get("models", {}).items()}
    return role.Host(
        name=told["name"],
        groups=tuple(told.get("groups", ())),
        settings=settings.Settings.model_validate(own),
        variables={"inventory_hostname": told["name"], **variables},
        folders=(ROOT / "templates",),
        models=models,
        archive=role.Archive(**archive) if archive else None,
        secrets=secrets.Book(_secret),
        toolkits=toolkit.offers(),
        program=PROGRAM,
    )


def _secret(place: settings.Secret) -> secrets.Hidden:
    """Goldens have no secrets: every place holds the same word, or what looks like a key where the place's name says so."""
    pem = place.file is not None and place.file.endswith(".pem")
    body = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" if pem else b"a-word-that-opens-nothing"
    return secrets.Hidden(body, "the golden case")


def _model(name: str, row: Mapping[str, Any]) -> role.Model:
    """Either one file in short, or all fields with `files`; what stands beside a model is a file too."""
    short = ("sha256", "size_bytes", "file_name")
    whole = {key: row[key] for key in short if key in row}
    more = {key: value for key, value in row.items() if key not in {*short, "files", "projector", "adapters"}}
    if "projector" in row:
        more["projector"] = material.File(**row["projector"])
    more["adapters"] = {key: material.File(**value) for key, value in row.get("adapters", {}).items()}
    return role.Model(name=name, files=tuple(material.File(**one) for one in row.get("files", [whole])), **more)


def render(case: pathlib.Path) -> tuple[str, str]:
    """The file name and the text that the case should hold."""
    told = facts.decode(json.loads((case / "facts.json").read_text()))
    try:
        wanted = plan.manifest_for(host_of(case), told, plan.load_roles(ROOT / "roles"))
    except errors.Problem as problem:
        return "problem.json", json.dumps(problem.to_dict(), indent=1, sort_keys=True) + "\n"
    return "manifest.json", json.dumps(_lines(manifest.to_plain(wanted)), indent=1, sort_keys=True) + "\n"


def _lines(value: Any) -> Any:
    """Texts of several lines become lists of lines, so that a difference reads as one."""
    if isinstance(value, str) and "\n" in value.rstrip("\n"):
        return value.split("\n")
    if isinstance(value, list):
        return [_lines(item) for item in value]
    if isinstance(value, dict):
        return {key: _lines(held) for key, held in value.items()}
    return value


def main() -> None:
    for case in cases():
        name, text = render(case)
        for other in ("manifest.json", "problem.json"):
            if other != name:
                (case / other).unlink(missing_ok=True)
        (case / name).write_text(text)
    from tests import hardware

    hardware.write()


if __name__ == "__main__":
    main()
