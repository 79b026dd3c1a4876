"""Flags are for the release that the host is about to have, not for the one that happens to be in use."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests import goldens
from wattherd import plan
from wattherd.wire import facts, manifest

CASE = goldens.FOLDER / "orin-cpu"


@pytest.fixture
def planned() -> Any:
    import json

    told = facts.decode(json.loads((CASE / "facts.json").read_text()))
    return plan.manifest_for(goldens.host_of(CASE), told, plan.load_roles(goldens.ROOT / "roles"))


def of(planned: manifest.Manifest, kind: str) -> manifest.Entry:
    return next(entry for entry in planned.resources if entry.type == kind)


def test_flags_are_for_the_release_that_current_will_lead_to(planned: manifest.Manifest) -> None:
    flags, link, build = of(planned, "flags"), of(planned, "symlink"), of(planned, "build")
    assert link.spec["path"] == "/opt/wattherd/current"
    assert flags.spec["binary"] == f"{link.spec['target']}/bin/llama-server"
    assert flags.spec["build"] == build.spec["fingerprint"]


def test_flags_stand_behind_the_release_and_before_the_unit(planned: manifest.Manifest) -> None:
    ids = [entry.id for entry in planned.resources]
    unit = next(entry.id for entry in planned.resources if entry.id.startswith("unit:llama@"))
    assert ids.index(of(planned, "symlink").id) < ids.index(of(planned, "flags").id) < ids.index(unit)


def test_flags_carry_raw_words_untouched_to_the_node(planned: manifest.Manifest) -> None:
    asked = yaml.safe_load((CASE / "host.yaml").read_text())["vars"]["serve"][0]["extra_flags"]
    assert of(planned, "flags").spec["extra"] == asked
