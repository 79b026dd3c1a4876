"""One look at all cards: what the child says, what the kernel and /proc add, and every way in which a driver can fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import pytest

from tests import power_cases
from tests.node import strict
from tests.node.power import fake
from wattherd import machine as machines
from wattherd import records
from wattherd.power import epoch, look, reading, smi, tool
from wattherd.wire import fields

CHILD = (sys.executable, "-I", "-S", "-c", look.CHILD, strict.REST)
COLUMNS = "pci.bus_id, uuid, name, power.draw [W], power.limit [W], enforced.power.limit [W], utilization.gpu [%], pstate"
ROW = "00000000:01:00.0, GPU-1, NVIDIA GeForce RTX 3090, 120.00 W, 350.00 W, 350.00 W, 50 %, P2"


def arrange(bench: strict.Bench, *buses: str) -> None:
    """A driver with cards, without anything that answers yet."""
    bench.put(tool.LOCK)
    bench.put(fake.BOOT_ID, "boot-1\n")
    bench.put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 2025\n")
    bench.folder(fake.MODULE)
    for at, bus in enumerate(buses, 1):
        text = f"Model: \t\t NVIDIA GeForce RTX 3090\nGPU UUID: \t GPU-{at}\nDevice Minor: \t {at - 1}\n"
        bench.put(f"/proc/driver/nvidia/gpus/{bus}/information", text)


def child_says(bench: strict.Bench, found: reading.Look | str, times: int | None = None) -> None:
    words = found if isinstance(found, str) else json.dumps(fields.plain(found))
    bench.runner.plan(*CHILD, out=words + "\n", times=times)


# -- a healthy node


def test_a_look_is_one_child_and_nothing_else(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card(), fake.Card("GPU-2", bus="0000:02:00.0")])
    found = look.look(bench.machine)
    assert (found.source, found.driver, found.fault) == ("nvml", "580.95.05", "")
    assert [card.uuid for card in found.cards] == [card.uuid for card in cards.cards]
    assert found.cards[0].draw == reading.Draw(25.0, "average", "nvml", 1.0)
    assert found.cards[0].limits == reading.Limits(100, 350, 350, 350, 350)
    (call,) = bench.runner.ran
    assert call.timeout_s == look.LIMIT_S
    assert len(call.held) == 1, "the child keeps the lock"


def test_a_look_writes_nothing(bench: strict.Bench) -> None:
    fake.Cards(bench, [fake.Card()])
    before = bench.tree()
    look.look(bench.machine)
    assert bench.tree() == before


def test_the_epoch_is_of_the_boot_and_of_the_module(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card()])
    first = look.look(bench.machine).epoch
    assert first == look.look(bench.machine).epoch != ""
    cards.reload()
    second = look.look(bench.machine).epoch
    assert second not in ("", first)
    cards.reboot()
    assert look.look(bench.machine).epoch.partition("/")[0] != second.partition("/")[0]


@pytest.mark.parametrize("path", [machines.BOOT_ID, epoch.MODULE])
def test_an_epoch_that_is_half_known_is_unknown(bench: strict.Bench, path: str) -> None:
    arrange(bench)
    assert epoch.current(bench.machine)
    bench.machine.rename(path, f"{path}.away")
    assert epoch.current(bench.machine) == ""


def test_a_module_that_was_only_looked_at_again_is_the_same(bench: strict.Bench) -> None:
    """sysfs makes up its times whenever it reads an entry back into memory; a lock on the clocks is not lost by that."""
    arrange(bench)
    first = epoch.current(bench.machine)
    bench.machine.chmod(epoch.MODULE, 0o700)
    assert epoch.current(bench.machine) == first


# -- one card is bad


def test_smi_gpu_lost(bench: strict.Bench) -> None:
    """The lost one keeps the name that the kernel knows it by, its neighbours are read."""
    assert "other GPUs of the host are addressed one by one" in power_cases.case("smi-gpu-lost").expect
    fake.Cards(bench, [fake.Card("GPU-1"), fake.Card("GPU-2", bus="0000:02:00.0", faults={"lost"}), fake.Card("GPU-3", bus="0000:03:00.0")])
    first, lost, last = look.look(bench.machine).cards
    assert (lost.uuid, lost.bus, lost.fault, lost.draw) == ("GPU-2", "0000:02:00.0", "GPU is lost", None)
    assert (first.fault, last.fault) == ("", "")
    assert (first.uuid, last.uuid) == ("GPU-1", "GPU-3")


def test_a_card_that_the_driver_shows_no_more_is_not_forgotten(bench: strict.Bench) -> None:
    arrange(bench, "0000:01:00.0", "0000:02:00.0")
    child_says(bench, reading.Look((reading.Card("GPU-1", "0000:01:00.0", 0),), source="nvml"))
    assert look.look(bench.machine).cards[1] == reading.Card(
        "GPU-2", "0000:02:00.0", name="NVIDIA GeForce RTX 3090", fault="the driver no longer shows it"
    )


def test_a_card_of_another_container_is_none_of_ours(bench: strict.Bench) -> None:
    arrange(bench, "0000:01:00.0", "0000:02:00.0")
    bench.put("/dev/nvidia0")
    child_says(bench, reading.Look((reading.Card("GPU-1", "0000:01:00.0", 0),), source="nvml"))
    assert [card.uuid for card in look.look(bench.machine).cards] == ["GPU-1"]


def test_a_sensor_that_hangs_is_unknown(bench: strict.Bench) -> None:
    """752 W at an idle desktop, on a card of at most 95 W."""
    fake.Cards(bench, [fake.Card(max_w=95.0, default_w=80.0, draw_w=752.67)])
    (card,) = look.look(bench.machine).cards
    assert card.draw is None
    assert card.unknown["draw"] == "its sensor says 752.67 W, on a card of at most 95 W: it hangs"


# -- all of them are bad


def test_smi_driver_mismatch(bench: strict.Bench) -> None:
    """Said with what to do, and not found again and again: within a minute nothing is started, until the module is another one."""
    assert "No retry storm" in power_cases.case("smi-driver-mismatch").expect
    cards = fake.Cards(bench, [fake.Card()])
    bench.folder("/run")
    cards.mismatch = True
    found = look.look(bench.machine)
    assert found.fault_kind == "mismatch"
    assert "driver and its library are of two versions" in found.fault
    assert "reboot" in found.fault_hint
    assert "modprobe nvidia" in found.fault_hint
    assert found.cards == ()
    assert look.look(bench.machine) == found
    assert cards.looks == 1
    bench.machine.clock_s += 61
    assert look.look(bench.machine).fault_kind == "mismatch"
    assert cards.looks == 2
    bench.link("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "libnvidia-ml.so.580.178")
    assert "580.95.05 is loaded, the library is 580.178" in look.look(bench.machine).fault
    assert cards.looks == 3, "another library is asked at once"
    cards.mismatch = False
    cards.reload()
    assert look.look(bench.machine).fault == "", "and so is another module"


def test_smi_driver_mismatch_through_the_tool() -> None:
    done = machines.Result(18, power_cases.case("smi-driver-mismatch").input.encode(), b"")
    refused = smi.refusal(done)
    assert refused is not None
    assert (refused.fault_kind, refused.fault) == (
        "mismatch",
        "Failed to initialize NVML: Driver/library version mismatch / NVML library version: 580.178",
    )


def test_plan_smi_hangs_costs_its_limit_and_no_more(bench: strict.Bench) -> None:
    assert "marks host X 'driver not answering'" in power_cases.case("plan-smi-hangs").expect
    cards = fake.Cards(bench, [fake.Card()])
    cards.silent = True
    found = look.look(bench.machine, limit_s=7)
    assert found.fault_kind == "silent"
    assert "gives no answer" in found.fault
    assert "reboot" in found.fault_hint
    assert [call.timeout_s for call in bench.runner.ran] == [7], "nvidia-smi would hang as well, and is not tried"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no-driver", "no NVIDIA driver is loaded"),
        ("no-permission", "may not be asked by this user"),
    ],
)
def test_what_nvml_cannot_do_nvidia_smi_cannot_either(bench: strict.Bench, kind: str, words: str) -> None:
    arrange(bench, "0000:01:00.0")
    child_says(bench, reading.Look(source="nvml", fault="refused", fault_kind=kind))
    found = look.look(bench.machine)
    assert (found.fault_kind, words in found.fault, bool(found.fault_hint)) == (kind, True, True)
    assert len(bench.runner.ran) == 1


def test_a_card_without_a_driver_is_said(bench: strict.Bench) -> None:
    bench.put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    bench.put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n")
    found = look.look(bench.machine)
    assert (found.fault_kind, found.fault) == ("no-driver", "no NVIDIA driver is loaded")
    assert bench.runner.ran == []


def test_a_node_without_cards_has_no_fault_and_starts_nothing(bench: strict.Bench) -> None:
    assert look.look(bench.machine) == reading.Look()
    assert bench.runner.ran == []


# -- without NVML


NO_LIBRARY = reading.Look(source="nvml", fault="NVML Shared Library Not Found", fault_kind="no-library")


def smi_says(bench: strict.Bench, words: str, code: int = 0) -> None:
    def answered(argv: Sequence[str]) -> machines.Result | None:
        if "--query-compute-apps=gpu_uuid,pid,used_gpu_memory" in argv:
            return machines.Result(0, b"GPU-1, 4711, 5000 MiB\nGPU-1, 99, [N/A]\nNo running processes found\n", b"")
        return None

    bench.runner.plan("nvidia-smi", strict.REST, out=words, code=code, effect=answered, times=None)


@pytest.mark.parametrize("first", [NO_LIBRARY, "Segmentation fault", '{"cards": 7}', "[]", ""])
def test_without_nvml_the_tool_is_read(bench: strict.Bench, first: reading.Look | str) -> None:
    arrange(bench, "0000:01:00.0")
    child_says(bench, first)
    smi_says(bench, f"{COLUMNS}\n{ROW}\n")
    found = look.look(bench.machine)
    assert (found.source, found.fault, found.driver) == ("nvidia-smi", "", "580.95.05")
    (card,) = found.cards
    assert (card.uuid, card.draw and card.draw.watts, card.pstate, card.index) == ("GPU-1", 120, 2, 0)
    assert [(one.pid, one.memory_mib) for one in card.holders] == [(4711, 5000), (99, None)]
    assert "no energy" in found.notes[0]


def test_smi_csv_invalid_field(bench: strict.Bench) -> None:
    """Each column that the driver does not know is dropped once, and not asked for again; the rest is read."""
    said = power_cases.case("smi-csv-invalid-field").input.splitlines()[1]
    arrange(bench, "0000:01:00.0")
    bench.folder("/var/cache/wattherd")
    child_says(bench, NO_LIBRARY)
    unknown = ["power.draw.average", "power.draw.instant", "clocks_event_reasons.active", "mig.mode.current"]
    asked: list[str] = []

    def answered(argv: Sequence[str]) -> machines.Result | None:
        columns = argv[1].partition("--query-gpu=")[2].split(",")
        if columns == [""]:
            return None
        asked.append(argv[1])
        bad = next((name for name in columns if name in unknown), None)
        if bad:
            return machines.Result(2, said.replace("clocks_throttle_reasons.unknown", bad).encode(), b"")
        row = {"uuid": "GPU-1", "pci.bus_id": "00000000:01:00.0", "power.draw": "43.00 W", "clocks_throttle_reasons.active": "0x04"}
        return machines.Result(0, f"{', '.join(columns)}\n{', '.join(row.get(name, '[N/A]') for name in columns)}\n".encode(), b"")

    bench.runner.plan("nvidia-smi", strict.REST, effect=answered, times=None)
    (card,) = look.look(bench.machine).cards
    assert (card.draw and card.draw.watts, card.throttle, card.fault) == (43, ("sw_power_cap",), "")
    assert len(asked) == len(unknown) + 1
    assert "clocks_throttle_reasons.active" in asked[-1]
    look.look(bench.machine)
    assert len(asked) == len(unknown) + 2, "remembered"


def test_a_damaged_inforom_is_a_warning_and_the_answer_is_whole(bench: strict.Bench) -> None:
    arrange(bench, "0000:01:00.0")
    child_says(bench, NO_LIBRARY)
    smi_says(bench, f"{COLUMNS}\n{ROW}\nWARNING: infoROM is corrupted at gpu 0000:01:00.0\n", code=14)
    (card,) = look.look(bench.machine).cards
    assert (card.uuid, card.fault, card.pstate) == ("GPU-1", "", 2)


def test_where_columns_are_not_understood_the_report_is_read(bench: strict.Bench) -> None:
    arrange(bench, "0000:01:00.0")
    child_says(bench, NO_LIBRARY)
    bench.runner.plan("nvidia-smi", "-q", "-x", out="what is this?")
    bench.runner.plan(
        "nvidia-smi", "-q", out="GPU 00000000:01:00.0\n    GPU UUID : GPU-1\n    Power Readings\n        Power Draw : 50.00 W\n"
    )
    smi_says(bench, "invalid option\n", code=1)
    (card,) = look.look(bench.machine).cards
    assert (card.uuid, card.draw and card.draw.watts) == ("GPU-1", 50)


def test_smi_gpu_lost_through_the_tool(bench: strict.Bench) -> None:
    arrange(bench, "0000:01:00.0", "0000:02:00.0")
    child_says(bench, NO_LIBRARY)
    for uuid, answer in (("GPU-1", f"{COLUMNS}\n{ROW}\n"),):
        bench.runner.plan("nvidia-smi", "-i", uuid, strict.REST, out=answer)
    smi_says(bench, power_cases.case("smi-gpu-lost").input, code=15)
    well, lost = look.look(bench.machine).cards
    assert (well.uuid, well.fault, well.draw and well.draw.watts) == ("GPU-1", "", 120)
    assert (lost.uuid, lost.bus, lost.fault) == ("GPU-2", "0000:02:00.0", "GPU is lost")


def test_neither_nvml_nor_the_tool(bench: strict.Bench) -> None:
    arrange(bench, "0000:01:00.0")
    child_says(bench, NO_LIBRARY)
    bench.runner.plan("nvidia-smi", strict.REST, code=127, err="nvidia-smi: not found")
    found = look.look(bench.machine)
    assert found.fault_kind == "no-library"
    assert "neither NVML (libnvidia-ml.so.1) nor nvidia-smi" in found.fault
    assert found.fault_hint


# -- cards that are not as others


def test_smi_gb10_works_in_the_memory_of_its_host(bench: strict.Bench) -> None:
    case = power_cases.case("smi-gb10-memory-na-no-limit")
    assert "Memory taken from the host (unified)" in case.expect
    bench.put("/proc/meminfo", "MemTotal:       125829120 kB\nMemAvailable:   104857600 kB\n")
    fake.Cards(
        bench,
        [fake.Card(name="NVIDIA GB10", bus="000f:01:00.0", memory_used_mib=None, memory_total_mib=None, draw_w=3.0, faults={"no-limit"})],
    )
    (card,) = look.look(bench.machine).cards
    assert (card.unified, card.memory_total_mib, card.memory_used_mib) == (True, 122880, 20480)
    assert card.draw == reading.Draw(3.0, "average", "nvml", 1.0, basis="the GPU part alone, not the box")
    assert card.limits == reading.Limits()
    assert card.fault == ""


def test_nvml_orin_everything_not_supported(bench: strict.Bench) -> None:
    """NVML initialises and shows one device that answers nothing: that is no card; the board is what there is."""
    assert "Chooses the Jetson meter" in power_cases.case("nvml-orin-everything-not-supported").expect
    arrange(bench)
    bench.put("/etc/nv_tegra_release", "# R39 (release), REVISION: 2.0\n")
    unsupported = dict.fromkeys(("draw", "energy_mj", "limits.requested_w", "limits.enforced_w"), "Not Supported")
    child_says(bench, reading.Look((reading.Card("GPU-0", "", 0, "Orin (nvgpu)", unknown=unsupported),), source="nvml"))
    found = look.look(bench.machine)
    assert found.cards == ()
    assert found.board is not None
    assert found.fault == ""


def test_a_jetson_before_thor_is_not_even_asked(bench: strict.Bench) -> None:
    arrange(bench)
    bench.put("/proc/device-tree/compatible", "nvidia,p3768-0000\0nvidia,tegra234\0")
    found = look.look(bench.machine)
    assert (found.cards, found.fault) == ((), "")
    assert bench.runner.ran == []


def test_a_sleeping_card_is_not_woken_unless_that_is_asked_for(bench: strict.Bench) -> None:
    arrange(bench, "0000:01:00.0", "0000:02:00.0")
    bench.put("/sys/bus/pci/devices/0000:02:00.0/power/runtime_status", "suspended\n")
    child_says(bench, reading.Look((reading.Card("GPU-1", "0000:01:00.0", 0),), source="nvml"), times=1)
    awake, asleep = look.look(bench.machine).cards
    assert json.loads(bench.runner.ran[0].argv[-1]) == {"buses": ["0000:01:00.0"]}
    assert (awake.suspended, asleep.suspended, asleep.uuid, asleep.fault) == (False, True, "GPU-2", "")
    assert "was not woken" in asleep.unknown["draw"]
    both = (reading.Card("GPU-1", "0000:01:00.0", 0), reading.Card("GPU-2", "0000:02:00.0", 1))
    child_says(bench, reading.Look(both, source="nvml"))
    assert [card.suspended for card in look.look(bench.machine, wake=True).cards] == [False, False]
    assert json.loads(bench.runner.ran[1].argv[-1]) == {}


def test_where_every_card_sleeps_nothing_is_started(bench: strict.Bench) -> None:
    arrange(bench, "0000:01:00.0")
    bench.put("/sys/bus/pci/devices/0000:01:00.0/power/runtime_status", "suspended\n")
    (card,) = look.look(bench.machine).cards
    assert (card.uuid, card.suspended) == ("GPU-1", True)
    assert bench.runner.ran == []


def test_what_held_a_card_back_since_the_last_look(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card(draw_w=100.0, utilization_percent=90, violations_ns={"sw_power_cap": 5})])
    before = look.look(bench.machine)
    assert before.cards[0].binding == ()
    cards.cards[0].violations_ns["sw_power_cap"] = 900_000_000
    assert look.look(bench.machine, before=before).cards[0].binding == ("sw_power_cap",)


def test_a_look_travels(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card()])
    cards.hold(cards.cards[0], 4711, "llama-server", "llama@big.service")
    found = look.look(bench.machine)
    sent = json.loads(json.dumps(fields.plain(found)))
    assert fields.build(reading.Look, sent) == found
    assert records.replace(found, cards=()).card("GPU-1") is None
