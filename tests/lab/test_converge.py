"""What one node becomes, and what it says when it cannot: removal, generations, tags, full disks, taken ports, kills and power cuts."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Iterator

import pytest

from tests.lab import cli, fleet, nodes
from tests.lab.waiting import until

pytestmark = pytest.mark.lab
UNIT = "[Unit]\\nDescription=test\\n[Service]\\nExecStart=/bin/sleep infinity\\n[Install]\\nWantedBy=multi-user.target\\n"


@pytest.fixture
def name(plain: tuple[str, str]) -> str:
    return plain[1]


@pytest.fixture
def here(name: str, tmp_path: pathlib.Path) -> Iterator[cli.Project]:
    """The node as only its owner, and nothing of an earlier test on it: `remove` is part of every test here."""
    made = cli.project(tmp_path)
    made.hosts(**{name.replace("-", "_"): next(node.address for node in fleet.status().nodes if node.name == name)})
    assert made.invoke("trust", "--hosts", "all", "--yes").code == 0
    yield made
    made.group("roles: [base]\n")
    said = made.invoke("remove", "--hosts", "all", "--yes")
    assert said.code == 0, said.words


def on(name: str, script: str) -> str:
    done = nodes.run(name, ["sh", "-c", script])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_no_longer_wanted_goes_and_what_was_there_before_stays(here: cli.Project, name: str) -> None:
    on(name, "mkdir -p /srv/old && echo mine > /srv/old/kept")
    here.group(f"""\
roles: [base]
base:
  users: [{{name: appsvc}}]
  directories: [{{path: /srv/old}}, {{path: /srv/new, group: appsvc}}]
  files: [{{path: /srv/new/a.conf, text: a}}, {{path: /srv/old/kept, text: ours}}]
  links: [{{path: /srv/link, target: /srv/new}}]
  sysctl: {{net.ipv4.tcp_syncookies: 1}}
  units: [{{name: test-app.service, text: "{UNIT}"}}]
