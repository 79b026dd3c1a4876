"""Which card a sweep gets where a server holds cards, and what a controller may say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node import strict
from tests.node.power import fake, sweeping
from tests.node.power.llama import Llama, serving
from wattherd import errors
from wattherd.node import tuning_choice, tuning_job, tuning_use
from wattherd.power import look

UNIT = "llama@smol.service"
OTHER = "GPU-22222222-1111-1111-1111-111111111111"


@pytest.fixture
def llama() -> Llama:
    return Llama()


@pytest.fixture
def port(llama: Llama) -> Iterator[int]:
    with serving(llama) as number:
        yield number


def wanted(port: int, **more: object) -> dict[str, object]:
    url = f"http://127.0.0.1:{port}"
    return {"name": "smol", "unit": UNIT, "url": url, "flags_file": sweeping.FLAGS, "proxy_url": url, **more}


def chosen(world: sweeping.World, **more: object) -> tuning_choice.Chosen:
    machine = world.bench.machine
    return tuning_choice.choose(machine, look.look(machine), tuning_job.job_of(world.order(**more)))


def test_a_card_that_only_our_idle_server_holds_is_loaded_by_it(bench: strict.Bench, port: int) -> None:
    world = sweeping.world(bench, guard=False)
    world.cards.hold(world.card, 300, "llama-server", UNIT)
    found = chosen(world, servers=[wanted(port)])
    assert found.words == "the running server smol"
    assert found.server is not None
    assert [card.uuid for card in found.cards] == [sweeping.UUID]


def test_a_server_with_a_client_is_left_alone(bench: strict.Bench, llama: Llama, port: int) -> None:
    world = sweeping.world(bench, guard=False)
    world.cards.hold(world.card, 300, "llama-server", UNIT)
    llama.clients_now = 1
    with pytest.raises(errors.Problem, match="clients are using smol now") as caught:
        chosen(world, servers=[wanted(port)])
    assert caught.value.code == "card-busy"


def test_a_client_that_comes_and_goes_while_we_look_counts(bench: strict.Bench, llama: Llama, port: int) -> None:
    world = sweeping.world(bench, guard=False)
    world.cards.hold(world.card, 300, "llama-server", UNIT)

    def comes() -> None:
        llama.clients_total += 1

    world.at_wait = comes
    with pytest.raises(errors.Problem, match="clients are using smol now"):
        chosen(world, servers=[wanted(port)])


def test_all_cards_of_a_kind_that_one_server_spans_are_swept_together(bench: strict.Bench, port: int) -> None:
    """A limit on one of them alone would measure the others' waiting."""
    other = fake.Card(uuid=OTHER, bus="0000:02:00.0")
    world = sweeping.world(bench, fake.Card(), other, guard=False)
    for card in world.cards.cards:
        world.cards.hold(card, 300, "llama-server", UNIT)
    assert [card.uuid for card in chosen(world, servers=[wanted(port)]).cards] == [sweeping.UUID, OTHER]


def test_cards_of_several_kinds_under_one_server_are_refused(bench: strict.Bench, port: int) -> None:
    other = fake.Card(uuid=OTHER, bus="0000:02:00.0", name="Tesla P40", max_w=250.0, default_w=250.0)
    world = sweeping.world(bench, fake.Card(), other, guard=False)
    for card in world.cards.cards:
        world.cards.hold(card, 300, "llama-server", UNIT)
    with pytest.raises(errors.Problem, match="several kinds") as caught:
        chosen(world, servers=[wanted(port)])
    assert caught.value.code == "tune-unfit"


def test_a_stranger_on_another_card_of_our_server_counts(bench: strict.Bench, port: int) -> None:
    other = fake.Card(uuid=OTHER, bus="0000:02:00.0")
    world = sweeping.world(bench, fake.Card(), other, guard=False)
    for card in world.cards.cards:
        world.cards.hold(card, 300, "llama-server", UNIT)
    world.cards.hold(other, 4711, "python3", "user-1000.scope")
    with pytest.raises(errors.Problem, match=r"works on .* too: held by python3") as caught:
        chosen(world, servers=[wanted(port)])
    assert caught.value.code == "card-busy"


