"""One card through NVML: every value that it has, and for every value that it has not, why.

Numbers of functions, fields and errors are those of nvml.h. Called by the reading child only (wattherd.power.nvml).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Mapping, Optional, Tuple

from wattherd import records
from wattherd.power import cell, reading, sensor, throttle

if TYPE_CHECKING:
    import types

_MIB = 1024 * 1024
_NOT_SUPPORTED, _UNKNOWN = "Not Supported", "Unknown Error"
#: The card itself is gone, or of no use before a reset: nothing else of it needs to be asked.
_FAULTS: Mapping[int, str] = {15: "GPU is lost", 16: "GPU requires reset", 28: "GPU is not there"}
_WORDS: Mapping[int, str] = {3: _NOT_SUPPORTED, 4: "Insufficient Permissions", 13: "not told by this driver", 999: _UNKNOWN}
#: The draw by sensor, and the limits, which a driver may know in these fields alone (laptops from 610 on).
_POWER_AVERAGE, _POWER_INSTANT = 185, 186
_LIMIT_FIELDS = {"min_w": 187, "max_w": 188, "default_w": 189, "enforced_w": 190, "requested_w": 192}
#: Counters of nanoseconds by the name of their reason: the field of newer drivers, and the policy that older ones are asked for.
_VIOLATIONS: Tuple[Tuple[str, int, Optional[int]], ...] = (
    (throttle.SW_POWER_CAP, 74, 0),
    ("sync_boost", 76, 2),
    ("sw_thermal_slowdown", 269, 1),
    ("hw_thermal_slowdown", 270, None),
    ("hw_power_brake_slowdown", 271, None),
)
#: nvmlTemperatureThresholds_t: what is called acoustic there is the target that `nvidia-smi -gtt` sets.
_TARGETS = {"temperature_target_min_c": 4, "temperature_target_c": 5, "temperature_target_max_c": 6}
#: nvmlFieldValue_t: which member of its union holds the value, by nvmlValueType_t.
_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}
#: Not a state: NVML's own word for "unknown" is 32.
_LAST_PSTATE = 15


class Gone(Exception):  # noqa: N818 - what happened to the card
    """The card answers nothing more, with the reason."""


def words_of(error: BaseException) -> str:
    code = getattr(error, "value", None)
    return _FAULTS.get(code or 0) or _WORDS.get(code or 0) or str(error) or type(error).__name__


class Asked:
    """One card being asked: what it does not tell is remembered with its reason, and what ends the asking is raised as `Gone`."""

    def __init__(self, nvml: types.ModuleType, handle: object) -> None:
        self.nvml = nvml
        self.handle = handle
        self.unknown: Dict[str, str] = {}

    def ask(self, field: str, name: str, *given: object) -> Optional[object]:
        """What NVML's function `name` gives for this card; None is remembered under `field`, unless that is empty."""
        try:
            value: object = getattr(self.nvml, name)(self.handle, *given)
        except Exception as error:  # a binding trips over what a driver returns in many ways: each is one unknown value
            if getattr(error, "value", None) in _FAULTS:
                raise Gone(words_of(error)) from error
            if field:
                self.unknown[field] = words_of(error)
            return None
        self.unknown.pop(field, None)
        return value

    def whole(self, field: str, name: str, *given: object) -> Optional[int]:
        value = self.ask(field, name, *given)
        return value if isinstance(value, int) else None

    def watts(self, field: str, name: str) -> Optional[float]:
        milliwatts = self.whole(field, name)
        return None if milliwatts is None else milliwatts / 1000

    def text(self, field: str, name: str) -> str:
        value = self.ask(field, name)
        return cell.printable(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or ""), 120)

    def field_values(self, *ids: int) -> Dict[int, float]:
        """By id, those that driver and card know. Their scope is the GPU alone: its memory and its module have values of their own."""
        rows = self.ask("", "nvmlDeviceGetFieldValues", list(ids))
        found: Dict[int, float] = {}
        for row in rows if rows is not None else ():  # type: ignore[attr-defined]
            if row.nvmlReturn == 0:
                found[row.fieldId] = float(getattr(row.value, _MEMBERS.get(row.valueType, "ullVal")))
        return found

    def last_text(self, name: str) -> str:
        """Of a card that is gone: it may still give its name, or not even that."""
        try:
            return self.text("", name)
        except Gone:
            return ""

    def last_bus(self) -> str:
        try:
            return bus(self)
        except Gone:
            return ""


