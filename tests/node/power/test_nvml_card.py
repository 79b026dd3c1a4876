"""One card through NVML's own error codes. The real library is read in the lab; here is what no lab card can be made to say."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Mapping

import pytest

from wattherd.power import nvml_card, reading

#: Which has no types of its own.
pynvml = importlib.import_module("pynvml")
Answer = object
NOT_SUPPORTED, NO_PERMISSION, LOST, RESET, UNKNOWN = 3, 4, 15, 16, 999


class Library(types.ModuleType):
    """The binding's names, with the answers that a test wants; a number stands for the error of that code. All else is not supported."""

    def __init__(self, **answers: Answer | Callable[..., Answer]) -> None:
        super().__init__("pynvml")
        self.answers = answers
        self.nvmlMemory_v2 = pynvml.nvmlMemory_v2

    def __getattr__(self, name: str) -> Callable[..., Answer]:
        def asked(_handle: object, *given: object) -> Answer:
            wanted = self.answers.get(name, pynvml.NVMLError(NOT_SUPPORTED))
            answer = wanted(*given) if callable(wanted) else wanted
            if isinstance(answer, pynvml.NVMLError):
                raise answer
            return answer

        return asked


def refused(code: int) -> Answer:
    return pynvml.NVMLError(code)


def values(told: Mapping[int, int]) -> Callable[..., Answer]:
    """nvmlDeviceGetFieldValues: what is not told is not supported, field by field."""

    def asked(*given: object) -> Answer:
        (ids,) = given
        assert isinstance(ids, list)
        rows = (pynvml.c_nvmlFieldValue_t * len(ids))()
        for row, which in zip(rows, ids, strict=True):
            row.fieldId, row.valueType = which, 1
            row.nvmlReturn = 0 if which in told else NOT_SUPPORTED
            row.value.uiVal = told.get(which, 0)
        return rows

    return asked


def read(**answers: Answer | Callable[..., Answer]) -> reading.Card:
    return nvml_card.read(nvml_card.Asked(Library(**answers), object()), 0)


def test_every_value_that_a_card_lacks_is_unknown_with_its_reason() -> None:
    card = read(nvmlDeviceGetUUID="GPU-1", nvmlDeviceGetName="NVIDIA Something", nvmlDeviceGetFanSpeed=refused(NO_PERMISSION))
    assert (card.uuid, card.fault) == ("GPU-1", "")
    assert (card.draw, card.energy_mj, card.pstate, card.persistence, card.mig) == (None, None, None, None, None)
    assert card.limits == reading.Limits()
    assert card.clocks == reading.Clocks()
    assert card.unknown["energy_mj"] == "Not Supported"
    assert card.unknown["fan_percent"] == "Insufficient Permissions"
    assert {"draw", "limits.min_w", "limits.max_w", "limits.enforced_w", "clocks.sm_mhz", "memory", "holders", "throttle"} <= set(
        card.unknown
    )


@pytest.mark.parametrize(("code", "words"), [(LOST, "GPU is lost"), (RESET, "GPU requires reset")])
def test_a_card_that_is_gone_ends_the_asking(code: int, words: str) -> None:
    with pytest.raises(nvml_card.Gone, match=words):
        read(nvmlDeviceGetUUID="GPU-1", nvmlDeviceGetPowerUsage=refused(code))


def test_an_unknown_error_of_one_value_is_no_fault() -> None:
    card = read(
        nvmlDeviceGetUUID="GPU-1",
        nvmlDeviceGetPowerManagementDefaultLimit=refused(UNKNOWN),
        nvmlDeviceGetPowerManagementLimit=210_000,
        nvmlDeviceGetPerformanceState=2,
    )
    assert (card.fault, card.limits.requested_w, card.limits.default_w) == ("", 210, None)
    assert card.unknown["limits.default_w"] == "Unknown Error"


def test_an_unknown_error_of_everything_is_one() -> None:
    names = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPerformanceState")
    card = read(nvmlDeviceGetUUID="GPU-1", **dict.fromkeys(names, refused(UNKNOWN)))
    assert (card.uuid, card.fault) == ("GPU-1", "Unknown Error")


def test_the_average_is_taken_where_there_is_one() -> None:
    card = read(nvmlDeviceGetFieldValues=values({185: 77_670, 186: 77_880}), nvmlDeviceGetPowerUsage=1)
    assert card.draw == reading.Draw(77.67, "average", "nvml", 1.0)
    assert card.draw_instant_w == 77.88


