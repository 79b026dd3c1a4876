"""Expressions in values: types kept, names found lazily, loops and unknown names told with file, line and host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import pytest

from wattherd import errors, inventory

Load = Callable[..., inventory.Inventory]

_GROUPS = "[gpu]\ntitan.lab\natlas\n[site:children]\ngpu\n"
_VARIABLES = "port: 80\nports: [80, 81]\nflag: true\nnothing:\ntable: {a: {b: 7}}\nchain: '{{ port }}'\nfound: 1\n"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"{{ port }}"', 80),
        ('"{{ ports }}"', [80, 81]),
        ('"{{ ports[1] + 1 }}"', 82),
        ('"{{ flag }}"', True),
        ('"{{ nothing }}"', None),
        ('"{{ table.a.b }}"', 7),
        ('"{{ table }}"', {"a": {"b": 7}}),
        ('"{{port}}{{port}}"', "8080"),
        ('" {{ port }}"', " 80"),
        ('"port {{ port }}"', "port 80"),
        ('"{{ -port }}"', -80),
        ('"{{- port -}}"', 80),
        ("\"{{ '}}' }}\"", "}}"),
        ("\"{{ '08' }}\"", "08"),
        ('"{{ chain }}"', 80),
        ('"{{ found }}"', 1),
        ('"{% if flag %}on{% else %}off{% endif %}"', "on"),
        ('"{{ missing | default(5) }}"', 5),
        ('"{{ missing is defined }}"', False),
        ("\"{{ ports | map('string') }}\"", ["80", "81"]),
        ('"{{ range(3) }}"', [0, 1, 2]),
        ('["{{ port }}", {k: "{{ port }}"}]', [80, {"k": 80}]),
        ("\"{{ lookup('env', 'TOKEN_NAME') }}\"", "secret"),
        ("\"{{ lookup('ansible.builtin.env', 'NOT_SET') }}\"", ""),
        ("\"{{ lookup('env', 'NOT_SET', default='x') }}\"", "x"),
        ('"{{ inventory_hostname }}"', "titan.lab"),
        ('"{{ inventory_hostname_short }}"', "titan"),
        ('"{{ group_names }}"', ["gpu", "site"]),
        ('"{{ groups.gpu }}"', ["titan.lab", "atlas"]),
        ("\"{{ groups['all'] | length }}\"", 2),
        ('"{{ wattherd_cache }}/lab"', "/home/op/.cache/wattherd/lab"),
        ("\"{{ hostvars['atlas'].port }}\"", 81),
        ('!unsafe "{{ port }}"', "{{ port }}"),
        ('"{# note #}x"', "x"),
    ],
)
def test_values(load: Load, written: str, value: object) -> None:
    files = {"hosts": _GROUPS, "group_vars/all.yaml": f"{_VARIABLES}v: {written}\n", "host_vars/atlas.yaml": "port: 81\n"}
    assert load(files, environ={"TOKEN_NAME": "secret"}).host("titan.lab").variables["v"] == value


@pytest.mark.parametrize(
    ("written", "code", "said", "hint"),
    [
        ('"{{ prot }}"', "template-variable", "'v' of h needs 'prot', which is not defined", "did you mean 'port'?"),
        ('"{{ zzz }} x"', "template-variable", "needs 'zzz'", "define it in group_vars/"),
        ('["{{ zzz }}"]', "template-variable", "needs 'zzz'", "define it"),
        ('"{{ [zzz] }}"', "template-variable", "needs 'zzz'", "define it"),
        ('"{{ table.zzz }}"', "template-variable", "needs 'zzz'", "define it"),
        ("\"{{ hostvars['zzz'].port }}\"", "template-variable", "needs 'zzz'", "define it"),
        ('"{{ port + }}"', "template-syntax", "'v' of h: ", ""),
        ('"{{ port | to_nice_yaml }}"', "template-syntax", "No filter named 'to_nice_yaml'", "Ansible's own filters"),
        ("\"{{ port + 'x' }}\"", "bad-variable", "cannot be worked out", ""),
        ('"{{ 1 / 0 }}"', "bad-variable", "division by zero", ""),
        ("\"{{ lookup('file', '/etc/passwd') }}\"", "bad-variable", "lookup('file', …) is not known; lookup('env', 'NAME')", ""),
        ('"{{ v }}"', "bad-variable", "variables need each other: v > v", ""),
        ('"{{ w }}"', "bad-variable", "variables need each other: v > w > v", ""),
        ("\"{{ hostvars['h'].w }}\"", "bad-variable", "variables need each other", ""),
    ],
)
def test_failures_name_file_line_and_host(load: Load, written: str, code: str, said: str, hint: str) -> None:
    loaded = load({"hosts": "h\n", "group_vars/all.yaml": f"port: 80\ntable: {{}}\nv: {written}\nw: '{{{{ v }}}}'\n"})
    with pytest.raises(errors.Problem) as caught:
        loaded.host("h").variables["v"]
    assert caught.value.code == code
    assert said in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.message.startswith("inventory/group_vars/all.yaml:")
    assert caught.value.context["host"] == "h"


def test_only_what_is_asked_for_is_worked_out(load: Load) -> None:
    host = load({"hosts": "h\n", "group_vars/all.yaml": "broken: '{{ zzz }}'\ngood: '{{ 1 + 1 }}'\n"}).host("h")
    assert host.variables["good"] == 2
    assert {"broken", "good", "group_names", "hostvars"} <= set(host.variables)
    assert "broken" in host.variables
    assert "zzz" not in host.variables
    assert len(host.variables) == len(list(host.variables))
    with pytest.raises(errors.Problem):
        dict(host.variables)


def test_a_value_of_the_inventory_never_shows_in_a_repr(load: Load) -> None:
    host = load({"hosts": "h token=hush\n"}).host("h")
    assert "hush" not in repr(host) + repr(host.variables)


def test_hostvars_is_lazy_and_complete(load: Load) -> None:
    host = load({"hosts": "a x='{{ zzz }}' y=1\nb\n"}).host("b")
    others = host.variables["hostvars"]
    assert isinstance(others, Mapping)
    assert list(others) == ["a", "b"]
    assert len(others) == 2
    assert others["a"]["y"] == 1
    assert others.get("c") is None


def test_an_overridden_magic_name_is_told(load: Load) -> None:
    loaded = load({"hosts": "h group_names=x\n"})
    assert loaded.warnings == ("inventory/hosts:1: 'group_names' is set by Wattherd itself; this value is not used",)
    assert loaded.host("h").variables["group_names"] == ["ungrouped"]


def test_extra_variables_are_worked_out_too(load: Load) -> None:
    loaded = load({"hosts": "h port=80\n"}, extra={"v": "{{ port }}", "port": 81})
    assert loaded.host("h").variables["v"] == 81


@pytest.mark.parametrize(
    ("name", "short"), [("titan.lab.example", "titan"), ("titan", "titan"), ("10.0.0.7", "10.0.0.7"), ("[fe80::7]:22", "fe80::7")]
)
def test_the_short_name_of_an_address_is_the_address(load: Load, name: str, short: str) -> None:
    loaded = load({"hosts.yaml": f"g:\n  hosts:\n    '{name}':\n"})
    assert loaded.host(loaded.hosts[0]).variables["inventory_hostname_short"] == short


def test_two_threads_do_not_take_each_other_for_a_loop(load: Load) -> None:
    loaded = load({"hosts": "c\nh[1:8]\n", "group_vars/all.yaml": "deep: '{{ range(20000) | sum }}'\nv: \"{{ hostvars['c'].deep }}\"\n"})
    start, found = threading.Barrier(8), {}

    def work(name: str) -> None:
        host = loaded.host(name)
        start.wait(10)
        found[name] = host.variables["v"]

    threads = [threading.Thread(target=work, args=(f"h{number}",)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert set(found.values()) == {sum(range(20000))}
    assert len(found) == 8
