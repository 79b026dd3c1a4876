"""A policy that waits for a yes: what it replaced, how long it has, and clocks that jump."""

from __future__ import annotations

import pytest

from tests.node import strict
from wattherd.power import health, pending, wanted

BOOT = "/proc/sys/kernel/random/boot_id"
VITALS = health.Vitals(cards=("GPU-a",))


class Ticking(strict.Machine):
    """Two clocks that may part, as real ones do."""

    ticks_s = 1000.0

    def monotonic_s(self) -> float:
        return self.ticks_s


@pytest.fixture
def machine(machine: strict.Machine) -> Ticking:
    return Ticking(machine.root)


def policy(watts: float, confirm_s: int = 180) -> str:
    return wanted.encode(wanted.Policy({"GPU-a": wanted.CardPolicy(limit_w=watts)}, confirm_s=confirm_s))


def apply(bench: strict.Bench, text: str) -> None:
    pending.begin(bench.machine, text, VITALS)
    bench.put(wanted.POLICY, text)


@pytest.fixture(autouse=True)
def _booted(bench: strict.Bench) -> None:
    bench.put(BOOT, "boot-1\n")


def waiting(bench: strict.Bench) -> pending.Pending:
    found = pending.waiting(bench.machine)
    assert found is not None
    return found


def test_the_first_policy_goes_back_to_none(bench: strict.Bench) -> None:
    apply(bench, policy(200))
    assert waiting(bench).previous is None
    assert pending.left_s(bench.machine, waiting(bench)) == 180


def test_a_power_cut_between_the_record_and_the_policy_leaves_the_old_one_alone(bench: strict.Bench) -> None:
    bench.put(wanted.POLICY, policy(250))
    pending.begin(bench.machine, policy(200), VITALS)
    assert pending.waiting(bench.machine) is None


def test_the_way_back_leads_to_the_last_one_that_was_confirmed(bench: strict.Bench) -> None:
    apply(bench, policy(250))
    pending.settle(bench.machine)
    apply(bench, policy(200))
    apply(bench, policy(150))
    assert waiting(bench).previous == policy(250)
    assert waiting(bench).digest == pending.digest_of(policy(150))
    assert waiting(bench).vitals == VITALS


def test_going_back_to_the_confirmed_one_needs_nobodys_yes(bench: strict.Bench) -> None:
    apply(bench, policy(250))
    pending.settle(bench.machine)
    apply(bench, policy(200))
    apply(bench, policy(250))
    assert pending.waiting(bench.machine) is None


def test_a_policy_that_wants_no_yes_waits_for_none(bench: strict.Bench) -> None:
    apply(bench, policy(200, confirm_s=0))
    assert pending.waiting(bench.machine) is None


@pytest.mark.parametrize("jump_s", [-86400.0, 86400.0])
def test_a_jump_of_the_wall_clock_moves_nothing(bench: strict.Bench, machine: Ticking, jump_s: float) -> None:
    apply(bench, policy(200))
    machine.ticks_s += 60
    machine.clock_s += jump_s
    assert pending.left_s(machine, waiting(bench)) == 120


@pytest.mark.parametrize(("passed_s", "left_s"), [(60.0, 120.0), (1000.0, 0.0), (-5000.0, 180.0)])
def test_across_a_reboot_the_wall_clock_counts_and_never_gives_more(
    bench: strict.Bench, machine: Ticking, passed_s: float, left_s: float
) -> None:
    """A board without a clock battery boots in the past: the policy gets its time once more, never longer."""
    apply(bench, policy(200))
    bench.put(BOOT, "boot-2\n")
    machine.ticks_s, machine.clock_s = 10.0, machine.clock_s + passed_s
    assert pending.left_s(machine, waiting(bench)) == left_s
    pending.carry_over(machine, waiting(bench))
    assert pending.left_s(machine, waiting(bench)) == left_s
    machine.ticks_s, machine.clock_s = 40.0, machine.clock_s + 1e6
    assert pending.left_s(machine, waiting(bench)) == max(0.0, left_s - 30)


def test_a_long_run_gives_it_its_whole_time_at_the_end(bench: strict.Bench, machine: Ticking) -> None:
    apply(bench, policy(200))
    machine.ticks_s += 170
    pending.renew(machine, waiting(bench))
    assert pending.left_s(machine, waiting(bench)) == 180


@pytest.mark.parametrize("now", ["waits", "replaced"])
def test_one_that_is_condemned_stays_so_until_all_is_back(bench: strict.Bench, now: str) -> None:
    bench.put(wanted.POLICY, policy(250))
    apply(bench, policy(200))
    pending.condemn(bench.machine, waiting(bench), "a card is lost")
    if now == "replaced":
        bench.put(wanted.POLICY, policy(250))
    assert waiting(bench).why == "a card is lost"
    bench.put(wanted.POLICY, policy(100))
    assert pending.waiting(bench.machine) is None


def test_a_restore_that_was_cut_off_is_not_undone_by_a_put_back(bench: strict.Bench) -> None:
    """No policy, where one was to come back: somebody took it away on purpose."""
    bench.put(wanted.POLICY, policy(250))
    apply(bench, policy(200))
    pending.condemn(bench.machine, waiting(bench), "a card is lost")
    bench.machine.unlink(wanted.POLICY)
    assert pending.waiting(bench.machine) is None


def test_the_first_policy_is_on_its_way_back_until_all_is(bench: strict.Bench) -> None:
    apply(bench, policy(200))
    pending.condemn(bench.machine, waiting(bench), "a card is lost")
    bench.machine.unlink(wanted.POLICY)
    assert waiting(bench).why == "a card is lost"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"digest": 3}'])
def test_a_damaged_record_is_none(bench: strict.Bench, body: bytes) -> None:
    apply(bench, policy(200))
    bench.put(pending.PLACE, body)
    assert pending.waiting(bench.machine) is None
