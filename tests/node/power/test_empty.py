"""What a card draws empty is learnt by whoever looks again and again: at rest only, the lowest ever, and written once."""

from __future__ import annotations

import pytest

from tests.node import strict
from tests.node.power import fake
from wattherd.power import empty
from wattherd.power import look as looking

UUID = fake.Card().uuid


@pytest.fixture
def cards(bench: strict.Bench) -> fake.Cards:
    return fake.Cards(bench, [fake.Card()])


def see(cards: fake.Cards, watcher: empty.Watcher, *draws_w: float) -> None:
    for watts in draws_w:
        cards.cards[0].draw_w = watts
        watcher.see(cards.bench.machine, looking.look(cards.bench.machine))


def watts(bench: strict.Bench) -> float | None:
    found = empty.load(bench.machine).get(UUID)
    return None if found is None else found.watts


def test_a_card_that_still_settles_is_not_taken_at_its_word(bench: strict.Bench, cards: fake.Cards) -> None:
    watcher = empty.Watcher()
    see(cards, watcher, 242.0, 145.0, 66.0, 65.0, 51.0)
    assert watts(bench) is None
    see(cards, watcher, 37.0, 36.5, 36.0)
    assert watts(bench) == 36.0


def test_the_lowest_stays_and_a_flicker_is_not_written(bench: strict.Bench, cards: fake.Cards) -> None:
    watcher = empty.Watcher()
    see(cards, watcher, 9.4, 9.6, 9.5)
    before = bench.tree()
    see(cards, watcher, 9.3, 9.1, 9.5, 27.0, 27.0, 27.0)
    assert bench.tree() == before
    see(cards, watcher, 8.0, 8.2, 8.1)
    assert watts(bench) == 8.0
    assert empty.load(bench.machine)[UUID].at_s == round(bench.machine.now_s())


def test_a_card_that_something_holds_is_not_empty_and_begins_anew(bench: strict.Bench, cards: fake.Cards) -> None:
    watcher = empty.Watcher()
    see(cards, watcher, 9.0, 9.0)
    cards.hold(cards.cards[0], 4242, "llama-server", "llama@smol.service")
    see(cards, watcher, 50.0, 50.0, 50.0, 50.0)
    cards.cards[0].holders.clear()
    see(cards, watcher, 9.0, 9.0)
    assert watts(bench) is None
    see(cards, watcher, 9.0)
    assert watts(bench) == 9.0


@pytest.mark.parametrize("fault", ["lost", "draw-unknown"])
def test_what_cannot_be_read_is_not_measured(bench: strict.Bench, cards: fake.Cards, fault: str) -> None:
    cards.cards[0].faults.add(fault)
    see(cards, empty.Watcher(), 9.0, 9.0, 9.0, 9.0)
    assert watts(bench) is None
    assert not bench.machine.exists(empty.PLACE)


def test_a_damaged_file_is_measured_again_and_a_full_disk_stops_nobody(bench: strict.Bench, cards: fake.Cards) -> None:
    bench.put(empty.PLACE, '{"GPU-1": {"watts": "many"}}')
    assert empty.load(bench.machine) == {}
    see(cards, empty.Watcher(), 9.0, 9.0, 9.0)
    assert watts(bench) == 9.0
    bench.machine.unlink(empty.PLACE)
    bench.folder(empty.PLACE)  # nothing can be renamed onto a folder
    bench.put(f"{empty.PLACE}/x")
    see(cards, empty.Watcher(), 8.0, 8.0, 8.0)
    assert bench.machine.is_dir(empty.PLACE)
