"""A Jetson board in a node: its device tree, its clocks and rails as files under /sys, its nvpmodel.conf, and its tools."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab import commands
from tests.lab.simulated import cards, figures, layout

HOME = Path("var/lib/lab-gpu")
SYS = HOME / "live/sys"
_NODE = Path(__file__).with_name("node")
_GPU_LEAST_MHZ, _CPU_LEAST_KHZ = 306, 729600
_TOOLS = {
    "nvpmodel.py": "usr/sbin/nvpmodel",
    "jetson_clocks.py": "usr/bin/jetson_clocks",
    "tegrastats.py": "usr/bin/tegrastats",
    "nvfancontrol.py": "usr/sbin/nvfancontrol",
}
_ZONES = ("cpu", "gpu", "tj")
_I2C = "devices/platform/bus@0/c240000.i2c/i2c-1/1-0040"
_I2C_OLD = "devices/3160000.i2c/i2c-6/6-0040"
_CARRIER = "devices/platform/bus@0/c600000.i2c/i2c-2/2-0044"
_FAN = "devices/platform/pwm-fan/hwmon/hwmon2"
_RAILS_HWMON, _CARRIER_HWMON = "hwmon4", "hwmon5"
#: No source gives the number: what these releases print for nvidia-smi is assumed.
_DRIVERS = {6: "540.4.0", 7: "580.00"}
_VOLTS_MV = 5000
#: The keeper may write to /sys, and to nothing under /var/lib that is not its own; here sysfs lies there.
_KEEPER = "usr/lib/systemd/system/wattherd-keeper.service.d/lab-gpu.conf"


@dataclass(frozen=True)
class Mode:
    id: int
    name: str
    gpu_mhz: int
    mask: int
    full_w: float


@dataclass(frozen=True)
class Rail:
    """One channel: where its files are, and which part of the board's watts it carries (of the idle ones, of those above)."""

    name: str
    folder: str
    number: int
    kind: str
    idle_share: float
    load_share: float


@dataclass(frozen=True)
class Board:
    id: str
    model: str
    soc: str
    jetpack: int
    release: str
    modes: tuple[Mode, ...]
    default: int
    gpu: str
    load: str
    mask: str
    cpus: int
    cpu_top_khz: int
    idle_w: float
    rails: tuple[Rail, ...]

    @property
    def top_mhz(self) -> int:
        return max(mode.gpu_mhz for mode in self.modes)

    @property
    def policies(self) -> tuple[str, ...]:
        """One for each cluster of four cores."""
        return tuple(f"devices/system/cpu/cpufreq/policy{first}" for first in range(0, self.cpus, 4))


def board(name: str) -> Board:
    row = figures.boards()[name]
    assumed: Mapping[str, Any] = row["assumed"]
    jetpack = int(str(row["jetpack"]["v"]).partition(".")[0])
    measured = {one["mode"]: one["sustained"] for one in row.get("measured_w", ())}
    idle_w = measured.get("idle") or (row.get("idle_w") or {}).get("v") or assumed["idle_w"]
    clocks = {**assumed["gpu_mhz"], **(row.get("gpu_cap_mhz") or {}).get("v", {})}
    top = max(clocks.values())
    modes = tuple(
        Mode(
            one["id"],
            one["name"],
            clocks[one["name"]],
            int(assumed.get("tpc_masks", {}).get(one["name"], 0)),
            measured.get(one["name"]) or idle_w + (assumed["full_w"] - idle_w) * (clocks[one["name"]] / top) ** 3,
        )
        for one in row["nvpmodel"]["list"]
    )
    gpu = assumed["gpu"]
    old = jetpack < 5  # JetPack 5 moved the devices under bus@0
    device = f"devices/{gpu}" if old else f"devices/platform/{gpu}" if gpu.startswith("gpu-") else f"devices/platform/bus@0/{gpu}"
    return Board(
        id=name,
        model=row["model_string"]["v"] or assumed["model_string"],
        soc=re.findall(r"tegra\d{3}", row["soc"]["v"])[0],
        jetpack=jetpack,
        release=row["nv_tegra_release"]["v"] or f"# {assumed['release']}, simulated",
        modes=modes,
        default=row["default_mode"]["v"],
        gpu=f"{device}/devfreq/{gpu}",
        load="" if gpu.startswith("gpu-") else "devices/gpu.0/load" if old else f"{device}/load",
        mask="" if old else f"{device}/tpc_pg_mask",
        cpus=assumed["cpus"],
        cpu_top_khz=assumed["cpu_top_mhz"] * 1000,
        idle_w=idle_w,
        rails=_rails(row["rails"]["v"], assumed),
    )