@pytest.mark.parametrize(
    ("answers", "sensor", "window_s"),
    [
        ({"nvmlDeviceGetCudaComputeCapability": (8, 6)}, "average", 1.0),
        ({"nvmlDeviceGetCudaComputeCapability": (8, 0)}, "instant", 0.0),
        ({"nvmlDeviceGetCudaComputeCapability": (6, 1)}, "instant", 0.0),
        ({"nvmlDeviceGetArchitecture": 9}, "average", 1.0),
        ({"nvmlDeviceGetArchitecture": 6}, "instant", 0.0),
        ({"nvmlDeviceGetArchitecture": 7}, "total", None),
        ({"nvmlDeviceGetArchitecture": 0xFFFFFFFF}, "total", None),
        ({}, "total", None),
    ],
)
def test_what_the_plain_reading_stands_for(answers: dict[str, Answer], sensor: str, window_s: float | None) -> None:
    assert read(nvmlDeviceGetPowerUsage=50_000, **answers).draw == reading.Draw(50.0, sensor, "nvml", window_s)


def test_an_instant_alone_is_a_draw() -> None:
    card = read(nvmlDeviceGetFieldValues=values({186: 39_320}))
    assert card.draw == reading.Draw(39.32, "instant", "nvml", 0.0)
    assert "draw" not in card.unknown


def test_limits_that_only_the_fields_know() -> None:
    """Laptops from 610 on: the plain calls say Not Supported."""
    card = read(nvmlDeviceGetFieldValues=values({187: 5_000, 188: 95_000, 189: 80_000, 190: 10_000, 192: 80_000}))
    assert card.limits == reading.Limits(5, 95, 80, 80, 10)
    assert not [field for field in card.unknown if field.startswith("limits")]


def test_an_older_driver_calls_the_reasons_by_another_name() -> None:
    card = read(nvmlDeviceGetCurrentClocksEventReasons=refused(13), nvmlDeviceGetCurrentClocksThrottleReasons=0x24)
    assert card.throttle == ("sw_power_cap", "sw_thermal_slowdown")


def test_counters_by_field_and_by_policy() -> None:
    def policy(*given: object) -> Answer:
        return types.SimpleNamespace(violationTime=900) if given == (1,) else refused(NOT_SUPPORTED)

    card = read(nvmlDeviceGetFieldValues=values({74: 5, 270: 8}), nvmlDeviceGetViolationStatus=policy)
    assert card.violations_ns == {"sw_power_cap": 5, "sw_thermal_slowdown": 900, "hw_thermal_slowdown": 8}


def test_processes_of_whichever_version_there_is() -> None:
    def row(pid: int, used: int | None) -> types.SimpleNamespace:
        return types.SimpleNamespace(pid=pid, usedGpuMemory=used)

    card = read(
        nvmlDeviceGetComputeRunningProcesses_v3=refused(13),
        nvmlDeviceGetComputeRunningProcesses_v2=[row(11, 500 * 1024 * 1024), row(12, None)],
        nvmlDeviceGetGraphicsRunningProcesses_v3=[row(11, 1), row(13, 0)],
    )
    assert card.holders == (reading.Holder(11, memory_mib=500), reading.Holder(12), reading.Holder(13, memory_mib=0))
    assert "holders" not in card.unknown


def test_a_performance_state_of_32_is_unknown() -> None:
    card = read(nvmlDeviceGetPerformanceState=32)
    assert (card.pstate, card.unknown["pstate"]) == (None, "Not Supported")


def test_a_binding_that_trips_costs_one_value() -> None:
    def trips(*_given: object) -> Answer:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    card = read(nvmlDeviceGetName=trips, nvmlDeviceGetUUID="GPU-1", nvmlDeviceGetTemperature=40)
    assert (card.name, card.temperature_c) == ("", 40)
    assert "invalid start byte" in card.unknown["name"]


def test_what_a_card_is_called_is_printable() -> None:
    assert read(nvmlDeviceGetName=b"NVIDIA \x1b[31mH200").name.isprintable()


def test_mig_is_one_card() -> None:
    card = read(nvmlDeviceGetMigMode=[1, 1], nvmlDeviceGetTotalEnergyConsumption=126_272_101_025)
    assert (card.mig, card.energy_mj, card.utilization_percent) == (True, 126_272_101_025, None)
