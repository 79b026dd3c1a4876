"""Power within a run on the controller: budgets of circuits, what was last seen, what is told once, two rounds as one."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
import yaml

from tests.unit.powering import boxes
from wattherd import errors, fleet, inventory
from wattherd.link import session
from wattherd.verbs import access, activating, budgets, power_apply, project, running, sightings, watch
from wattherd.wire import event, facts, manifest

HOSTS = """\
all:
  children:
    fleet: {hosts: {titan: {}, atlas: {}, orin: {}, ghost: {}}}
"""
TITAN = boxes.box(boxes.rtx_3090(0), boxes.rtx_3090(1))
ATLAS = boxes.box(boxes.card("Tesla P40", 125, 250, 250, 2))
ORIN = boxes.board("15W", "25W")


class Heard(watch.Silent):
    def __init__(self) -> None:
        self.words: list[str] = []
        self.events: list[tuple[str, Mapping[str, Any]]] = []

    def tell(self, words: str) -> None:
        self.words.append(words)

    def warn(self, words: str) -> None:
        self.words.append(f"warning: {words}")

    def event(self, host: str, message: Mapping[str, Any]) -> None:
        self.events.append((host, message))


class Node:
    """An open session that answers as it is told to."""

    def __init__(self, told: facts.Facts) -> None:
        self.facts = told
        self.asked: list[Mapping[str, object]] = []
        self.events: list[Mapping[str, object]] = []
        self.answer: Mapping[str, object] = {}

    def call(self, order: Mapping[str, object], _body: object, on_event: Callable[[Mapping[str, object]], None]) -> Mapping[str, object]:
        self.asked.append(order)
        for one in self.events:
            on_event(one)
        return self.answer


def node(run: running.Run, name: str) -> Node:
    return cast("Node", run.sessions.live[name])


Arrange = Callable[..., tuple[running.Run, inventory.Inventory, Heard]]


@pytest.fixture
def arrange(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Arrange:
    """arrange({host: facts}, vars, sites): a run in which these hosts are open and planned, as a verb has it before anything is touched."""
    monkeypatch.setenv("WATTHERD_STATE", str(tmp_path / "state"))

    def make(
        told: Mapping[str, facts.Facts], text: str = "", sites: str = "", *, check: bool = False, **own: str
    ) -> tuple[running.Run, inventory.Inventory, Heard]:
        folder = tmp_path / "inventory"
        (folder / "group_vars").mkdir(parents=True, exist_ok=True)
        (folder / "host_vars").mkdir(exist_ok=True)
        (folder / "hosts.yaml").write_text(HOSTS)
        (folder / "group_vars/all.yaml").write_text(f"roles: [power]\n{text}")
        (folder / "sites.yaml").write_text(sites)
        for name, body in own.items():
            (folder / f"host_vars/{name}.yaml").write_text(body)
        loaded = inventory.load(folder, roles_known=None, project_root=tmp_path)
        reach = access.Access(project=project.Project(tmp_path))
        heard = Heard()
        before = sightings.read(reach.project.state)
        run = running.Run(reach, running.Options(check=check), heard, access.Sessions(reach), sighted=before)
        for name, one in told.items():
            run.sessions.live[name] = cast("session.Session", Node(one))
            budgets.note(run, loaded.host(name), one)
            run.counts[name] = fleet.Count()
            run.manifests[name] = manifest.Manifest(name, ())
        return run, loaded, heard

    return make


def checked(made: tuple[running.Run, inventory.Inventory, Heard]) -> tuple[running.Run, Heard]:
    run, loaded, heard = made
    budgets.check(run, loaded, [loaded.host(name) for name in run.manifests], loaded.circuits)
    return run, heard


def test_a_circuit_that_bears_too_little_refuses_every_host_of_it_with_limits_that_would_fit(arrange: Arrange) -> None:
    made = arrange(
        {"titan": TITAN, "atlas": ATLAS},
        "power: {limit: 100%, base_load_w: 50}\n",
        "circuits: {attic: {volts: 230, amps: 4, usable_percent: 80, hosts: 'titan:atlas'}}\n",
    )
    run, heard = checked(made)
    assert {name: problem.code for name, problem in run.lost.items()} == {"titan": "over-budget", "atlas": "over-budget"}
    assert "circuit attic bears 736 W (230 V times 4 A, 80 % of it), and its hosts may draw 1050 W" in run.lost["titan"].message
    assert "titan 750 W (350 + 350 + 50 W for the rest); atlas 300 W (250 + 50 W for the rest)" in run.lost["atlas"].message
    fits = {name: yaml.safe_load(str(problem.context["proposal"]))["power"] for name, problem in run.lost.items()}
    assert fits == {"titan": {"limit": 212, "base_load_w": 50}, "atlas": {"limit": 212, "base_load_w": 50}}
    assert 3 * 212 + 2 * 50 <= 736
    assert run.names == []
    assert heard.words == []


@pytest.mark.parametrize(
    ("fed", "told"),
    [
        ("budget_w: 600", "bears 600 W, and"),
        ("budget_w: 600, usable_percent: 80", "bears 480 W (600 W, 80 % of it), and"),
        ("volts: 120, amps: 5", "bears 600 W (120 V times 5 A), and"),
    ],
)
def test_what_a_circuit_bears_is_told_with_what_it_comes_from(arrange: Arrange, fed: str, told: str) -> None:
    run, _ = checked(arrange({"titan": TITAN}, "power: {limit: 350, base_load_w: 50}\n", f"circuits: {{attic: {{{fed}, hosts: titan}}}}\n"))
    assert told in run.lost["titan"].message


def test_hosts_outside_the_run_count_as_last_seen_and_unknown_ones_are_named(arrange: Arrange, tmp_path: pathlib.Path) -> None:
    seen = sightings.Card(uuid=boxes.UUIDS[2], name="Tesla P40", min_w=125, max_w=250, default_w=250, applied_w=180)
    sightings.keep(tmp_path / "state" / tmp_path.name, {"atlas": sightings.Sighting(cards=(seen,))})
    sites = "circuits: {attic: {budget_w: 800, hosts: fleet}}\n"
    run, heard = checked(arrange({"titan": TITAN}, "power: {limit: 350, base_load_w: 20}\n", sites))
    assert "atlas 200 W (180 + 20 W for the rest)" in run.lost["titan"].message
    assert yaml.safe_load(str(run.lost["titan"].context["proposal"]))["power"]["limit"] == 270, "atlas is not in the run, so it stays"
    (words,) = heard.words
    assert "not counted in the sum" in words
    assert "ghost: this controller has never seen its cards" in words
    assert "orin: this controller has never seen its cards" in words


def test_a_circuit_within_its_bounds_says_nothing(arrange: Arrange) -> None:
    sites = "circuits: {attic: {budget_w: 700, hosts: titan}, cellar: {budget_w: 1, hosts: ghost}}\n"
    run, heard = checked(arrange({"titan": TITAN}, "power: {limit: 300, base_load_w: 100}\n", sites))
    assert run.lost == {}
    assert heard.words == []


def test_a_host_without_the_role_counts_with_what_its_cards_may_draw(arrange: Arrange) -> None:
    made = arrange(
        {"titan": TITAN, "atlas": ATLAS},
        "power: {limit: 250, base_load_w: 0}\n",
        "circuits: {attic: {budget_w: 600, hosts: 'titan:atlas'}}\n",
        atlas="roles: [base]\n",
    )
    run, _ = checked(made)
    assert "atlas 250 W" in run.lost["titan"].message
    assert yaml.safe_load(str(run.lost["titan"].context["proposal"]))["power"]["limit"] == 175
    assert "atlas" not in run.lost


def test_a_run_that_leaves_power_out_is_not_refused_for_it(arrange: Arrange) -> None:
    run, loaded, heard = arrange({"titan": TITAN}, "power: {limit: 300}\n", "circuits: {a: {budget_w: 150, hosts: titan}}\n")
    run.only["titan"] = ["file:/etc/x"]
    checked((run, loaded, heard))
    assert run.lost == {}


def test_no_limit_fits_when_even_the_least_is_too_much(arrange: Arrange) -> None:
    run, _ = checked(arrange({"titan": TITAN}, "power: {limit: 300, base_load_w: 0}\n", "circuits: {a: {budget_w: 150, hosts: titan}}\n"))
    assert "it does not fit even at the least that the cards of this run take: 200 W" in run.lost["titan"].message
    assert "proposal" not in run.lost["titan"].context


def test_keys_for_the_other_kind_are_told_once_for_all_hosts_of_a_kind_and_counted_on_each(arrange: Arrange) -> None:
    run, _, heard = arrange({"titan": TITAN, "atlas": ATLAS, "orin": ORIN}, "power: {limit: 80%, mode: 25W}\n")
    activating.tell_doubts(run, ["titan", "atlas", "orin"])
    assert heard.words == [
        "titan, atlas: power.mode is skipped: only a Jetson has power modes; a card has power.limit",
        "orin: power.limit is skipped: a Jetson's GPU has no power limit; its power modes do that: power.mode",
    ]
    node(run, "titan").events = [
        event.skipped("jetson:mode", "this is no Jetson"),
        event.skipped("power:GPU-1/limit_w", "its driver refuses"),
    ]
    run.call("titan", {"verb": "apply"})
    assert [message["id"] for _, message in heard.events] == ["power:GPU-1/limit_w"], "the other one was told of already"
    assert run.counts["titan"].outcome().skipped == 2


def test_what_waits_for_a_reboot_is_remembered(arrange: Arrange) -> None:
    run, _, _ = arrange({"orin": ORIN}, "power: {mode: 15W}\n")
    node(run, "orin").events = [event.skipped("jetson:mode", "reboot required: 15W can be set only while the board boots")]
    run.call("orin", {"verb": "apply"})
    assert run.waiting == {"orin": {"jetson:mode"}}


def test_a_product_that_nobody_ever_had_is_a_question(arrange: Arrange, tmp_path: pathlib.Path) -> None:
    text = "power: {cards: {RTX 3900: {limit: 280}, RTX 3080: {limit: 250}, P40: {limit: 200}, H200: {limit: 500}}}\n"
    elsewhere = sightings.Card(uuid=boxes.UUIDS[5], name="NVIDIA GeForce RTX 3080")
    sightings.keep(tmp_path / "state" / tmp_path.name, {"ghost": sightings.Sighting(cards=(elsewhere,))})
    run, heard = checked(arrange({"titan": TITAN, "atlas": ATLAS}, text))
    activating.tell_doubts(run, ["titan", "atlas"])
    assert heard.words == ["warning: titan, atlas: power.cards: no card is a 'RTX 3900'; did you mean 'RTX 3090' or 'RTX 3080'?"]


def test_power_without_its_role_and_a_box_without_cards_are_said(arrange: Arrange) -> None:
    run, _, heard = arrange({"titan": TITAN, "ghost": boxes.box()}, "power: {limit: 280}\n", titan="roles: [base]\n")
    activating.tell_doubts(run, ["titan", "ghost"])
    assert heard.words == [
        "ghost: has neither an NVIDIA card nor is it a Jetson: the role power has nothing to do",
        "warning: titan: the inventory has power: for it, but not the role power: nothing of it is applied",
    ]
    assert "titan" not in run.power


def limit_id(number: int) -> str:
    return f"power:{boxes.UUIDS[number]}/limit_w"


def test_a_limit_counts_as_applied_only_when_its_node_proved_it(arrange: Arrange, tmp_path: pathlib.Path) -> None:
    state = tmp_path / "state" / tmp_path.name
    text = "power: {limit: 280}\n"
    run, _, _ = arrange({"titan": TITAN}, text, check=True)
    run.counts["titan"].see(event.changed(limit_id(0), "fix", {}, check=True))
    budgets.remember(run)
    assert sightings.read(state) == {}, "a check writes nothing"
    run, _, _ = arrange({"titan": TITAN}, text)
    run.counts["titan"].see(event.changed(limit_id(0), "fix", {}, check=False))
    run.counts["titan"].see(event.failed(limit_id(1), errors.Problem("power-failed", "no")))
    budgets.remember(run)
    assert [card.applied_w for card in sightings.read(state)["titan"].cards] == [280, None]
    run, _, _ = arrange({"titan": TITAN}, "power: {temperature_c: 80}\n")
    budgets.remember(run)
    assert [card.applied_w for card in sightings.read(state)["titan"].cards] == [None, None], "nothing holds it any more"


def test_what_a_card_tells_no_more_is_taken_from_when_it_was_seen(arrange: Arrange) -> None:
    """A lost card hides its UUID and a silent driver every range: neither may make a run let a card go."""
    run, _, _ = arrange({"titan": TITAN}, "power: {limit: 80%}\n")
    budgets.remember(run)
    lost = facts.Gpu(bus="0000:02:00.0", vendor="nvidia", name="NVIDIA GeForce RTX 3090")
    silent = facts.Gpu(bus="0000:01:00.0", vendor="nvidia", name="NVIDIA GeForce RTX 3090", uuid=boxes.UUIDS[0])
    run, _, _ = arrange({"titan": boxes.box(silent, lost)}, "power: {limit: 80%}\n")
    assert [one.limit_w for one in run.power["titan"].cards] == [280, 280]
    assert list(run.power["titan"].policy.cards) == [boxes.UUIDS[0], boxes.UUIDS[1]]
    budgets.remember(run)
    assert [card.default_w for card in sightings.read(run.reach.project.state)["titan"].cards] == [350, 350]
    other = facts.Gpu(bus="0000:02:00.0", vendor="nvidia", name="Tesla P40")
    run, _, _ = arrange({"titan": boxes.box(other)}, "power: {limit: 80%}\n")
    assert run.power["titan"].policy.cards == {}, "another card in its slot is not it"


def test_two_controllers_runs_leave_both_of_theirs_and_a_damaged_record_is_none(tmp_path: pathlib.Path) -> None:
    one, two = sightings.Sighting(cards=(sightings.Card(uuid="GPU-1", max_w=350),)), sightings.Sighting(jetson=True)
    sightings.keep(tmp_path, {"titan": one})
    sightings.keep(tmp_path, {"orin": two})
    assert sightings.read(tmp_path) == {"titan": one, "orin": two}
    (tmp_path / "cards.json").write_text('{"titan": {"cards": "many"}}')
    assert sightings.read(tmp_path) == {}
    (tmp_path / "cards.json").write_text("{")
    sightings.keep(tmp_path, {"orin": two})
    assert json.loads((tmp_path / "cards.json").read_text()) == {"orin": {"jetson": True}}


def test_two_rounds_are_one_outcome_as_it_is_after_the_second() -> None:
    first = fleet.Outcome(status="changed", ok=3, changed=2, skipped=1, changes=("power-policy:node", "jetson:fan"))
    second = fleet.Outcome(status="ok", ok=6)
    assert power_apply.merged(first, second, ["jetson:mode"]) == fleet.Outcome(
        status="changed", ok=3, changed=3, changes=("power-policy:node", "jetson:fan", "jetson:mode")
    )
    fell = fleet.Outcome(status="unreachable", problem=errors.Problem("unreachable", "gone"))
    both = power_apply.merged(first, fell, ["jetson:mode"])
    assert (both.status, both.changes) == ("unreachable", ("power-policy:node", "jetson:fan")), "nobody saw the mode set"