def test_a_free_card_comes_before_one_that_a_server_holds(bench: strict.Bench, port: int) -> None:
    other = fake.Card(uuid=OTHER, bus="0000:02:00.0")
    world = sweeping.world(bench, fake.Card(), other, guard=False)
    world.cards.hold(world.card, 300, "llama-server", UNIT)
    found = chosen(world, servers=[wanted(port)])
    assert (found.words, found.cards[0].uuid) == ("llama-bench", OTHER)


def test_an_embedding_server_answers_no_prompts(bench: strict.Bench, port: int) -> None:
    world = sweeping.world(bench, guard=False)
    world.cards.hold(world.card, 300, "llama-server", UNIT)
    with pytest.raises(errors.Problem, match="answers no prompts") as caught:
        chosen(world, servers=[wanted(port, chat=False)])
    assert caught.value.code == "card-busy"


def test_the_screen_of_a_workstation_is_named_and_may_be_passed_over(bench: strict.Bench) -> None:
    world = sweeping.world(bench, guard=False)
    world.cards.hold(world.card, 800, "Xorg", "user@1000.service")
    with pytest.raises(errors.Problem, match="Xorg"):
        chosen(world)
    assert chosen(world, card="GPU-1111").cards[0].uuid == sweeping.UUID


def test_where_a_sweep_begins(bench: strict.Bench) -> None:
    """At the default, though the card could take more; at what is set now where that is more; at the user's word."""
    world = sweeping.world(bench, fake.Card(max_w=480.0, default_w=350.0, requested_w=250.0), guard=False)
    assert chosen(world).span.most == 350.0
    world.card.requested_w = 450.0
    assert chosen(world).span.most == 450.0
    assert chosen(world, most_w=300).span.most == 300.0
    with pytest.raises(errors.Problem, match="takes 100 to 480 W") as caught:
        chosen(world, most_w=500)
    assert caught.value.code == "power-range"


@pytest.mark.parametrize(
    "more",
    [
        {"steps": 1},
        {"steps": 1000},
        {"seconds_per_step": 0.0},
        {"program": "../bin/llama-bench"},
        {"servers": [{"name": "a b", "unit": "u", "url": "x", "flags_file": "/x"}]},
        {"servers": [{"name": "a", "unit": "u", "url": "x", "flags_file": "x"}]},
        {"servers": [{"name": "a", "unit": "u", "url": "x", "flags_file": "/x", "proxy_url": "http://10.0.0.1:80"}]},
        {"servers": [{"name": "a", "unit": "u", "url": "x", "flags_file": "/x", "more": 1}]},
    ],
)
def test_what_a_controller_may_not_say(bench: strict.Bench, more: dict[str, object]) -> None:
    with pytest.raises(errors.Problem) as caught:
        tuning_job.job_of(sweeping.world(bench, guard=False).order(**more))
    assert caught.value.code in {"protocol-mismatch", "manifest-invalid"}
    assert bench.runner.commands == []
    bench.runner.planned.clear()


def test_a_jetson_is_told_what_it_has_instead(bench: strict.Bench) -> None:
    from wattherd.power import reading

    world = sweeping.world(bench, guard=False)
    seen = reading.Look(board=reading.Board(name="Orin NX", modes={"15W": 2, "25W": 3}))
    with pytest.raises(errors.Problem, match="Jetson") as caught:
        tuning_choice.choose(bench.machine, seen, tuning_job.job_of(world.order()))
    assert caught.value.code == "tune-unfit"
    assert "15W, 25W" in caught.value.hint
    bench.runner.planned.clear()


def test_how_much_a_server_was_used(bench: strict.Bench, llama: Llama, port: int) -> None:
    world = sweeping.world(bench, guard=False)
    world.cards.hold(world.card, 300, "llama-server", UNIT)
    found = chosen(world, servers=[wanted(port)])
    llama.proxied = False
    llama.used = "llamacpp:prompt_seconds_total 100.5\nllamacpp:tokens_predicted_seconds_total 899.5\nllamacpp:tokens_predicted_total 4e4\n"
    begun_us = round((bench.machine.monotonic_s() - 86_400) * 1e6)
    bench.runner.plan("systemctl", "show", "-p", "ExecMainStartTimestampMonotonic", "--value", "--", UNIT, out=f"{begun_us}\n")
    assert tuning_use.observed(bench.machine, found) == {
        "since_s": 86_400,
        "busy_s": 1000.0,
        "prefill_tokens": 1000,
        "decode_tokens": 40_000,
    }
