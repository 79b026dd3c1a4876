"""The power keys as people write them, their words when they are wrong, the price of a kWh, and sites.yaml."""

from __future__ import annotations

import decimal
from collections.abc import Callable

import pytest

from wattherd import errors, inventory
from wattherd.inventory import settings

Load = Callable[..., inventory.Inventory]
Refuse = Callable[..., errors.Problem]


def _files(text: str, **more: str) -> dict[str, str]:
    return {"hosts": "h\natlas\n", "group_vars/all.yaml": text, **{f"{name}.yaml": body for name, body in more.items()}}


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("250", settings.Limit(watts=250)),
        ("250.5", settings.Limit(watts=250.5)),
        ("'250'", settings.Limit(watts=250)),
        ("250 W", settings.Limit(watts=250)),
        ("250W", settings.Limit(watts=250)),
        ("80%", settings.Limit(percent=80)),
        ("'62.5 %'", settings.Limit(percent=62.5)),
        ("efficient", settings.Limit()),
        ("null", None),
    ],
)
def test_a_limit_as_people_write_it(load: Load, written: str, kept: object) -> None:
    assert load(_files(f"power: {{limit: {written}}}\n")).host("h").settings.power.limit == kept


@pytest.mark.parametrize(
    "written", ["0.8", "0", "-250", "true", "99999", "201%", "0%", "'eighty %'", ".nan", ".inf", "[250]", "Efficient", "1e9"]
)
def test_what_is_no_limit_names_file_line_and_what_is_allowed(refuse: Refuse, written: str) -> None:
    problem = refuse(_files(f"power:\n  persistence: true\n  limit: {written}\n"))
    assert problem.code == "inventory-invalid"
    assert problem.message.startswith(
        "inventory/group_vars/all.yaml:3: power.limit must be watts (250), per cent of the card's own default"
    )


@pytest.mark.parametrize(
    ("written", "kept"), [("0,1400", (0, 1400)), ("' 210 , 1950 '", (210, 1950)), ("[0, 1400]", (0, 1400)), ("1860,1860", (1860, 1860))]
)
def test_a_range_of_clocks(load: Load, written: str, kept: tuple[int, int]) -> None:
    assert (
        load(_files(f"power: {{clocks: {written if written.startswith(('[', chr(39))) else repr(written)}}}\n"))
        .host("h")
        .settings.power.clocks
        == kept
    )


@pytest.mark.parametrize(
    "written", ["1400", "'1400'", "'0-1400'", "'1400,0'", "'0,0'", "'0,99999'", "[0]", "'-1,1400'", "'0,1400,2'", "true"]
)
def test_what_is_no_range_of_clocks(refuse: Refuse, written: str) -> None:
    problem = refuse(_files(f"power:\n  clocks: {written}\n"))
    assert problem.message.startswith("inventory/group_vars/all.yaml:2: power.clocks must be 'LEAST,MOST' in MHz, such as '0,1400'")


@pytest.mark.parametrize("written", ["2", "'2'", "''", "'25W; reboot'", "true"])
def test_a_mode_is_a_name_and_never_a_number(refuse: Refuse, written: str) -> None:
    assert "power.mode must be a power mode's name" in refuse(_files(f"power: {{mode: {written}}}\n")).message


def test_an_entry_of_a_card_says_where_it_is_wrong(refuse: Refuse) -> None:
    problem = refuse(_files("power:\n  limit: 280\n  cards:\n    RTX 3090: {limit: 280, clock: '0,1400'}\n    P40: {limit: most}\n"))
    assert problem.code == "unknown-key"
    assert problem.message.startswith("inventory/group_vars/all.yaml:4: power.cards.RTX 3090 does not know 'clock'")
    assert problem.hint == "did you mean 'clocks'?"
    assert "all.yaml:5: power.cards.P40.limit must be watts" in problem.message


@pytest.mark.parametrize(
    ("name", "said"),
    [("GPU-123", "at least its first 8 characters"), ("MIG-1234567890ab", "a MIG slice has no power limit"), ("''", "product name")],
)
def test_a_card_needs_a_name_that_can_be_one(refuse: Refuse, name: str, said: str) -> None:
    assert said in refuse(_files(f"power: {{cards: {{{name}: {{limit: 80%}}}}}}\n")).message


