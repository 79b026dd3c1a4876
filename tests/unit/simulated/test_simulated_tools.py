"""Words and exit codes of the simulated nvidia-smi, and the real pynvml on the simulated library, over a state file of the test's own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pynvml
import pytest

from tests.lab.simulated import cards, compiled, figures, layout

pytestmark = [
    pytest.mark.skipif(not shutil.which("gcc"), reason="the simulated tools are C"),
    pytest.mark.skipif(os.geteuid() != 0, reason="settings are root's, as with the real driver"),
]
BUS = "00000000:01:00.0"


class Bench:
    """One compiled set of tools and the state that they see."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.programs = folder / "made"
        compiled.compile_into(self.programs, f'-DLAB_PLACE="{self.state}"')

    def plug(self, *ids: str, driver: str = "") -> None:
        found = [figures.cards()[one] for one in ids]
        layout.create(self.state, cards.state("bench", found, cards.driver(found, driver)))

    def break_card(self, fault: str, index: int = 0) -> None:
        with layout.held(self.state) as node:
            node.card[index].faults |= layout.CARD_FAULTS[fault]

    def break_driver(self, fault: str) -> None:
        with layout.held(self.state) as node:
            node.faults |= layout.NODE_FAULTS[fault]

    def smi(self, *words: str, user: int | None = None) -> tuple[int, list[str]]:
        argv = [str(self.programs / "nvidia-smi"), *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False, user=user)
        assert done.stderr == ""
        return done.returncode, done.stdout.rstrip("\n").split("\n")

    def nvml(self, script: str) -> dict[str, object]:
        """What a script that fills `said` finds through the real binding."""
        body = f"import json, pynvml as n\nsaid = {{}}\n{script}\nprint(json.dumps(said))"
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.programs), "PYTHONPATH": str(Path(pynvml.__file__).parent)}
        done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, timeout=20, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("tools")
    for place in (folder, *folder.parents[:3]):
        place.chmod(place.stat().st_mode | 0o011)  # so that a user without rights gets as far as the tool
    return Bench(folder)


@pytest.fixture
def bench(made: Bench) -> Bench:
    made.plug("rtx_3090", "rtx_3090")
    return made


def test_a_limit_is_set_and_says_the_new_and_the_old_one(bench: Bench) -> None:
    code, lines = bench.smi("-i", "0", "-pl", "250")
    assert (code, lines[0], lines[-1]) == (0, f"Power limit for GPU {BUS} was set to 250.00 W from 350.00 W.", "All done.")
    assert lines[1].startswith(f"Warning: persistence mode is disabled on device {BUS}.")
    assert bench.smi("--query-gpu=power.limit", "--format=csv,noheader,nounits") == (0, ["250.00", "350.00"])


@pytest.mark.parametrize("watts", ["99", "376"])
def test_a_limit_out_of_range_gives_the_range(bench: Bench, watts: str) -> None:
    words = f"Provided power limit {watts}.00 W is not a valid power limit which should be between 100.00 W and 375.00 W for GPU {BUS}"
    assert bench.smi("-pl", watts) == (2, [words, "Terminating early due to previous errors."])


def test_unsupported_is_a_warning_and_exit_code_0(bench: Bench) -> None:
    bench.plug("p40")
    assert bench.smi("-lgc", "0,1000") == (
        0,
        [f"Setting locked GPU clocks is not supported for GPU {BUS}.", "Treating as warning and moving on.", "All done."],
    )
    assert bench.smi("-lmc", "405")[1][0] == f"Setting locked Memory clocks is not supported for GPU {BUS}."
    bench.break_card("UNSUPPORTED")
    code, lines = bench.smi("-pl", "200")
    assert (code, lines[0]) == (0, f"Changing power management limit is not supported for GPU: {BUS}.")
    assert bench.smi("--query-gpu=power.limit", "--format=csv,noheader")[1] == ["250.00 W"]


