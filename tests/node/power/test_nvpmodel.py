"""nvpmodel: its conf in every form, its answers, its refusals, and a mode chosen by name on boards that number them differently."""

from __future__ import annotations

import re

import pytest

from tests import power_cases
from tests.node import strict
from tests.node.power import jetson_boards, jetson_fake
from wattherd import errors
from wattherd import machine as machines
from wattherd.power.jetson import conf, nvpmodel

MODE = conf.Mode(1, "10W")


def _result(case: str, code: int) -> machines.Result:
    text = power_cases.case(case).input
    return machines.Result(code, "\n".join(line for line in text.splitlines() if line.startswith("NVPM")).encode(), b"")


def test_nvp_q_with_warning_and_fan() -> None:
    first, second = power_cases.case("nvp-q-with-warning-and-fan").input.split("B:")
    found = nvpmodel.parse(first)
    assert (found.name, found.number) == ("MAXN", 0)
    assert (found.fan, found.fans) == ("", True), "this board has fan modes, and none is set"
    found = nvpmodel.parse(second)
    assert (found.name, found.number, found.fan, found.fans) == ("MODE_30W_4CORE", 5, "cool", True)


def test_nvp_q_nonroot_trailing_errors() -> None:
    found = nvpmodel.parse(power_cases.case("nvp-q-nonroot-trailing-errors").input)
    assert (found.name, found.number, found.fault) == ("5W", 1, "")
    assert found.notes == ("run as root for the full read-out of the mode",)


def test_a_verbose_answer_has_the_mode_in_the_middle_of_a_line() -> None:
    text = (
        "NVPM VERB: Config file: /etc/nvpmodel.conf\nNVPM VERB: parsing done for /etc/nvpmodel.conf\nNV Fan Mode:quiet\n"
        "NVPM VERB: Current mode: NV Power Mode: MODE_15W_6CORE\n2\nNVPM VERB: PARAM CPU_ONLINE: ARG CORE_0: REAL_VAL: 1 CONF_VAL: 1\n"
    )
    found = nvpmodel.parse(text)
    assert (found.name, found.number, found.fan) == ("MODE_15W_6CORE", 2, "quiet")


@pytest.mark.parametrize("text", ["", "NV Power Mode: \n", "NV Power Mode\n", "NV Power Mode: 15W\n", "NVPM ERROR: no conf\n3\n"])
def test_an_answer_without_a_mode_names_none(text: str) -> None:
    found = nvpmodel.parse(text)
    assert (found.name, found.number) == ("", None)


def test_nvp_m_eof_at_prompt(bench: strict.Bench) -> None:
    """The prompt finds the end of its input; the board stays as it is, and nothing waits in nvpmodel."""
    fake = jetson_fake.Board(bench, modes={"MAXN": 0, "10W": 1}, mode="MAXN", answer=_result("nvp-m-eof-at-prompt", 255))
    done = nvpmodel.switch(bench.machine, MODE)
    assert done.kind == "reboot"
    assert "not applied, nothing pending" in done.words
    assert fake.mode == "MAXN"
    call = next(call for call in bench.runner.ran if call.argv[:2] == ("nvpmodel", "-m"))
    assert call.given is None, "its stdin is empty: nobody answers"
    assert call.timeout_s is not None


def test_nvp_m_declined_nothing_pending(bench: strict.Bench) -> None:
    jetson_fake.Board(bench, modes={"MAXN": 0, "10W": 1}, mode="MAXN", answer=_result("nvp-m-declined-nothing-pending", 0))
    done = nvpmodel.switch(bench.machine, MODE)
    assert (done.kind, done.words) == ("reboot", "10W can be set only while the board boots; not applied, nothing pending")
    assert nvpmodel.status(bench.machine) == 0


def test_nvp_m_write_error(bench: strict.Bench) -> None:
    jetson_fake.Board(bench, modes={"MAXN": 0, "10W": 1}, mode="MAXN", answer=_result("nvp-m-write-error", 255))
    done = nvpmodel.switch(bench.machine, MODE)
    assert done.kind == "busy"
    assert "tpc_pg_mask: 16" in done.words


