"""Reading YAML and INI: what both mean, and every way in which a file can be wrong, each with its file and line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattherd import errors, inventory

Load = Callable[..., inventory.Inventory]
Refuse = Callable[..., errors.Problem]


def test_yaml_and_ini_say_the_same(load: Load) -> None:
    ini = """
    lone:2222 rack=4
    [web]
    web[1:2] note="two words" on=True
    [web:vars]
    port = 80
    [site:children]
    web
    """
    text = """
    ungrouped:
      hosts:
        "lone:2222": {rack: 4}
    web:
      hosts:
        web[1:2]: {note: two words, "on": true}
      vars: {port: 80}
    site:
      children: {web: }
    """
    one, two = load({"hosts": ini}), load({"other.yaml": text}, path="inventory/other.yaml")
    assert one.hosts == two.hosts == ("lone", "web1", "web2")
    assert one.groups == two.groups
    for name in one.hosts:
        assert dict(_own(one, name)) == dict(_own(two, name))


def _own(loaded: inventory.Inventory, name: str) -> dict[str, object]:
    variables = loaded.host(name).variables
    return {key: variables[key] for key in variables if key not in inventory.MAGIC}


_WORD = st.from_regex(r"[a-d][a-d0-9]{0,3}", fullmatch=True)
_GROUPS = st.dictionaries(_WORD.map("g_{}".format), st.lists(_WORD.map("h-{}".format), max_size=4, unique=True), min_size=1, max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(groups=_GROUPS, value=st.integers() | st.text("xyz ", min_size=1, max_size=5).map(str.strip).filter(bool))
def test_any_fleet_reads_the_same_from_both_languages(load: Load, groups: dict[str, list[str]], value: object) -> None:
    ini = "".join(f"[{group}]\n" + "".join(f"{host} v={value!r}\n" for host in hosts) for group, hosts in groups.items())
    # An INI host line is split by the shell's rules first, so one layer of quotes is gone before the literal is read.
    ini = ini if isinstance(value, int) else ini.replace(repr(value), f'"{value!r}"')
    text = "".join(
        f"{group}:\n  hosts:\n" + "".join(f"    {host}: {{v: {value!r}}}\n" for host in hosts) for group, hosts in groups.items()
    )
    one, two = load({"a.ini": ini}, path="inventory/a.ini"), load({"b.yaml": text}, path="inventory/b.yaml")
    assert (one.hosts, one.groups) == (two.hosts, two.groups)
    for name in one.hosts:
        assert one.host(name).variables["v"] == two.host(name).variables["v"] == value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1),
        ("True", True),
        ("true", "true"),
        ("[1, 2]", [1, 2]),
        ("(1, 2)", [1, 2]),
        ("{'a': 1}", {"a": 1}),
        ("x y", "x y"),
        ("None", None),
        ("", ""),
        ("08", "08"),
    ],
)
def test_ini_values_are_literals_or_text(load: Load, written: str, value: object) -> None:
    assert load({"hosts": f"[g]\nh\n[g:vars]\nv = {written}\n"}).host("h").variables["v"] == value


def test_sources_merge_in_their_order_and_lab_comes_last(load: Load) -> None:
    names = ("lab.yaml", "hosts.ini", "hosts.yml", "hosts.yaml", "hosts")
    files = {name: (f"[g]\nh v={name}\n" if name in {"hosts", "hosts.ini"} else f"g:\n  hosts:\n    h: {{v: {name}}}\n") for name in names}
    told = load(files).explain("h", "v")
    assert [candidate.value for candidate in told.candidates] == ["hosts", "hosts.yaml", "hosts.yml", "hosts.ini", "lab.yaml"]


def test_a_file_without_ending_is_recognised(load: Load) -> None:
    assert load({"plain": "[g]\nh\n"}, path="inventory/plain").groups["g"] == ("h",)
    assert load({"plain": "# note\ng:\n  hosts:\n    h:\n"}, path="inventory/plain").groups["g"] == ("h",)
    assert load({"plain": '{"g": {"hosts": {"h": {}}}}'}, path="inventory/plain").groups["g"] == ("h",)
    assert load({"plain": "h:2222\n"}, path="inventory/plain").host("h").connection.port == 2222


def test_json_may_be_indented_with_tabs(load: Load) -> None:
    assert load({"x.json": '{\n\t"g": {\n\t\t"hosts": {"h": null}\n\t}\n}\n'}, path="inventory/x.json").hosts == ("h",)


def test_bare_names_aliases_and_merge_keys(load: Load) -> None:
    text = "base: &base\n  vars: &v {a: 1, b: 2}\n  hosts: h\nother:\n  vars: {<<: *v, b: 3}\n  hosts: h\n"
    variables = load({"hosts.yaml": text}).host("h").variables
    assert (variables["a"], variables["b"]) == (1, 3)


def test_ungrouped_is_for_hosts_without_another_group(load: Load) -> None:
    loaded = load({"hosts.yaml": "all:\n  hosts: {a: , b: }\nungrouped:\n  hosts: {c: , d: }\ng:\n  hosts: {b: , d: }\n"})
    assert loaded.groups["ungrouped"] == ("c", "a")
    assert loaded.host("a").groups == ("ungrouped",)
    assert loaded.host("d").groups == ("g",)


def test_skipped_files_are_named(load: Load) -> None:
    files = {
        "hosts": "h\n",
        "models.yaml": "models: {}\n",
        "sites.yaml": "",
        "tariff.yaml": "",
        "web.ini": "",
        ".hidden": "",
        "group_vars/all": "",
        "old/x": "",
    }
    assert load(files).skipped == ("old", "tariff.yaml", "web.ini")


@pytest.mark.parametrize(
    ("name", "text", "line", "said"),
    [
        ("hosts.yaml", "all:\n  hosts:\n    a:\n    a:\n", 4, "'a' stands twice in one mapping, on line 3 and on line 4"),
        ("hosts.yaml", "all:\n\thosts:\n", 2, "indented with a tab"),
        ("hosts.yaml", "all:\n  hosts:\n    a: {b: [}\n", 3, "not YAML"),
        ("hosts.yaml", "all:\n  vars:\n    a: {{ b }}\n", 3, "cannot be a key"),
        ("hosts.yaml", "- a\n- b\n", 1, "an inventory is a mapping of groups, not a list"),
        ("hosts.yaml", "just words\n", 1, "an inventory is a mapping of groups"),
        ("hosts.yaml", "", 1, "the file is empty"),
        ("hosts.yaml", "# nothing yet\n", 1, "the file is empty"),
        ("hosts.yaml", "---\n", 1, "the file is empty"),
        ("hosts.yaml", "all:\n  hosts: {a: }\n---\nall:\n", 3, "not YAML"),
        ("hosts.yaml", "all:\n  hosts:\n    - a\n", 2, "hosts of the group 'all' is a mapping, not a list"),
        ("hosts.yaml", "all:\n  hosts:\n    a: 5\n", 3, "what stands under the host 'a' is a mapping of names to values, not '5'"),
        ("hosts.yaml", "all:\n  vars: [1]\n", 2, "vars of the group 'all' is a mapping"),
        ("hosts.yaml", "all:\n  vars:\n    yes: 1\n", 3, "the variable name 'yes' is not text"),
        ("hosts.yaml", "all: 5\n", 1, "the group 'all' is a mapping, not '5'"),
        ("hosts.yaml", "a b:\n  hosts:\n", 1, "'a b' is no group name"),
        ("hosts.yaml", "all:\n  hosts:\n    h[1-3]:\n", 3, "is not a range"),
        ("hosts.yaml", "all:\n  vars:\n    a: !vault |\n      $ANSIBLE_VAULT;1.1\n", 3, "ansible-vault"),
        ("hosts.yaml", "all:\n  vars:\n    a: !thing 3\n", 3, "could not determine a constructor"),
        ("hosts.yaml", "all: &a\n  children: {x: *a}\n", 1, "an anchor contains itself"),
        ("hosts.yaml", "plugin: aws_ec2\n", 1, "plugins are not run"),
        ("hosts.yaml", b"all:\n  hosts:\n    h\xe9:\n", 3, "not UTF-8"),
        ("hosts.yaml", b"all:\n  hosts:\n    h\x01:\n", 3, "not allowed in YAML"),
        ("hosts", b"a\nb\xff\n", 2, "not UTF-8"),
        ("hosts", "$ANSIBLE_VAULT;1.1;AES256\n3131\n", 1, "encrypted with ansible-vault"),
        ("hosts", "# only a note\n", 1, "the file is empty"),
        ("hosts", "[web\nh\n", 1, "starts like a section"),
        ("hosts", "[web] h\n", 1, "starts like a section"),
        ("hosts", "[web:sons]\n", 1, "unknown kind"),
        ("hosts", "[web:vars]\na=1\n", 1, "belongs to no group"),
        ("hosts", "[web]\na\n[all:children]\nweb\nwbe\n", 5, "includes the group 'wbe', which has no section"),
        ("hosts", "[web]\nh a b=1\n", 2, "'a' is no assignment"),
        ("hosts", "[web]\nh =1\n", 2, "'=1' is no assignment"),
        ("hosts", '[web]\nh a="1\n', 2, "cannot be taken apart"),
        ("hosts", "[web:children]\na b\n", 2, "is no group name"),
        ("hosts", "[web]\n[web:vars]\nport 80\n", 3, "'port 80' is no assignment"),
        ("hosts", "[web]\nops@h\n", 2, "ansible_user"),
        ("hosts.ini", "---\nall:\n", 1, "'---' starts a YAML document"),
        ("group_vars/all.yaml", "a: 1\na: 2\n", 2, "stands twice"),
        ("group_vars/all.yaml", "- a\n", 1, "a variable file is a mapping of names to values, not a list"),
        ("host_vars/h.yml", "a: 1\n\tb: 2\n", 2, "tab"),
        ("host_vars/h.yml", "$ANSIBLE_VAULT;1.1;AES256\n", 1, "encrypted"),
    ],
)
def test_broken_files_name_file_and_line(refuse: Refuse, name: str, text: str | bytes, line: int, said: str) -> None:
    files = {name: text} if "/" not in name else {"hosts": "h\n", name: text}
    problem = refuse(files)
    assert problem.code == "inventory-syntax"
    assert problem.message.startswith(f"inventory/{name}:{line}: "), problem.message
    assert said in problem.message + problem.hint
    assert (problem.context["file"], problem.context["line"]) == (f"inventory/{name}", line)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("all:\n  childrn: {g: }\n", "unknown-key", r"hosts\.yaml:2: the group 'all' does not know 'childrn'"),
        ("a:\n  children: {b: }\nb:\n  children: {a: }\n", "inventory-invalid", r"hosts\.yaml:\d: groups contain each other"),
        ("a:\n  children: {all: }\n", "inventory-invalid", "groups contain each other: .*all"),
        ("a:\n  children: {a: }\n", "inventory-invalid", r"groups contain each other: a > a"),
        (
            "a:\n  vars: {ansible_group_priority: high}\n",
            "inventory-invalid",
            r"hosts\.yaml:2: ansible_group_priority must be a whole number",
        ),
    ],
)
def test_wrong_groups(refuse: Refuse, text: str, code: str, said: str) -> None:
    problem = refuse({"hosts.yaml": text})
    assert problem.code == code
    assert re.search(said, problem.message)


def test_a_wrong_key_of_a_group_names_the_nearest(refuse: Refuse) -> None:
    assert refuse({"hosts.yaml": "all:\n  hostss: {a: }\n"}).hint == "did you mean 'hosts'?"


def test_a_program_is_not_run(load: Load, tmp_path: Path) -> None:
    (tmp_path / "inventory").mkdir()
    script = tmp_path / "inventory" / "hosts"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    with pytest.raises(errors.Problem, match="this is a program") as caught:
        load({})
    assert "ansible-inventory" in caught.value.hint
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("made", [False, True])
def test_a_missing_inventory_says_what_was_looked_for(load: Load, tmp_path: Path, *, made: bool) -> None:
    if made:
        (tmp_path / "inventory").mkdir()
    with pytest.raises(errors.Problem) as caught:
        load({})
    assert caught.value.code == "inventory-missing"
    assert "invoke init" in caught.value.hint
    assert "inventory" in caught.value.message
    assert not made or "hosts, hosts.yaml, hosts.yml, hosts.ini, lab.yaml" in caught.value.message
