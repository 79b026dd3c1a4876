"""Every code that a finding can have is explained in docs/doctor.md, and nothing is explained there that no finding has."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_KEBAB = r"\"([a-z]+(?:-[a-z0-9]+)*)\""


def made() -> set[str]:
    files = [*(ROOT / "wattherd/node/findings").glob("*.py"), *(ROOT / "wattherd/resources/complaints").glob("*.py")]
    files += [ROOT / "wattherd/node" / name for name in ("doctor.py", "examine.py")]
    found: set[str] = set()
    for path in files:
        text = path.read_text()
        found |= set(re.findall(rf"(?:\bfound|Rule|_about)\(\s*{_KEBAB}", text))
        found |= set(re.findall(rf"^    \d+: \(\s*{_KEBAB}", text, re.MULTILINE)) if path.name == "driver.py" else set()
        found |= set(re.findall(rf"{_KEBAB} if number == 79 else {_KEBAB}", text)[0]) if path.name == "xid.py" else set()
    return found


def test_the_page_and_the_code_name_the_same() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text().split("## Findings, by code")[1]
    explained = {code for row in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE) for code in re.findall(r"`([a-z0-9-]+)`", row)}
    assert len(made()) > 60
    assert made() - explained == set(), "not explained in docs/doctor.md"
    assert explained - made() == set(), "explained in docs/doctor.md, and made nowhere"
