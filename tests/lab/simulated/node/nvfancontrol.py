#!/usr/bin/python3
"""nvfancontrol of the simulated board: -q tells the profile; without words it is the service, which keeps the profile in a status file."""

from __future__ import annotations

import os
import re
import signal
import sys

sys.path.insert(0, "/usr/lib/lab-gpu")

import lab_board

CONF = "/etc/nvfancontrol.conf"
STATUS = "/var/lib/nvfancontrol/status"
NOW = "/run/nvfancontrol.profile"
#: The pulse width that each profile begins with (of 255).
WIDTHS = {"quiet": 60, "cool": 130}


def text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except OSError:
        return ""


def wanted() -> str:
    """The status file wins over the configuration until it is deleted."""
    for path, pattern in ((STATUS, r"FAN1:FAN_PROFILE:(\w+)"), (CONF, r"(?m)^\s*FAN_DEFAULT_PROFILE\s+(\w+)")):
        found = re.search(pattern, text(path))
        if found:
            return found.group(1)
    return "quiet"


def put(path: str, body: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(body)


def query() -> int:
    profile = text(NOW).strip()
    if not profile:
        print("NVFAN ERROR: nvfancontrol service is not running")
        return 1
    print(f"FAN1:FAN_PROFILE:{profile}\nFAN1:FAN_GOVERNOR:cont\nFAN1:FAN_CONTROL:close_loop")
    return 0


def serve() -> int:
    profile = wanted()
    if profile not in re.findall(r"(?m)^\s*FAN_PROFILE\s+(\w+)", text(CONF)):
        print(f"NVFAN ERROR: no profile {profile} in {CONF}")
        return 1
    put(STATUS, f"FAN1:FAN_PROFILE:{profile}\nFAN1:FAN_GOVERNOR:cont\nFAN1:FAN_CONTROL:close_loop\n")
    put(NOW, profile + "\n")
    lab_board.write(lab_board.board()["pwm"], WIDTHS.get(profile, 100))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        signal.pause()
    finally:
        os.unlink(NOW)
    return 0


if __name__ == "__main__":
    sys.exit(query() if sys.argv[1:2] == ["-q"] else serve())