""")
    assert here.invoke("deploy", "--hosts", "all").code == 0
    assert on(name, "systemctl is-active test-app.service").strip() == "active"
    here.group("roles: [base]\n")
    check = here.invoke("deploy", "--hosts", "all", "--check", "--json")
    assert on(name, "systemctl is-active test-app.service").strip() == "active", "a check removes nothing"
    said = here.invoke("deploy", "--hosts", "all", "--json")
    assert said.code == 0, said.words
    assert check.host(name)["changes"] == said.host(name)["changes"]
    assert {"unit:test-app.service", "file:/srv/new/a.conf", "directory:/srv/new", "symlink:/srv/link", "user:appsvc"} <= set(
        said.host(name)["changes"]
    )
    assert on(name, "ls /srv").split() == ["old"]
    assert on(name, "ls /srv/old").split() == ["kept"], "there before Wattherd: never removed"
    assert "test-app" not in on(name, "systemctl list-units --all --plain; ls /etc/systemd/system")


def test_rollback_takes_an_earlier_generation_from_the_node_itself(here: cli.Project, name: str, tmp_path: pathlib.Path) -> None:
    for text in ("first", "second"):
        here.group(f"roles: [base]\nbase:\n  files: [{{path: /etc/wattherd/word, text: {text}}}]\n")
        assert here.invoke("deploy", "--hosts", "all").code == 0
    history = here.invoke("history", "--json").host(name)["generations"]
    assert len(history) >= 2
    other = cli.project(tmp_path / "another-controller")
    (tmp_path / "another-controller").mkdir(exist_ok=True)
    other.hosts(**{name.replace("-", "_"): next(node.address for node in fleet.status().nodes if node.name == name)})
    assert other.invoke("trust", "--hosts", "all", "--yes").code == 0
    said = other.invoke("rollback", "--hosts", "all", "--json")
    assert said.code == 0, said.words
    assert said.host(name)["changes"] == ["file:/etc/wattherd/word"]
    assert on(name, "cat /etc/wattherd/word") == "first"


def test_tags_limit_a_run_and_unknown_ones_are_refused(here: cli.Project) -> None:
    here.group("roles: [base]\nbase:\n  files: [{path: /etc/wattherd/tagged, text: x}]\n")
    wrong = here.invoke("deploy", "--hosts", "all", "--tags", "bse")
    assert wrong.code == 1
    assert "base" in wrong.words
    none = here.invoke("deploy", "--hosts", "all", "--skip-tags", "base", "--json")
    assert none.code == 0, none.words
    assert next(iter(none.document["hosts"].values()))["changes"] == []
    some = here.invoke("deploy", "--hosts", "all", "--tags", "base", "--json")
    assert "file:/etc/wattherd/tagged" in next(iter(some.document["hosts"].values()))["changes"]


@pytest.mark.parametrize(
    ("words", "group", "code", "named"),
    [
        (("--hosts", "nod-05"), "", "unknown-host", "node-05"),
        (("--hosts", "thse"), "", "unknown-host", "these"),
        ((), "", "hosts-required", "these"),
        (("--hosts", "all"), "bse: 1\nroles: [base]\nbase: {packags: [curl]}\n", "unknown-key", "packages"),
        (("--hosts", "all"), "roles: [base, servr]\n", "unknown-role", "server"),
        (
            ("--hosts", "all"),
            "roles: [base]\nbase: {files: [{path: /etc/wattherd/t, template: no/such.j2}]}\n",
            "template-missing",
            "no/such.j2",
        ),
        (("--hosts", "all"), "roles: [base, models]\nmodels: [smolm2]\n", "unknown-model", "smollm2"),
    ],
)
def test_a_wrong_word_is_one_clear_error_before_anything_is_touched(
    here: cli.Project, name: str, words: tuple[str, ...], group: str, code: str, named: str
) -> None:
    here.write("inventory/models.yaml", "models:\n  smollm2: {source: file:/nowhere.gguf}\n")
    here.group(group or "roles: [base]\n")
    before = on(name, "ls -la --time-style=full-iso /etc/wattherd /var/lib/wattherd 2>/dev/null || true")
    said = here.invoke("deploy", *words, "--json")
    assert said.code in {1, 2}, said.words
    assert code in said.words
    assert named in said.words
    assert on(name, "ls -la --time-style=full-iso /etc/wattherd /var/lib/wattherd 2>/dev/null || true") == before


def test_a_missing_template_variable_names_template_line_and_host(here: cli.Project, name: str) -> None:
    here.group("roles: [base]\nbase: {files: [{path: /etc/wattherd/t, text: '{{ no_such_thing }}'}]}\n")
    said = here.invoke("deploy", "--hosts", "all")
    assert said.code == 1, said.words
    assert "no_such_thing" in said.words
    assert name in said.words


def serving(here: cli.Project, gguf: pathlib.Path, more: str = "") -> None:
    here.write("inventory/models.yaml", f"models:\n  m: {{source: 'file:{gguf}'{more}}}\n")
    here.group("roles: [base, models]\nmodels: [m]\n")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"<!DOCTYPE html><html><title>Sign in</title></html>", "gguf-html"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 98362432\n", "gguf-lfs-pointer"),
        (b"GGUF\x03\x00\x00\x00" + b"\x01" + b"\x00" * 7, "gguf-truncated"),
        (b"PK\x03\x04" + b"\0" * 64, "gguf-magic"),
        (b"", "gguf-truncated"),
    ],
)
def test_a_file_that_is_no_model_is_refused_on_the_controller(here: cli.Project, tmp_path: pathlib.Path, body: bytes, code: str) -> None:
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(body)
    serving(here, gguf)
    said = here.invoke("deploy", "--hosts", "all")
    assert said.code == 1, said.words
    assert code in said.words


def test_a_wrong_sha256_is_refused_with_both(here: cli.Project, model: pathlib.Path) -> None:
    serving(here, model, ", sha256: " + "ab" * 32)
    said = here.invoke("deploy", "--hosts", "all")
    assert said.code == 1
    assert "digest-mismatch" in said.words
    assert "abab" in said.words


def test_a_full_disk_is_found_before_a_byte_moves(here: cli.Project, name: str, model: pathlib.Path) -> None:
    serving(here, model)
    on(name, "mkdir -p /var/lib/wattherd/store && mount -t tmpfs -o size=300m tmpfs /var/lib/wattherd/store")
    try:
        said = here.invoke("deploy", "--hosts", "all", "--json")
        left = on(name, "ls /var/lib/wattherd/store")
    finally:
        on(name, "umount /var/lib/wattherd/store")
    assert said.code == 2, said.words
    assert said.host(name)["problem"]["code"] == "disk-full"
    assert left == ""
    assert here.invoke("deploy", "--hosts", "all").code == 0, "with room, it goes"


def test_a_controller_that_was_killed_and_a_node_that_lost_power(here: cli.Project, name: str) -> None:
    slow = UNIT.replace("ExecStart=/bin/sleep infinity", "Type=oneshot\\nRemainAfterExit=yes\\nExecStart=/bin/sleep 20")
    here.group(f"""\
