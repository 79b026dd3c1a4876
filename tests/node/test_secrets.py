"""A secret's way into a node and out of it: asked for, kept, placed, rolled back, pruned; and in no word and no record on the way."""

from __future__ import annotations

import io
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

from tests.node.test_session import GROUP, OWNER, root, text, wanted
from wattherd import machine as machines
from wattherd.node import farewell, secrets, session
from wattherd.resources import secret
from wattherd.wire import manifest

__all__ = ["root"]
PATH = "/etc/herd.env"
OLD, NEW = b'KEY="the-old-word-0123456789"\n', b'KEY="the-new-word-0123456789"\n'
WORDS = ("the-old-word", "the-new-word")


def holding(body: bytes, *, more: str = "one\n") -> manifest.Manifest:
    digest = secret.digest_of(body, "here", PATH)
    return wanted(text("/srv/conf", more), secret.Secret(PATH, digest=digest, salt="here", owner=OWNER, group=GROUP))


def say(root: pathlib.Path, *orders: tuple[Mapping[str, Any], bytes]) -> list[dict[str, Any]]:
    source = b"".join(json.dumps({**head, **({"bytes": len(body)} if body else {})}).encode() + b"\n" + body for head, body in orders)
    sink = io.BytesIO()
    assert session.Session(machines.Machine(str(root)), io.BytesIO(source), sink).serve() == 0
    said = sink.getvalue()
    assert not any(word.encode() in said for word in WORDS), "no line of a session holds a secret"
    return [json.loads(line) for line in said.splitlines()][1:]


def deploy(root: pathlib.Path, body: bytes, **more: str) -> list[dict[str, Any]]:
    made = manifest.encode(holding(body, **more))
    return say(root, ({"verb": "needs"}, made), ({"verb": "secret", "id": f"secret:{PATH}"}, body), ({"verb": "apply", "diff": True}, b""))


def kept(root: pathlib.Path) -> list[str]:
    return sorted(path.name for path in (root / secret.KEPT[1:]).glob("*"))


def test_a_node_asks_for_what_it_lacks_and_only_once(root: pathlib.Path) -> None:
    made = manifest.encode(holding(NEW))
    (asked,) = say(root, ({"verb": "needs"}, made))
    assert asked["secrets"] == {f"secret:{PATH}": secret.digest_of(NEW, "here", PATH)}
    assert asked["missing"] == {}, "the bulk way has nothing to do with it"
    assert deploy(root, NEW)[-1]["changed"] == 2
    (again,) = say(root, ({"verb": "needs"}, made))
    assert again["secrets"] == {}


def test_a_run_of_some_parts_asks_for_their_secrets_alone(root: pathlib.Path) -> None:
    (asked,) = say(root, ({"verb": "needs", "only": ["file:/srv/conf"]}, manifest.encode(holding(NEW))))
    assert asked["secrets"] == {}


def test_it_is_placed_kept_for_root_alone_and_written_nowhere_else(root: pathlib.Path) -> None:
    deploy(root, NEW)
    deploy(root, OLD)
    assert (root / PATH[1:]).read_bytes() == OLD
    assert (root / PATH[1:]).stat().st_mode & 0o777 == 0o600
    assert (root / secret.KEPT[1:]).stat().st_mode & 0o777 == 0o700
    allowed = {root / PATH[1:], *(root / secret.KEPT[1:]).glob("*")}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in allowed)
    for path in root.rglob("*"):
        if path.is_file() and path not in allowed:
            assert not any(word.encode() in path.read_bytes() for word in WORDS), f"{path} holds it"


def test_a_check_shows_that_it_differs_and_nothing_of_it(root: pathlib.Path) -> None:
    deploy(root, OLD)
    said = say(root, ({"verb": "check", "diff": True}, manifest.encode(holding(NEW))))
    (found,) = [line for line in said if line["event"] == "would_change"]
    assert found["id"] == f"secret:{PATH}"
    assert found["delta"] == {"content": ["another", "as wanted"]}
    assert "diff" not in found
    assert (root / PATH[1:]).read_bytes() == OLD


def test_a_rollback_needs_nobody_who_knows_the_old_one(root: pathlib.Path) -> None:
    deploy(root, OLD)
    deploy(root, NEW)
    assert (root / PATH[1:]).read_bytes() == NEW
    said = say(root, ({"verb": "rollback", "diff": True}, b""))
    assert said[-1]["from_generation"] == 1
    assert (root / PATH[1:]).read_bytes() == OLD


