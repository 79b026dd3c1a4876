"""Hosts as power tests need them: cards with their ranges, boards with their modes, and settings out of YAML."""

from __future__ import annotations

import yaml

from wattherd.inventory import settings
from wattherd.powering import plan
from wattherd.wire import facts

UUIDS = tuple(f"GPU-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "123456789abcdef")


def card(name: str, low_w: float | None, high_w: float | None, default_w: float | None, number: int = 0) -> facts.Gpu:
    return facts.Gpu(
        bus=f"0000:{number + 1:02x}:00.0",
        vendor="nvidia",
        name=name,
        uuid=UUIDS[number],
        power_min_w=low_w,
        power_max_w=high_w,
        power_default_w=default_w,
    )


def rtx_3090(number: int = 0) -> facts.Gpu:
    return card("NVIDIA GeForce RTX 3090", 100, 350, 350, number)


def box(*cards: facts.Gpu) -> facts.Facts:
    return facts.Facts(
        system=facts.System(hostname="titan"), cpu=facts.Cpu("x86_64"), python=facts.Python("/usr/bin/python3", "3.11"), gpus=cards
    )


def board(*modes: str) -> facts.Facts:
    return facts.Facts(
        system=facts.System(hostname="orin"),
        cpu=facts.Cpu("aarch64"),
        python=facts.Python("/usr/bin/python3", "3.10"),
        jetson="# R36 (release)",
        soc="tegra234",
        power_modes=modes,
    )


def asked(text: str) -> settings.Settings:
    """What group_vars say, as YAML."""
    return settings.Settings.model_validate(yaml.safe_load(text) or {})


def planned(text: str, told: facts.Facts) -> plan.Plan:
    return plan.of("titan", asked(text), told)