roles: [base]
base:
  files: [{{path: /etc/wattherd/one, text: one}}]
  units: [{{name: test-slow.service, text: "{slow}"}}, {{name: test-last.service, text: "{UNIT}"}}]
""")
    controller = here.start("deploy", "--hosts", "all")
    until(name, "grep -q test-slow /var/lib/wattherd/journal.json")
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    nodes.power_off(name)
    nodes.boot(name)
    here.group(f"""\
roles: [base]
base:
  files: [{{path: /etc/wattherd/one, text: one}}]
  units: [{{name: test-last.service, text: "{UNIT}"}}]
""")
    said = here.invoke("deploy", "--hosts", "all")
    assert said.code == 0, said.words
    assert "never ended" in said.words, "the next run says what it found"
    assert "test-slow" in said.words
    assert on(name, "systemctl is-active test-last.service").strip() == "active"
    assert here.invoke("deploy", "--hosts", "all", "--json").host(name)["changed"] == 0


def test_a_copy_that_was_cut_goes_on_where_it_stopped(here: cli.Project, name: str, model: pathlib.Path) -> None:
    here.group("roles: [base]\n")
    assert here.invoke("deploy", "--hosts", "all").code == 0
    on(name, "rm -f /var/lib/wattherd/store/*")
    serving(here, model)
    nodes.shape(name, "100mbit")
    try:
        controller = here.start("deploy", "--hosts", "all")
        until(name, "test $(cat /var/lib/wattherd/store/*.partial 2>/dev/null | wc -c) -gt 8000000")
        controller.send_signal(signal.SIGKILL)
        controller.wait()
    finally:
        nodes.unshape(name)
    until(name, "! pgrep -f '[r]eceive' >/dev/null")
    kept = int(on(name, "cat /var/lib/wattherd/store/*.partial | wc -c"))
    assert kept > 8_000_000
    sizes = on(name, "stat -c %i /var/lib/wattherd/store/*.partial")
    said = here.invoke("deploy", "--hosts", "all")
    assert said.code == 0, said.words
    assert on(name, "stat -c %i /var/lib/wattherd/store/*") == sizes, "the same file, completed"
    assert "from a copy that was cut" in said.words, "and it says so"


def test_two_runs_at_once_on_one_node_wait_for_each_other(here: cli.Project, name: str) -> None:
    slow = UNIT.replace("ExecStart=/bin/sleep infinity", "Type=oneshot\\nRemainAfterExit=yes\\nExecStart=/bin/sleep 4")
    here.group(f'roles: [base]\nbase:\n  units: [{{name: test-slow2.service, text: "{slow}"}}]\n')
    first = here.start("deploy", "--hosts", "all")
    until(name, "grep -q test-slow2 /var/lib/wattherd/journal.json")
    second = here.invoke("deploy", "--hosts", "all", "--json")
    assert first.wait(120) == 0
    assert second.code == 0, second.words
    assert second.host(name)["changed"] == 0, "the second found the work of the first"


def test_remove_leaves_nothing_of_ours(here: cli.Project, name: str, model: pathlib.Path) -> None:
    on(name, "mkdir -p /etc/wattherd.mine")
    serving(here, model)
    assert here.invoke("deploy", "--hosts", "all").code == 0
    check = here.invoke("remove", "--hosts", "all", "--check", "--json")
    assert on(name, "readlink /var/lib/wattherd/models/m.gguf") != "", "a check removes nothing"
    said = here.invoke("remove", "--hosts", "all", "--yes", "--json")
    assert said.code == 0, said.words
    assert check.host(name)["changes"] == said.host(name)["changes"]
    left = on(name, "ls -d /var/lib/wattherd /opt/wattherd /etc/wattherd 2>/dev/null; getent passwd wattherd; true")
    assert left == "", said.words
    on(name, "rmdir /etc/wattherd.mine")
    unasked = here.invoke("remove", "--hosts", "all")
    assert unasked.code == 1, "without a terminal and without --yes nothing is removed"
    assert "--yes" in unasked.words


def test_with_its_records_lost_remove_takes_what_bears_our_mark_and_leaves_the_rest(
    here: cli.Project, name: str, model: pathlib.Path
) -> None:
    serving(here, model)
    assert here.invoke("deploy", "--hosts", "all").code == 0
    on(name, "rm /var/lib/wattherd/owned.json")
    said = here.invoke("remove", "--hosts", "all", "--yes", "--json")
    assert said.code == 0, said.words
    assert "artifact:/var/lib/wattherd/models/m.gguf" in said.host(name)["changes"]
    assert on(name, "ls /var/lib/wattherd/models /var/lib/wattherd/store 2>/dev/null; true").split() in ([], ["/var/lib/wattherd/models:"])
    assert "wattherd" in on(name, "getent passwd wattherd"), "a user bears no mark: it may have been there before"
    on(name, "userdel wattherd; rm -rf /etc/wattherd /opt/wattherd /var/lib/wattherd")


def test_remove_takes_nothing_that_is_not_ours(here: cli.Project, name: str, model: pathlib.Path) -> None:
    on(name, "mkdir -p /opt/wattherd/releases/handmade && echo mine > /opt/wattherd/mine")
    serving(here, model)
    assert here.invoke("deploy", "--hosts", "all").code == 0
    on(name, "echo mine > /var/lib/wattherd/models/own.gguf; echo mine > /var/lib/wattherd/store/notes")
    said = here.invoke("remove", "--hosts", "all", "--yes")
    assert said.code == 0, said.words
    kept = "/opt/wattherd/mine /opt/wattherd/releases/handmade /var/lib/wattherd/models/own.gguf /var/lib/wattherd/store/notes"
    assert on(name, f"ls -d {kept}").split() == kept.split()
    assert "that Wattherd did not make" in said.words
    assert on(name, "ls /var/lib/wattherd/store").split() == ["notes"], "our blobs are gone"
    on(name, "rm -r /opt/wattherd /var/lib/wattherd")


def test_a_unit_that_covered_a_packaged_one_uncovers_it(here: cli.Project, name: str) -> None:
    here.group(f'roles: [base]\nbase:\n  units: [{{name: fstrim.service, text: "{UNIT}"}}]\n')
    assert here.invoke("deploy", "--hosts", "all").code == 0
    assert "sleep infinity" in on(name, "systemctl cat fstrim.service")
    here.group("roles: [base]\n")
    said = here.invoke("deploy", "--hosts", "all", "--json")
    assert said.code == 0, said.words
    assert said.host(name)["changes"] == ["unit:fstrim.service"]
    assert "sleep infinity" not in on(name, "systemctl cat fstrim.service")
    assert here.invoke("deploy", "--hosts", "all", "--json").host(name)["changed"] == 0


def test_the_canary_protects_the_rest(plain: tuple[str, str], tmp_path: pathlib.Path) -> None:
    first, second = plain
    known = {node.name: node.address for node in fleet.status().nodes}
    both = cli.project(tmp_path)
    both.hosts(**{one.replace("-", "_"): known[one] for one in plain})
    assert both.invoke("trust", "--hosts", "all", "--yes").code == 0
    both.group("roles: [base]\nbase: {files: [{path: /srv/blocked/file, text: x}], directories: [{path: /srv/blocked}]}\n")
    on(first, "echo in the way > /srv/blocked")
    try:
        said = both.invoke("deploy", "--hosts", "all", "--serial", "1,100%", "--json")
    finally:
        on(first, "rm -f /srv/blocked")
    assert said.code == 2, said.words
    assert said.host(first)["problem"]["code"] == "file-conflict"
    assert said.host(second)["problem"]["code"] == "batch-stopped"
    assert on(second, "ls -d /srv/blocked 2>/dev/null; true") == ""
    both.group("roles: [base]\n")
    assert both.invoke("remove", "--hosts", "all", "--yes").code == 0
