"""Ansible's precedence: a ladder where each rung is added in turn, and a property over random groups."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattherd import errors, inventory
from wattherd.inventory import tree

Load = Callable[..., inventory.Inventory]

_HOSTS = """
all:
  vars: {{{all_vars}}}
  children:
    outer:
      vars: {{{outer_vars}}}
      children:
        inner:
          vars: {{{inner_vars}}}
          hosts:
            h: {{{host_vars}}}
"""

# Weakest first. A group in an inventory file is weaker than group_vars/all: that is Ansible's order, and surprises people.
_LADDER = (
    ("all_vars", "all in an inventory file"),
    ("outer_vars", "a group in an inventory file"),
    ("inner_vars", "a group in an inventory file"),
    ("group_vars/all.yml", "group_vars/all"),
    ("group_vars/outer.yaml", "group_vars of a group"),
    ("group_vars/inner.json", "group_vars of a group"),
    ("host_vars_inline", "the host in an inventory file"),
    ("host_vars/h", "host_vars"),
    ("extra", "--extra-vars"),
)


def _files(rungs: int) -> tuple[dict[str, str], dict[str, object]]:
    given_rungs = [name for name, _ in _LADDER[:rungs]]
    inline = {key: f"v: {key}" if key in given_rungs else "" for key in ("all_vars", "outer_vars", "inner_vars")}
    files = {"hosts.yaml": _HOSTS.format(**inline, host_vars="v: host_vars_inline" if "host_vars_inline" in given_rungs else "")}
    files.update({name: json.dumps({"v": name}) for name in given_rungs if "/" in name})
    return files, {"v": "extra"} if "extra" in given_rungs else {}


@pytest.mark.parametrize("rungs", range(1, len(_LADDER) + 1))
def test_each_rung_beats_those_below(load: Load, rungs: int) -> None:
    files, extra = _files(rungs)
    loaded = load(files, extra=extra)
    told = loaded.explain("h", "v")
    assert loaded.host("h").variables["v"] == _LADDER[rungs - 1][0]
    assert [(each.value, each.layer) for each in told.candidates] == list(_LADDER[:rungs])


@pytest.mark.parametrize(
    ("rungs", "place", "reason"),
    [
        (1, "inventory/hosts.yaml:2", "nothing else sets it"),
        (3, "inventory/hosts.yaml:8", "the group 'inner' lies deeper than 'outer' (depth 2 > 1)"),
        (4, "inventory/group_vars/all.yml:1", "group_vars/all is stronger than a group in an inventory file"),
        (8, "inventory/host_vars/h:1", "host_vars is stronger than the host in an inventory file"),
        (9, "--extra-vars", "--extra-vars is stronger than host_vars"),
    ],
)
def test_explains_the_winner(load: Load, rungs: int, place: str, reason: str) -> None:
    files, extra = _files(rungs)
    told = load(files, extra=extra).explain("h", "v")
    assert (told.winner.place, told.reason) == (place, reason)


def test_explains_priority_and_reading_order(load: Load) -> None:
    files = {
        "hosts.yaml": "a:\n  hosts: {h: }\n  vars: {v: 1, ansible_group_priority: 5}\nb:\n  hosts: {h: }\n  vars: {v: 2}\n",
        "lab.yaml": "a:\n  vars: {w: 2}\n",
        "hosts": "[a]\n[a:vars]\nw=1\n",
    }
    loaded = load(files)
    assert loaded.explain("h", "v").reason == "at the same depth (1) the ansible_group_priority of 'a' is higher than that of 'b' (5 > 1)"
    assert loaded.explain("h", "w").reason == "inventory/lab.yaml:2 is read after inventory/hosts:3"
    assert loaded.host("h").variables["w"] == 2


def test_explain_of_what_nobody_sets_names_the_nearest(load: Load) -> None:
    loaded = load({"hosts": "h rack=4\n"})
    with pytest.raises(errors.Problem) as caught:
        loaded.explain("h", "rakc")
    assert (caught.value.code, caught.value.hint) == ("bad-variable", "did you mean 'rack'?")
    with pytest.raises(errors.Problem) as caught:
        loaded.explain("hh", "rack")
    assert caught.value.code == "unknown-host"


def test_a_dict_replaces_a_dict(load: Load) -> None:
    loaded = load({"hosts": "[g]\nh\n", "group_vars/all": "d: {a: 1, b: 2}\n", "group_vars/g": "d: {c: 3}\n"})
    assert loaded.host("h").variables["d"] == {"c": 3}


def test_group_vars_folder_is_read_in_order_and_deep(load: Load) -> None:
    files = {
        "hosts": "[g]\nh\n",
        "group_vars/g/10.yaml": "a: 1\nb: 1\n",
        "group_vars/g/20/x": "b: 2\n",
        "group_vars/g/.hidden.yaml": "b: 3\n",
        "group_vars/g/zz.yaml~": "b: 4\n",
        "group_vars/g/zz.txt": "b: 5\n",
        "host_vars/h/main.yml": "c: 6\n",
    }
    variables = load(files).host("h").variables
    assert (variables["a"], variables["b"], variables["c"]) == (1, 2, 6)


def test_of_two_files_for_one_name_the_first_counts_and_the_other_is_told(load: Load) -> None:
    loaded = load({"hosts": "h\n", "group_vars/all.yml": "a: yml\n", "group_vars/all.yaml": "a: yaml\n"})
    assert loaded.host("h").variables["a"] == "yml"
    assert loaded.warnings == ("inventory/group_vars/all.yaml is not used: inventory/group_vars/all.yml comes first, as in Ansible",)


def test_files_for_nobody_are_told_with_the_nearest_name(load: Load) -> None:
    loaded = load({"hosts": "[gpus]\ntitan\n", "group_vars/gpu.yaml": "a: 1\n", "host_vars/tittan.yaml": "a: 1\n"})
    assert loaded.warnings == (
        "inventory/group_vars/gpu.yaml belongs to no group and is not used; did you mean 'gpus'?",
        "inventory/host_vars/tittan.yaml belongs to no host and is not used; did you mean 'titan'?",
    )


def test_a_priority_in_group_vars_is_told(load: Load) -> None:
    loaded = load({"hosts": "[a]\nh\n", "group_vars/a.yaml": "ansible_group_priority: 9\n"})
    assert [w for w in loaded.warnings if "ansible_group_priority counts only in an inventory file" in w]


def test_files_beside_a_single_inventory_file(load: Load) -> None:
    loaded = load({"mine.ini": "[g]\nh\n", "group_vars/g.yaml": "a: 1\n"}, path="inventory/mine.ini")
    assert loaded.host("h").variables["a"] == 1


_NAMES = ("Zeta", "alpha", "b", "c", "d")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    edges=st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(lambda edge: edge[0] < edge[1]), max_size=6),
    homes=st.sets(st.integers(0, 4), min_size=1),
    priorities=st.lists(st.integers(1, 3), min_size=5, max_size=5),
)
def test_groups_merge_by_depth_then_priority_then_name(
    load: Load, edges: set[tuple[int, int]], homes: set[int], priorities: list[int]
) -> None:
    lines: list[str] = []
    for index, name in enumerate(_NAMES):
        lines += [
            f"[{name}]",
            *(["h"] if index in homes else []),
            f"[{name}:vars]",
            f"v={name}",
            f"ansible_group_priority={priorities[index]}",
        ]
        lines += [f"[{name}:children]", *(_NAMES[child] for parent, child in sorted(edges) if parent == index)]
    loaded = load({"hosts": "\n".join(lines)})

    depth = dict.fromkeys(range(5), 1)
    for _ in range(5):
        for parent, child in edges:
            depth[child] = max(depth[child], depth[parent] + 1)
    inside = set(homes)
    for parent, child in sorted(edges, reverse=True):
        inside |= {parent} if child in inside else set()
    wanted = max(inside, key=lambda index: (depth[index], priorities[index], _NAMES[index]))
    assert loaded.host("h").variables["v"] == _NAMES[wanted]
    assert loaded.host("h").groups == tuple(sorted(_NAMES[index] for index in inside))


def test_order_is_ansibles_merge_key() -> None:
    groups = [
        tree.Group(name, depth, priority, (), (), {}) for name, depth, priority in [("b", 1, 1), ("B", 1, 1), ("a", 1, 2), ("a", 2, 0)]
    ]
    assert [(g.name, g.depth) for g in sorted(groups, key=tree.order)] == [("B", 1), ("b", 1), ("a", 1), ("a", 2)]
