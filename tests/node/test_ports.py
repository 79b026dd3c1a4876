"""Whole runs over servers that want each other's ports: who steps aside, who is waited for, and what is said before anything is touched."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.node import strict
from tests.node.resources import systemd_fake, test_listeners
from wattherd import machine as machines
from wattherd import resources, store
from wattherd.node import converge
from wattherd.resources import unit
from wattherd.wire import manifest

ROW = "   0: 0100007F:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 100 0 0 10 0\n"


class Servers(systemd_fake.Systemd):
    """Each unit's process listens on the port of its command line, and fails when somebody else does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.strangers: dict[int, int] = {}
        self.fate = self._bind
        self._tell()

    def systemctl(self, argv: Sequence[str]) -> machines.Result | None:
        done = super().systemctl(argv)
        self._tell()
        return done

    def stranger(self, pid: int, port: int) -> None:
        self.bench.put(f"/proc/{pid}/cgroup", "0::/system.slice/stranger.service\n")
        self.strangers[pid] = port
        self._tell()

    def ports(self) -> dict[str, int]:
        return {name.partition(".")[0]: _port(one) for name, one in self.units.items() if one.pid}

    def _bind(self, started: systemd_fake.Loaded) -> None:
        taken = [*self.strangers.values(), *(_port(one) for one in self.units.values() if one.pid and one is not started)]
        if started.pid and _port(started) in taken:
            started.active, started.sub, started.pid = "failed", "failed", 0

    def _tell(self) -> None:
        table = {**self.strangers, **{one.pid: _port(one) for one in self.units.values() if one.pid}}
        self.bench.put("/proc/net/tcp", test_listeners.HEAD + "".join(ROW.format(port=port, inode=pid) for pid, port in table.items()))
        self.bench.put("/proc/net/tcp6", test_listeners.HEAD)
        for pid in table:
            self.bench.put(f"/proc/{pid}/comm", "llama-server\n")
            self.bench.link(f"/proc/{pid}/fd/3", f"socket:[{pid}]")


def _port(one: systemd_fake.Loaded) -> int:
    found = re.search(rb"--port (\d+)", one.body or b"")
    return int(found[1]) if found else 0


@pytest.fixture
def servers(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> Servers:
    # A link that is there already is put again as the same.
    plain = bench.link
    monkeypatch.setattr(bench, "link", lambda path, target: None if bench.machine.readlink(path) == target else plain(path, target))
    store.prepare(bench.machine)
    return Servers(bench)


def run(bench: strict.Bench, ports: Mapping[str, int], *, check: bool = False) -> list[dict[str, Any]]:
    """A run in which each named server has that port; what it said."""
    text = "[Service]\nExecStart=/bin/serve --port {}\n[Install]\nWantedBy=multi-user.target\n"
    made = [unit.Unit(f"{name}.service", text=text.format(port), ports=(port,)) for name, port in ports.items()]
    wanted = manifest.Manifest("here", tuple(resources.encode(one, role="server", tags=("server",)) for one in made))
    said: list[dict[str, Any]] = []
    job = converge.Job(wanted, manifest.encode(wanted), check=check)
    converge.Run(bench.machine, job, lambda message: said.append(dict(message))).converge()
    return said


def changed(said: Sequence[Mapping[str, Any]], word: str = "changed") -> list[str]:
    return [str(one["id"]) for one in said if one["event"] == word]


def problems(said: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(one["problem"]["code"]) for one in said if one["event"] == "failed"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": 8081, "b": 8082}, {"a": 8082, "b": 8081}),
        ({"a": 8081, "b": 8082, "c": 8083}, {"a": 8082, "b": 8083, "c": 8081}),
        ({"a": 8081, "b": 8082}, {"new": 8082, "b": 8081}),
        ({"a": 8081, "b": 8082}, {"a": 8082, "b": 8083}),
        ({"a": 8081, "b": 8082}, {"b": 8081, "a": 8082}),
    ],
)
def test_servers_change_places(bench: strict.Bench, servers: Servers, before: dict[str, int], after: dict[str, int]) -> None:
    assert problems(run(bench, before)) == []
    foreseen = run(bench, after, check=True)
    assert servers.ports() == before, "a check stops nobody"
    said = run(bench, after)
    assert problems(said) == []
    assert servers.ports() == after
    assert sorted(changed(said)) == sorted(changed(foreseen, "would_change"))
    assert changed(run(bench, after)) == []


def test_a_run_that_dies_after_one_has_stepped_aside_is_finished_by_the_next(bench: strict.Bench, servers: Servers) -> None:
    run(bench, {"a": 8081, "b": 8082})

    def dies(_started: systemd_fake.Loaded) -> None:
        raise KeyboardInterrupt

    servers.fate = dies
    with pytest.raises(KeyboardInterrupt):
        run(bench, {"a": 8082, "b": 8081})
    assert "b" not in servers.ports()
    servers.fate = servers._bind
    assert problems(run(bench, {"a": 8082, "b": 8081})) == []
    assert servers.ports() == {"a": 8082, "b": 8081}


@pytest.mark.parametrize("after", [{"a": 8099}, {"b": 8099}, {"a": 8081, "b": 8099}])
def test_a_strangers_port_is_told_before_anything_is_touched(bench: strict.Bench, servers: Servers, after: dict[str, int]) -> None:
    """Also while another server goes: the port that it gives up is its own, not the stranger's."""
    run(bench, {"a": 8081})
    servers.stranger(70, 8099)
    servers.did.clear()
    for check in (True, False):
        assert problems(run(bench, after, check=check)) == ["port-in-use"]
    assert (servers.ports(), servers.did) == ({"a": 8081}, [])


def test_a_port_of_a_unit_that_goes_is_free_when_its_turn_comes(bench: strict.Bench, servers: Servers) -> None:
    run(bench, {"old": 8081})
    assert problems(run(bench, {"new": 8081}, check=True)) == []
    assert problems(run(bench, {"new": 8081})) == []
    assert servers.ports() == {"new": 8081}
