"""What a card needs of its host before anything is built for it: driver, toolkit, compiler and CMake that go together.

Whatever facts can tell is said here, before a host is touched; the driver that is really loaded is looked at on the node.
Installs no driver and upgrades none.
"""

from __future__ import annotations

from collections.abc import Iterator

from wattherd.role import Driver, Facts, Host, Resource, choose_cuda, has_gpu


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    setting = host.settings.llama_cpp
    if not has_gpu(facts) or (setting is not None and setting.backend == "cpu"):
        return
    builder = (setting.builder if setting is not None else None) or ""
    choice = choose_cuda(host.name, host.settings.cuda, facts, host.toolkits, builder=builder)
    if choice.driver or host.settings.cuda.hold_driver:
        yield Driver(least=choice.driver, needed_by=f"CUDA {choice.version}", hold=host.settings.cuda.hold_driver)