@pytest.mark.parametrize(
    ("code", "out", "kind"),
    [
        (0, "", "done"),
        (0, jetson_fake.PROMPT.format(number=1), "reboot"),
        (0, "Running in chroot, ignoring request.\n", "unsupported"),
        (124, "", "silent"),
        (255, "NVPM ERROR: Error opening /var/lib/nvpmodel/status: 13\n", "no-permission"),
        (1, "nvpmodel: must be run as root\n", "no-permission"),
        (255, "NVPM ERROR: Error writing 2 to /sys/devices/gpu.0/fbp_pg_mask: 19\nNVPM ERROR: failed to set power mode!\n", "failed"),
        (255, "", "failed"),
        (127, "nvpmodel: not found", "failed"),
    ],
)
def test_its_words_decide_and_not_its_exit_code(code: int, out: str, kind: str) -> None:
    assert nvpmodel.classify(machines.Result(code, out.encode(), b""), MODE).kind == kind


def test_a_change_without_a_word_that_did_not_happen_has_failed(bench: strict.Bench) -> None:
    jetson_fake.Board(bench, mode="40W", answer=machines.Result(0, b"", b""))
    done = nvpmodel.switch(bench.machine, conf.Mode(3, "25W"))
    assert (done.kind, done.words) == ("failed", "nvpmodel took 25W without a word, but still names 40W")


def test_a_change_from_inside_a_container_is_none_although_the_status_file_says_so(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench, mode="25W", answer=machines.Result(0, b"Running in chroot, ignoring request.\n", b""))
    assert nvpmodel.switch(bench.machine, conf.Mode(3, "25W")).kind == "unsupported"
    assert fake.asked == ["25W"]


def _boards() -> tuple[conf.Conf, conf.Conf]:
    """Of the case: A as its file, B as its list, with the gating that ARK found to need a reboot (modes 1 and 2)."""
    text = power_cases.case("nvp-choose-by-name").input
    listed = re.findall(r"(\d) (\w+)", text[text.index("board B:") :].splitlines()[0])
    gated = {"1", "2"}
    second = "".join(
        f"< POWER_MODEL ID={n} NAME={name} >\nTPC_POWER_GATING TPC_PG_MASK {252 if n in gated else 240}\n" for n, name in listed
    )
    return conf.parse(text[: text.index("board B:")]), conf.parse(second)


def test_nvp_choose_by_name() -> None:
    first, second = _boards()
    assert (conf.find(first, "fastest").number, conf.find(first, "15W").number) == (2, 0)
    assert (conf.find(second, "fastest").number, conf.find(second, "15W").number) == (0, 2)
    assert second.regates(second.numbered(4), conf.find(second, "15W"))
    assert not second.regates(second.numbered(4), conf.find(second, "25W"))


@pytest.mark.parametrize("kind", jetson_boards.kinds(), ids=lambda kind: str(kind.id))
def test_the_modes_of_every_board_are_found_by_name(kind: jetson_boards.Kind) -> None:
    found = conf.parse(kind.conf)
    assert found.numbers == dict(kind.modes)
    assert found.default == kind.default
    for name, number in kind.modes:
        assert conf.find(found, name).number == number
        assert conf.find(found, name.lower()).number == number


@pytest.mark.parametrize(
    ("board", "name"),
    [
        ("nano_4gb", "MAXN"),
        ("tx2_8gb", "MAXN"),
        ("xavier_nx", "MODE_20W_6CORE"),
        ("agx_xavier", "MAXN"),
        ("orin_nano_super_8gb", "MAXN_SUPER"),
        ("orin_nx_16gb", "MAXN_SUPER"),
        ("agx_orin_64gb", "MAXN"),
        ("agx_thor", "MAXN"),
    ],
)
def test_the_fastest_mode_of_every_board(board: str, name: str) -> None:
    assert conf.find(conf.parse(jetson_boards.kind(board).conf), "fastest").name == name


def test_an_unknown_mode_names_the_nearest_and_all() -> None:
    found = conf.parse(jetson_boards.kind("orin_nano_super_8gb").conf)
    with pytest.raises(errors.Problem) as caught:
        conf.find(found, "MAXN_SUPPER")
    assert caught.value.code == "mode-unknown"
    assert "did you mean MAXN_SUPER?" in caught.value.message
    assert caught.value.hint == "its nvpmodel.conf has: 15W, 25W, MAXN_SUPER, 7W"
    with pytest.raises(errors.Problem) as caught:
        conf.find(found, "zebra")
    assert "did you mean" not in caught.value.message


