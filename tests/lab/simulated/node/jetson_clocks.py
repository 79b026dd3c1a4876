#!/usr/bin/python3
"""jetson_clocks of the simulated board: --show, --store, --restore, and pinning all clocks to the maxima of the current mode."""

from __future__ import annotations

import os
import sys
from typing import Iterator, Tuple

sys.path.insert(0, "/usr/lib/lab-gpu")

import lab_board

DEFAULT_STORE = "/root/l4t_dfs.conf"


def pairs() -> Iterator[Tuple[str, str, str]]:
    """(least, greatest, current) files of each thing that has a clock."""
    this = lab_board.board()
    gpu = this["gpu"]
    yield gpu + "/min_freq", gpu + "/max_freq", gpu + "/cur_freq"
    for policy in this["policies"]:
        yield policy + "/scaling_min_freq", policy + "/scaling_max_freq", policy + "/scaling_cur_freq"


def show() -> int:
    this = lab_board.board()
    print(f"SOC family:{this['soc']}  Machine:{this['model']}")
    print(f"Online CPUs: 0-{this['cpus'] - 1}")
    for index in range(this["cpus"]):
        policy = this["policies"][min(index // 4, len(this["policies"]) - 1)]
        print(f"cpu{index}: Online=1 Governor=schedutil {_clocks(policy, 'scaling_')} IdleStates: WFI=1 c7=1 ")
    print(f"GPU {_clocks(this['gpu'], '')}")
    mode = lab_board.status()
    known = lab_board.modes()
    print(f"NV Power Mode: {known[mode].name if mode is not None and mode in known else ''}")
    return 0


def _clocks(folder: str, prefix: str) -> str:
    least, most, now = (lab_board.number(f"{folder}/{prefix}{name}_freq") for name in ("min", "max", "cur"))
    return f"MinFreq={least} MaxFreq={most} CurrentFreq={now}"


def store(path: str) -> int:
    if os.path.exists(path):
        print(f"File {path} already exists. Can I overwrite it? Y/N: ", end="", flush=True)
        if sys.stdin.readline().strip() not in ("Y", "y"):
            return 0
    with open(path, "w", encoding="utf-8") as stream:
        for least, greatest, _ in pairs():
            stream.writelines(f"/sys/{name}:{lab_board.number(name)}\n" for name in (least, greatest))
    return 0


def restore(path: str) -> int:
    if not os.path.exists(path):
        print(f"Error: {path} file not found!")
        return 1
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            name, _, value = line.strip().partition(":")
            if name.startswith("/sys/"):
                lab_board.write(name[len("/sys/") :], value)
    return 0


def pin() -> int:
    for least, greatest, current in pairs():
        top = lab_board.number(greatest)
        lab_board.write(least, top)
        lab_board.write(current, top)
    return 0


def main() -> int:
    if os.geteuid() != 0:
        print(f"Error: Run this script({sys.argv[0]}) as a root user")
        return 1
    words = sys.argv[1:]
    if not words:
        return pin()
    path = words[1] if len(words) > 1 else DEFAULT_STORE
    if words[0] == "--show":
        return show()
    if words[0] == "--store":
        return store(path)
    if words[0] == "--restore":
        return restore(path)
    print("Maximize jetson performance by setting static max frequency to CPU, GPU and EMC clocks.\nUsage:\njetson_clocks [options]")
    return 0 if words[0] in ("-h", "--help") else 1


if __name__ == "__main__":
    sys.exit(main())
