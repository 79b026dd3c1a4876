"""Three byte streams, exact and without deadlock, over every kind of channel: control, bulk and local."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.link import sshd
from wattherd import errors
from wattherd.link import local, transport

_BIG_BYTES = 8 * 1024 * 1024
#: Writes 3 MiB to stderr while it copies stdin to stdout: more than any window, before, during and after.
_ECHO_WITH_NOISE = (
    "noise() { head -c 1048576 /dev/zero | tr '\\0' e >&2; }; noise; head -c 4194304; noise; cat; noise; printf 'last words' >&2; exit 7"
)


@pytest.fixture(params=["control", "bulk", "local"])
def way(request: pytest.FixtureRequest, ground: sshd.Ground) -> Iterator[_Way]:
    if request.param == "local":
        there: transport.Link = local.LocalLink("here")
        yield _Way(there, bulk=False)
    else:
        ground.start("titan")
        there = ground.open("titan")
        yield _Way(there, bulk=request.param == "bulk")
    there.close()


class _Way:
    def __init__(self, link: transport.Link, *, bulk: bool) -> None:
        self.link = link
        self.start = link.bulk if bulk else link.run


def _rest(channel: transport.Channel) -> bytes:
    heard = bytearray()
    while data := channel.receive(60):
        heard += data
    return bytes(heard)


def test_eight_mebibytes_come_back_exactly_although_nobody_reads_meanwhile(way: _Way) -> None:
    sent = os.urandom(_BIG_BYTES)
    channel = way.start(_ECHO_WITH_NOISE)
    channel.send(sent)
    channel.close_stdin()
    heard = _rest(channel)
    assert (len(heard), hashlib.sha256(heard).digest()) == (len(sent), hashlib.sha256(sent).digest())
    assert channel.exit_status() == 7
    assert len(channel.stderr()) == transport.STDERR_KEPT_BYTES
    assert channel.stderr().endswith(b"eelast words")


def test_one_thread_sends_while_another_receives(way: _Way) -> None:
    sent = os.urandom(_BIG_BYTES)
    channel = way.start("cat")

    def pour() -> None:
        for start in range(0, len(sent), 100_000):
            channel.send(memoryview(sent)[start : start + 100_000])
        channel.close_stdin()

    sender = threading.Thread(target=pour)
    sender.start()
    heard = _rest(channel)
    sender.join(60)
    assert hashlib.sha256(heard).digest() == hashlib.sha256(sent).digest()


def test_every_byte_value_passes(way: _Way) -> None:
    sent = bytes(range(256)) * 3
    channel = way.start("cat")
    channel.send(sent)
    channel.close_stdin()
    assert _rest(channel) == sent
    assert channel.exit_status() == 0


def test_small_messages_go_to_and_fro(way: _Way) -> None:
    channel = way.start('while read -r line; do echo "got $line"; done')
    for number in range(50):
        channel.send(f"{number}\n".encode())
        assert channel.receive(20) == f"got {number}\n".encode()
    channel.close_stdin()
    assert channel.receive(20) == b""
    assert channel.exit_status() == 0


def test_there_is_no_terminal(way: _Way) -> None:
    assert _rest(way.start("tty; test -t 0 -o -t 1 -o -t 2; echo $?")).endswith(b"1\n")


def test_silence_is_a_problem_after_its_time_and_the_channel_lives_on(way: _Way) -> None:
    channel = way.start("read -r line; echo $line")
    started_s = time.monotonic()
    with pytest.raises(errors.Problem) as caught:
        channel.receive(0.4)
    took_s = time.monotonic() - started_s
    channel.send(b"after all\n")
    assert caught.value.code == "host-silent"
    assert 0.3 < took_s < 2
    assert channel.receive(20) == b"after all\n"


def test_stderr_alone_does_not_count_as_an_answer(way: _Way) -> None:
    channel = way.start("echo chatter >&2; read -r line")
    assert channel.wait_stderr(b"chatter", 20)
    with pytest.raises(errors.Problem) as caught:
        channel.receive(0.4)
    assert caught.value.code == "host-silent"
    assert channel.stderr() == b"chatter\n"


def test_a_prompt_on_stderr_is_waited_for(way: _Way) -> None:
    channel = way.start("printf 'noise\nprompt-17: ' >&2; read -r secret; printf 'prompt-17: ' >&2; read -r again; echo \"$secret $again\"")
    assert channel.wait_stderr(b"prompt-17: ", 20)
    channel.send(b"one\n")
    assert channel.wait_stderr(b"prompt-17: ", 20, count=2)
    channel.send(b"two\n")
    assert channel.receive(20) == b"one two\n"


def test_a_prompt_that_never_comes_is_told_by_stdout_or_by_the_end(way: _Way) -> None:
    speaking = way.start("echo hello; read -r line")
    assert not speaking.wait_stderr(b"prompt: ", 20)
    assert speaking.receive(20) == b"hello\n"
    ended = way.start("echo other >&2")
    assert not ended.wait_stderr(b"prompt: ", 20)
    assert ended.receive(20) == b""


def test_a_prompt_that_never_comes_is_silence_in_the_end(way: _Way) -> None:
    channel = way.start("read -r line")
    with pytest.raises(errors.Problem) as caught:
        channel.wait_stderr(b"prompt: ", 0.3)
    assert caught.value.code == "host-silent"


def test_sending_to_a_command_that_ended_is_a_cut_stream(way: _Way) -> None:
    channel = way.start("exec 0<&-; echo gone; exit 4")
    assert channel.receive(20) == b"gone\n"
    assert channel.receive(20) == b""
    with pytest.raises(errors.Problem) as caught:
        channel.send(bytes(100_000_000))
    assert caught.value.code == "stream-cut"


def test_a_command_that_takes_nothing_is_given_up(way: _Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "SEND_STALL_S", 0.5)
    # Ends with whatever started it: the session's own process.
    channel = way.start("echo ready; while kill -0 $PPID 2>/dev/null; do sleep 0.1; done")
    assert channel.receive(20) == b"ready\n"
    with pytest.raises(errors.Problem) as caught:
        channel.send(bytes(100_000_000))
    assert caught.value.code == "host-silent"
    channel.close()


def test_a_killed_command_leaves_no_status(way: _Way) -> None:
    channel = way.start("kill -9 $$")
    assert channel.receive(20) == b""
    # The ssh program reports a signal as 255; the others know that there was no status.
    assert channel.exit_status() in {None, 255}


def test_a_command_may_exit_with_255_and_talk_like_ssh(way: _Way) -> None:
    channel = way.start("echo 'Permission denied (publickey).' >&2; exit 255")
    assert channel.receive(20) == b""
    assert channel.exit_status() == 255


def test_closing_ends_a_command_that_reads(way: _Way, tmp_path: Path) -> None:
    witness = tmp_path / "pid"
    channel = way.start(f"echo $$ > {witness}; echo started; exec cat")
    assert channel.receive(20) == b"started\n"
    channel.close()
    way.link.close()
    _await_end(int(witness.read_text()))


def test_several_commands_run_side_by_side(way: _Way) -> None:
    first, second = way.start("cat"), way.start("cat")
    second.send(b"two")
    first.send(b"one")
    assert (first.receive(20), second.receive(20)) == (b"one", b"two")


def test_a_session_that_dies_under_a_command_is_a_cut_stream(ground: sshd.Ground) -> None:
    ground.start("titan")
    link = ground.open("titan")
    channel = link.run("echo $PPID; cat")
    os.kill(int(channel.receive(20)), signal.SIGKILL)
    with pytest.raises(errors.Problem) as caught:
        channel.receive(20)
    assert caught.value.code == "stream-cut"
    with pytest.raises(errors.Problem) as again:
        link.run("true")
    assert again.value.code == "stream-cut"
    link.close()


def test_a_bulk_session_that_dies_under_a_command_is_a_cut_stream(ground: sshd.Ground) -> None:
    ground.start("titan")
    link = ground.open("titan")
    channel = link.bulk("echo $PPID; cat")
    os.kill(int(channel.receive(20)), signal.SIGKILL)
    with pytest.raises(errors.Problem) as caught:
        channel.receive(20)
    assert caught.value.code == "stream-cut"
    link.close()


def test_a_bulk_channel_refuses_what_the_control_session_would(ground: sshd.Ground) -> None:
    server = ground.start("titan")
    link = ground.open("titan")
    ground.known_hosts.write_text(f"{server.token} {sshd.public_line(sshd.make_key(ground.home / 'other'))}\n")
    with pytest.raises(errors.Problem) as changed:
        link.bulk("true").receive(20)
    ground.known_hosts.write_text("")
    with pytest.raises(errors.Problem) as unknown:
        link.bulk("true").receive(20)
    ground.know(server.known())
    ground.authorized.write_text("")
    with pytest.raises(errors.Problem) as refused:
        link.bulk("true").receive(20)
    server.stop()
    with pytest.raises(errors.Problem) as unreachable:
        link.bulk("true").receive(20)
    link.close()
    assert [one.value.code for one in (changed, unknown, refused, unreachable)] == [
        "host-key-changed",
        "host-key-unknown",
        "auth-failed",
        "unreachable",
    ]


def test_a_bulk_channel_names_the_jump_host_that_refuses(ground: sshd.Ground) -> None:
    bastion = ground.start("bastion", "HostKeyAlias bastion-alias", known=False)
    ground.know(f"bastion-alias {sshd.public_line(bastion.host_keys[0])}\n")
    server = ground.start("titan", "ProxyJump bastion")
    link = ground.open("titan")
    ground.known_hosts.write_text(server.known())
    with pytest.raises(errors.Problem) as caught:
        link.bulk("true").receive(20)
    link.close()
    assert (caught.value.code, caught.value.context["hop"]) == ("host-key-unknown", "bastion")


def test_the_bulk_way_leaves_no_files_behind(ground: sshd.Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ground.home / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    ground.start("titan")
    link = ground.open("titan")
    channel = link.bulk("cat")
    made = [path for path in folder.rglob("*") if path.is_file()]
    assert made
    assert all(path.stat().st_mode & 0o077 == 0 or path.parent.stat().st_mode & 0o077 == 0 for path in made)
    channel.close()
    link.close()
    assert list(folder.iterdir()) == []


def test_a_missing_ssh_program_is_told(ground: sshd.Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.start("titan")
    link = ground.open("titan")
    monkeypatch.setenv("PATH", str(ground.home))
    assert shutil.which("ssh") is None
    with pytest.raises(errors.Problem) as caught:
        link.bulk("true")
    link.close()
    assert (caught.value.code, caught.value.hint) == ("ssh-config", "apt install openssh-client")


def _await_end(number: int) -> None:
    """Until the process is gone; the remote one ends a moment after its channel."""
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        try:
            sshd.signal_process(number)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail(f"process {number} is still there")
