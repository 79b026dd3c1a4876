"""What power-tune writes into host_vars: its own key, and not a byte of anything else."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

import pytest
import yaml

from wattherd import errors, inventory
from wattherd.verbs import tuned_file

UUID = "GPU-5a4a5543-d288-5e46-82d3-dd8ece3195af"
OTHER = "GPU-fe418cff-ef7b-5eca-928f-37da910a300e"
ROW: Mapping[str, object] = {
    "limit_w": 250,
    "tok_s": 98.12,
    "tok_j": 0.3951,
    "floor_percent": 95,
    "measured_at": "2026-12-01T12:00:00Z",
    "model": "smollm2",
}
WRITTEN = """\
# the rig under the stairs
ansible_host: 10.0.0.7   # not the BMC
roles:   [base, power]
power:
    limit:  efficient    # from power-tune

# what it holds
serve:
- name: small
  port: 8080
"""


def loaded(text: str) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load(text)
    return found


def test_a_new_file_has_the_key_alone(tmp_path: pathlib.Path) -> None:
    change = tuned_file.change(tmp_path / "inventory", tmp_path, "titan", {UUID: ROW}, simulated=False)
    assert change.path == tmp_path / "inventory/host_vars/titan.yaml"
    assert change.shown == "inventory/host_vars/titan.yaml"
    assert change.diff.startswith("--- /dev/null")
    tuned_file.write(change)
    assert loaded(change.path.read_text())["power_tuned"] == {UUID: dict(ROW)} or "measured_at" in change.after
    assert change.after.splitlines()[:3] == ["power_tuned:", f"  {UUID}:", "    limit_w: 250"]


def test_every_other_byte_stays(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "host_vars/titan.yaml"
    file.parent.mkdir()
    file.write_text(WRITTEN)
    file.chmod(0o640)
    change = tuned_file.change(tmp_path, tmp_path, "titan", {UUID: ROW}, simulated=False)
    tuned_file.write(change)
    after = file.read_text()
    assert after.startswith(WRITTEN)
    assert file.stat().st_mode & 0o777 == 0o640
    assert all(not line.startswith("-") for line in change.diff.splitlines()[2:])
    assert [one.name for one in file.parent.iterdir()] == ["titan.yaml"]


MIDDLE = f"""\
first: 1
power_tuned:
    # the left one, by hand
    {OTHER}: {{limit_w: 200, model: old}}   # keep
    {UUID}:
        limit_w: 300      # was too much
        tok_s: 90.0
        model: old