def _rails(names: Sequence[str], assumed: Mapping[str, Any]) -> tuple[Rail, ...]:
    found = []
    for number, name in enumerate(names):
        idle, load = assumed["shares"].get(name, (1.0, 1.0))
        if assumed["sensor"] == "iio":
            found.append(Rail(name, f"{_I2C_OLD}/iio:device0", number, "iio", idle, load))
        elif assumed["sensor"] == "thor" and name == "VIN":
            found.append(Rail(name, f"{_CARRIER}/hwmon/{_CARRIER_HWMON}", 1, "power", idle, load))
        else:
            found.append(Rail(name, f"{_I2C}/hwmon/{_RAILS_HWMON}", number + 1, "product", idle, load))
    return tuple(found)


def tree(this: Board) -> dict[str, str]:
    """The files under /sys, by their path from there; a text that begins with "->" is a link."""
    top = this.top_mhz * 1_000_000
    least = _GPU_LEAST_MHZ * 1_000_000
    device, gpu = this.gpu.partition("/devfreq/")[0], this.gpu.rpartition("/")[2]
    files = {f"{this.gpu}/{name}": str(value) for name, value in (("min_freq", least), ("max_freq", top), ("cur_freq", least))}
    files[f"{this.gpu}/available_frequencies"] = " ".join(str(mhz * 1_000_000) for mhz in sorted({_GPU_LEAST_MHZ, *_mhz(this)}))
    files[f"{this.gpu}/governor"] = "nvhost_podgov"
    files[f"{device}/devfreq_dev"] = f"->devfreq/{gpu}"
    files[f"class/devfreq/{gpu}"] = f"->../../{this.gpu}"
    if this.load:
        files[this.load] = "0"
    if this.mask:
        files[this.mask] = "0"
    if device.startswith("devices/platform/bus@0/"):
        files["devices/platform/gpu.0"] = files[f"devices/platform/{gpu}"] = f"->bus@0/{gpu}"
    for policy in this.policies:
        names = ("scaling_min_freq", "scaling_max_freq", "scaling_cur_freq", "cpuinfo_min_freq", "cpuinfo_max_freq")
        values = (_CPU_LEAST_KHZ, this.cpu_top_khz, _CPU_LEAST_KHZ, _CPU_LEAST_KHZ, this.cpu_top_khz)
        files.update({f"{policy}/{name}": str(value) for name, value in zip(names, values, strict=True)})
    for index, zone in enumerate(_ZONES):
        folder = f"devices/virtual/thermal/thermal_zone{index}"
        files[f"{folder}/type"], files[f"{folder}/temp"] = f"{zone}-thermal", "38000"
        files[f"class/thermal/thermal_zone{index}"] = f"->../../{folder}"
    files[f"{_FAN}/name"], files[f"{_FAN}/pwm1"] = "pwmfan", "0"
    files["class/hwmon/hwmon2"] = f"->../../{_FAN}"
    return files | _rail_files(this)


