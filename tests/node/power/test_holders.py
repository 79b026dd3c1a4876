"""Who holds a card: /proc beside the driver's numbers, and nothing that a process says is trusted."""

from __future__ import annotations

import os

import pytest

from tests.node import strict
from wattherd.power import holders, reading


def process(bench: strict.Bench, pid: int, comm: str, cgroup: str = "0::/\n", cmdline: str = "") -> reading.Holder:
    bench.put(f"/proc/{pid}/comm", comm)
    bench.put(f"/proc/{pid}/cgroup", cgroup)
    bench.put(f"/proc/{pid}/cmdline", cmdline)
    return reading.Holder(pid, memory_mib=100)


def completed(bench: strict.Bench, *found: reading.Holder) -> tuple[reading.Holder, ...]:
    return holders.completed(bench.machine, found)


def test_a_served_model_is_named(bench: strict.Bench) -> None:
    words = "/opt/wattherd/current/bin/llama-server\0--model\0/srv/models/Qwen3-8B-Q4_K_M.gguf\0--alias\0chat\0"
    one = process(bench, 4711, "llama-server\n", "0::/system.slice/system-llama.slice/llama@chat.service\n", words)
    (found,) = completed(bench, one)
    assert (found.name, found.unit, found.model, found.memory_mib) == ("llama-server", "llama@chat.service", "Qwen3-8B-Q4_K_M", 100)
    assert found.user == bench.me


@pytest.mark.parametrize(
    ("unit", "words", "model"),
    [
        ("llama@chat.service", "", "chat"),
        ("llama@chat.service", "llama-server\0--alias=fast\0", "fast"),
        ("llama@chat.service", "llama-server\0-m\0", "chat"),
        ("user@1000.service", "/home/carol/llama-server\0-m\0/tmp/x.gguf\0", "x"),
        ("jupyter.service", "python3\0-m\0notebook\0", ""),
    ],
)
def test_what_it_serves(bench: strict.Bench, unit: str, words: str, model: str) -> None:
    (found,) = completed(bench, process(bench, 12, "x\n", f"0::/system.slice/{unit}\n", words))
    assert (found.unit, found.model) == (unit, model)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/ollama.service\n", "ollama.service"),
        ("12:cpu:/elsewhere/x.service\n1:name=systemd:/system.slice/ollama.service\n0::/\n", "ollama.service"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "session-3.scope"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-train.scope\n", "app-train.scope"),
        ("0::/system.slice/docker-0123abcd.scope\n", "docker-0123abcd.scope"),
        ("0::/\n", ""),
        ("", ""),
        ("nonsense\n", ""),
    ],
)
def test_the_unit_is_the_deepest_of_its_path(bench: strict.Bench, text: str, unit: str) -> None:
    assert completed(bench, process(bench, 7, "x\n", text))[0].unit == unit


def test_a_process_of_another_container_stays_as_unknown(bench: strict.Bench) -> None:
    (found,) = completed(bench, reading.Holder(999_999, memory_mib=24_000))
    assert (found.name, found.memory_mib, found.unit) == ("unknown process", 24_000, "")


def test_what_a_process_says_of_itself_is_data(bench: strict.Bench) -> None:
    wild = "llama-server\0-m\0/x/\x1b[31mred\x07.gguf\0"
    (found,) = completed(bench, process(bench, 66, "\x1b]0;owned\x07\n", "0::/a\x1b[2J.service\n", wild))
    for text in (found.name, found.unit, found.model):
        assert text.isprintable()
    assert len(completed(bench, process(bench, 67, "n" * 10_000))[0].name) <= 64


def test_each_process_once_and_the_largest_first(bench: strict.Bench) -> None:
    small = process(bench, 5, "small\n")
    found = completed(bench, small, reading.Holder(9, memory_mib=900), reading.Holder(5, memory_mib=None), reading.Holder(6))
    assert [(one.pid, one.memory_mib) for one in found] == [(9, 900), (5, 100), (6, None)]


def test_a_real_process_is_found_in_the_real_proc(bench: strict.Bench) -> None:
    bench.link("/proc", "/proc")
    (found,) = completed(bench, reading.Holder(os.getpid()))
    assert found.name not in ("", holders.UNKNOWN)
    assert found.user == bench.me
