#!/usr/bin/python3
"""nvpmodel of the simulated board: the words, the prompt and the exit codes of the real one (facts/power.md, e)."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

sys.path.insert(0, "/usr/lib/lab-gpu")

import lab_board

REFUSED = 255


def query(asked: argparse.Namespace) -> int:
    this = lab_board.board()
    fan = lab_board.fan_mode()
    if this["fan"] == "nvpmodel":
        print(f"NV Fan Mode:{fan}" if fan else "NVPM WARN: fan mode is not set!")
    mode = lab_board.status()
    known = lab_board.modes()
    if mode is None or mode not in known:
        print("NVPM WARN: power mode is not set!")
        return 0
    if this["jetpack"] < 5 and os.geteuid() != 0:
        print(f"NV Power Mode: {known[mode].name}\n{mode}")
        print("NVPM ERROR: Error opening /sys/kernel/nvpmodel_emc_cap/emc_iso_cap: 13")
        print("NVPM ERROR: failed to read PARAM EMC: ARG MAX_FREQ: PATH /sys/kernel/nvpmodel_emc_cap/emc_iso_cap")
        return 0
    if asked.verbose:
        print(f"NVPM VERB: Config file: {lab_board.CONF}")
    print(f"NV Power Mode: {known[mode].name}\n{mode}")
    return 0


def listing() -> int:
    for number, mode in lab_board.modes().items():
        print(f"POWER_MODEL: ID={number} NAME={mode.name}")
        for (parameter, argument), value in mode.settings.items():
            print(f"\t{parameter} {argument} {value}")
    return 0


def refuse(*lines: str) -> int:
    for line in lines:
        print(f"NVPM ERROR: {line}")
    return REFUSED


def change(asked: argparse.Namespace) -> int:
    known, this = lab_board.modes(), lab_board.board()
    if asked.mode not in known:
        return refuse(f"Invalid power mode {asked.mode}", "optMask is 1, no request for power mode")
    if os.geteuid() != 0:
        place = "/sys/devices/system/cpu/cpu4/online"
        return refuse(f"Error opening {place}: 13", "failed to set power mode!", "optMask is 2, no request for power mode")
    wanted = known[asked.mode].mask
    if this["mask"] and lab_board.number(this["mask"]) != wanted:
        return reboot_first(asked)
    lab_board.apply(asked.mode)
    lab_board.keep_status(asked.mode, lab_board.fan_mode())
    return 0


def reboot_first(asked: argparse.Namespace) -> int:
    """The GPU's context exists, and its units cannot be gated otherwise any more: only a boot can. Saying no cancels the change."""
    print("NVPM WARN: Golden image context is already created")
    print(f"NVPM WARN: Reboot required for changing to this power mode: {asked.mode}")
    if not asked.force:
        print("NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:", flush=True)
        answer = sys.stdin.readline()
        if not answer:
            return refuse("bad input!")
        if answer.strip() not in ("YES", "yes"):
            return refuse("optMask is 1, no request for power mode")
    print("NVPM WARN: rebooting", flush=True)
    lab_board.keep_status(asked.mode, lab_board.fan_mode())
    return subprocess.call(["systemctl", "reboot"])


def fan(asked: argparse.Namespace) -> int:
    if lab_board.board()["fan"] != "nvpmodel":
        return refuse(f"FAN_CONFIG is not in {lab_board.CONF}")
    if asked.fan not in ("cool", "quiet"):
        return refuse(f"Invalid fan mode {asked.fan}")
    mode = lab_board.status()
    lab_board.keep_status(lab_board.board()["default"] if mode is None else mode, asked.fan)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="nvpmodel", description="Power modes of a simulated Jetson board.")
    parser.add_argument("-q", "--query", action="store_true")
    parser.add_argument("-p", "--parse", action="store_true")
    parser.add_argument("-m", "--mode", type=int)
    parser.add_argument("-d", "--fan")
    parser.add_argument("-f", "--file")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    if asked.file:
        lab_board.CONF = asked.file
    if asked.mode is not None:
        return change(asked)
    if asked.fan:
        return fan(asked)
    return listing() if asked.parse else query(asked)


if __name__ == "__main__":
    sys.exit(main())
