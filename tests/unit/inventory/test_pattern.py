"""Ansible's pattern grammar as one table, and properties that hold for every pattern."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattherd import errors, inventory
from wattherd.inventory import document, pattern, tree

Load = Callable[..., inventory.Inventory]

_FLEET = """
all:
  hosts:
    lone:
  children:
    web:
      hosts:
        web1:
        web2:
        web3:
    gpu:
      children:
        old:
          hosts:
            p40:
        new:
          hosts:
            titan.lab:
            "[fe80::7]:2222":
            web3:
    empty:
"""


@pytest.fixture
def fleet(load: Load) -> inventory.Inventory:
    return load({"hosts.yaml": _FLEET})


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("all", "lone web1 web2 web3 p40 titan.lab fe80::7"),
        ("*", "lone web1 web2 web3 p40 titan.lab fe80::7"),
        ("web1", "web1"),
        ("web", "web1 web2 web3"),
        ("gpu", "web3 p40 titan.lab fe80::7"),
        ("ungrouped", "lone"),
        ("p40:web1", "web1 p40"),  # inventory order, not the pattern's
        ("p40,web1", "web1 p40"),
        (" p40 , web1 ", "web1 p40"),
        ("p40 web1", "web1 p40"),
        ("web:p40,lone", "lone web1 web2 web3 p40"),
        ("web:&gpu", "web3"),
        ("web:!web2", "web1 web3"),
        ("!web2:web", "web1 web3"),  # exclusions come last, wherever they stand
        ("&gpu:web:!p40", "web3"),
        ("!web", "lone p40 titan.lab fe80::7"),  # without a plain term it starts from all
        ("&gpu", "web3 p40 titan.lab fe80::7"),
        ("web:new:&gpu:!web3", "titan.lab fe80::7"),
        ("web*", "web1 web2 web3"),
        ("web?", "web1 web2 web3"),
        ("w[ef]b1", "web1"),
        ("*.lab", "titan.lab"),
        ("titan.lab", "titan.lab"),
        ("~web[13]", "web1 web3"),
        ("~(web1|p40)$", "web1 p40"),
        ("~.*eb1", "web1"),
        ("~eb1|web2", "web2"),  # a regex is anchored at the start
        ("all:!~web\\d", "lone p40 titan.lab fe80::7"),
        ("web[0]", "web1"),
        ("web[-1]", "web3"),
        ("web[-2]", "web2"),
        ("web[0:1]", "web1 web2"),
        ("web[1:1]", "web2"),
        ("web[0:0]", "web1"),
        ("web[1:]", "web2 web3"),
        ("web[1:99]", "web2 web3"),
        ("web[0-1]", "web1 web2"),
        ("all[0]", "lone"),
        ("web*[0]", "web1"),
        ("web[0]:web[2]", "web1 web3"),
        ("all:!web[0:1]", "lone web3 p40 titan.lab fe80::7"),
        ("all:!web[7:9]", "lone web1 web2 web3 p40 titan.lab fe80::7"),
        ("gpu[1]", "titan.lab"),
        ("fe80::7", "fe80::7"),
        ("[fe80::7]", "fe80::7"),
        ("[fe80::7]:web1", "web1 fe80::7"),
        ("new:![fe80::7]", "web3 titan.lab"),
        ("web1:empty", "web1"),
        ("all:!empty", "lone web1 web2 web3 p40 titan.lab fe80::7"),
    ],
)
def test_selects(fleet: inventory.Inventory, text: str, hosts: str) -> None:
    assert fleet.selection(text).hosts == tuple(hosts.split())


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("tittan.lab", "unknown-host", "'titan.lab'"),
        ("wbe", "unknown-host", "'web'"),
        ("all:!web9", "unknown-host", "web9"),  # Ansible only warns, and then writes to web9's neighbours
        ("web:&gpus", "unknown-host", "'gpu'"),
        ("localhost", "unknown-host", "ansible_connection: local"),
        ("cuda*", "nothing-selected", "cuda*"),
        ("~cuda", "nothing-selected", "~cuda"),
        ("web1:cuda*", "nothing-selected", "cuda*"),
        ("web[12]", "nothing-selected", "has 3 hosts"),
        ("web[-4]", "nothing-selected", "has 3 hosts"),
        ("web[5:6]", "nothing-selected", "has 3 hosts"),
        ("all:!web[12]", "nothing-selected", "has 3 hosts"),
        ("empty", "nothing-selected", "empty"),
        ("web1:&p40", "nothing-selected", "web1:&p40"),
        ("web:!web", "nothing-selected", "web:!web"),
        ("", "bad-pattern", "empty"),
        (" , ", "bad-pattern", "empty"),
        ("web:!", "bad-pattern", "nothing follows"),
        ("web[0", "bad-pattern", "bracket"),
        ("web]", "bad-pattern", "bracket"),
        ("~web(", "bad-pattern", "regular expression"),
        ("@/does/not/exist", "bad-pattern", "cannot be read"),
    ],
)
def test_refuses(fleet: inventory.Inventory, text: str, code: str, said: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        fleet.selection(text)
    assert caught.value.code == code
    assert said in f"{caught.value.message} {caught.value.hint}"


def test_an_empty_inventory_selects_nothing(load: Load) -> None:
    with pytest.raises(errors.Problem) as caught:
        load({"hosts": "[web]\n"}).select("all")
    assert (caught.value.code, caught.value.hint) == ("nothing-selected", "the inventory holds no host")


@pytest.mark.parametrize(
    ("text", "limit", "hosts"),
    [("web", "web1,web2", "web1 web2"), ("web", "gpu", "web3"), ("all", "!web", "lone p40 titan.lab fe80::7"), ("gpu", "web[0:2]", "web3")],
)
def test_limit(fleet: inventory.Inventory, text: str, limit: str, hosts: str) -> None:
    assert fleet.selection(text, limit).hosts == tuple(hosts.split())


def test_a_limit_outside_the_pattern_is_nothing(fleet: inventory.Inventory) -> None:
    with pytest.raises(errors.Problem, match="'web1' limited to 'p40' selects no host"):
        fleet.selection("web1", "p40")


def test_patterns_from_a_file(fleet: inventory.Inventory, tmp_path: Path) -> None:
    listed = tmp_path / "retry"
    listed.write_text("# failed last time\nweb1\n\np40\n")
    assert fleet.selection(f"@{listed}").hosts == ("web1", "p40")
    assert fleet.selection("all", f"@{listed}").hosts == ("web1", "p40")
    assert fleet.selection(f"web:!@{listed}").hosts == ("web2", "web3")


@pytest.mark.parametrize(("text", "said"), [("web[0-1]", "write [0:1]"), ("all:!cuda*", "'!cuda*' matches no host and no group")])
def test_warns(fleet: inventory.Inventory, text: str, said: str) -> None:
    (warning,) = fleet.selection(text).warnings
    assert said in warning


def test_a_shared_name_behind_a_sign_is_the_group(load: Load) -> None:
    """As Ansible: bare, the host; behind '!' and '&', the group."""
    loaded = load({"hosts": "[web]\na\nb\n[other]\nweb\nc\n"})
    assert loaded.selection("web").hosts == ("web",)
    assert loaded.selection("all:!web").hosts == ("web", "c")
    assert loaded.selection("all:&web").hosts == ("a", "b")
    assert loaded.lint("other:!c")[0].code == "inventory-conflict"
    assert loaded.lint("all:!web")[0].code == "inventory-conflict"
    assert loaded.lint("c") == ()


@given(
    st.lists(st.sampled_from(["web", "gpu", "all", "web1", "web*", "~p", "web[0]", "gpu[1:]", "empty"]), min_size=1, max_size=5), st.data()
)
def test_every_selection_is_ordered_and_agrees_with_sets(terms: list[str], data: st.DataObject) -> None:
    signs = [data.draw(st.sampled_from(["", "", "&", "!"])) for _ in terms]
    known = _grown()
    text = ":".join(sign + term for sign, term in zip(signs, terms, strict=True))
    alone = {term: set(pattern.select(term, None, known).hosts) if term != "empty" else set() for term in terms}
    wanted = set().union(*(alone[t] for s, t in zip(signs, terms, strict=True) if not s)) if "" in signs else set(known.hosts)
    for sign, term in zip(signs, terms, strict=True):
        wanted = wanted & alone[term] if sign == "&" else wanted
    for sign, term in zip(signs, terms, strict=True):
        wanted = wanted - alone[term] if sign == "!" else wanted
    if wanted:
        assert pattern.select(text, None, known).hosts == tuple(name for name in known.hosts if name in wanted)
    else:
        with pytest.raises(errors.Problem):
            pattern.select(text, None, known)


def _grown() -> tree.Tree:
    draft = tree.Draft()
    here = tree.Place("t", 1)
    for group, hosts in {"web": ["web1", "web2", "web3"], "gpu": ["p40", "titan", "web3"]}.items():
        for host in hosts:
            draft.host(host, group, here, meant="")
    draft.group("empty")
    draft.group_variables("web", {"a": document.Value(1, "t", 1)})
    return tree.grown(draft)