def _rail_files(this: Board) -> dict[str, str]:
    """With the watts of an idle board, until somebody measures."""
    files: dict[str, str] = {}
    for rail in this.rails:
        drawn_mw = this.idle_w * rail.idle_share * 1000
        milliamperes = str(round(drawn_mw * 1000 / _VOLTS_MV))
        if rail.kind == "iio":
            files[f"{rail.folder}/rail_name_{rail.number}"] = rail.name
            values = {"power": str(round(drawn_mw)), "voltage": str(_VOLTS_MV), "current": milliamperes}
            files |= {f"{rail.folder}/in_{what}{rail.number}_input": value for what, value in values.items()}
            files["bus/i2c/drivers/ina3221x/6-0040"] = f"->../../../../{_I2C_OLD}"
        elif rail.kind == "power":
            files[f"{rail.folder}/name"], files[f"{rail.folder}/power{rail.number}_input"] = "ina238", str(round(drawn_mw * 1000))
            files[f"class/hwmon/{_CARRIER_HWMON}"] = f"->../../{rail.folder}"
        else:
            files[f"{rail.folder}/name"], files[f"{rail.folder}/in{rail.number}_label"] = "ina3221", rail.name
            files |= {f"{rail.folder}/in{rail.number}_input": str(_VOLTS_MV), f"{rail.folder}/curr{rail.number}_input": milliamperes}
            # What the chip also shows, and what is no rail: the shunts, and their sum.
            files |= {f"{rail.folder}/in{number}_input": "0" for number in (4, 5, 6, 7)}
            files[f"{rail.folder}/in7_label"] = "sum of shunt voltages"
            files[f"class/hwmon/{_RAILS_HWMON}"] = f"->../../{rail.folder}"
            files["bus/i2c/drivers/ina3221/1-0040"] = f"->../../../../{_I2C}"
    return files


def conf(this: Board) -> str:
    """nvpmodel.conf in the real file's form."""
    gpu = f"/sys/{this.gpu}"
    lines = [f"# nvpmodel.conf of a simulated {this.model}", "< PARAM TYPE=FILE NAME=CPU_ONLINE >"]
    lines += [f"CORE_{core} /sys/devices/system/cpu/cpu{core}/online" for core in range(this.cpus)]
    if this.mask:
        lines += ["< PARAM TYPE=FILE NAME=TPC_POWER_GATING >", f"TPC_PG_MASK /sys/{this.mask}"]
    lines += ["< PARAM TYPE=FILE NAME=GPU >", f"MIN_FREQ {gpu}/min_freq", f"MAX_FREQ {gpu}/max_freq"]
    lines += ["< PARAM TYPE=FILE NAME=CPU_A78_0 >", f"MAX_FREQ /sys/{this.policies[0]}/scaling_max_freq"]
    on = figures.boards()[this.id]["assumed"].get("cpus_on", {})
    for mode in this.modes:
        lines += ["", f"< POWER_MODEL ID={mode.id} NAME={mode.name} >"]
        lines += [f"CPU_ONLINE CORE_{core} {int(core < on.get(mode.name, this.cpus))}" for core in range(this.cpus)]
        if this.mask:
            lines.append(f"TPC_POWER_GATING TPC_PG_MASK {mode.mask}")
        lines += ["GPU MIN_FREQ 0", f"GPU MAX_FREQ {mode.gpu_mhz * 1_000_000}", f"CPU_A78_0 MAX_FREQ {this.cpu_top_khz}"]
    lines += ["", "# mandatory section to configure the default power mode", f"< PM_CONFIG DEFAULT={this.default} >"]
    if _fan(this) == "nvpmodel":
        lines += ["", "< FAN_CONFIG DEFAULT=quiet >"]
    return "\n".join(lines) + "\n"


def _fan(this: Board) -> str:
    return "nvfancontrol" if this.jetpack >= 5 else "nvpmodel" if this.soc == "tegra194" else ""


def _mhz(this: Board) -> tuple[int, ...]:
    return tuple(mode.gpu_mhz for mode in this.modes)


def description(this: Board) -> str:
    """For the tools on the node."""
    rails = [{"name": rail.name, "folder": rail.folder, "number": rail.number, "kind": rail.kind} for rail in this.rails]
    zones = {zone: f"devices/virtual/thermal/thermal_zone{index}/temp" for index, zone in enumerate(_ZONES)}
    return json.dumps(
        {
            "id": this.id,
            "model": this.model,
            "soc": this.soc,
            "jetpack": this.jetpack,
            "default": this.default,
            "cpus": this.cpus,
            "gpu": this.gpu,
            "gpu_least": _GPU_LEAST_MHZ * 1_000_000,
            "cpu_least": _CPU_LEAST_KHZ,
            "policies": this.policies,
            "mask": this.mask,
            "load": this.load,
            "rails": rails,
            "zones": zones,
            "triples": this.jetpack >= 7,
            "fan": _fan(this),
            "pwm": f"{_FAN}/pwm1",
        },
        indent=1,
    )


