"""The resident's program on the node: verified, whole or not at all, the last three kept, and what serves in a rollback."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.node import strict
from tests.node.resources.cases import program as cases
from wattherd import errors, resources, store
from wattherd.link import archive, boot
from wattherd.node import converge, farewell
from wattherd.resources import program, tree
from wattherd.wire import manifest


def put(bench: strict.Bench, words: str) -> program.Program:
    one = cases.brought(bench, words)
    one.fix(bench.machine, {}, bench.tell)
    return one


def digests(bench: strict.Bench) -> list[str]:
    return [name for name in bench.machine.names(program.HOME) if len(name) == 64]


def test_the_places_are_those_of_the_boot_stage() -> None:
    assert program.CACHE == boot.CACHE


def test_it_lies_unpacked_beside_its_zip_and_the_link_leads_there(bench: strict.Bench) -> None:
    one = put(bench, "one")
    assert bench.machine.readlink(program.CURRENT) == one.digest
    assert bench.machine.text(f"{program.Program.PLACE}/wattherd/node/keep.py") == "print('one')\n"
    assert bench.machine.digest(f"{one.folder}/program.zip") == one.digest
    assert tree.is_marked(bench.machine, one.folder)
    assert any(Path(bench.machine.path(one.folder)).rglob("*.pyc"))


def test_the_last_three_stay_and_the_one_in_use_always(bench: strict.Bench) -> None:
    made = [put(bench, words) for words in ("one", "two", "three", "four")]
    assert set(digests(bench)) == {one.digest for one in made[1:]}
    made[1].fix(bench.machine, {}, bench.tell)
    assert bench.machine.readlink(program.CURRENT) == made[1].digest
    assert set(digests(bench)) == {one.digest for one in made[1:]}, "a rollback takes nothing away"


@pytest.mark.parametrize("harm", ["module", "zip", "marker", "link"])
def test_what_was_harmed_is_seen_and_made_whole(bench: strict.Bench, harm: str) -> None:
    one = put(bench, "one")
    if harm == "module":
        bench.put(f"{one.folder}/wattherd/node/keep.py", "print('something else')\n")
    elif harm == "zip":
        bench.put(f"{one.folder}/program.zip", b"x" * 40)
    elif harm == "marker":
        bench.machine.unlink(f"{one.folder}/{tree.MARKER}")
    else:
        bench.machine.symlink(program.CURRENT, "0" * 64)
    assert one.actual(bench.machine) != one.wanted()
    one.fix(bench.machine, {}, bench.tell)
    assert one.actual(bench.machine) == one.wanted()
    assert bench.machine.text(f"{one.folder}/wattherd/node/keep.py") == "print('one')\n"


def test_a_half_made_one_is_never_found_and_goes_with_the_next(bench: strict.Bench) -> None:
    one = cases.brought(bench, "one")
    bench.put(f"{program.HOME}/.{one.digest}.new/wattherd/__init__.py", "half")
    assert one.actual(bench.machine) is None
    one.fix(bench.machine, {}, bench.tell)
    assert bench.machine.names(program.HOME) == sorted([one.digest, "current"])


def test_a_cache_that_lies_is_not_believed(bench: strict.Bench) -> None:
    digest = hashlib.sha256(cases.pack("one")).hexdigest()
    bench.put(f"{program.CACHE}/{digest}/program.zip", cases.pack("another"))
    with pytest.raises(errors.Problem) as raised:
        program.Program("keeper", digest).fix(bench.machine, {}, bench.tell)
    assert raised.value.code == "artifact-missing"
    assert not bench.machine.exists(program.CURRENT)


def test_what_is_already_there_serves_when_the_cache_was_emptied(bench: strict.Bench) -> None:
    old = put(bench, "one")
    put(bench, "two")
    bench.machine.remove_tree(program.CACHE)
    assert old.actual(bench.machine) != old.wanted()
    assert old.notes(bench.machine) == ()
    old.fix(bench.machine, {}, bench.tell)
    assert old.actual(bench.machine) == old.wanted()


_ROLLBACK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from wattherd import machine as machines
from wattherd.resources import program
one = program.Program("keeper", sys.argv[3])
machine = machines.Machine(sys.argv[2])
notes = one.notes(machine)
one.fix(machine, {}, lambda *_: None)
print(json.dumps({"notes": notes, "well": one.actual(machine) == one.wanted(), "led": machine.readlink(program.CURRENT)}))
"""


def test_in_a_rollback_the_running_program_serves_and_a_note_says_so(bench: strict.Bench, tmp_path: Path) -> None:
    """The real program, unpacked as the boot stage does it, asked for one that nobody has any more."""
    packed = archive.program()
    here = tmp_path / packed.digest
    zipfile.ZipFile(io.BytesIO(packed.body)).extractall(here)
    (here / "program.zip").write_bytes(packed.body)
    gone = "ab" * 32
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _ROLLBACK, str(here), bench.machine.root, gone], capture_output=True, text=True, check=True
    )
    assert f'"led": "{packed.digest}"' in done.stdout
    assert '"well": true' in done.stdout
    assert f"the program {gone[:12]} is not on this node any more" in done.stdout
    assert program.is_whole(bench.machine, packed.digest)


def test_in_a_checkout_nothing_serves_for_a_program_that_is_gone(bench: strict.Bench) -> None:
    lost = program.Program("keeper", "ab" * 32)
    with pytest.raises(errors.Problem, match="neither in"):
        lost.fix(bench.machine, {}, bench.tell)


def test_remove_takes_what_is_ours_and_leaves_the_rest(bench: strict.Bench) -> None:
    one = put(bench, "one")
    bench.put(f"{program.HOME}/.{'0' * 64}.old/half", "x")
    assert one.ours(bench.machine)
    one.remove(bench.machine, bench.tell)
    assert one.gone(bench.machine)
    assert not bench.machine.exists(program.HOME)
    put(bench, "one")
    bench.put(f"{program.HOME}/by-hand", "mine")
    one.remove(bench.machine, bench.tell)
    assert bench.machine.names(program.HOME) == ["by-hand"]


def test_farewell_knows_the_place(bench: strict.Bench) -> None:
    """Also where the records of it were lost."""
    put(bench, "one")
    said: list[object] = []
    farewell.leave(bench.machine, "here", said.append, check=False)
    assert not bench.machine.exists("/opt/wattherd")


def test_a_run_makes_it_once(bench: strict.Bench) -> None:
    one = cases.brought(bench, "one")
    wanted = manifest.Manifest("here", (resources.encode(one, role="power", tags=("power",)),))
    job = converge.Job(wanted, manifest.encode(wanted))
    store.prepare(bench.machine)
    said: list[object] = []
    counts = [converge.Run(bench.machine, job, said.append).converge().counts for _ in range(2)]
    assert [(one["changed"], one["ok"]) for one in counts] == [(1, 0), (0, 1)], said


@pytest.mark.parametrize(("name", "digest"), [("keeper", "../etc"), ("../up", "ab" * 32), ("keeper", "AB" * 32)])
def test_a_name_that_is_no_plain_word_is_refused(name: str, digest: str) -> None:
    with pytest.raises(errors.Problem):
        program.Program(name, digest)
