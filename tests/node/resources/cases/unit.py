"""The four cases of a unit."""

from __future__ import annotations

from tests.node import strict
from tests.node.resources import systemd_fake
from wattherd.resources import unit

NAME = "llama@qwen.service"
TEXT = """[Unit]
Description=a model

[Service]
ExecStart=/opt/llama/server --port 18080
Restart=always

[Install]
WantedBy=multi-user.target
"""


def wanted(inputs: str = "two") -> unit.Unit:
    return unit.Unit(NAME, text=TEXT, inputs=inputs, ports=(18080,))


def body(one: unit.Unit) -> bytes:
    """The file that this unit gets, as --diff shows it."""
    return one.texts(strict.Machine("/nowhere"))[1].encode()


def absent(bench: strict.Bench) -> unit.Unit:
    systemd_fake.Systemd(bench)
    return wanted()


def drifted(bench: strict.Bench) -> unit.Unit:
    """Running well, but started from other inputs."""
    systemd_fake.Systemd(bench).running(NAME, body(wanted("one")))
    return wanted()


def settled(bench: strict.Bench) -> unit.Unit:
    systemd_fake.Systemd(bench).running(NAME, body(wanted()))
    return wanted()


def checked(bench: strict.Bench) -> unit.Unit:
    return drifted(bench)