def test_a_rollback_to_a_secret_that_is_lost_touches_nothing(root: pathlib.Path) -> None:
    deploy(root, OLD)
    deploy(root, NEW, more="later\n")
    for name in kept(root):
        (root / secret.KEPT[1:] / name).unlink()
    for check in (True, False):
        problem = say(root, ({"verb": "rollback", "check": check}, b""))[-1]["problem"]
        assert (problem["code"], PATH in problem["message"]) == ("secret-missing", True)
    assert (root / PATH[1:]).read_bytes() == NEW
    (root / PATH[1:]).write_bytes(OLD)
    assert say(root, ({"verb": "rollback"}, b""))[-1]["failed"] == 0, "it stands in its place, so nobody has to bring it"


def test_rights_that_somebody_widened_are_narrowed_again(root: pathlib.Path) -> None:
    deploy(root, NEW)
    folder = root / secret.KEPT[1:]
    folder.chmod(0o755)
    (folder / kept(root)[0]).chmod(0o644)
    deploy(root, NEW)
    assert (folder.stat().st_mode & 0o777, (folder / kept(root)[0]).stat().st_mode & 0o777) == (0o700, 0o600)


def test_what_no_generation_names_any_more_is_deleted(root: pathlib.Path) -> None:
    deploy(root, OLD)
    for number in range(12):
        deploy(root, NEW, more=f"{number}\n")
        old_is_named = number < 9
        assert (secret.digest_of(OLD, "here", PATH) in kept(root)) is old_is_named, f"after {number + 1} later generations"
    assert kept(root) == [secret.digest_of(NEW, "here", PATH)]


def test_after_a_failure_the_new_secret_and_the_old_one_are_both_there(root: pathlib.Path) -> None:
    deploy(root, OLD)
    (root / "srv/conf").unlink()
    (root / "srv/conf").mkdir()
    assert deploy(root, NEW)[-1]["failed"] == 1
    assert len(kept(root)) == 2
    (root / "srv/conf").rmdir()
    assert say(root, ({"verb": "apply"}, manifest.encode(holding(NEW))))[-1]["failed"] == 0


@pytest.mark.parametrize(
    ("order", "body", "code"),
    [
        ({"id": f"secret:{PATH}"}, OLD, "secret-invalid"),
        ({"id": "secret:/etc/other"}, NEW, "manifest-invalid"),
        ({"id": f"secret:{PATH}"}, NEW * 4000, "secret-invalid"),
        ({"id": f"secret:{PATH}"}, b"\n".join([NEW] * 4000), "secret-invalid"),
    ],
)
def test_what_was_not_asked_for_is_refused_and_none_of_it_is_read_as_a_verb(
    root: pathlib.Path, order: dict[str, str], body: bytes, code: str
) -> None:
    said = say(root, ({"verb": "needs"}, manifest.encode(holding(NEW))), ({"verb": "secret", **order}, body), ({"verb": "history"}, b""))
    assert [line["problem"]["code"] if "problem" in line else "" for line in said] == ["", code, ""]
    assert "generations" in said[-1], "the stream is still in step"
    assert kept(root) == []


def test_a_secret_before_any_manifest_is_refused_with_its_bytes_taken(root: pathlib.Path) -> None:
    said = say(root, ({"verb": "secret", "id": f"secret:{PATH}"}, NEW), ({"verb": "history"}, b""))
    assert said[0]["problem"]["code"] == "protocol-mismatch"
    assert said[1]["generations"] == []


@pytest.mark.parametrize("count", [0, -5])
def test_a_count_that_is_none(count: int) -> None:
    source = io.BytesIO(b"rest")
    with pytest.raises(Exception, match="refused"):
        secrets.receive(source, count)
    assert source.read() == b"rest"


def test_removing_wattherd_removes_what_was_kept(root: pathlib.Path) -> None:
    deploy(root, NEW)
    said: list[Mapping[str, Any]] = []
    farewell.leave(machines.Machine(str(root)), "here", said.append, check=False)
    assert not (root / PATH[1:]).exists()
    assert not (root / secret.KEPT[1:]).exists()