def test_without_permission_it_is_4_for_a_user_and_where_even_root_may_not(bench: Bench) -> None:
    words = [f"Failed to set power management limit for GPU {BUS}: Insufficient Permissions", "Terminating early due to previous errors."]
    assert bench.smi("-i", "0", "-pl", "250", user=65534) == (4, words)
    bench.break_card("NO_PERMISSION")
    assert bench.smi("-i", "0", "-pl", "250") == (4, words)
    assert bench.smi("-i", "0", "-lgc", "0,1000")[0] == 4
    assert bench.smi("-i", "0", "--query-gpu=power.limit", "--format=csv,noheader", user=65534) == (0, ["350.00 W"])


def test_clock_locks_and_persistence_in_the_tools_words(bench: Bench) -> None:
    assert bench.smi("-i", "1", "-lgc", "0,1400")[1][0] == 'GPU clocks set to "(gpuClkMin 0, gpuClkMax 1400)" for GPU 00000000:02:00.0'
    assert bench.smi("-i", "1", "-rgc") == (0, ["All done."])
    assert bench.smi("-pm", "1", "-i", "0") == (0, [f"Enabled persistence mode for GPU {BUS}.", "All done."])
    assert bench.smi("-pm", "1", "-i", "0")[1][0] == f"Persistence mode is already Enabled for GPU {BUS}."
    bench.plug("rtx_3090", driver="580.95.05")
    assert bench.smi("-pm", "1")[1][0] == f"Enabled Legacy persistence mode for GPU {BUS}."


@pytest.mark.parametrize("word", ["0", "GPU", "00000000:01:00.0", "0000:01:00.0", "01:00.0"])
def test_a_card_is_named_by_index_uuid_or_bus(bench: Bench, word: str) -> None:
    with layout.held(bench.state) as node:
        uuid = node.card[0].uuid.decode()
    code, lines = bench.smi("-i", uuid if word == "GPU" else word, "--query-gpu=uuid", "--format=csv,noheader")
    assert (code, lines) == (0, [uuid])


def test_no_such_card(bench: Bench) -> None:
    assert bench.smi("-i", "7", "-pl", "200") == (6, ["No devices were found"])


def test_an_unknown_field_is_all_that_is_said(bench: Bench) -> None:
    words = ['Field "clocks_throttle_reasons.unknown" is not a valid field to query.']
    assert bench.smi("--query-gpu=name,clocks_throttle_reasons.unknown", "--format=csv") == (2, words)
    assert bench.smi("--query-gpu=power.draw.instant", "--format=csv")[0] == 2  # not before driver 530


def test_headers_carry_units_and_the_new_name_of_throttle_reasons(bench: Bench) -> None:
    asked = "--query-gpu=power.draw,clocks.sm,clocks_throttle_reasons.sw_power_cap"
    assert bench.smi(asked, "--format=csv")[1][0] == "power.draw [W], clocks.current.sm [MHz], clocks_throttle_reasons.sw_power_cap"
    bench.plug("rtx_5090")
    assert bench.smi(asked, "--format=csv")[1][0] == "power.draw [W], clocks.current.sm [MHz], clocks_event_reasons.sw_power_cap"


def test_cells_without_a_number(bench: Bench) -> None:
    bench.plug("p40", driver="595.71.05")
    asked = "--query-gpu=power.draw.average,fan.speed,temperature.memory,clocks.applications.graphics,power.default_limit"
    row = "[N/A], [N/A], N/A, [Requested functionality has been deprecated], 250.00 W"
    assert bench.smi(asked, "--format=csv,noheader")[1] == [row]
    bench.break_card("UNKNOWN_DEFAULT")
    assert bench.smi(asked, "--format=csv,noheader")[1] == [row.replace("250.00 W", "[Unknown Error]")]
    bench.break_card("RESET")
    assert set(bench.smi("--query-gpu=power.draw,power.limit,pstate", "--format=csv,noheader")[1][0].split(", ")) == {
        "[GPU requires reset]"
    }


