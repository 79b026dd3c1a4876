"""The four cases that every resource type owes, run for each type in PLACES.

The cases of a type are four functions in `cases/<type>.py`. Each arranges a node and returns the resource:

  absent(bench)    nothing of it is there yet
  drifted(bench)   it is there, and differs
  settled(bench)   it is there as wanted
  checked(bench)   what a check has most to say about (usually one of the above)

Commands that `actual` and `fix` will run are planned by the case (`bench.runner.plan`).
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

import pytest

from tests.node import strict
from wattherd import resources
from wattherd.resources import base
from wattherd.wire import fields

NAMES = ("absent", "drifted", "settled", "checked")


def _cases(kind: type[base.Resource]) -> ModuleType:
    file = kind.TYPE.replace("-", "_")
    name = f"tests.node.resources.cases.{file}"
    assert importlib.util.find_spec(name), f"resource type '{kind.TYPE}' has no cases: write tests/node/resources/cases/{file}.py"
    module = importlib.import_module(name)
    missing = [name for name in NAMES if not callable(getattr(module, name, None))]
    assert not missing, f"cases/{kind.TYPE.replace('-', '_')}.py lacks {', '.join(missing)}"
    return module


def _case(kind: type[base.Resource], name: str, bench: strict.Bench) -> base.Resource:
    made = getattr(_cases(kind), name)(bench)
    assert isinstance(made, kind)
    return made


def _difference(resource: base.Resource, bench: strict.Bench) -> base.Delta:
    return base.delta(resource.wanted(), resource.observe(bench.machine, [resource])[resource.id])


every_type = pytest.mark.parametrize("kind", resources.types(), ids=lambda kind: str(kind.TYPE))


@every_type
def test_absent_becomes_present(kind: type[base.Resource], bench: strict.Bench) -> None:
    resource = _case(kind, "absent", bench)
    assert resource.actual(bench.machine) is None
    resource.preflight(bench.machine, None)
    resource.fix(bench.machine, base.delta(resource.wanted(), None), bench.tell)
    assert _difference(resource, bench) == {}


@every_type
def test_drift_is_fixed(kind: type[base.Resource], bench: strict.Bench) -> None:
    resource = _case(kind, "drifted", bench)
    state = resource.actual(bench.machine)
    assert state is not None
    difference = base.delta(resource.wanted(), state)
    assert difference
    resource.preflight(bench.machine, state)
    resource.fix(bench.machine, difference, bench.tell)
    assert _difference(resource, bench) == {}


@every_type
def test_second_run_changes_nothing(kind: type[base.Resource], bench: strict.Bench) -> None:
    resource = _case(kind, "settled", bench)
    before = bench.tree()
    assert _difference(resource, bench) == {}
    resource.preflight(bench.machine, resource.actual(bench.machine))
    assert _difference(resource, bench) == {}
    assert bench.tree() == before


@every_type
def test_after_a_fix_a_second_run_finds_nothing(kind: type[base.Resource], bench: strict.Bench) -> None:
    resource = _case(kind, "absent", bench)
    resource.fix(bench.machine, base.delta(resource.wanted(), None), bench.tell)
    before = bench.tree()
    assert _difference(resource, bench) == {}
    assert bench.tree() == before


@every_type
@pytest.mark.parametrize("name", ["checked", "absent", "drifted", "settled"])
def test_check_writes_nothing(kind: type[base.Resource], name: str, bench: strict.Bench) -> None:
    resource = _case(kind, name, bench)
    before = bench.tree()
    state = resource.observe(bench.machine, [resource])[resource.id]
    assert state == resource.actual(bench.machine)
    resource.preflight(bench.machine, state)
    resource.needs(bench.machine)
    texts = resource.texts(bench.machine)
    assert bench.tree() == before
    assert all(isinstance(text, str) for text in texts)
    bench.runner.planned.clear()  # a case plans for `fix` too, which a check never calls


@every_type
def test_a_manifest_carries_it_there_and_back(kind: type[base.Resource], bench: strict.Bench) -> None:
    resource = _case(kind, "settled", bench)
    entry = resources.encode(resource, role="test")
    assert fields.plain(resources.decode(entry)) == fields.plain(resource)
    assert entry.id == resource.id
    assert entry.id.startswith(f"{kind.TYPE}:")
    bench.runner.planned.clear()  # nothing is run to describe a resource