def files(root: Path, this: Board, programs: Path) -> None:
    """All of it on the node's disk; lab-gpu.service puts it in place."""
    _lay_tree(root / HOME / "files/sys", tree(this))
    (root / HOME / "files/binds").write_text("".join(f"{path}\n" for path in _writable(this)))
    devices = root / HOME / "files/devicetree"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / "model").write_text(f"{this.model}\0")
    (devices / "compatible").write_text(f"nvidia,{this.id.replace('_', '-')}\0nvidia,{this.soc}\0")
    (devices / "serial-number").write_text("simulated\0")
    (root / HOME / "board.json").write_text(description(this))
    commands.write(root / "etc/nvpmodel.conf", conf(this))
    commands.write(root / "etc/nv_tegra_release", f"{this.release}\n")
    cards.install(_NODE / "lab_board.py", root / "usr/lib/lab-gpu/lab_board.py")
    for source, target in _tools(this).items():
        cards.install(_NODE / source, root / target)
    if _fan(this) == "nvfancontrol":
        shutil.copyfile(_NODE / "nvfancontrol.conf", root / "etc/nvfancontrol.conf")
        cards.unit(_NODE / "nvfancontrol.service", root, "multi-user.target")
    commands.write(root / _KEEPER, "[Service]\nReadWritePaths=/var/lib/lab-gpu\n")
    if this.jetpack in _DRIVERS:
        layout.create(root / HOME / "state", _processor(this))
        cards.install(programs / "nvidia-smi", root / cards.TOOL)
        cards.install(programs / "libnvidia-ml.so.1", root / cards.library())


def remove(root: Path) -> None:
    places = (_KEEPER, "etc/nvpmodel.conf", "etc/nv_tegra_release", "etc/nvfancontrol.conf", *_TOOLS.values())
    for path in places:
        (root / path).unlink(missing_ok=True)
    cards.remove_unit(root, "nvfancontrol.service", "multi-user.target")
    for folder in ("var/lib/nvpmodel", "var/lib/nvfancontrol"):
        shutil.rmtree(root / folder, ignore_errors=True)


def _tools(this: Board) -> dict[str, str]:
    return {source: target for source, target in _TOOLS.items() if source != "nvfancontrol.py" or _fan(this) == "nvfancontrol"}


def _processor(this: Board) -> layout.Node:
    """A Jetson's own graphics processor as its NVML shows it: a name, and everything else not supported."""
    made = layout.Node()
    made.cards = 1
    made.driver = made.library = _DRIVERS[this.jetpack].encode()
    made.cuda_version = 12060 if this.jetpack == 6 else 13000
    card = made.card[0]
    card.name = b"NVIDIA Thor" if this.soc == "tegra264" else b"Orin (nvgpu)"
    card.uuid, card.bus_id, card.vbios = b"N/A", b"N/A", b"N/A"
    card.architecture, card.cc_major, card.cc_minor = (10, 11, 0) if this.soc == "tegra264" else (7, 8, 7)
    card.faults = layout.CARD_FAULTS["NVGPU"] | layout.CARD_FAULTS["NA"]
    return made


def _writable(this: Board) -> tuple[str, ...]:
    device = this.gpu.partition("/devfreq/")[0]
    own = ("devices/gpu.0", _I2C_OLD) if this.jetpack < 5 else ("devices/platform/bus@0",)
    extra = () if device.startswith("devices/platform/bus@0") else (device,)
    return (*own, *extra, "devices/platform/pwm-fan", "devices/system/cpu/cpufreq")


def _lay_tree(root: Path, files_of: Mapping[str, str]) -> None:
    for name, text in files_of.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("->"):
            path.symlink_to(text[2:])
        else:
            path.write_text(f"{text}\n")
