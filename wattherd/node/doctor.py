"""`doctor` on the node: reads everything that the findings are made of, and changes nothing.

Only files and programs of the system and of the deployed release are run or trusted: a binary that somebody else could have written is
looked at, never started. What is found wrong is decided in findings/; here is only the reading, bounded.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any, Callable, Dict, List, Mapping, Tuple

from wattherd import errors, store, units
from wattherd import machine as machines
from wattherd.node import examine, generations, probe, putting_back
from wattherd.node.findings import binary, devices, driver, keeper, xid
from wattherd.power import drift, tool, wanted
from wattherd.resources import driver as modules
from wattherd.resources import tree
from wattherd.wire import fields, finding

FINDINGS_LIMIT = 100
_LIBRARIES_LIMIT = 64
_UNASKED = -1
_KERNEL_LINES = "20000"
_SHORT_S, _LONG_S = 20.0, 60.0
_HISTORY_LIMIT_BYTES = 1024 * 1024
_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_PCI = "/sys/bus/pci/devices"
_NVIDIA, _DISPLAY = "0x10de", "0x03"

Tell = Callable[[str], None]


def look(machine: machines.Machine, tell: Tell) -> Mapping[str, Any]:
    """The findings, worst first, and in words what was looked at."""
    tell("driver and kernel log")
    found = [*_driver(machine, _smi(machine)), *xid.judge(xid.read(_kernel(machine)))]
    tell("units")
    services = examine.services(machine)
    tell("release")
    deployed, backend = _release(machine)
    configured = next((one.configured for one in services if "LD_LIBRARY_PATH" in one.configured), {})
    # As configured, not as a process has it: that could have been changed by the process.
    library_path = examine.library_path(machine, configured)
    scene = _scene(machine, deployed, backend, library_path)
    if deployed.path:
        found += [*devices.of_release(scene, store.CURRENT), *_libraries(machine, deployed, library_path)]
    tell("what each unit does")
    found += examine.look(machine, services, scene, deployed)
    found += _power(machine)
    # A run of one role (power-apply) makes no generation, and leaves a keeper all the same.
    whole = bool(deployed.path) or generations.latest(machine) is not None
    found += _records(machine, installed=whole or machine.exists(generations.OWNED))
    ordered = sorted(_distinct(found), key=lambda one: (one.rank, one.where))
    release = f"release b{deployed.number}" if deployed.number else "a release" if deployed.path else "no release"
    looked = [units.plural(len(services), "unit"), release, units.plural(scene.cards, "NVIDIA card"), "kernel log"]
    return {"findings": [fields.plain(one) for one in ordered[:FINDINGS_LIMIT]], "looked": looked}


def _distinct(found: List[finding.Finding]) -> List[finding.Finding]:
    return list({(one.code, one.where, one.words): one for one in found}.values())


def _records(machine: machines.Machine, *, installed: bool) -> List[finding.Finding]:
    found: List[finding.Finding] = []
    if not installed:
        words = "nothing of Wattherd is installed here; driver and kernel log were looked at all the same"
        found.append(finding.found("nothing-installed", finding.NOTE, "this node", words, do="invoke deploy --hosts NAME"))
    cut = generations.interrupted(machine)
    if cut is not None:
        words = f"a run that began {cut.started_at or 'before'} never ended" + (f" (at {cut.resource})" if cut.resource else "")
        found.append(finding.found("run-interrupted", finding.WARNING, "this node", words, do="invoke deploy goes on from what is there"))
    elif generations.is_unsettled(machine):
        words = "it is between two generations: the last deploy failed after it had changed something, or was one of some tags only"
        do = "mend what it complained of and deploy again, or go back: invoke rollback"
        found.append(finding.found("between-generations", finding.NOTE, "this node", words, do=do))
    return found


def _power(machine: machines.Machine) -> List[finding.Finding]:
    has_policy = machine.exists(wanted.POLICY)
    active = machine.run(["systemctl", "is-active", keeper.UNIT], timeout_s=_SHORT_S).text.strip() if has_policy else ""
    record = drift.load(machine)
    return keeper.judge(record, putting_back.standing(machine, record), active)


# -- driver and cards


def _smi(machine: machines.Machine) -> machines.Result:
    """One probe at a time, here too: while one is stuck in the driver, that is the finding."""
    if machine.which("nvidia-smi") is None:
        return machines.Result(127, b"", b"")
    try:
        return tool.smi(machine, ["-L"], limit_s=_LONG_S)
    except errors.Problem as problem:
        return machines.Result(124, b"", problem.message.encode())


def _driver(machine: machines.Machine, smi: machines.Result) -> List[finding.Finding]:
    running = modules.version(machine)
    names = [name for folder in _LIBRARY_FOLDERS for name in machine.names(folder) if name.startswith("libnvidia-ml.so.")]
    history = _tail(machine, "/var/log/apt/history.log")
    found = driver.judge(smi.code, smi.words, running, driver.installed(names, smi.words), history)
    driven = [xid.bus_of(bus) for bus in machine.names("/proc/driver/nvidia/gpus")]
    answering = driver.uuids(smi.text) if smi.code == 0 else None
    return [*found, *driver.cards(_on_bus(machine), driven, answering, _wanted_cards(machine))]


def _on_bus(machine: machines.Machine) -> List[str]:
    """NVIDIA display devices that no other driver (such as vfio, for a guest) has taken on purpose."""
    found: List[str] = []
    for name in machine.names(_PCI):
        folder = f"{_PCI}/{name}"
        if machine.text(f"{folder}/vendor").strip() == _NVIDIA and machine.text(f"{folder}/class").startswith(_DISPLAY):
            taken = (machine.readlink(f"{folder}/driver") or "").rpartition("/")[2]
            found += [xid.bus_of(name)] if taken in {"", "nvidia"} else []
    return found


def _wanted_cards(machine: machines.Machine) -> List[str]:
    latest = generations.latest(machine)
    body = json.dumps(fields.plain(latest.manifest)) if latest is not None else ""
    return sorted(set(re.findall(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", body)))


def _kernel(machine: machines.Machine) -> List[str]:
    """This boot's kernel lines; from the ring buffer where the journal keeps none."""
    words = ["journalctl", "-k", "-b", "--no-pager", "--quiet", "-o", "short", "-n", _KERNEL_LINES]
    lines = machine.run(words, timeout_s=_LONG_S).text.splitlines()
    return lines or machine.run(["dmesg"], timeout_s=_SHORT_S).text.splitlines()[-int(_KERNEL_LINES) :]


