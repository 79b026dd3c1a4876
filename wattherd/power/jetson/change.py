"""Changing a Jetson: its mode by name, its clocks, its fan; each read back, each with what was before remembered first.

One enforcer's code: a run, a restore and the keeper all come here. Order matters: pinned clocks stand at the maxima of the old mode, so a
change of mode frees them first and pins them anew.
"""

from __future__ import annotations

from typing import Optional

from wattherd import errors
from wattherd import machine as machines
from wattherd.power import memory
from wattherd.power.jetson import clocks, conf, fan, nvpmodel, pending, verdict

#: Of a mode that the board could not take now, these are worth a reboot.
WAITS = ("reboot", "busy")


def mode(machine: machines.Machine, name: str, *, remember: bool = True) -> verdict.Verdict:
    """Put the board into the mode of that name; nothing is run when it is in it. `mode-unknown` for a name that it does not have."""
    modes = conf.read(machine)
    wanted = conf.find(modes, name)
    now = nvpmodel.query(machine)
    if now.number == wanted.number and not nvpmodel.loose(machine, modes, wanted):
        pending.clear(machine)
        return verdict.DONE
    if remember:
        memory.remember(machine, memory.BOARD, "mode", now.name)
    was_pinned = bool(clocks.pinned(machine))
    freed = was_pinned and clocks.unpin(machine).done
    done = nvpmodel.switch(machine, wanted)
    if was_pinned:
        _pin_again(machine, freed=freed)
    if done.done:
        pending.clear(machine)
    elif done.kind in WAITS:
        pending.keep(machine, wanted.name)
    return done


def pinned(machine: machines.Machine, wanted: bool, *, remember: bool = True) -> verdict.Verdict:
    """Pin the clocks or free them. Lost with every boot: the keeper comes back here."""
    now = clocks.pinned(machine)
    if now is None:
        return verdict.Verdict("unsupported", "this board's clocks can be read neither in sysfs nor by jetson_clocks")
    if now == wanted:
        return verdict.DONE
    if remember:
        memory.remember(machine, memory.BOARD, "pinned", now)
    return clocks.pin(machine) if wanted else clocks.unpin(machine)


def profile(machine: machines.Machine, wanted: str, *, remember: bool = True) -> verdict.Verdict:
    """The fan's profile by name."""
    current = nvpmodel.query(machine)
    now, known = fan.profile(machine, current), fan.profiles(machine, current)
    if known:
        fan.check(known, wanted)
    if remember and known and now != wanted:
        memory.remember(machine, memory.BOARD, "fan", now)
    return fan.put(machine, wanted)


def back(machine: machines.Machine, setting: str) -> Optional[verdict.Verdict]:
    """Return one setting to what it was before the first change, and forget that. None where nothing was changed by us.

    A mode that the board's file no longer has is left, with words: another release may have brought other modes.
    """
    held = memory.before(machine).get(memory.BOARD, {})
    if setting not in held:
        return None
    value = held[setting]
    if value == "":
        done = _gone(f"what its {setting} was before is not known: it stays as it is")
    elif setting == "mode":
        known = conf.read(machine).named(str(value)) is not None
        done = mode(machine, str(value), remember=False) if known else _gone(f"its nvpmodel.conf has no mode {value} any more")
    elif setting == "pinned":
        done = pinned(machine, bool(value), remember=False)
    else:
        known = str(value) in fan.profiles(machine, nvpmodel.query(machine))
        done = profile(machine, str(value), remember=False) if known else _gone(f"it has no fan profile {value} any more")
    if done.done or done.kind == "unsupported":
        memory.forget(machine, memory.BOARD, setting)
    return done


def at_next_boot(machine: machines.Machine) -> str:
    """Let the next boot set the mode that was there before the first change, forget it, and give its name.

    By the status file alone: nvpmodel's service sets what stands there while the board boots, and asks nobody.
    """
    name = str(memory.before(machine)[memory.BOARD]["mode"])
    nvpmodel.schedule(machine, conf.find(conf.read(machine), name).number)
    pending.clear(machine)
    memory.forget(machine, memory.BOARD, "mode")
    return name


def problem(setting: str, done: verdict.Verdict) -> errors.Problem:
    """What went wrong, as `mode-failed` with what to do about it."""
    hint = {
        "busy": "a reboot frees the GPU: invoke power-apply --reboot sets the mode while the board boots",
        "no-permission": "let the program run as root there (ansible_become)",
        "silent": "see on the board whether nvpmodel or jetson_clocks hangs: ps -ef",
    }.get(done.kind, "journalctl -u nvpmodel -u nvfancontrol on the board may tell more")
    return errors.Problem("mode-failed", f"jetson:{setting}: {done.words}", hint=hint)


def _gone(words: str) -> verdict.Verdict:
    return verdict.Verdict("unsupported", words)


def _pin_again(machine: machines.Machine, *, freed: bool) -> None:
    """As they were: with a new store where the old one could be used, at the new mode's maxima in any case. A failure shows as drift."""
    if freed:
        clocks.pin(machine)
    else:
        clocks.press(machine)
