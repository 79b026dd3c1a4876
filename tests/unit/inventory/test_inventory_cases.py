"""Every field case of tests/cases/inventory.yaml, one test each, named after the case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from wattherd import errors, inventory

Load = Callable[..., inventory.Inventory]
Refuse = Callable[..., errors.Problem]

_CASES = Path(__file__).parents[2] / "cases" / "inventory.yaml"


def test_every_case_has_its_test() -> None:
    cases = yaml.safe_load(_CASES.read_text("utf-8"))["cases"]
    wanted = {f"test_{case['id'].replace('-', '_')}" for case in cases}
    assert cases
    assert wanted <= {name for name in globals() if name.startswith("test_e")}


def test_e01_host_and_group_share_a_name(load: Load) -> None:
    loaded = load({"hosts": "web\nnode\n[web]\nweb\nnode\n"})
    assert loaded.selection("web").hosts == ("web",)
    assert loaded.selection("web:*").hosts == ("web", "node")
    assert [w for w in loaded.warnings if "'web' is both a host and a group" in w]
    assert [problem.code for problem in loaded.lint("web")] == ["inventory-conflict"]


def test_e01_a_forgotten_children_makes_a_host(load: Load) -> None:
    loaded = load({"hosts": "[group-a]\ngroup-b\n[group-b]\nhost-c\n"})
    assert loaded.selection("group-a").hosts == ("group-b",)
    (warning,) = loaded.warnings
    assert "inventory/hosts:2" in warning
    assert "[group-a:children]" in warning
    (problem,) = loaded.lint("group-a")
    assert problem.code == "inventory-conflict"
    assert "inventory/hosts:2" in problem.message


def test_e02_ranges(load: Load) -> None:
    names = load({"hosts": "gpu1[1:1]\nwww[01:50:2]\nn[a:e:2]\nh[098:101]\n"}).hosts
    www = tuple(f"www{number:02}" for number in range(1, 50, 2))
    assert names == ("gpu11", *www, "na", "nc", "ne", "h098", "h099", "h100", "h101")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1:3].gpu.example\n", "starts like a section"),
        ("node-[1:3] ansible_host=10.0.0.[31:33]\n", "ranges are not expanded in values"),
        ("host[0-1]\n", "is not a range"),
    ],
)
def test_e02_ranges_that_are_refused(refuse: Refuse, text: str, said: str) -> None:
    problem = refuse({"hosts": text})
    assert problem.message.startswith("inventory/hosts:1: ")
    assert said in problem.message


def test_e02_a_range_in_a_yaml_value(refuse: Refuse) -> None:
    problem = refuse({"hosts.yaml": 'all:\n  hosts:\n    node-[1:3]:\n      ansible_host: "10.0.0.[31:33]"\n'})
    assert problem.code == "inventory-invalid"
    assert "inventory/hosts.yaml:4: ansible_host: 10.0.0.[31:33]: ranges are not expanded in values" in problem.message


def test_e04_ini_file_in_a_directory(load: Load) -> None:
    files = {"hosts.ini": "[web]\nw1\n", "group_vars/web.yaml": "a: 1\n", "notes.md": "", "web.ini": "other\n"}
    loaded = load(files)
    assert loaded.hosts == ("w1",)
    assert loaded.skipped == ("notes.md", "web.ini")
    assert [w for w in loaded.warnings if "hosts.ini" in w and "before 2.19" in w]
    assert load(files, path="inventory/hosts.ini").warnings == ()


@pytest.mark.parametrize(
    ("first", "winner", "reason"), [("CG_x", "two", "'IG_y' sorts after 'CG_x'"), ("xyzzy", "one", "'xyzzy' sorts after 'IG_y'")]
)
def test_e05_sibling_groups(load: Load, first: str, winner: str, reason: str) -> None:
    loaded = load({"hosts": f"[{first}]\nh\n[{first}:vars]\nv=one\n[IG_y]\nh\n[IG_y:vars]\nv=two\n"})
    told = loaded.explain("h", "v")
    assert loaded.host("h").variables["v"] == told.winner.value == winner
    assert [candidate.depth for candidate in told.candidates] == [1, 1]
    assert reason in told.reason


def test_e05_a_deeper_tree_beats_priority(load: Load) -> None:
    loaded = load(
        {
            "hosts.yaml": """
            all:
              children:
                os:
                  vars: {v: os}
                  children:
                    distr:
                      vars: {v: distr}
                      children:
                        distr9:
                          vars: {v: distr9}
                          hosts: {h: }
                frontends:
                  vars: {v: f, ansible_group_priority: 10}
                  hosts: {h: }
            """
        }
    )
    told = loaded.explain("h", "v")
    assert [(each.group, each.depth, each.priority) for each in told.candidates] == [
        ("os", 1, 1),
        ("frontends", 1, 10),
        ("distr", 2, 1),
        ("distr9", 3, 1),
    ]
    assert loaded.host("h").variables["v"] == "distr9"
    assert told.reason == "the group 'distr9' lies deeper than 'distr' (depth 3 > 2)"
