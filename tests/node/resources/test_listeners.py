"""Who holds a port: recorded tables of /proc/net, and one real socket."""

from __future__ import annotations

import os
import socket

import pytest

from tests.node import strict
from wattherd import errors
from wattherd import machine as machines
from wattherd.resources import listeners, systemd

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
#: 127.0.0.1:8080 listens (inode 1111), a connection from its port 8080 (2222), 0.0.0.0:22 listens (3333)
TCP = (
    HEAD
    + "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1111 1 0000000000000000 100 0 0 10 0\n"
    + "   1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 2222 1 0000000000000000 20 4 30 10 -1\n"
    + "   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 3333 1 0000000000000000 100 0 0 10 0\n"
)
ANY6 = "0" * 32
TCP6 = (
    f"{HEAD}   0: {ANY6}:1F92 {ANY6}:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4444 1 0000000000000000 100 0 0 10 0\n"
)


def arrange(
    bench: strict.Bench, pid: int = 70, inode: int = 1111, cgroup: str = "/system.slice/other.service", program: str = "nginx"
) -> None:
    bench.put("/proc/net/tcp", TCP)
    bench.put("/proc/net/tcp6", TCP6)
    bench.put(f"/proc/{pid}/comm", f"{program}\n")
    bench.put(f"/proc/{pid}/cgroup", f"0::{cgroup}\n")
    bench.link(f"/proc/{pid}/fd/3", f"socket:[{inode}]")
    bench.link(f"/proc/{pid}/fd/4", "/dev/null")


def test_a_free_port_costs_two_files(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    arrange(bench)
    monkeypatch.setattr(bench.machine, "names", lambda path: pytest.fail(f"{path} was listed"))
    assert listeners.held(bench.machine, [9000, 8081]) == ()
    assert listeners.held(bench.machine, []) == ()


def test_the_holder_is_named(bench: strict.Bench) -> None:
    arrange(bench)
    (one,) = listeners.held(bench.machine, [8080])
    assert one == listeners.Holder(8080, 70, "nginx", "other.service")
    assert one.words == "process 70 (nginx of other.service)"


def test_ipv6_counts_too(bench: strict.Bench) -> None:
    arrange(bench, inode=4444, cgroup="/user.slice")
    (one,) = listeners.held(bench.machine, [8082])
    assert one.words == "process 70 (nginx)"


def test_a_holder_that_cannot_be_seen(bench: strict.Bench) -> None:
    arrange(bench)
    (one,) = listeners.held(bench.machine, [22])
    assert one.pid == 0
    assert "cannot be seen" in one.words


@pytest.mark.parametrize(
    ("seen", "ours"),
    [
        (systemd.Seen("other.service", pid=70), True),
        (systemd.Seen("other.service", pid=69, cgroup="/system.slice/other.service"), True),
        (systemd.Seen("slice.slice", cgroup="/system.slice"), True),
        (systemd.Seen("oth.service", pid=69, cgroup="/system.slice/oth"), False),
        (systemd.Seen("mine.service", pid=0, cgroup=""), False),
    ],
)
def test_what_belongs_to_the_unit_is_not_foreign(bench: strict.Bench, seen: systemd.Seen, *, ours: bool) -> None:
    arrange(bench)
    assert (listeners.foreign(bench.machine, [8080], seen) == ()) == ours


def test_systemd_itself_listens_for_a_socket_unit(bench: strict.Bench) -> None:
    arrange(bench, pid=1, cgroup="/init.scope", program="systemd")
    assert listeners.foreign(bench.machine, [8080], systemd.Seen("llama.socket", active="active")) == ()
    assert listeners.foreign(bench.machine, [8080], systemd.Seen("llama.service", active="active")) != ()


def test_a_real_socket_of_this_process() -> None:
    machine = machines.Machine()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = listeners.held(machine, [port])
        assert [one.pid for one in found] == [os.getpid()]
        assert found[0].program
    assert listeners.held(machine, [port]) == ()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "0.0.0.0", "node-12", "localhost", ""])  # noqa: S104 - asked for, not listened on
def test_an_address_of_this_machine_or_a_name_passes(address: str) -> None:
    listeners.check_addresses("unit:x", [address])
    assert listeners._may_bind(address)


@pytest.mark.parametrize("address", ["192.0.2.77", "203.0.113.9"])
def test_an_address_of_another_machine_is_named(address: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        listeners.check_addresses("unit:x", ["127.0.0.1", address])
    assert (caught.value.code, address in caught.value.message) == ("address-missing", True)