def test_one_lost_card_ends_the_answer_for_all_but_not_for_its_neighbour_alone(bench: Bench) -> None:
    bench.break_card("LOST", 1)
    words = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU"
    assert bench.smi("--query-gpu=name", "--format=csv,noheader") == (15, [words])
    assert bench.smi("-i", "1", "-pl", "200") == (15, [words])
    assert bench.smi("-i", "0", "--query-gpu=name", "--format=csv,noheader") == (0, ["NVIDIA GeForce RTX 3090"])


def test_two_versions_of_the_driver(bench: Bench) -> None:
    bench.plug("rtx_3090", driver="580.178.02")
    bench.break_driver("MISMATCH")
    said = ["Failed to initialize NVML: Driver/library version mismatch", "NVML library version: 580.178"]
    assert bench.smi() == (18, said)


def test_no_driver(bench: Bench) -> None:
    bench.state.unlink()
    code, lines = bench.smi("-L")
    assert (code, lines[0].partition(" driver")[0]) == (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA")


@pytest.mark.parametrize(
    ("driver", "labels", "tag"),
    [
        ("525.147.05", ["Power Draw", "Power Limit", "Default Power Limit", "Enforced Power Limit"], "power_readings/power_limit"),
        ("535.129.03", ["Power Draw", "Current Power Limit", "Requested Power Limit"], "gpu_power_readings/current_power_limit"),
        ("570.124.06", ["Average Power Draw", "Instantaneous Power Draw", "Current Power Limit"], "gpu_power_readings/instant_power_draw"),
        ("610.57.04", ["GPU Base Power", "GPU Ceiling Power Limit", "Current Power Limit"], "gpu_power_readings/min_power_limit"),
    ],
)
def test_the_long_log_has_the_labels_of_its_branch(bench: Bench, driver: str, labels: Sequence[str], tag: str) -> None:
    bench.plug("rtx_3090", driver=driver)
    _, lines = bench.smi("-q", "-d", "POWER")
    names = [line.partition(":")[0].strip() for line in lines]
    assert [label for label in labels if label not in names] == []
    document = ET.fromstring("\n".join(bench.smi("-q", "-x")[1]))  # noqa: S314 - of our own tool
    found = document.find(f"gpu/{tag}")
    assert found is not None
    assert re.fullmatch(r"\d+\.\d\d W", found.text or "")
    assert document.findtext("driver_version") == driver


def test_a_limit_from_outside_is_enforced_but_not_requested(bench: Bench) -> None:
    with layout.held(bench.state) as node:
        node.card[0].bmc_mw = 200_000
    assert bench.smi("-i", "0", "--query-gpu=power.limit,enforced.power.limit", "--format=csv,noheader,nounits")[1] == ["350.00, 200.00"]


def test_loading_the_driver_anew_makes_everything_as_it_was(bench: Bench) -> None:
    bench.smi("-pl", "250")
    bench.smi("-pm", "1")
    bench.break_card("LOST")
    with layout.held(bench.state) as node:
        node.card[0].energy_mj = 5_000_000
        epoch = node.epoch
    assert subprocess.run([bench.programs / "load", bench.state], check=False).returncode == 0
    with layout.held(bench.state) as node:
        card = node.card[0]
        assert (card.requested_mw, card.persistence, card.energy_mj, card.faults, node.epoch) == (350_000, 0, 0, 0, epoch + 1)


def test_a_reset_is_refused_while_persistence_holds_the_card(bench: Bench) -> None:
    bench.smi("-pm", "1", "-i", "0")
    code, lines = bench.smi("-i", "0", "-r")
    assert (code, "In use by another client" in lines[1]) == (255, True)


READ = """
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
def ask(name, function, *arguments):
    try:
        found = function(*arguments)
        said[name] = found.decode() if isinstance(found, bytes) else found
    except n.NVMLError as error:
        said[name] = f"error {error.value}"
ask("driver", n.nvmlSystemGetDriverVersion)
ask("count", n.nvmlDeviceGetCount)
ask("name", n.nvmlDeviceGetName, h)
ask("limit", n.nvmlDeviceGetPowerManagementLimit, h)
ask("range", n.nvmlDeviceGetPowerManagementLimitConstraints, h)
ask("default", n.nvmlDeviceGetPowerManagementDefaultLimit, h)
ask("enforced", n.nvmlDeviceGetEnforcedPowerLimit, h)
ask("draw", n.nvmlDeviceGetPowerUsage, h)
ask("energy", n.nvmlDeviceGetTotalEnergyConsumption, h)
ask("reasons", n.nvmlDeviceGetCurrentClocksEventReasons, h)
ask("throttle", n.nvmlDeviceGetCurrentClocksThrottleReasons, h)
ask("capability", n.nvmlDeviceGetCudaComputeCapability, h)
ask("mig", n.nvmlDeviceGetMigMode, h)
ask("target", n.nvmlDeviceGetTemperatureThreshold, h, n.NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MAX)
ask("margin", n.nvmlDeviceGetMarginTemperature, h)
ask("memory", lambda h: n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).total, h)
ask("bus", lambda h: n.nvmlDeviceGetPciInfo(h).busId, h)
ask("holders", lambda h: [(one.pid, one.usedGpuMemory) for one in n.nvmlDeviceGetComputeRunningProcesses(h)], h)
ask("fields", lambda h: [(one.nvmlReturn, one.value.uiVal) for one in n.nvmlDeviceGetFieldValues(h, [185, 186, 190, 192])], h)
ask("violation", lambda h: n.nvmlDeviceGetViolationStatus(h, n.NVML_PERF_POLICY_POWER).violationTime, h)
"""


def test_the_real_binding_reads_every_function_that_there_is(bench: Bench) -> None:
    bench.plug("rtx_5090")
    with layout.held(bench.state) as node:
        card = node.card[0]
        card.holders, card.energy_mj, card.power_violation_ns = 1, 12345, 77
        card.holder[0].pid, card.holder[0].memory = 4711, 6 << 30
    said = bench.nvml(READ)
    assert said["driver"] == "570.124.06"
    assert (said["limit"], said["range"], said["default"], said["enforced"]) == (575_000, [400_000, 575_000], 575_000, 575_000)
    assert (said["draw"], said["energy"], said["violation"]) == (24_050, 12345, 77)
    assert said["fields"] == [[0, 24050], [0, 24050], [0, 575000], [0, 575000]]
    assert (said["capability"], said["mig"], said["memory"], said["bus"]) == ([12, 0], "error 3", 32607 << 20, "00000000:01:00.0")
    assert said["holders"] == [[4711, 6 << 30]]
    assert said["margin"] == "error 13"  # what is not there: function not found, as from an older library


def test_the_real_binding_on_an_old_card_and_an_old_driver(bench: Bench) -> None:
    bench.plug("p40")
    said = bench.nvml(READ)
    assert (said["energy"], said["target"], said["limit"]) == ("error 3", "error 3", 250_000)
    bench.plug("rtx_3090")  # 525: the event reasons still have their old name, and the split of the draw is not there
    said = bench.nvml(READ)
    assert (said["reasons"], said["throttle"]) == ("error 13", 0)
    assert said["target"] == 91
    assert isinstance(said["fields"], list)
    assert [code for code, _ in said["fields"]] == [2, 2, 2, 2]


def test_faults_are_nvmls_own_codes(bench: Bench) -> None:
    bench.break_card("LOST", 1)
    lost = "n.nvmlInit()\ntry:\n    n.nvmlDeviceGetHandleByIndex(1)\nexcept n.NVMLError as error:\n    said['code'] = error.value"
    assert bench.nvml(lost) == {"code": 15}
    bench.break_card("RESET", 0)
    assert bench.nvml(READ)["draw"] == "error 16"
    bench.break_driver("MISMATCH")
    start = "try:\n    n.nvmlInit()\nexcept n.NVMLError as error:\n    said['code'] = error.value"
    assert bench.nvml(start) == {"code": 18}
