"""What a sweep tells its user: the table, the knee, the saving, the way to use it; and the document under --json."""

from __future__ import annotations

import dataclasses
import json
from decimal import Decimal

import pytest

from wattherd import errors, fleet, records
from wattherd.console import screen, tuning
from wattherd.policy import knee
from wattherd.verbs import power_tune, saving

UUID = "GPU-5a4a5543-d288-5e46-82d3-dd8ece3195af"
STEPS = tuple(
    knee.Step(
        "limit_w",
        limit,
        prefill=knee.Figure(pp, pw, 10.0, 0.004, "energy counter", 1700, capped, 66),
        decode=knee.Figure(tg, tw, 10.0, 0.004, "energy counter", 1800, None, 64),
    )
    for limit, pw, pp, tw, tg, capped in (
        (350.0, 330.0, 3000.0, 270.0, 100.0, 0.0),
        (250.0, 249.0, 2900.0, 248.0, 98.0, 100.0),
        (150.0, 150.0, 1700.0, 150.0, 60.0, 100.0),
    )
)
PLAN = power_tune.Plan(
    cards=((UUID, "NVIDIA GeForce RTX 3090"),),
    kind="limit_w",
    values=(350.0, 250.0, 150.0),
    load="llama-bench",
    model="smollm2",
    build="abc-b11434-cuda",
    driver="580.95.05",
    seconds=210,
    before_w=350.0,
)


def tuned(**more: object) -> power_tune.Tuned:
    advice = knee.recommend(STEPS, knee.Wish())
    saved = dataclasses.replace(
        saving.saving(advice.reference_watts, advice.saving, None, Decimal(6)), cost=Decimal("12.345"), currency="EUR"
    )
    made = power_tune.Tuned(plan=PLAN, simulated=False, steps=STEPS, advice=advice, saved=saved, at="2026-12-01T12:00:00Z")
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def shown(
    capsys: pytest.CaptureFixture[str],
    one: power_tune.Tuned | errors.Problem,
    options: power_tune.Options | None = None,
    *,
    as_json: bool = False,
) -> tuple[int, str]:
    failed: fleet.Done[power_tune.Tuned] = fleet.Done(problem=one if isinstance(one, errors.Problem) else None)
    done = failed if isinstance(one, errors.Problem) else fleet.Done(value=one)
    code = tuning.tuned(screen.Screen(as_json=as_json), {"titan": done}, options or power_tune.Options())
    return code, capsys.readouterr().out


def test_the_table_the_knee_and_the_saving(capsys: pytest.CaptureFixture[str]) -> None:
    code, words = shown(capsys, tuned())
    lines = words.splitlines()
    assert code == 0
    best = next(line for line in lines if "<- best" in line)
    assert best.split()[:2] == ["250", "W"]
    assert "11.647" in best
    assert "below 95 %" in next(line for line in lines if line.startswith("150 W"))
    assert "does nothing" in next(line for line in lines if line.startswith("350 W"))
    assert "best: 250 W  (96.7 % of the best prefill, 98.0 % of the best decode;" in words
    assert "at 6 h a day under load, as you said" in words
    assert "12.35 EUR" in words
    assert "--write puts it into the host's own variables" in words
    assert "simulated" not in words


def test_unknown_is_a_question_mark_and_never_nought(capsys: pytest.CaptureFixture[str]) -> None:
    bare = (
        knee.Step("limit_w", 350.0, prefill=knee.Figure(3000.0, 330.0, 10.0), decode=None),
        knee.Step("limit_w", 250.0, prefill=knee.Figure(2900.0, 249.0, 10.0), decode=None),
    )
    _, words = shown(capsys, tuned(steps=bare, advice=knee.recommend(bare, knee.Wish()), saved=None))
    row = next(line for line in words.splitlines() if line.startswith("250 W"))
    assert row.split()[5:] == ["?"] * 7
    assert "no recommendation: no step was measured whole" in words


def test_a_write_that_found_nothing_says_that_nothing_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    none = tuned(advice=knee.recommend(STEPS[:1], knee.Wish()), saved=None)
    assert "; nothing was written" in shown(capsys, none, power_tune.Options(write=True))[1]
    assert "nothing was written" not in shown(capsys, none)[1]


def test_watts_of_cards_that_were_swept_together_are_called_their_sum(capsys: pytest.CaptureFixture[str]) -> None:
    both = dataclasses.replace(PLAN, cards=(*PLAN.cards, ("GPU-b", "NVIDIA GeForce RTX 3090")))
    assert "2 cards work as one" in shown(capsys, tuned(plan=both))[1]
    assert "work as one" not in shown(capsys, tuned())[1]


def test_simulated_cards_are_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert "simulated card: these are no real watts" in shown(capsys, tuned(simulated=True))[1]


def test_the_assumption_is_stated_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    one = tuned(saved=saving.saving(300.0, 0.2, None, None))
    words = shown(capsys, one)[1]
    assert "if it were under load around the clock, the most that it can be" in words
    assert "price_per_kwh in the inventory" in words


