"""Questions asked ahead: the answers are those that a question alone would get, and what fails is left to whoever asks again."""

from __future__ import annotations

import os
import threading

from tests.unit.link import sshd
from wattherd.link import ahead, resolve


def asked(*scripts: str, limit_s: float = 20) -> list[str | None]:
    questions = [("sh", "-c", script) for script in scripts]
    one = ahead.Ahead(questions, os.environ, limit_s)
    return [one.answer(question) for question in questions]


def test_each_question_has_its_own_answer() -> None:
    assert asked("echo one", "printf 'two\\nlines\\n'", "printf ''") == ["one\n", "two\nlines\n", ""]


def test_many_questions_are_shared_among_shells() -> None:
    assert asked(*(f"echo {number}" for number in range(50))) == [f"{number}\n" for number in range(50)]


def test_a_question_that_fails_has_no_answer_and_spoils_no_other() -> None:
    assert asked("echo one", "echo half; echo why >&2; exit 3", "no-such-program", "echo two") == ["one\n", None, None, "two\n"]


def test_words_stay_words() -> None:
    question = ("printf", "%s", "a b; $HOME `id` 'q' \"p\"")
    assert ahead.Ahead([question], os.environ, 20).answer(question) == question[2]


def test_one_that_hangs_is_ended() -> None:
    assert asked("echo one", "exec sleep 60", limit_s=0.5)[1] is None


def test_what_was_not_asked_has_no_answer() -> None:
    assert ahead.Ahead([], os.environ, 20).answer(("ssh", "-G", "x")) is None


def test_a_route_that_was_foreseen_is_the_same_route(ground: sshd.Ground) -> None:
    ground.host("titan", "HostName titan.example", "Port 2222", "User carol")
    ways = [sshd.Wanted("titan"), sshd.Wanted("10.0.0.1", port=2022, user="ops"), sshd.Wanted("bad", ssh_args=("-o", "NoSuchThing=yes"))]
    foreseen = resolve.Resolver(ground.config)
    foreseen.foresee((way, way.host) for way in ways)
    alone = resolve.Resolver(ground.config)
    for way in ways[:2]:
        assert foreseen.resolve(way, way.host) == alone.resolve(way, way.host)


def test_many_threads_ask_once(ground: sshd.Ground) -> None:
    """A `Match exec` line leaves a mark for every time that ssh reads it."""
    marks = ground.home / "marks"
    ground.host("titan", f'HostName 10.0.0.1\nMatch exec "echo x >> {marks}"')
    resolver = resolve.Resolver(ground.config)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(resolver.resolve(sshd.Wanted("titan"), "titan").target.hostname)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == ["10.0.0.1"] * 8
    assert marks.read_text() == "x\n"
