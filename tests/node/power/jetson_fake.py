"""A Jetson on `strict.Bench`: its files, and its tools with the words of the field. What is set is read back, unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.node import strict
from wattherd import machine as machines

RELEASE = "# R36 (release), REVISION: 4.4, GCID: 41062509, BOARD: generic, EABI: aarch64, DATE: Mon Jun 16 16:07:13 UTC 2025\n"
PROMPT = (
    "NVPM WARN: Golden image context is already created\n"
    "NVPM WARN: Reboot required for changing to this power mode: {number}\n"
    "NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm: \n"
)
EOF = PROMPT + "NVPM ERROR: bad input!\n"
DECLINED = PROMPT + "NVPM ERROR: optMask is 1, no request for power mode\n"
BUSY = (
    "NVPM ERROR: Error writing 128 to /sys/devices/platform/gpu.0/tpc_pg_mask: 16\n"
    "NVPM ERROR: failed to write PARAM TPC_POWER_GATING: ARG TPC_PG_MASK: PATH: /sys/devices/platform/gpu.0/tpc_pg_mask VAL: 128\n"
    "NVPM ERROR: failed to set power mode!\nNVPM ERROR: optMask is 2, no request for power mode\n"
)
POLICY = "/sys/devices/system/cpu/cpufreq/policy0"
GPU = "/sys/class/devfreq/17000000.ga10b"
FAN_CONF = (
    "POLLING_INTERVAL 2\n\n<FAN 1>\n\tTMARGIN ENABLED\n\tFAN_GOVERNOR cont {\n\t\tSTEP_SIZE 10\n\t}\n"
    "\tFAN_PROFILE cool {\n\t\t#TEMP HYST PWM RPM\n\t\t0 0 255 2900\n\t}\n\tFAN_PROFILE quiet {\n\t\t0 0 202 2300\n\t}\n"
    "\tFAN_DEFAULT_CONTROL close_loop\n\tFAN_DEFAULT_PROFILE quiet\n\tFAN_DEFAULT_GOVERNOR cont\n"
)


@dataclass
class Board:
    """`modes` by name; `live` are those that it takes without a reboot (None: all). `answer` is what `nvpmodel -m` says instead."""

    bench: strict.Bench
    modes: Mapping[str, int] = field(default_factory=lambda: {"MAXN_SUPER": 0, "10W": 1, "15W": 2, "25W": 3, "40W": 4})
    mode: str = "40W"
    live: tuple[str, ...] | None = None
    answer: machines.Result | None = None
    masks: Mapping[str, int] = field(default_factory=dict)
    fan: str = "quiet"
    fan_stuck: bool = False
    fan_running: bool = True
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        bench = self.bench
        bench.folder("/run")
        bench.put("/etc/nv_tegra_release", RELEASE)
        bench.put("/proc/device-tree/model", "NVIDIA Jetson Orin NX Engineering Reference Developer Kit\0")
        bench.put("/proc/sys/kernel/random/boot_id", "boot-1\n")
        for tool in ("nvpmodel", "nvfancontrol", "jetson_clocks"):
            bench.put(f"/usr/sbin/{tool}", mode=0o755)
        bench.put("/etc/nvpmodel.conf", self.conf())
        bench.put("/etc/nvpower/nvfancontrol/board.conf", FAN_CONF)
        bench.link("/etc/nvfancontrol.conf", "nvpower/nvfancontrol/board.conf")
        bench.put("/var/lib/nvfancontrol/status", "FAN1:quiet\n")
        self.write_status()
        self.set_clocks(115200, 1984000)
        plan = bench.runner.plan
        plan("nvpmodel", "-q", effect=self.query, times=None)
        plan("nvpmodel", "-m", strict.REST, effect=self.set_mode, times=None)
        plan("jetson_clocks", strict.REST, effect=self.clocks, times=None)
        plan("nvfancontrol", "-q", effect=self.query_fan, times=None)
        plan("systemctl", strict.REST, effect=self.service, times=None)

    def conf(self) -> str:
        models = "".join(
            f"< POWER_MODEL ID={number} NAME={name} >\nCPU_ONLINE CORE_0 1\n"
            + (f"TPC_POWER_GATING TPC_PG_MASK {self.masks[name]}\n" if name in self.masks else "")
            for name, number in self.modes.items()
        )
        return f"# modes\n{models}\n< PM_CONFIG DEFAULT=4 >\n"

    def write_status(self) -> None:
        if self.mode:
            self.bench.put("/var/lib/nvpmodel/status", f"pmode:{self.modes[self.mode]:04d} fmode:quiet")

    def set_clocks(self, least: int, most: int) -> None:
        for folder, low, high in ((POLICY, "scaling_min_freq", "scaling_max_freq"), (GPU, "min_freq", "max_freq")):
            self.bench.put(f"{folder}/{low}", f"{least}\n")
            self.bench.put(f"{folder}/{high}", f"{most}\n")

    @property
    def is_pinned(self) -> bool:
        return Path(self.bench.machine.path(f"{POLICY}/scaling_min_freq")).read_text() == "1984000\n"

    def query(self, _argv: Sequence[str]) -> machines.Result:
        if not self.mode:
            return machines.Result(0, b"NVPM WARN: power mode is not set\n", b"")
        return machines.Result(0, f"NV Power Mode: {self.mode}\n{self.modes[self.mode]}\n".encode(), b"")

    def set_mode(self, argv: Sequence[str]) -> machines.Result:
        name = next(name for name, number in self.modes.items() if str(number) == argv[2])
        self.asked.append(name)
        if self.answer is not None:
            return self.answer
        if self.live is not None and name not in self.live:
            return machines.Result(255, EOF.format(number=argv[2]).encode(), b"")
        self.mode = name
        self.write_status()
        return machines.Result(0, b"", b"")

    def clocks(self, argv: Sequence[str]) -> machines.Result:
        words = tuple(argv[1:])
        self.asked.append(" ".join(("jetson_clocks", *words)).strip())
        if words[:1] == ("--store",):
            if Path(self.bench.machine.path(words[1])).exists():
                said = f"File {words[1]} already exists. Can I overwrite it? Y/N:\nError: file {words[1]} already exists!\n"
                return machines.Result(1, said.encode(), b"")
            self.bench.put(words[1], f"{POLICY}/scaling_min_freq:{1984000 if self.is_pinned else 115200}\n")
        elif words[:1] == ("--restore",):
            stored = Path(self.bench.machine.path(words[1])).read_text()
            self.set_clocks(int(stored.strip().rpartition(":")[2]), 1984000)
        else:
            self.set_clocks(1984000, 1984000)
        return machines.Result(0, b"", b"")

    def query_fan(self, _argv: Sequence[str]) -> machines.Result:
        if not self.fan_running:
            return machines.Result(1, b"", b"nvfancontrol is not running\n")
        said = f"FAN1:FAN_PROFILE:{self.fan}\nFAN1:FAN_GOVERNOR:cont\nFAN1:FAN_CONTROL:close_loop\n"
        return machines.Result(0, said.encode(), b"")

    def service(self, argv: Sequence[str]) -> machines.Result:
        """nvfancontrol: the profile of its status file, or without one its configuration's."""
        assert argv[2] == "nvfancontrol"
        self.asked.append(f"systemctl {argv[1]}")
        self.fan_running = argv[1] in {"start", "restart"}
        status = Path(self.bench.machine.path("/var/lib/nvfancontrol/status"))
        if self.fan_running and not status.exists() and not self.fan_stuck:
            text = Path(self.bench.machine.path("/etc/nvpower/nvfancontrol/board.conf")).read_text()
            self.fan = text.partition("FAN_DEFAULT_PROFILE ")[2].split()[0]
        return machines.Result(0, b"", b"")