def test_every_form_of_the_file_is_read() -> None:
    text = (
        "# < POWER_MODEL ID=9 NAME=COMMENTED >\n"
        "< PARAM TYPE=CLOCK NAME=GPU >\nFREQ_TABLE /sys/x/available_frequencies\nMAX_FREQ /sys/x/max_freq\n\n"
        "<POWER_MODEL ID=0 NAME=MAXN>\n  < POWER_MODEL  NAME=15W   ID=1 >\nGPU MAX_FREQ 624750000\nTPC_POWER_GATING TPC_PG_MASK 252\n"
        "< POWER_MODEL ID=1 NAME=AGAIN >\n< POWER_MODEL ID=x NAME=BAD >\n< PM_CONFIG DEFAULT=1 >\n< FAN_CONFIG DEFAULT=cool >\n"
    )
    found = conf.parse(text)
    assert found.numbers == {"MAXN": 0, "15W": 1}
    assert (found.default, found.fan) == (1, "cool")
    assert found.paths["GPU", "MAX_FREQ"] == "/sys/x/max_freq"
    assert found.modes[1].values["GPU", "MAX_FREQ"] == "624750000"
    assert found.modes[1].masks == {("TPC_POWER_GATING", "TPC_PG_MASK"): "252"}
    verbose = "NVPM VERB: parsing done\nNVPM VERB: POWER_MODEL: ID=0 NAME=MAXN\nPOWER_MODEL: ID=1 NAME=5W\n"
    assert conf.parse(verbose).numbers == {"MAXN": 0, "5W": 1}
    assert conf.parse("").modes == ()


def test_the_status_file_keeps_what_else_stands_in_it(bench: strict.Bench) -> None:
    bench.put("/var/lib/nvpmodel/status", "pmode:0004 fmode:quiet")
    nvpmodel.schedule(bench.machine, 12)
    assert bench.machine.text("/var/lib/nvpmodel/status") == "pmode:0012 fmode:quiet\n"
    assert nvpmodel.status(bench.machine) == 12
    bench.machine.unlink("/var/lib/nvpmodel/status")
    nvpmodel.schedule(bench.machine, 3)
    assert bench.machine.text("/var/lib/nvpmodel/status") == "pmode:0003\n"


def test_without_the_tool_or_an_answer_the_reason_is_said(bench: strict.Bench) -> None:
    assert nvpmodel.query(bench.machine).fault == "nvpmodel is not installed"
    bench.put("/usr/sbin/nvpmodel", mode=0o755)
    bench.runner.plan("nvpmodel", "-q", code=124)
    assert nvpmodel.query(bench.machine).fault == "nvpmodel gave no answer within 10 s"
    bench.runner.plan("nvpmodel", "-q", out="NVPM WARN: power mode is not set\n")
    assert nvpmodel.query(bench.machine).fault == "no power mode is set"


def test_a_silent_nvpmodel_leaves_the_status_file(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench, mode="15W")
    bench.runner.planned.clear()
    bench.runner.plan("nvpmodel", "-q", code=1, err="NVPM ERROR: boom\n")
    found = nvpmodel.query(bench.machine)
    assert (found.name, found.number) == (fake.mode, 2)
    assert "status" in found.notes[0]


@pytest.mark.parametrize(("now", "loose"), [("918000000", False), ("918100000", False), ("1020000000", True), ("612000000", False)])
def test_a_mode_that_failed_at_boot_shows_by_the_clock_that_the_gpu_may_run_at(bench: strict.Bench, now: str, loose: bool) -> None:
    """nvpmodel's service can fail at every boot while the status file goes on naming the mode."""
    text = (
        "< PARAM TYPE=CLOCK NAME=GPU >\nMAX_FREQ /sys/devices/17000000.gpu/max_freq\n"
        "< POWER_MODEL ID=1 NAME=25W >\nGPU MAX_FREQ 918000000\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >\nGPU MAX_FREQ -1\n"
    )
    bench.put("/sys/devices/17000000.gpu/max_freq", now)
    modes = conf.parse(text)
    words = nvpmodel.loose(bench.machine, modes, conf.find(modes, "25W"))
    assert ("the GPU may run at 1020 MHz where that mode allows 918 MHz" in words) == loose
    assert not nvpmodel.loose(bench.machine, modes, conf.find(modes, "MAXN_SUPER"))