def _tail(machine: machines.Machine, path: str) -> str:
    return (machine.read(path) or b"")[-_HISTORY_LIMIT_BYTES:].decode("utf-8", "replace")


# -- the release


def _release(machine: machines.Machine) -> Tuple[binary.Deployed, str]:
    """What is deployed, and the GPU back end that it was built with."""
    path = machine.readlink(store.CURRENT) or ""
    if not path.startswith("/") or not machine.is_dir(path):
        return binary.Deployed(), ""
    document: Dict[str, object] = {}
    with contextlib.suppress(ValueError):
        loaded = json.loads(machine.read(f"{path}/{tree.MARKER}") or b"{}")
        document = loaded if isinstance(loaded, dict) else {}
    return binary.Deployed(path, binary.numbered(document)), devices.backend_of(document)


def _scene(machine: machines.Machine, deployed: binary.Deployed, backend: str, library_path: Mapping[str, str]) -> devices.Scene:
    facts = probe.facts_of(machine)
    server = f"{deployed.path}/bin/llama-server"
    listed = machines.Result(_UNASKED, b"", b"")
    if backend and machine.exists(server):
        listed = machine.run([server, "--list-devices"], timeout_s=_LONG_S, environment=library_path)
    return devices.Scene(
        cards=len(facts.gpus),
        jetson=bool(facts.jetson),
        backend=backend,
        listed=tuple(devices.read(listed.words)) if listed.code == 0 else None,
        list_words=listed.words[:20000],
        uvm=machine.exists("/dev/nvidia-uvm"),
        available_bytes=facts.memory_available_bytes,
    )


def _libraries(machine: machines.Machine, deployed: binary.Deployed, library_path: Mapping[str, str]) -> List[finding.Finding]:
    """ldd for the server and every library beside it: a plugin that cannot be loaded leaves the server itself clean."""
    names = [name for name in machine.names(f"{deployed.path}/bin") if name == "llama-server" or ".so" in name]
    found: List[finding.Finding] = []
    runtimes: List[int] = []
    for name in names[:_LIBRARIES_LIMIT]:
        done = machine.run(["ldd", f"{deployed.path}/bin/{name}"], timeout_s=_SHORT_S, environment=library_path)
        lost = binary.missing(done.words, f"{store.CURRENT}/bin/{name}")
        found += [lost] if lost is not None else []
        runtimes += [int(one) for one in re.findall(r"libcudart\.so\.(\d{1,3})", done.words)]
    old = driver.too_old(modules.version(machine), max(runtimes, default=0))
    return [*found, *([old] if old is not None else [])]
