"""Which life of the driver this is: it changes with every boot and every reload of the module, and with nothing else."""

from __future__ import annotations

import os

from wattherd import machine as machines

MODULE = "/sys/module/nvidia"


def current(machine: machines.Machine) -> str:
    """Empty where either half is unknown: then nothing may be concluded from two of them being equal.

    sysfs numbers its entries anew when a module is loaded again. Their times tell less: the kernel makes them up whenever it reads the
    entry back into memory. Only outside sysfs (a mount that stands in for it), where a number is used again, the time is part of it.
    """
    boot = machine.boot_id()
    seen = machine.lstat(MODULE)
    if not boot or seen is None:
        return ""
    above = machine.lstat(os.path.dirname(os.path.dirname(MODULE)))
    if above is not None and above.st_dev == seen.st_dev:
        return f"{boot}/{seen.st_ino}"
    return f"{boot}/{seen.st_ino}.{seen.st_ctime_ns}"