@pytest.mark.parametrize(
    ("written", "kept"),
    [("0.31", "0.31"), ("'0.2999'", "0.2999"), ("1", "1"), ("0", "0"), ("0.1", "0.1"), ("0.00001", "0.00001"), ("'31'", "31")],
)
def test_a_price_is_the_decimal_that_was_written(load: Load, written: str, kept: str) -> None:
    found = load(_files(f"price_per_kwh: {written}\n")).host("h").settings.price_per_kwh
    assert isinstance(found, decimal.Decimal)
    assert found == decimal.Decimal(kept)


@pytest.mark.parametrize("written", ["-0.31", "'-1'", "'0,31'", "0.31 EUR", "true", ".nan", ".inf", "1000000000", "[0.31]"])
def test_what_is_no_price(refuse: Refuse, written: str) -> None:
    assert (
        "all.yaml:1: price_per_kwh must be the price of one kWh with a point, such as 0.31"
        in refuse(_files(f"price_per_kwh: {written}\n")).message
    )


def test_a_price_in_cents_is_a_question_and_no_error(load: Load) -> None:
    loaded = load(_files("price_per_kwh: 31\n"))
    assert loaded.warnings == (
        "inventory/group_vars/all.yaml:1: price_per_kwh is 31: that is 31 EUR for one kWh; were cents meant (0.31)?",
    )
    assert loaded.host("h").settings.price_per_kwh == 31
    assert load(_files("price_per_kwh: 31\ncurrency: JPY\n")).warnings == (), "31 yen are a price"
    assert load(_files("price_per_kwh: 0.45\n")).warnings == ()


def test_what_power_tune_found_is_kept_by_uuid(load: Load, refuse: Refuse) -> None:
    row = "limit_w: 220, tok_s: 41.5, tok_j: 0.19, floor_percent: 95, measured_at: 2026-12-01T03:00:00, model: smollm2"
    text = f"power_tuned:\n  GPU-1a2b3c4d-1: {{{row}}}\n"
    found = load(_files(text)).host("h").settings.power_tuned["GPU-1a2b3c4d-1"]
    assert (found.limit_w, found.tok_s, found.measured_at, found.model) == (220, 41.5, "2026-12-01T03:00:00", "smollm2")
    assert (
        "power_tuned.GPU-1a2b3c4d-1 must be given limit_w or clocks_mhz"
        in refuse(_files("power_tuned: {GPU-1a2b3c4d-1: {tok_s: 1}}\n")).message
    )


def test_circuits_say_what_they_bear(load: Load) -> None:
    text = """
    circuits:
      attic: {volts: 230, amps: 16, usable_percent: 80, hosts: h}
      cellar: {budget_w: 1500, hosts: 'all:!h'}
    """
    found = load(_files("", sites=text)).circuits
    assert found["attic"].usable_w == pytest.approx(2944)
    assert found["cellar"].usable_w == 1500


def test_without_sites_yaml_there_are_no_circuits(load: Load) -> None:
    assert load(_files("")).circuits == {}


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("circuit: {}\n", "unknown-key", "sites.yaml:1: inventory/sites.yaml does not know 'circuit'"),
        ("circuits:\n  a: {budget_w: 1}\n", "inventory-invalid", "sites.yaml:2: circuits.a lacks 'hosts'"),
        ("circuits:\n  a: {hosts: h}\n", "inventory-invalid", "sites.yaml:2: circuits.a must be given budget_w, or volts and amps"),
        ("circuits:\n  a: {hosts: h, volts: 230}\n", "inventory-invalid", "circuits.a must be given budget_w, or volts and amps"),
        (
            "circuits:\n  a: {hosts: h, volts: 230, amps: 16, budget_w: 5}\n",
            "inventory-invalid",
            "circuits.a must be given budget_w, or volts and amps",
        ),
        (
            "circuits:\n  a: {hosts: h, budget_w: 5, usable_percent: 120}\n",
            "inventory-invalid",
            "circuits.a.usable_percent must be at most 100",
        ),
        ("circuits:\n  a: {hosts: hh, budget_w: 5}\n", "unknown-host", "inventory/sites.yaml: circuits.a.hosts: "),
    ],
)
def test_a_wrong_circuit(load: Load, text: str, code: str, said: str) -> None:
    loaded = load(_files("", sites=text))
    with pytest.raises(errors.Problem) as caught:
        assert loaded.circuits
    assert caught.value.code == code
    assert said in caught.value.message
