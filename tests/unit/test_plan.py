"""Host + facts + roles -> manifest: order, inputs of units, conflicts, and roles that are wrong."""

from __future__ import annotations

import pathlib

import pytest

from wattherd import errors, plan, role
from wattherd.inventory import settings
from wattherd.wire import facts, manifest

FACTS = facts.Facts(system=facts.System(hostname="titan"), cpu=facts.Cpu("x86_64"), python=facts.Python("python3", "3.11"))
UNIT = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"


def roles(folder: pathlib.Path, **bodies: str) -> dict[str, role.Role]:
    for name, body in bodies.items():
        (folder / f"{name}.py").write_text(f"from wattherd.role import *\n\n\ndef resources(host, facts):\n{body}")
    return dict(plan.load_roles(folder))


def planned(folder: pathlib.Path, **bodies: str) -> manifest.Manifest:
    made = roles(folder, **bodies)
    host = role.Host(name="titan", groups=(), settings=settings.Settings(roles=tuple(bodies)))
    return plan.manifest_for(host, FACTS, made)


def test_roles_run_in_their_order_and_tag_what_they_make(tmp_path: pathlib.Path) -> None:
    made = planned(tmp_path, two="    yield Directory(path='/b')\n", one="    yield Directory(path='/a')\n")
    assert [(entry.id, entry.role, entry.tags) for entry in made.resources] == [
        ("directory:/b", "two", ("two",)),
        ("directory:/a", "one", ("one",)),
    ]


def test_a_unit_restarts_when_what_it_is_started_from_is_another(tmp_path: pathlib.Path) -> None:
    body = "    yield File(path='/conf', text={text!r})\n    yield Unit(name='a.service', text={unit!r}, started_from=('file:/conf',))\n"
    inputs = [planned(tmp_path, app=body.format(text=text, unit=UNIT)).resources[1].spec["inputs"] for text in ("one", "two", "one")]
    assert inputs[0] == inputs[2]
    assert inputs[0] != inputs[1]
    assert "started_from" not in planned(tmp_path, app=body.format(text="one", unit=UNIT)).resources[1].spec, "a node never sees ids here"


def test_started_from_something_that_is_not_there_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.Problem, match="file:/other"):
        planned(tmp_path, app=f"    yield Unit(name='a.service', text={UNIT!r}, started_from=('file:/other',))\n")


def test_two_roles_that_want_the_same_are_named_both(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.Problem) as caught:
        planned(tmp_path, one="    yield Directory(path='/a')\n", two="    yield Directory(path='/a', mode='0700')\n")
    assert caught.value.code == "inventory-conflict"
    assert "role one" in caught.value.message
    assert "role two" in caught.value.message


def test_a_roles_defect_is_named_with_host_and_role(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.Problem) as caught:
        planned(tmp_path, broken="    yield Directory(path=facts.no_such_fact)\n")
    assert caught.value.code == "role-invalid"
    assert "broken" in caught.value.message
    assert "titan" in caught.value.message


@pytest.mark.parametrize("text", ["def resources(:\n", "import no_such_module\n", "x = 1\n"])
def test_a_module_that_is_no_role_is_named(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "odd.py").write_text(text)
    with pytest.raises(errors.Problem) as caught:
        plan.load_roles(tmp_path)
    assert caught.value.code == "role-invalid"
    assert "odd.py" in caught.value.message


def test_tags_choose_by_role() -> None:
    made = manifest.Manifest("titan", tuple(manifest.Entry(f"directory:/{one}", "directory", one, {}, (one,)) for one in ("base", "power")))
    assert plan.tagged(made, (), ()) is None
    assert plan.tagged(made, ("power",), ()) == ["directory:/power"]
    assert plan.tagged(made, (), ("power",)) == ["directory:/base"]


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ("100%", "100%%"),
        ("$HOME", "$$HOME"),
        ('say "hi"', '"say \\"hi\\""'),
        ("a\\b", "a\\\\b"),
    ],
)
def test_a_word_of_a_unit_stays_one_word(word: str, written: str) -> None:
    assert role.unit_word(word) == written