def bus(asked: Asked) -> str:
    found = getattr(asked.ask("bus", "nvmlDeviceGetPciInfo"), "busId", "")
    return cell.bus(found.decode("ascii", "replace") if isinstance(found, bytes) else str(found))


def read(asked: Asked, index: int) -> reading.Card:
    """Raises `Gone` as soon as the card says that it is lost or needs a reset."""
    draw, instant_w = _draw(asked)
    used_mib, total_mib = _memory(asked)
    target_min, target, target_max = [asked.whole(name, "nvmlDeviceGetTemperatureThreshold", which) for name, which in _TARGETS.items()]
    usage = getattr(asked.ask("utilization_percent", "nvmlDeviceGetUtilizationRates"), "gpu", None)
    mig = asked.ask("mig", "nvmlDeviceGetMigMode")
    persistence = asked.whole("persistence", "nvmlDeviceGetPersistenceMode")
    told = asked.whole("index", "nvmlDeviceGetIndex") if index < 0 else index
    card = reading.Card(
        asked.text("uuid", "nvmlDeviceGetUUID"),
        bus=bus(asked),
        index=-1 if told is None else told,
        name=asked.text("name", "nvmlDeviceGetName"),
        limits=_limits(asked),
        draw=draw,
        draw_instant_w=instant_w,
        energy_mj=asked.whole("energy_mj", "nvmlDeviceGetTotalEnergyConsumption"),
        clocks=_clocks(asked),
        pstate=_pstate(asked),
        utilization_percent=None if usage is None else int(usage),
        temperature_c=asked.whole("temperature_c", "nvmlDeviceGetTemperature", 0),
        temperature_target_c=target,
        temperature_target_min_c=target_min,
        temperature_target_max_c=target_max,
        fan_percent=asked.whole("fan_percent", "nvmlDeviceGetFanSpeed"),
        memory_used_mib=used_mib,
        memory_total_mib=total_mib,
        persistence=None if persistence is None else bool(persistence),
        mig=bool(mig[0]) if isinstance(mig, (list, tuple)) and mig else None,
        throttle=_throttle(asked),
        violations_ns=_violations(asked),
        holders=_holders(asked),
        capability=_capability(asked) or (),
    )
    if {asked.unknown.get(field) for field in ("draw", "limits.requested_w", "pstate")} == {_UNKNOWN}:
        # A sick driver gives this one error for everything; of a healthy card one value may have it.
        return reading.Card(card.uuid, card.bus, card.index, card.name, fault=_UNKNOWN)
    return records.replace(card, unknown=dict(sorted(asked.unknown.items())))


def _limits(asked: Asked) -> reading.Limits:
    bounds = asked.ask("limits.min_w", "nvmlDeviceGetPowerManagementLimitConstraints")
    least, most = bounds if isinstance(bounds, (list, tuple)) and len(bounds) == 2 else (None, None)
    if least is None:
        asked.unknown["limits.max_w"] = asked.unknown.get("limits.min_w", _NOT_SUPPORTED)
    told: Dict[str, Optional[float]] = {
        "min_w": None if least is None else least / 1000,
        "max_w": None if most is None else most / 1000,
        "default_w": asked.watts("limits.default_w", "nvmlDeviceGetPowerManagementDefaultLimit"),
        "requested_w": asked.watts("limits.requested_w", "nvmlDeviceGetPowerManagementLimit"),
        "enforced_w": asked.watts("limits.enforced_w", "nvmlDeviceGetEnforcedPowerLimit"),
    }
    lacking = {name: _LIMIT_FIELDS[name] for name, value in told.items() if value is None}
    values = asked.field_values(*lacking.values()) if lacking else {}
    for name, which in lacking.items():
        if which in values:
            told[name] = values[which] / 1000
            asked.unknown.pop(f"limits.{name}", None)
    return reading.Limits(**told)