def test_the_load_that_was_seen_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    use = saving.Use(since_s=864_000, busy_s=72_000.0)
    one = tuned(saved=saving.saving(300.0, 0.25, use, None), use=use)
    assert "at the load seen here, 2 h a day over the last 240 h 00 min" in shown(capsys, one)[1]


def test_a_sweep_that_gave_way_is_no_success_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    code, words = shown(capsys, tuned(stopped="clients have been using the server for a minute"))
    assert code == 2
    assert "stopped early: clients have been using the server for a minute" in words


def test_a_card_that_is_not_back_is_told_in_red_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    code, words = shown(capsys, tuned(not_restored=("RTX 3090 GPU-5a4a5543: silent",)))
    assert code == 2
    assert "not set back yet: RTX 3090 GPU-5a4a5543: silent; the node goes on trying" in words


def test_a_check_tells_the_range_and_the_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    code, words = shown(capsys, power_tune.Tuned(plan=PLAN, simulated=False), power_tune.Options(check=True))
    assert code == 0
    assert "3 power limits from 350 down to 150 W, prefill and decode, with llama-bench and smollm2: about 3 min 30 s" in words
    assert "its limit is 350 W now, and is again afterwards" in words
    assert "nothing was set" in words


def test_words_of_a_node_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    plan = dataclasses.replace(PLAN, model="x\x1b[2Jy", notes=("a\x07b",))
    words = shown(capsys, tuned(plan=plan, notes=plan.notes))[1]
    assert "\x1b[2J" not in words
    assert "\x07" not in words


def test_the_document_has_every_step_and_exact_decimals(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = shown(capsys, tuned(), as_json=True)
    host = json.loads(out)["hosts"]["titan"]
    assert [one["limit_w"] for one in host["steps"]] == [350.0, 250.0, 150.0]
    assert host["steps"][1]["prefill"]["tok_j"] == pytest.approx(2900 / 249, abs=1e-6)
    assert host["steps"][1]["decode"]["throttled_percent"] is None
    assert host["steps"][0]["prefill"]["method"] == "energy counter"
    assert host["recommendation"]["value"] == 250.0
    year = host["recommendation"]["year"]
    assert Decimal(year["energy_kwh"]) == tuned().saved.kwh  # type: ignore[union-attr]
    assert year["cost"] == "12.345"
    assert (host["simulated"], host["driver"], host["build"]) == (False, "580.95.05", "abc-b11434-cuda")


def test_a_host_that_failed_is_in_the_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = shown(capsys, errors.Problem("card-busy", "held by python3"), as_json=True)
    host = json.loads(out)["hosts"]["titan"]
    assert code == 2
    assert (host["status"], host["problem"]["code"]) == ("failed", "card-busy")


def test_what_cannot_be_tuned_is_skipped_and_fails_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, words = shown(capsys, errors.Problem("tune-unfit", "a Jetson has no power limit to sweep", hint="this board has 15W, 25W"))
    assert code == 0
    assert "titan  skipped: a Jetson has no power limit to sweep" in words
    assert "15W, 25W" in words
    assert json.loads(shown(capsys, errors.Problem("tune-unfit", "x"), as_json=True)[1])["hosts"]["titan"]["status"] == "skipped"


def test_steps_are_told_as_they_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    watching = tuning.Watching(screen.Screen())
    step = {"kind": "limit_w", "value": 250.0, "decode": {"tok_s": 98.0, "watts": 248.0, "seconds_s": 10.0, "settled": False}}
    watching.event("titan", {"event": "step", "step": step, "done": 3, "total": 16, "left_s": 200})
    watching.event("titan", {"event": "step", "step": {"kind": 7}, "done": 3, "total": 16, "left_s": 200})
    words = capsys.readouterr().out
    assert "250 W  decode   248.0 W, 98.0 tok/s, 0.395 tok/J  (its watts did not come to rest)  [3 of 16, about 3 min 20 s left]" in words
    assert "a step that cannot be read" in words


def test_what_is_written_is_decodes_and_whole_watts_are_whole() -> None:
    one = tuned()
    assert one.best is not None
    assert power_tune.row_of(one, one.best, 95.0) == {
        "limit_w": 250,
        "tok_s": 98.0,
        "tok_j": round(98 / 248, 4),
        "floor_percent": 95,
        "measured_at": "2026-12-01T12:00:00Z",
        "model": "smollm2",
    }


def test_where_nothing_saves_the_highest_is_written_so_that_efficient_means_something() -> None:
    flat = tuple(records.replace(step, prefill=STEPS[0].prefill, decode=STEPS[0].decode) for step in STEPS[:2])
    one = tuned(steps=flat, advice=knee.recommend(flat, knee.Wish()), saved=None)
    assert one.best is not None
    assert power_tune.row_of(one, one.best, 95.0)["limit_w"] == 350


def test_a_clock_ceiling_is_written_as_the_inventory_reads_it() -> None:
    step = knee.Step("clocks_mhz", 1200.0, decode=STEPS[0].decode)
    assert power_tune.row_of(tuned(), step, 92.5)["clocks_mhz"] == "0,1200"
