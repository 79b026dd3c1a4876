"""The figures of simulated cards and boards: every one carries its mark, unknown stays unknown, and kinds are found by their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.simulated import cards, figures, layout
from wattherd.errors import Problem

FOLDER = Path(figures.__file__).parent
MARKS = {"captured", "documented", "reported", "unknown"}


def marked(value: Any) -> Iterator[dict[str, Any]]:
    """Every {v, mark} of a row."""
    if isinstance(value, dict):
        if "mark" in value and "v" in value:
            yield value
        for inner in value.values():
            yield from marked(inner)


@pytest.mark.parametrize(("name", "key"), [("cards.yaml", "cards"), ("boards.yaml", "boards")])
def test_every_figure_has_a_mark_and_a_source(name: str, key: str) -> None:
    document = yaml.safe_load((FOLDER / name).read_text())
    found = [one for row in document[key] for part, value in row.items() if part != "assumed" for one in marked(value)]
    assert len(found) > 100
    assert {one["mark"] for one in found} <= MARKS
    for one in found:
        assert (one["mark"] == "unknown") <= (one["v"] is None)
        named = one.get("src")
        sources = named if isinstance(named, list) else [named]
        assert one["mark"] == "unknown" or all(source in document["sources"] or "#" in str(source) for source in sources), one


def test_what_nobody_knows_is_not_printed_but_counted_with() -> None:
    card = figures.cards()["rtx_2080_ti"]
    assert (card.min_w, card.max_w, card.default_w, card.sm_max_mhz) == (None, None, None, None)
    assert card.full_w > card.loaded_w > card.empty_w > 0
    made = cards.state("node", [card], "535.129.03").card[0]
    assert (made.min_mw, made.max_mw, made.default_mw, made.sm_max_mhz) == (0, 0, 0, 0)
    assert not made.can & layout.CAN["LIMIT"]


def test_a_p40_has_no_energy_counter_and_no_lock() -> None:
    made = cards.state("atlas", [figures.cards()["p40"]], "535.129.03").card[0]
    assert not made.can & (layout.CAN["ENERGY"] | layout.CAN["LOCK_GPU"] | layout.CAN["LOCK_MEMORY"] | layout.CAN["FAN"])
    assert (made.min_mw, made.default_mw, made.max_mw) == (125_000, 250_000, 250_000)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("2x3090", ("rtx_3090", "rtx_3090")),
        ("p40", ("p40",)),
        ("orin-nx", ("orin_nx_16gb",)),
        ("3090+p40", ("rtx_3090", "p40")),
        ("8xh200", ("h200_sxm",) * 8),
        ("a40", ("a40",)),
    ],
)
def test_kinds_by_the_names_that_people_use(text: str, ids: tuple[str, ...]) -> None:
    assert figures.kinds(text) == ids


@pytest.mark.parametrize(
    ("text", "words"), [("rtx9090", "no card or board"), ("rtx_pro", "more than one card"), ("p40+orin-nx", "has no other cards")]
)
def test_an_unknown_kind_names_those_that_there_are(text: str, words: str) -> None:
    with pytest.raises(Problem, match=words):
        figures.kinds(text)


def test_cards_of_a_node_have_lasting_names_of_their_own() -> None:
    found = [cards.state(node, [figures.cards()["rtx_3090"]] * 2, "525.147.05") for node in ("a", "a", "b")]
    uuids = [[state.card[index].uuid for index in range(2)] for state in found]
    assert uuids[0] == uuids[1]
    assert len({*uuids[0], *uuids[2]}) == 4
    assert [found[0].card[index].bus_id for index in range(2)] == [b"00000000:01:00.0", b"00000000:02:00.0"]


def test_one_driver_serves_all_and_it_is_the_newest() -> None:
    both = [figures.cards()["p40"], figures.cards()["rtx_5090"]]
    assert cards.driver(both, "") == "570.124.06"
    assert cards.driver(both, "610.57.04") == "610.57.04"
