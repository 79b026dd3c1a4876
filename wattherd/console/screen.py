"""The two ways out: people's words (stdout, or stderr under --json) and one JSON document on stdout.

A Screen is a Watch: on a terminal it keeps a live line per host, elsewhere it prints what changed, failed or was noted.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import rich.console
import rich.markup

from wattherd import errors, fleet, units

if TYPE_CHECKING:
    from rich import live as lives
    from rich import table as tables

_STYLES = {"ok": "green", "changed": "yellow", "would_change": "yellow", "failed": "red", "unreachable": "red", "skipped": "cyan"}
#: Long work on something that is no terminal (a log, CI) says where it is this often.
_LOG_EVERY_S = 15.0
_FILE_COLUMNS = 240


def safe(text: str) -> str:
    """A model's and a node's words go to a terminal: nothing in them may steer it."""
    return "".join(char if char.isprintable() else "�" for char in text)


class Screen:
    """`as_json` moves all words to stderr; `verbose` also prints what was found in order."""

    def __init__(self, *, as_json: bool = False, verbose: bool = False) -> None:
        self.as_json = as_json
        self.verbose = verbose
        stream = sys.stderr if as_json else sys.stdout
        # What goes to a file or a pipe is not folded at a width that nobody sees.
        self.out = rich.console.Console(
            file=stream, highlight=False, emoji=False, soft_wrap=True, width=None if stream.isatty() else _FILE_COLUMNS
        )
        self._live: lives.Live | None = None
        self._rows: dict[str, str] = {}
        #: Host -> what it last failed with: one broken driver fails each setting of each card with the same words.
        self._failed: dict[str, tuple[str, str]] = {}
        self._picture: list[tuple[str, str]] = []
        self._lock = threading.RLock()
        self._logged_s: dict[str, float] = {}

    # -- words

    def say(self, words: str, style: str = "") -> None:
        with self._lock:
            self.out.print(rich.markup.escape(words), style=style)

    def document(self, value: object) -> None:
        """The one JSON document of a --json run."""
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def text(self, body: str) -> None:
        """A text that is meant for a file or a pipe: on stdout as it is, nothing else."""
        sys.stdout.write(body)
        sys.stdout.flush()

    def problem(self, problem: errors.Problem, host: str = "") -> None:
        """Three lines: where, what, and what to do next."""
        where = "  ".join(part for part in (host, str(problem.context.get("resource", ""))) if part)
        with self._lock:
            self.out.print(f"[red]{rich.markup.escape(where) or 'error'}[/red]  [dim]{rich.markup.escape(problem.code)}[/dim]")
            for line in problem.message.splitlines():
                self.out.print(f"  {rich.markup.escape(line)}")
            if problem.hint:
                self.out.print(f"  [bold]-> {rich.markup.escape(problem.hint)}[/bold]")
            if self.verbose and "trace" in problem.context:
                self.out.print(f"[dim]{rich.markup.escape(str(problem.context['trace']))}[/dim]")

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
        from rich import table as tables

        drawn = tables.Table(box=None, pad_edge=False, header_style="bold")
        for index, title in enumerate(titles):
            drawn.add_column(title, justify="right" if index in right else "left", overflow="fold")
        for row in rows:
            drawn.add_row(*(rich.markup.escape(safe(cell)) for cell in row))
        with self._lock:
            self.out.print(drawn)

    @property
    def width(self) -> int:
        """Columns of the terminal, or of a file that nobody folds."""
        return self.out.width

    @property
    def is_live(self) -> bool:
        return self._live is not None

    def picture(self, lines: Sequence[tuple[str, str]]) -> None:
        """Lines with their styles that take the place of the last ones; on no terminal they are printed, one picture after the other."""
        with self._lock:
            self._picture = list(lines)
        if self._live is None:
            for words, style in lines:
                self.say(words, style)

    # -- a Watch

    def phase(self, words: str, hosts: Sequence[str]) -> None:
        if not hosts:
            return
        with self._lock:
            names = ", ".join(hosts) if len(hosts) <= 4 else f"{', '.join(hosts[:3])} and {len(hosts) - 3} more"
            self.out.print(f"[bold]{rich.markup.escape(words)}[/bold] [dim]{rich.markup.escape(names)}[/dim]")

    def event(self, host: str, message: Mapping[str, Any]) -> None:
        kind = str(message.get("event"))
        name = str(message.get("id", ""))
        if kind == "progress":
            self._progress(
                host,
                f"{name}  {message.get('words', '')}",
                float(message.get("done", 0)),
                float(message.get("total", 0)),
                str(message.get("unit", "")),
            )
            return
        if kind == "start":
            self._row(host, name)
            return
        if kind == "note":
            self._line(host, "note", str(message.get("words", "")))
        elif kind == "failed":
            problem = message.get("problem")
            told = errors.Problem.from_dict(problem if isinstance(problem, dict) else {})
            told.context.setdefault("resource", name)
            if self._failed.get(host) == (told.code, told.message):
                self._line(host, "failed", f"{name}  {told.code}, for the same reason")
                return
            self._failed[host] = (told.code, told.message)
            self.problem(told, host)
        elif kind in ("changed", "would_change"):
            self._line(host, kind, f"{name}  {_what(message)}")
            self._diff(str(message.get("diff", "")))
        elif kind == "skipped":
            self._line(host, kind, f"{name}  {message.get('reason', '')}")
        elif kind == "ok" and self.verbose:
            self._line(host, kind, name)

    def moved(self, host: str, what: str, done_bytes: int, total_bytes: int) -> None:
        self._progress(host or "controller", what, float(done_bytes), float(total_bytes), "bytes")

    def tell(self, words: str) -> None:
        self.say(words)

    def warn(self, words: str) -> None:
        self.say(f"warning: {words}", "yellow")

    def done(self, host: str, outcome: fleet.Outcome) -> None:
        self._row(host, "")
        if outcome.problem is not None and "resource" not in outcome.problem.context:
            self.problem(outcome.problem, host)

    # -- the live part

    def __enter__(self) -> Self:
        if self.out.is_terminal:
            from rich import live as lives

            self._live = lives.Live(console=self.out, transient=True, refresh_per_second=8, get_renderable=self._render)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> tables.Table:
        from rich import table as tables
        from rich import text

        drawn = tables.Table.grid(padding=(0, 2))
        with self._lock:
            rows = list(self._rows.items())
            picture = self._picture[-max(3, self.out.size.height - 1) :]
        if picture:
            # What is wrong stands last: where not all has room, the top goes.
            for words, style in picture:
                drawn.add_row(text.Text(words, style=style, no_wrap=True, overflow="ellipsis"))
            return drawn
        for host, words in rows[: max(3, self.out.size.height - 4)]:
            drawn.add_row(f"[bold]{rich.markup.escape(host)}[/bold]", rich.markup.escape(safe(words)))
        return drawn

    def _row(self, host: str, words: str) -> None:
        with self._lock:
            if words:
                self._rows[host] = words
            else:
                self._rows.pop(host, None)

    def _progress(self, host: str, words: str, done: float, total: float, unit: str) -> None:
        text = f"{words}  {_amount(done, total, unit)}".rstrip()
        self._row(host, text)
        if total and done >= total and unit == "bytes":
            self._row(host, "")
        if not done and not total:
            # A word without a measure is a step that began or something that was found: it is said once and stays.
            self._line(host, "...", words)
        elif self._live is None:
            now_s = time.monotonic()
            with self._lock:
                due = now_s - self._logged_s.get(host, now_s - _LOG_EVERY_S + 2) >= _LOG_EVERY_S
                if host not in self._logged_s or due:
                    self._logged_s[host] = now_s
            if due:
                self._line(host, "...", text)

    def _line(self, host: str, kind: str, words: str) -> None:
        style = _STYLES.get(kind, "dim")
        shown = "would change" if kind == "would_change" else kind
        with self._lock:
            self.out.print(f"{rich.markup.escape(host):<10} [{style}]{shown:<12}[/{style}] {rich.markup.escape(safe(words))}")

    def _diff(self, text: str) -> None:
        with self._lock:
            for line in text.splitlines():
                style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
                self.out.print(rich.markup.escape(safe(line.expandtabs(4))), style=style)


def _what(message: Mapping[str, Any]) -> str:
    """`create`, or the keys that differ with their old and new values where those are short.

    A resource that is one value has that value's name at the end of its id (power:UUID/clocks_mhz): there the value is all that matters,
    also the first time.
    """
    action = str(message.get("action", ""))
    delta = message.get("delta")
    if action not in {"create", "fix"} or not isinstance(delta, dict):
        return action
    pairs = {str(key): pair if isinstance(pair, list) and len(pair) == 2 else (None, None) for key, pair in delta.items()}
    if action == "create":
        own = [key for key in pairs if str(message.get("id", "")).endswith(f"/{key}")]
        return ", ".join(f"{key}: {pairs[key][1]}" for key in own) or action
    return ", ".join(f"{key}: {was} -> {now}" if len(str(was)) <= 24 and len(str(now)) <= 24 else key for key, (was, now) in pairs.items())


def _amount(done: float, total: float, unit: str) -> str:
    if unit == "bytes":
        return f"{units.size(done)} of {units.size(total)}" if total else units.size(done)
    if unit == "s":
        return f"{units.duration(done)} of at most {units.duration(total)}" if total else units.duration(done)
    if total:
        return f"{done:.0f} of {total:.0f} {unit}".rstrip()
    return f"{done:.0f} {unit}".rstrip() if done else ""
