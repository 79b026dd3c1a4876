"""A unit: when it is restarted and when not, waiting, failing, being killed in between, and going away."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.node import strict
from tests.node.resources import loopback, systemd_fake, test_listeners
from tests.node.resources.cases import unit as cases
from wattherd import errors, records
from wattherd import machine as machines
from wattherd.resources import base, unit

NAME, TEXT = cases.NAME, cases.TEXT
PATH = f"/etc/systemd/system/{NAME}"
PENDING = f"/var/lib/wattherd/pending/{NAME}"
ONESHOT = "[Service]\nType=oneshot\nExecStart=/bin/prepare\n"
TIMER = "[Timer]\nOnCalendar=daily\n\n[Install]\nWantedBy=timers.target\n"


def _delta(one: unit.Unit, bench: strict.Bench) -> base.Delta:
    return base.delta(one.wanted(), one.actual(bench.machine))


def _converge(one: unit.Unit, bench: strict.Bench) -> list[str]:
    """As a run does it. Gives the keys that differed."""
    state = one.observe(bench.machine, [one])[one.id]
    difference = base.delta(one.wanted(), state)
    if difference:
        one.preflight(bench.machine, state)
        one.fix(bench.machine, difference, bench.tell)
        assert _delta(one, bench) == {}
    return list(difference)


def _refused(one: unit.Unit, bench: strict.Bench) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        _converge(one, bench)
    return caught.value


@pytest.fixture
def systemd(bench: strict.Bench) -> systemd_fake.Systemd:
    return systemd_fake.Systemd(bench)


# -- the file, and the inputs in the process


def test_the_file_ends_with_the_digest_of_text_and_inputs(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    _converge(cases.wanted("two"), bench)
    digest = hashlib.sha256(f"{TEXT}\0two".encode()).hexdigest()
    assert bench.machine.text(PATH) == f"{TEXT}\n[Service]\nEnvironment=WATTHERD_INPUTS={digest}\n"
    assert systemd.did == ["daemon-reload", f"reenable {NAME}", f"start {NAME}"]
    assert not bench.machine.exists(PENDING)


def test_a_changed_input_restarts_once(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.running(NAME, cases.body(cases.wanted("one")))
    assert _converge(cases.wanted("two"), bench) == ["sha256", "inputs"]
    assert systemd.did == ["daemon-reload", f"reenable {NAME}", f"restart {NAME}"]
    assert _converge(cases.wanted("two"), bench) == []
    assert systemd.starts == 2


def test_a_file_that_is_right_does_not_hide_an_old_process(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.running(NAME, cases.body(cases.wanted("two")), environment="WATTHERD_INPUTS=older\0")
    assert _converge(cases.wanted("two"), bench) == ["inputs"]
    assert systemd.did == [f"restart {NAME}"]


def test_a_file_that_somebody_touched_up_is_put_right_without_a_restart(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.running(NAME, cases.body(cases.wanted("two")))
    bench.put(PATH, cases.body(cases.wanted("two")) + b"# a note\n")
    _converge(cases.wanted("two"), bench)
    assert systemd.did == ["daemon-reload", f"reenable {NAME}"]


def test_a_process_that_hides_its_environment_is_told_of(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.keeps_environment = False
    problem = _refused(cases.wanted(), bench)
    assert problem.code == "unit-invalid"
    assert "does not carry WATTHERD_INPUTS" in problem.message


def test_a_moment_between_fork_and_exec_is_waited_out(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    environment: list[str] = []

    def forked(one: systemd_fake.Loaded) -> None:
        environment.append(bench.machine.text(f"/proc/{one.pid}/environ"))
        bench.put(f"/proc/{one.pid}/environ", "SYSTEMD=1\0")
        bench.machine.on_wait = lambda: bench.put(f"/proc/{one.pid}/environ", environment[0])

    systemd.fate = forked
    _converge(cases.wanted(), bench)
    assert systemd.starts == 1


def test_texts_are_for_the_diff(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.running(NAME, b"old")
    assert cases.wanted().texts(bench.machine)[0] == "old"
    assert unit.Unit(NAME, text=TEXT, sensitive=True).texts(bench.machine) == ("", "")
    assert unit.Unit(NAME).texts(bench.machine) == ("", "")
    assert "ExecStart" not in repr(cases.wanted())
    cases.wanted().actual(bench.machine)


# -- enabled, stopped, and units that a package brought


def test_a_unit_of_a_package_is_enabled_and_started(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.packaged("haproxy.service")
    one = unit.Unit("haproxy.service")
    assert _converge(one, bench) == ["enabled", "active"]
    assert systemd.did == ["enable haproxy.service", "start haproxy.service"]
    assert _converge(one, bench) == []


def test_stopped_and_disabled(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.running(NAME, cases.body(cases.wanted()))
    one = unit.Unit(NAME, text=TEXT, inputs="two", enabled=False, state="stopped")
    assert _converge(one, bench) == ["enabled", "active"]
    assert systemd.did == [f"disable {NAME}", f"stop {NAME}"]
    assert _converge(one, bench) == []


def test_a_failed_unit_counts_as_stopped(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.packaged("x.service", active="failed", sub="failed")
    assert _delta(unit.Unit("x.service", enabled=False, state="stopped"), bench) == {}


@pytest.mark.parametrize("restarts", [0, 5])
def test_a_failed_unit_is_started_past_its_start_limit(bench: strict.Bench, systemd: systemd_fake.Systemd, restarts: int) -> None:
    systemd.packaged("x.service", active="failed", sub="failed", restarts=restarts, enabled=True)
    assert _converge(unit.Unit("x.service"), bench) == ["active"]
    assert systemd.did == ["reset-failed x.service", "start x.service"]


def test_a_unit_that_does_not_exist(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    one = unit.Unit("haproxi.service")
    assert one.actual(bench.machine) is None
    one.preflight(bench.machine, None)  # a package that stands before it may bring it
    problem = _refused(one, bench)
    assert problem.code == "unit-invalid"
    assert "no such unit" in problem.message
    assert systemd.did == ["daemon-reload"]


def test_a_masked_unit_is_refused_before_anything_is_touched(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    bench.link(PATH, "/dev/null")
    systemd.packaged(NAME, masked=True)
    one = cases.wanted()
    with pytest.raises(errors.Problem) as caught:
        one.preflight(bench.machine, one.actual(bench.machine))
    assert caught.value.code == "unit-invalid"
    assert caught.value.hint == f"systemctl unmask {NAME} undoes that"
    by_package = unit.Unit("x.service")
    systemd.packaged("x.service", masked=True)
    assert _refused(by_package, bench).code == "unit-invalid"
    assert systemd.did == []


def test_something_else_at_the_place_of_the_file_is_a_conflict(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    bench.link(PATH, "/usr/lib/other.service")
    assert _refused(cases.wanted(), bench).code == "file-conflict"
    assert systemd.did == []


def test_many_are_observed_with_one_command(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.running(NAME, cases.body(cases.wanted()))
    systemd.packaged("a.timer", active="active", sub="waiting", enabled=True)
    batch = [cases.wanted(), unit.Unit("a.timer"), unit.Unit("none.service")]
    states = unit.Unit.observe(bench.machine, batch)
    assert len(bench.runner.ran) == 1
    assert [base.delta(one.wanted(), states[one.id]) == {} for one in batch] == [True, True, False]


# -- what has no main process


def test_a_oneshot_runs_when_its_file_changes_and_then_rests(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    first, second = (unit.Unit("prepare.service", text=ONESHOT, inputs=inputs, enabled=False) for inputs in ("1", "2"))
    for one in (first, first, second, second):
        _converge(one, bench)
    assert systemd.starts == 2
    assert "inputs" not in first.wanted()


def test_a_oneshot_that_failed_runs_again(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    def fail(one: systemd_fake.Loaded) -> None:
        one.active, one.sub, one.exit_code, one.exit_status, one.invocation = "failed", "failed", 1, 1, "f" * 32

    one = unit.Unit("prepare.service", text=ONESHOT, enabled=False)
    systemd.fate, systemd.journal = fail, "Starting prepare.service...\nerror: no disk\n"
    problem = _refused(one, bench)
    assert problem.message == "unit:prepare.service failed (ended with exit status 1): error: no disk"
    systemd.fate = None
    assert "active" in _converge(one, bench)
    assert systemd.starts == 2


def test_a_oneshot_on_its_way_is_left_to_end(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    one = unit.Unit("prepare.service", text=ONESHOT, enabled=False, state="stopped")
    running = systemd.running("prepare.service", cases.body(one))
    running.active, running.sub, running.enabled = "activating", "start", False
    assert _delta(one, bench) == {}


def test_a_timer_is_restarted_by_a_changed_file(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    old, new = unit.Unit("t.timer", text=TIMER), unit.Unit("t.timer", text=TIMER.replace("daily", "weekly"))
    for one in (old, old, new, new):
        _converge(one, bench)
    assert systemd.starts == 2
    assert bench.machine.text("/etc/systemd/system/t.timer").splitlines()[-1].startswith("# WATTHERD_INPUTS=")


def test_a_oneshot_that_remains_is_restarted_by_a_changed_file(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    text = ONESHOT + "RemainAfterExit=yes\n"
    for inputs in ("1", "1", "2"):
        _converge(unit.Unit("p.service", text=text, inputs=inputs, enabled=False), bench)
    assert systemd.did == ["daemon-reload", "start p.service", "daemon-reload", "restart p.service"]


# -- killed at any instant


class Killed(BaseException):
    """The run ended here, without a chance to tidy up."""


class Dying(strict.Machine):
    """Ends the run at one step of many, before it or right after it. Steps are commands, writes and deletions."""

    def __init__(self, bench: strict.Bench, step: int, when: str) -> None:
        super().__init__(bench.machine.root, bench.runner)
        self.left = step
        self.when = when

    def run(
        self,
        argv: Sequence[str],
        *,
        given: bytes | None = None,
        timeout_s: float | None = None,
        environment: Mapping[str, str] | None = None,
        held: Sequence[int] = (),
    ) -> machines.Result:
        with self._step():
            return super().run(argv, given=given, timeout_s=timeout_s, environment=environment, held=held)

    def write(self, path: str, body: bytes, *, mode: int = 0o644, owner: tuple[int, int] | None = None) -> None:
        with self._step():
            super().write(path, body, mode=mode, owner=owner)

    def unlink(self, path: str) -> None:
        with self._step():
            super().unlink(path)

    @contextlib.contextmanager
    def _step(self) -> Iterator[None]:
        self.left -= 1
        if self.left == -1 and self.when == "before":
            raise Killed
        yield
        if self.left == -1:
            raise Killed


TRIALS = {
    "service": (cases.wanted("one"), cases.wanted("two")),
    "timer": (unit.Unit("t.timer", text=TIMER), unit.Unit("t.timer", text=TIMER, inputs="2")),
    "oneshot": (
        unit.Unit("p.service", text=ONESHOT, enabled=False),
        unit.Unit("p.service", text=ONESHOT, inputs="2", enabled=False),
    ),
}


@pytest.mark.parametrize("kind", TRIALS)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(14))
def test_killed_at_any_step_the_next_run_converges(
    bench: strict.Bench, systemd: systemd_fake.Systemd, kind: str, when: str, step: int
) -> None:
    old, new = TRIALS[kind]
    _converge(old, bench)
    starts = systemd.starts
    dying = Dying(bench, step, when)
    with contextlib.suppress(Killed):
        new.fix(dying, base.delta(new.wanted(), new.actual(bench.machine)), bench.tell)
    _converge(new, bench)
    assert systemd.starts > starts, "what runs was not started from the new inputs"
    assert bench.machine.names("/var/lib/wattherd/pending") == []
    assert bench.machine.names("/etc/systemd/system") == [new.name]


def test_the_steps_of_a_run_are_all_tried(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    one, counting = cases.wanted(), Dying(bench, 1000, "before")
    one.fix(counting, {}, bench.tell)
    assert 1000 - counting.left <= 14
    assert systemd.starts == 1


def test_a_reload_that_is_missing_is_made_up(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.running(NAME, cases.body(cases.wanted())).body = b"as it was before"
    assert _converge(cases.wanted(), bench) == ["loaded"]
    assert systemd.did == ["daemon-reload"]


def test_enabled_but_not_started(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    one = systemd.running(NAME, cases.body(cases.wanted()))
    one.active, one.sub, one.pid = "inactive", "dead", 0
    assert _converge(cases.wanted(), bench) == ["active", "inputs"]
    assert systemd.did == [f"start {NAME}"]


# -- a file that systemd does not take


def test_a_rejected_file_is_taken_back(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    good = cases.body(cases.wanted())
    systemd.running(NAME, good)
    systemd.complaint = f"{PATH}:5: Unknown key 'BROKEN', ignoring.\n{NAME}: Service has no ExecStart=. Refusing.\n"
    problem = _refused(unit.Unit(NAME, text="BROKEN" + TEXT), bench)
    assert problem.code == "unit-invalid"
    assert "Unknown key 'BROKEN'" in problem.message
    assert "Service has no ExecStart=. Refusing." in problem.message
    assert "put back" in problem.hint
    assert bench.machine.read(PATH) == good
    assert not bench.machine.exists(PENDING)
    assert systemd.starts == 1
    assert _converge(cases.wanted(), bench) == []


def test_a_rejected_new_file_goes_again(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    assert _refused(unit.Unit(NAME, text="BROKEN" + TEXT), bench).code == "unit-invalid"
    assert not bench.machine.exists(PATH)
    assert systemd.did == ["daemon-reload", "daemon-reload"]


def test_a_rejected_file_is_taken_back_by_the_run_after_a_killed_one(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    good, broken = cases.body(cases.wanted()), unit.Unit(NAME, text="BROKEN" + TEXT)
    systemd.running(NAME, good)
    bench.put(PENDING, good)
    bench.put(PATH, cases.body(broken))
    assert _refused(broken, bench).code == "unit-invalid"
    assert bench.machine.read(PATH) == good


# -- ready, slow, failed


@pytest.mark.parametrize("answers", [(200,), (503, 503, 200), (404, 200)])
def test_it_waits_until_ready(bench: strict.Bench, systemd: systemd_fake.Systemd, answers: tuple[int, ...]) -> None:
    with loopback.serving(*answers) as server:
        one = unit.Unit(NAME, text=TEXT, ready_url=server.url)
        assert "ready" in _converge(one, bench)
        assert systemd.starts == 1
        assert _converge(one, bench) == []
    assert all(unit_ == "s" and total == 60 for words, _, total, unit_ in bench.tell.steps if "loading" in words)
    assert any("loading" in words for words in bench.tell.words) == (503 in answers)


def test_a_server_that_still_loads_is_not_restarted(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    with loopback.serving(503, 503, 200) as server:
        one = unit.Unit(NAME, text=TEXT, ready_url=server.url)
        systemd.running(NAME, cases.body(one))
        assert _converge(one, bench) == ["ready"]
    assert systemd.did == []


def test_the_pause_grows_and_the_limit_holds(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    with loopback.serving(503) as server:
        problem = _refused(unit.Unit(NAME, text=TEXT, ready_url=server.url, ready_timeout_s=20), bench)
    assert problem.code == "unit-not-ready"
    assert "not ready within 20 s" in problem.message
    assert "loading" in problem.message
    assert "left running" in problem.hint
    assert bench.machine.waits[0] == 0.25
    assert max(bench.machine.waits) == 2.0
    assert sum(bench.machine.waits) == pytest.approx(20.0)
    assert systemd.units[NAME].pid
    assert not bench.machine.exists(PENDING)


def _loops(bench: strict.Bench) -> Callable[[systemd_fake.Loaded], None]:
    """Fails after its start, and systemd starts it again."""

    def fate(one: systemd_fake.Loaded) -> None:
        def again() -> None:
            one.restarts, one.invocation = 1, "e" * 32

        bench.machine.on_wait = again

    return fate


def test_a_restart_by_systemd_ends_the_wait_at_once(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.fate, systemd.journal = (
        _loops(bench),
        "loading\n0.1 E gguf_init: failed to open GGUF\n0.2 E exiting due to model loading error\n",
    )
    with loopback.serving(503) as server:
        problem = _refused(unit.Unit(NAME, text=TEXT, ready_url=server.url), bench)
    assert problem.code == "unit-failed"
    assert "0.1 E gguf_init: failed to open GGUF" in problem.message
    assert len(bench.machine.waits) == 1
    assert (
        f"_SYSTEMD_INVOCATION_ID={1:032x}" in bench.runner.commands[-2] or f"_SYSTEMD_INVOCATION_ID={1:032x}" in bench.runner.commands[-1]
    )


@pytest.mark.parametrize("grown", [{"restarts": 3}, {"invocation": "e" * 32}, {"active": "failed"}])
def test_one_sign_of_a_restart_is_enough(bench: strict.Bench, systemd: systemd_fake.Systemd, grown: dict[str, object]) -> None:
    with loopback.serving(503) as server:
        one = unit.Unit(NAME, text=TEXT, ready_url=server.url)
        loaded = systemd.running(NAME, cases.body(one))
        loaded.restarts = 2
        bench.machine.on_wait = lambda: vars(loaded).update(grown)
        assert _refused(one, bench).code == "unit-failed"
    assert len(bench.machine.waits) == 1


def test_a_loop_too_fast_to_see_its_first_end(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    """At the first look systemd has already started it again, and it runs."""
    systemd.fate, systemd.journal = lambda one: vars(one).update(restarts=1), "error: no such device\n"
    problem = _refused(cases.wanted(), bench)
    assert problem.message == f"unit:{NAME} does not stay up (systemd restarted it after it failed): error: no such device"
    assert problem.context["restarts"] == 1


def test_a_restart_by_systemd_is_seen_without_a_readiness_check(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.fate, systemd.journal = _loops(bench), "error: invalid argument: --mlock\n"
    assert "error: invalid argument: --mlock" in _refused(cases.wanted(), bench).message


def test_a_key_in_the_line_that_tells_why_is_not_told(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.fate, systemd.journal = _loops(bench), "error: invalid argument: --api-key=sesame-open-sesame\x1b[31m\n"
    with pytest.raises(errors.Problem) as caught:
        _converge(cases.wanted(), bench)
    assert "invalid argument: --api-key=" in caught.value.message
    assert "sesame" not in f"{caught.value} {caught.value.hint} {caught.value.context}"
    assert "\x1b" not in caught.value.message


@pytest.mark.parametrize(
    ("sub", "active", "exit_code", "exit_status", "expected"),
    [
        ("failed", "failed", 1, 1, "ended with exit status 1"),
        ("failed", "failed", 3, 4, "built for another CPU"),
        ("auto-restart", "activating", 2, 9, "ended by signal 9"),
        ("dead", "inactive", 1, 0, "ended with exit status 0"),
    ],
)
def test_an_end_right_after_the_start(
    bench: strict.Bench, systemd: systemd_fake.Systemd, sub: str, active: str, exit_code: int, exit_status: int, expected: str
) -> None:
    def fate(one: systemd_fake.Loaded) -> None:
        one.active, one.sub, one.pid, one.exit_code, one.exit_status = active, sub, 0, exit_code, exit_status

    systemd.fate = fate
    problem = _refused(cases.wanted(), bench)
    assert problem.code == "unit-failed"
    assert expected in problem.message
    systemd.fate = None
    assert "inputs" in _converge(cases.wanted(), bench)


def test_a_condition_that_is_not_met(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    def skipped(one: systemd_fake.Loaded) -> None:
        one.active, one.sub, one.pid, one.invocation = "inactive", "dead", 0, ""

    systemd.fate, systemd.journal = skipped, f"{NAME} was skipped because of an unmet condition check (ConditionPathExists=/x).\n"
    problem = _refused(cases.wanted(), bench)
    assert "was not started" in problem.message
    assert "unmet condition" in problem.message


def test_the_old_process_is_waited_for(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    """After `restart --no-block` systemd shows the old process until it has ended: that is no success yet."""
    old = systemd.running(NAME, cases.body(cases.wanted("one")))
    invocation = old.invocation

    def stopping(one: systemd_fake.Loaded) -> None:
        new = (one.invocation, one.active, one.sub)
        one.invocation, one.active, one.sub, one.waiting = invocation, "deactivating", "stop-sigterm", True

        def ended() -> None:
            if len(bench.machine.waits) == 3:
                one.invocation, one.active, one.sub = new
                one.waiting = False

        bench.machine.on_wait = ended

    systemd.fate = stopping
    _converge(cases.wanted("two"), bench)
    assert sum("old process" in words for words in bench.tell.words) == 3


def test_a_start_that_takes_long_is_waited_for_and_not_begun_again(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    """Type=notify: another run, or the boot, has started it from the right inputs."""
    one = unit.Unit(NAME, text=TEXT.replace("[Service]", "[Service]\nType=notify"))
    loaded = systemd.running(NAME, cases.body(one))
    loaded.active, loaded.sub = "activating", "start"

    def up() -> None:
        loaded.active, loaded.sub = "active", "running"

    bench.machine.on_wait = up
    assert _converge(one, bench) == ["active"]
    assert systemd.did == []


def test_a_start_that_never_ends(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    def hangs(one: systemd_fake.Loaded) -> None:
        one.active, one.sub = "activating", "start"

    systemd.fate = hangs
    problem = _refused(cases.wanted(), bench)
    assert problem.code == "unit-not-ready"
    assert "systemd still says activating (start)" in problem.message


# -- ports


def test_a_port_of_another_program_is_named_before_anything_is_touched(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    test_listeners.arrange(bench)
    one = unit.Unit(NAME, text=TEXT, ports=(8080,))
    before = bench.tree()
    with pytest.raises(errors.Problem) as caught:
        one.preflight(bench.machine, one.actual(bench.machine))
    assert caught.value.code == "port-in-use"
    assert "port 8080, which process 70 (nginx of other.service) holds" in caught.value.message
    assert caught.value.context == {"port": 8080, "pid": 70, "program": "nginx", "unit": "other.service"}
    with pytest.raises(errors.Problem):
        one.fix(bench.machine, {}, bench.tell)
    assert bench.tree() == before
    assert systemd.did == []


@pytest.mark.parametrize(("address", "foreign"), [("127.0.0.1", False), ("192.0.2.7", True)])
def test_an_address_that_is_not_this_nodes(bench: strict.Bench, systemd: systemd_fake.Systemd, address: str, *, foreign: bool) -> None:
    """Found out before the old process is stopped for the sake of a new one that could not start."""
    one = unit.Unit(NAME, text=TEXT, ports=(8080,), ready_url=f"http://{address}:8080/health")
    with pytest.raises(errors.Problem, match="no address of this node") if foreign else contextlib.nullcontext():
        one.preflight(bench.machine, one.actual(bench.machine))
    assert systemd.did == []


def test_its_own_port_is_no_conflict(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    running = systemd.running(NAME, cases.body(cases.wanted("one")))
    test_listeners.arrange(bench, pid=running.pid, cgroup=f"/system.slice/{NAME}")
    bench.link("/proc/71/fd/5", "socket:[1111]")
    bench.put("/proc/71/cgroup", f"0::/system.slice/{NAME}\n")
    _converge(unit.Unit(NAME, text=TEXT, ports=(8080,)), bench)
    assert systemd.starts == 2


def test_a_port_of_another_unit_of_ours_passes_before_the_run_and_not_in_it(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    """The same run may be about to take that unit away; when it did not, the start is refused."""
    test_listeners.arrange(bench, cgroup="/system.slice/llama@old.service")
    bench.put("/proc/70/environ", "WATTHERD_INPUTS=abc\0")
    one = unit.Unit(NAME, text=TEXT, ports=(8080,))
    one.preflight(bench.machine, one.actual(bench.machine))
    problem = _refused(one, bench)
    assert "of llama@old.service" in problem.message
    assert systemd.did == []


def test_ports_of_a_unit_that_stays_stopped_do_not_matter(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    test_listeners.arrange(bench)
    _converge(unit.Unit(NAME, text=TEXT, ports=(8080,), enabled=False, state="stopped"), bench)
    assert systemd.did == ["daemon-reload"]


# -- going away


def test_remove_takes_what_was_made(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    _converge(cases.wanted(), bench)
    systemd.did.clear()
    cases.wanted().remove(bench.machine, bench.tell)
    assert systemd.did == [f"stop {NAME}", f"disable {NAME}", "daemon-reload", f"reset-failed {NAME}"]
    assert cases.wanted().actual(bench.machine) is None
    assert bench.machine.names("/etc/systemd/system") == []


@pytest.mark.parametrize("kept", ["CacheDirectory=llama-smol", "RuntimeDirectory=wattherd/presets-herd"])
def test_remove_takes_what_the_unit_kept_in_its_own_folders(bench: strict.Bench, systemd: systemd_fake.Systemd, kept: str) -> None:
    one = records.replace(cases.wanted(), text=cases.wanted().text.replace("[Service]\n", f"[Service]\n{kept}\n"))
    _converge(one, bench)
    systemd.did.clear()
    one.remove(bench.machine, bench.tell)
    assert systemd.did == [f"stop {NAME}", f"disable {NAME}", f"clean {NAME}", "daemon-reload", f"reset-failed {NAME}"]


def test_remove_of_a_unit_of_a_package_leaves_its_file(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    systemd.packaged("haproxy.service", active="active", sub="running", pid=9, enabled=True)
    unit.Unit("haproxy.service").remove(bench.machine, bench.tell)
    assert systemd.did == ["stop haproxy.service", "disable haproxy.service", "reset-failed haproxy.service"]


@pytest.mark.parametrize("dies", [True, False])
def test_remove_kills_what_does_not_stop(bench: strict.Bench, systemd: systemd_fake.Systemd, *, dies: bool) -> None:
    running = systemd.running(NAME, cases.body(cases.wanted()))
    act = systemd._act

    def stubborn(verb: str, name: str) -> machines.Result | None:
        if verb == "stop" or (verb == "kill" and not dies):
            running.active, running.sub = "deactivating", "stop-sigterm"
            return None
        return act(verb, name)

    systemd._act = stubborn  # type: ignore[method-assign]
    if dies:
        cases.wanted().remove(bench.machine, bench.tell)
        assert not bench.machine.exists(PATH)
    else:
        with pytest.raises(errors.Problem, match="does not stop, not even when killed") as caught:
            cases.wanted().remove(bench.machine, bench.tell)
        assert caught.value.code == "unit-failed"
        assert bench.machine.exists(PATH)
    assert f"kill {NAME}" in systemd.did
    assert 120 <= sum(bench.machine.waits) < 140


# -- wrong fields


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"name": "llama"}, "unit-invalid"),
        ({"name": "llama@.service"}, "unit-invalid"),
        ({"name": "../x.service"}, "unit-invalid"),
        ({"name": "-x.service", "state": "running"}, "manifest-invalid"),
        ({"name": "x.service", "ready_url": "http://example.org/"}, "manifest-invalid"),
        ({"name": "x.service", "text": "[Service]\nExecStart=/x\n"}, "unit-invalid"),
    ],
)
def test_wrong_fields_are_refused(words: dict[str, str], code: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        unit.Unit(**words)  # type: ignore[arg-type]
    assert caught.value.code == code


def test_the_file_is_where_systemd_looks(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    _converge(cases.wanted(), bench)
    assert Path(bench.machine.path(PATH)).stat().st_mode & 0o777 == 0o644
    assert systemd.starts == 1
