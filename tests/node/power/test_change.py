"""What nvidia-smi's answers mean: the field's own words, with their exit codes, and that its exit code alone is never believed."""

from __future__ import annotations

import re

import pytest

from tests import power_cases
from tests.node import strict
from tests.node.power import fake
from wattherd.power import change

REFUSED_AND_CLAIMED = (
    "Unable to set persistence mode for GPU 00000000:01:00.0: Insufficient Permissions\n"
    "Enabled Legacy persistence mode for GPU 00000000:01:00.0.\nAll done.\n"
)


def answer(case: str) -> tuple[str, int]:
    """What a case's tool printed, and its exit code (2 where the case names none and refused)."""
    text = power_cases.case(case).input
    code = re.search(r"rc=(\d+)", text)
    lines = [line for line in text.splitlines() if not line.startswith(("$", "want", "after"))]
    return "\n".join(lines), int(code.group(1)) if code else 2


@pytest.mark.parametrize(
    ("case", "kind", "word"),
    [
        ("apply-pl-success", change.DONE, "was set to 210.00 W"),
        ("apply-pl-unsupported-rc0", change.UNSUPPORTED, "not supported"),
        ("apply-pl-out-of-range", change.OUT_OF_RANGE, "between 60.00 W and 70.00 W"),
        ("apply-pl-no-permission", change.NO_PERMISSION, "Insufficient Permissions"),
        ("apply-lgc-unsupported-four-gpus", change.UNSUPPORTED, "not supported"),
        ("smi-gpu-lost", change.LOST, "GPU is lost"),
        ("smi-driver-mismatch", change.MISMATCH, "version mismatch"),
    ],
)
def test_the_fields_answers(case: str, kind: str, word: str) -> None:
    text, code = answer(case)
    verdict = change.classify(text, code)
    assert verdict.kind == kind
    assert word in verdict.words
    assert not verdict.volatile


def test_a_refusal_names_the_range() -> None:
    verdict = change.classify(*answer("apply-pl-out-of-range"))
    assert (verdict.least_w, verdict.most_w) == (60.0, 70.0)


def test_words_where_numbers_should_be_and_a_lock_that_will_be_forgotten() -> None:
    """apply-lgc-ok-but-volatile: "tdp" is no number, and persistence is off."""
    verdict = change.classify(power_cases.case("apply-lgc-ok-but-volatile").input, 0)
    assert verdict.kind == change.DONE
    assert verdict.volatile


def test_an_answer_about_four_cards_is_four_verdicts() -> None:
    told = change.per_card(power_cases.case("apply-lgc-unsupported-four-gpus").input)
    assert {bus: one.kind for bus, one in told.items()} == {
        f"00000000:{slot}:00.0": change.UNSUPPORTED for slot in ("05", "06", "09", "0A")
    }


def test_cards_of_one_answer_may_differ() -> None:
    text = (
        "Power limit for GPU 00000000:01:00.0 was set to 210.00 W from 350.00 W.\n"
        "Changing power management limit is not supported for GPU: 0000:e2:00.0.\nTreating as warning and moving on.\n"
        "Provided power limit 210.00 W is not a valid power limit which should be between 400.00 W and 600.00 W for GPU 00000000:41:00.0\n"
        "Terminating early due to previous errors.\n"
    )
    told = change.per_card(text)
    assert {bus: one.kind for bus, one in told.items()} == {
        "00000000:01:00.0": change.DONE,
        "00000000:E2:00.0": change.UNSUPPORTED,
        "00000000:41:00.0": change.OUT_OF_RANGE,
    }
    assert told["00000000:41:00.0"].least_w == 400.0
    assert change.classify(text, 2).kind == change.OUT_OF_RANGE, "the gravest counts for the whole"


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        (REFUSED_AND_CLAIMED, 0, change.NO_PERMISSION),
        ("Enabled persistence mode for GPU 00000000:01:00.0.\nAll done.\n", 0, change.DONE),
        ("Persistence mode is already Enabled for GPU 00000000:01:00.0.\nAll done.\n", 0, change.DONE),
        ("All done.\n", 0, change.DONE),
        ("", 0, change.DONE),
        ("", 4, change.NO_PERMISSION),
        ("", 3, change.UNSUPPORTED),
        ("", 15, change.LOST),
        ("", 18, change.MISMATCH),
        ("something new\n", 1, change.FAILED),
        ("nvidia-smi: not found", 127, change.FAILED),
        ("No devices were found\n", 6, change.FAILED),
        ("Unable to determine the device handle for GPU 0000:02:00.0: Unknown Error\n", 1, change.LOST),
        ("Unable to determine the device handle for GPU 0000:02:00.0: GPU requires reset\n", 16, change.FAILED),
        (
            "Setting locked Memory clocks is not supported for GPU 0000:E2:00.0.\nTreating as warning and moving on.\nAll done.\n",
            0,
            "unsupported",
        ),
        ("Setting applications clocks is not supported for GPU 00000000:01:00.0.\nTreating as warning and moving on.\n", 0, "unsupported"),
        ('Specified clock combination "(MEM 715, SM 111)" is not supported for GPU 00000000:01:00.0.\nAll done.\n', 0, "unsupported"),
        ("Failed to set power management limit for GPU 00000000:01:00.0: Unknown Error\n", 1, change.FAILED),
    ],
)
def test_other_words(text: str, code: int, kind: str) -> None:
    verdict = change.classify(text, code)
    assert verdict.kind == kind
    assert verdict.words or kind == change.DONE


def test_an_endless_answer_is_shortened() -> None:
    assert len(change.classify("x" * 10_000, 1).words) <= 400
    assert len(change.classify("GPU is lost " + "x" * 10_000, 15).words) <= 400


def test_each_write_is_one_call_for_one_card_by_uuid(bench: strict.Bench) -> None:
    card = fake.Card(persistence=False)
    cards = fake.Cards(bench, [card])
    machine = bench.machine
    assert change.set_persistence(machine, card.uuid, on=True).kind == change.DONE
    assert change.set_limit(machine, card.uuid, 250).kind == change.DONE
    assert change.set_limit(machine, card.uuid, 149.4).kind == change.DONE
    assert change.set_clocks(machine, card.uuid, 0, 1400).kind == change.DONE
    assert change.set_memory_clocks(machine, card.uuid, 0, 5001).kind == change.DONE
    assert change.set_temperature(machine, card.uuid, 75).kind == change.DONE
    assert (card.persistence, card.requested_w, card.locked_mhz, card.memory_locked_mhz) == (True, 149.4, (0, 1400), (0, 5001))
    assert card.temperature_target_c == 75
    assert change.reset_clocks(machine, card.uuid).kind == change.DONE
    assert change.reset_memory_clocks(machine, card.uuid).kind == change.DONE
    assert (card.locked_mhz, card.memory_locked_mhz) == (None, None)
    assert [call[:2] for call in cards.set_calls] == [("-i", card.uuid)] * 8
    assert cards.set_calls[1][2:] == ("-pl", "250")


def test_a_driver_that_hangs_is_a_verdict_and_no_wait(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card()])
    cards.silent = True
    verdict = change.set_limit(bench.machine, cards.cards[0].uuid, 250)
    assert verdict.kind == change.SILENT
    assert "no answer" in verdict.words


def test_no_nvidia_smi_on_the_node(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card()])
    cards.missing = True
    verdict = change.set_limit(bench.machine, cards.cards[0].uuid, 250)
    assert verdict.kind == change.FAILED
    assert "not found" in verdict.words