# about last
last: 2
"""


def test_comments_within_the_key_stay_and_other_cards_too() -> None:
    after = tuned_file.rewritten(MIDDLE, {UUID: ROW})
    assert after.startswith("first: 1\npower_tuned:\n    # the left one, by hand\n")
    assert f"{OTHER}: {{limit_w: 200, model: old}}   # keep" in after
    assert "limit_w: 250      # was too much" in after
    assert after.endswith("\n\n# about last\nlast: 2\n")
    found = loaded(after)
    tuned = found["power_tuned"]
    assert isinstance(tuned, dict)
    assert (tuned[UUID]["limit_w"], tuned[OTHER]["limit_w"]) == (250, 200)
    assert (found["first"], found["last"]) == (1, 2)


def test_a_second_run_with_the_same_result_changes_nothing() -> None:
    once = tuned_file.rewritten(WRITTEN, {UUID: ROW}, simulated=True)
    assert tuned_file.rewritten(once, {UUID: ROW}, simulated=True) == once
    assert once.count("simulated card") == 1


def test_what_a_real_card_gives_is_not_called_simulated_any_more() -> None:
    once = tuned_file.rewritten(WRITTEN, {UUID: ROW}, simulated=True)
    assert "simulated" not in tuned_file.rewritten(once, {UUID: ROW})


def test_a_limit_gives_way_to_a_clock_ceiling() -> None:
    once = tuned_file.rewritten("", {UUID: ROW})
    tuned = loaded(tuned_file.rewritten(once, {UUID: {"clocks_mhz": "0,1200", "model": "smollm2"}}))["power_tuned"]
    assert tuned == {UUID: {"clocks_mhz": "0,1200", "model": "smollm2"}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n# nothing but words\n",
        "---\na: 1\n",
        "a: 1",
        "a: 1\n...\n",
        "power_tuned:\n",
        "power_tuned: {}\nz: 1\n",
        "a: 1\r\nb: 2\r\n",
        "a: &x {b: 1}\nc: *x\n",
        "words: \"{{ lookup('env', 'HOME') }}\"\n",
        "text: |\n  power_tuned:\n    no: 1\n",
        f"power_tuned:\n  {OTHER}: {{limit_w: 1}}\n# the end\n",
    ],
)
def test_any_plain_file_takes_it(text: str) -> None:
    after = tuned_file.rewritten(text, {UUID: ROW})
    tuned_file._prove(text, after, {UUID: ROW})
    had, has = loaded(text) or {}, loaded(after)
    tuned = has["power_tuned"]
    assert isinstance(tuned, dict)
    assert tuned[UUID]["limit_w"] == 250
    assert {name: value for name, value in has.items() if name != "power_tuned"} == {
        name: value for name, value in had.items() if name != "power_tuned"
    }
    if "\r\n" in text:
        assert "\n" not in after.replace("\r\n", "")


@pytest.mark.parametrize("text", ["{a: 1}\n", "- a\n- b\n", "power_tuned: 7\n", "$ANSIBLE_VAULT;1.1;AES256\n6162\n"])
def test_a_form_that_leaves_no_room_is_told_with_what_to_put_in(tmp_path: pathlib.Path, text: str) -> None:
    file = tmp_path / "host_vars/titan.yml"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(errors.Problem) as caught:
        tuned_file.change(tmp_path, tmp_path, "titan", {UUID: ROW}, simulated=False)
    assert caught.value.code == "inventory-conflict"
    assert f"  {UUID}:\n    limit_w: 250" in caught.value.hint
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("there", "used"),
    [
        ((), "titan.yaml"),
        (("titan.yml",), "titan.yml"),
        (("titan.yaml", "titan.yml"), "titan.yml"),
        (("titan",), "titan"),
        (("titan/main.yaml",), "titan/power.yaml"),
        (("titan/a.yaml", "titan/cards.yml"), "titan/cards.yml"),
        (("rig.lab.yaml",), "titan.yaml"),
    ],
)
def test_the_file_is_the_one_that_the_inventory_reads(tmp_path: pathlib.Path, there: tuple[str, ...], used: str) -> None:
    for name in there:
        file = tmp_path / "host_vars" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"power_tuned:\n  {OTHER}: {{limit_w: 200}}\n" if "cards" in name else "a: 1\n")
    assert tuned_file.place(tmp_path, "titan") == tmp_path / "host_vars" / used


def test_a_link_stays_a_link(tmp_path: pathlib.Path) -> None:
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "shared.yaml").write_text("a: 1\n")
    (tmp_path / "host_vars/titan.yaml").symlink_to(tmp_path / "shared.yaml")
    tuned_file.write(tuned_file.change(tmp_path, tmp_path, "titan", {UUID: ROW}, simulated=False))
    assert (tmp_path / "host_vars/titan.yaml").is_symlink()
    assert "limit_w: 250" in (tmp_path / "shared.yaml").read_text()


def test_a_write_that_fails_leaves_the_old_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "host_vars/titan.yaml"
    file.parent.mkdir()
    file.write_text("a: 1\n")
    change = tuned_file.change(tmp_path, tmp_path, "titan", {UUID: ROW}, simulated=False)

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        tuned_file.write(change)
    assert file.read_text() == "a: 1\n"
    assert [one.name for one in file.parent.iterdir()] == ["titan.yaml"]


def test_the_inventory_reads_back_what_was_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "hosts.yaml").write_text("all:\n  hosts:\n    titan: {ansible_host: 192.0.2.1}\n")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/titan.yaml").write_text("roles: [base]\n")
    rows = {UUID: ROW, OTHER: {"clocks_mhz": "0,1200", "model": "smollm2"}}
    tuned_file.write(tuned_file.change(tmp_path, tmp_path, "titan", rows, simulated=True))
    tuned = inventory.load(tmp_path, roles_known=None, project_root=tmp_path).host("titan").settings.power_tuned
    assert tuned[UUID].limit_w == 250
    assert tuned[UUID].measured_at.startswith("2026-12-01T12:00:00")
    assert tuned[OTHER].clocks_mhz == (0, 1200)
