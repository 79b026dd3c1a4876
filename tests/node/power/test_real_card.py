"""Where this machine has a real card, it is read (never set) through the same code: by NVML, and by each form of nvidia-smi."""

from __future__ import annotations

import subprocess

import pytest

from wattherd import machine as machines
from wattherd.power import described, look, query, reading, report, tool

pytestmark = pytest.mark.gpu


@pytest.fixture
def machine() -> machines.Machine:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=60)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        pytest.skip("no nvidia-smi answers here")
    if listed.returncode or "GPU 0:" not in listed.stdout:
        pytest.skip("nvidia-smi sees no card here")
    return machines.Machine()


def test_every_way_of_reading_tells_the_same_card(machine: machines.Machine) -> None:
    through = look.look(machine, limit_s=60, wake=True)
    assert (through.fault, through.source) == ("", "nvml")
    rows, done = query.rows(machine, tuple(query.CELLS), driver="", limit_s=60)
    assert done.code == 0
    forms = [
        [described.card(query.cells(row)) for row in rows],
        [described.card(cells) for cells in report.from_xml(tool.smi(machine, ["-q", "-x"], limit_s=60).text)[1]],
        [described.card(cells) for cells in report.from_text(tool.smi(machine, ["-q"], limit_s=60).text)[1]],
    ]
    for found in forms:
        assert [_lasting(card) for card in found] == [_lasting(card) for card in through.cards]


def _lasting(card: reading.Card) -> tuple[object, ...]:
    """What does not change between two readings, nor depends on who holds the card."""
    return card.uuid, card.bus, card.name, card.limits, card.memory_total_mib, card.clocks.sm_max_mhz, card.persistence, card.draw is None
