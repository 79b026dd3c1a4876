"""What the operator sees of a diagnosis: by host, worst first, in words and as one JSON document, and the exit code."""

from __future__ import annotations

import json

import pytest

from wattherd import console, errors, fleet
from wattherd.console import findings
from wattherd.verbs import doctor
from wattherd.wire import finding

LOOKED = ("2 units", "release b11434", "kernel log")


def ill(*found: finding.Finding) -> fleet.Done[doctor.Diagnosis]:
    return fleet.Done(value=doctor.Diagnosis(findings=found, looked=LOOKED))


HEALTHY = ill()
NOTED = ill(finding.found("nothing-installed", finding.NOTE, "this node", "nothing is installed", do="invoke deploy"))
WARNED = ill(finding.found("option-deprecated", finding.WARNING, "llama@a.service", "--mmap goes", do="use --load-mode"))
LOOPS = finding.found(
    "crash-loop", finding.ERROR, "llama@a.service", "7 restarts", do="mend the cause [below]", evidence="exited, status 1"
)
BROKEN = ill(LOOPS, finding.found("xid", finding.WARNING, "card 0000:01:00", "page fault (Xid 31)"))
GONE: fleet.Done[doctor.Diagnosis] = fleet.Done(problem=errors.Problem("connect-timeout", "no answer", hint="is it on?"))
ODD: fleet.Done[doctor.Diagnosis] = fleet.Done(problem=errors.Problem("internal", "odd"))


@pytest.mark.parametrize(
    ("hosts", "code"),
    [
        ({"a": HEALTHY}, 0),
        ({"a": NOTED, "b": WARNED}, 0),
        ({"a": HEALTHY, "b": BROKEN}, 2),
        ({"a": HEALTHY, "b": GONE}, 4),
        ({"a": BROKEN, "b": GONE}, 6),
        ({"a": ODD}, 2),
    ],
)
def test_the_exit_code(hosts: dict[str, fleet.Done[doctor.Diagnosis]], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings.diagnosed(console.Screen(), hosts) == code
    assert capsys.readouterr().out


def test_a_healthy_host_is_one_line_with_what_was_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    findings.diagnosed(console.Screen(), {"titan": HEALTHY})
    assert capsys.readouterr().out.strip() == "titan  nothing wrong  (2 units, release b11434, kernel log)"


def test_a_finding_is_where_what_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    findings.diagnosed(console.Screen(), {"titan": HEALTHY, "atlas": BROKEN, "ghost": GONE})
    said = capsys.readouterr().out.splitlines()
    assert said[1] == "atlas  1 error, 1 warning  (2 units, release b11434, kernel log)"
    assert "error" in said[2]
    assert "llama@a.service  7 restarts  [crash-loop]" in said[2]
    assert said[3].strip() == "> exited, status 1"
    assert said[4].strip() == "-> mend the cause [below]"
    assert "page fault" in said[5]
    assert any("is it on?" in line for line in said[6:])


def test_json_is_one_document_and_words_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    findings.diagnosed(console.Screen(as_json=True), {"atlas": BROKEN, "ghost": GONE, "titan": HEALTHY})
    said = capsys.readouterr()
    hosts = json.loads(said.out)["hosts"]
    assert hosts["titan"] == {"findings": [], "looked": list(LOOKED), "problem": None}
    assert hosts["ghost"]["problem"]["code"] == "connect-timeout"
    assert hosts["ghost"]["findings"] == []
    keys = {"code", "severity", "where", "words", "do", "evidence"}
    assert [set(one) for one in hosts["atlas"]["findings"]] == [keys, keys]
    assert "7 restarts" in said.err


def test_what_a_node_says_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"code": "x", "severity": "error", "where": "[red]u[/red]\x1b[2J", "words": "[bold]w[/bold]\r\x07", "evidence": "\x9b2J"}
    findings.diagnosed(console.Screen(), {"a": ill(finding.decode(row))})
    said = capsys.readouterr().out
    assert "[bold]w[/bold]" in said, "markup is text here"
    assert not set(said) & {"\x1b", "\x07", "\r", "\x9b"}