def _draw(asked: Asked) -> Tuple[Optional[reading.Draw], Optional[float]]:
    """The steadiest figure that the card has, and the one of this instant, in watts."""
    values = asked.field_values(_POWER_AVERAGE, _POWER_INSTANT)
    average_w, instant_w = [values[one] / 1000 if one in values else None for one in (_POWER_AVERAGE, _POWER_INSTANT)]
    plain_w = None if average_w is not None else asked.watts("draw", "nvmlDeviceGetPowerUsage")
    averages: Optional[bool] = None
    if plain_w is not None:
        averages = sensor.is_averaging(asked.whole("", "nvmlDeviceGetArchitecture"), _capability(asked))
        if averages is False and instant_w is None:
            instant_w = plain_w
    draw = sensor.draw(average_w, instant_w, plain_w, averages=averages, source="nvml")
    if draw is not None:
        asked.unknown.pop("draw", None)
    return draw, instant_w


def _capability(asked: Asked) -> Optional[Tuple[int, int]]:
    told = asked.ask("", "nvmlDeviceGetCudaComputeCapability")
    return (int(told[0]), int(told[1])) if isinstance(told, (list, tuple)) and len(told) == 2 else None


def _clocks(asked: Asked) -> reading.Clocks:
    """nvmlClockType_t: 1 is the SMs', 2 the memory's."""
    return reading.Clocks(
        sm_mhz=asked.whole("clocks.sm_mhz", "nvmlDeviceGetClockInfo", 1),
        memory_mhz=asked.whole("clocks.memory_mhz", "nvmlDeviceGetClockInfo", 2),
        sm_max_mhz=asked.whole("clocks.sm_max_mhz", "nvmlDeviceGetMaxClockInfo", 1),
        memory_max_mhz=asked.whole("clocks.memory_max_mhz", "nvmlDeviceGetMaxClockInfo", 2),
    )


def _memory(asked: Asked) -> Tuple[Optional[int], Optional[int]]:
    """Used and whole, in MiB. The second version of the call leaves out what the driver keeps for itself, as nvidia-smi does."""
    found = asked.ask("", "nvmlDeviceGetMemoryInfo", asked.nvml.nvmlMemory_v2) or asked.ask("memory", "nvmlDeviceGetMemoryInfo")
    used, total = getattr(found, "used", None), getattr(found, "total", None)
    return (None, None) if used is None or total is None else (int(used) // _MIB, int(total) // _MIB)


def _pstate(asked: Asked) -> Optional[int]:
    value = asked.whole("pstate", "nvmlDeviceGetPerformanceState")
    if value is not None and not 0 <= value <= _LAST_PSTATE:
        asked.unknown["pstate"] = _NOT_SUPPORTED
        return None
    return value


def _throttle(asked: Asked) -> Tuple[str, ...]:
    """The mask by its new name, and on drivers before 535 by its old one."""
    mask = asked.whole("", "nvmlDeviceGetCurrentClocksEventReasons")
    if mask is None:
        mask = asked.whole("throttle", "nvmlDeviceGetCurrentClocksThrottleReasons")
    return () if mask is None else throttle.named(mask)


def _violations(asked: Asked) -> Dict[str, int]:
    values = asked.field_values(*[field for _, field, _ in _VIOLATIONS])
    found: Dict[str, int] = {}
    for name, field, policy in _VIOLATIONS:
        if field in values:
            found[name] = int(values[field])
        elif policy is not None:
            told = getattr(asked.ask("", "nvmlDeviceGetViolationStatus", policy), "violationTime", None)
            found.update({} if told is None else {name: int(told)})
    if not found:
        asked.unknown["violations_ns"] = _NOT_SUPPORTED
    return found


def _holders(asked: Asked) -> Tuple[reading.Holder, ...]:
    """Those that compute and those that draw. Which of a function's versions there is depends on the driver; memory may be unknown."""
    found: Dict[int, reading.Holder] = {}
    for kind, field in (("Compute", "holders"), ("Graphics", "")):
        rows = asked.ask("", f"nvmlDeviceGet{kind}RunningProcesses_v3")
        if rows is None:
            rows = asked.ask(field, f"nvmlDeviceGet{kind}RunningProcesses_v2")
        for row in rows if isinstance(rows, list) else []:
            used = getattr(row, "usedGpuMemory", None)
            found.setdefault(int(row.pid), reading.Holder(int(row.pid), memory_mib=None if used is None else int(used) // _MIB))
    return tuple(found.values())
