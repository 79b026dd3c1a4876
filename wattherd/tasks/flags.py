"""The flags that every command shares, and the wrapper that turns a verb's function into an Invoke task.

Invoke reads a task's flags from its signature; the wrapper composes that signature, so that a flag is written once.
Owns the exit code; knows no verb.
"""

from __future__ import annotations

import gc
import inspect
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from invoke.exceptions import Exit
from invoke.tasks import task as make_task

from wattherd import errors

if TYPE_CHECKING:
    from decimal import Decimal

    from wattherd.console import Screen
    from wattherd.verbs import access as accesses
    from wattherd.verbs import project as projects

_HELP = {
    "hosts": "which hosts: Ansible's patterns (all, group, a:b, a:&b, a:!b, g[0:2], web*, ~regex)",
    "limit": "narrow --hosts by a second pattern",
    "inventory": "inventory folder or file (default inventory/, or WATTHERD_INVENTORY)",
    "check": "write nothing; say what a run would change",
    "diff": "show texts that differ",
    "tags": "only these parts (roles), comma separated",
    "skip_tags": "all but these parts",
    "list_hosts": "print the selected hosts and stop",
    "extra_vars": "key=value, a YAML mapping, or @file; strongest of all variables; may be repeated",
    "forks": "how many hosts at once",
    "ask_become_pass": "ask for the sudo password, once for all hosts",
    "verbose": "also print what was found in order, and traces of defects",
    "json": "one JSON document on stdout, words on stderr",
    "yes": "do not ask",
}
LOOK = ("hosts", "limit", "inventory", "list_hosts", "extra_vars", "forks", "ask_become_pass", "verbose", "json")
CHANGE = (*LOOK, "check", "diff", "tags", "skip_tags", "yes")
_DEFAULTS: dict[str, object] = {
    "hosts": None,
    "limit": None,
    "inventory": None,
    "check": False,
    "diff": False,
    "tags": None,
    "skip_tags": None,
    "list_hosts": False,
    "extra_vars": None,
    "forks": "32",
    "ask_become_pass": False,
    "verbose": False,
    "json": False,
    "yes": False,
}


@dataclass(frozen=True, kw_only=True)
class Common:
    """The shared flags of one call, already read."""

    root: pathlib.Path
    screen: Screen
    hosts: str | None = None
    limit: str | None = None
    inventory: str | None = None
    check: bool = False
    diff: bool = False
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    list_hosts: bool = False
    extra_vars: dict[str, object] = field(default_factory=dict)
    forks: int = 32
    ask_become_pass: bool = False
    yes: bool = False

    @property
    def project(self) -> projects.Project:
        from wattherd.verbs import project as projects

        return projects.Project(self.root)

    @property
    def selection(self) -> projects.Selection:
        from wattherd.verbs import project as projects

        return projects.Selection(hosts=self.hosts, limit=self.limit, inventory=self.inventory, extra_vars=self.extra_vars)

    def require_hosts(self) -> None:
        """`hosts-required` before a question is asked, whose yes would be about nobody knows what."""
        from wattherd.verbs import project as projects

        projects.check_hosts(self.project.load(self.selection), self.selection)

    def access(self) -> accesses.Access:
        """Asks for the password here, once, when it was asked to."""
        import getpass

        from wattherd.verbs import access as accesses

        if self.ask_become_pass and not sys.stdin.isatty():
            raise errors.Problem(
                "not-confirmed", "a password can only be asked on a terminal", hint="run it on one, or let sudo ask none (NOPASSWD)"
            )
        password = getpass.getpass("sudo password for all hosts: ") if self.ask_become_pass else None
        return accesses.Access(project=self.project, password=password, forks=self.forks)

    def listed(self) -> list[str]:
        """The names of the selected hosts."""
        from wattherd.verbs import project as projects

        loaded = self.project.load(self.selection)
        return [host.name for host in projects.hosts_of(loaded, self.selection, writes=False)]

    def confirmed(self, question: str) -> bool:
        """Ask on the terminal unless --yes. Without a terminal nothing can be asked: that is an error, never a yes."""
        if self.yes:
            return True
        if not sys.stdin.isatty():
            raise errors.Problem("not-confirmed", "this needs a yes, and there is no terminal to ask on", hint="add --yes")
        self.screen.say(f"{question} [y/N]")
        return sys.stdin.readline().strip().lower() in ("y", "yes")


Body = Callable[..., int]


def command(
    flags: tuple[str, ...],
    *,
    help: dict[str, str] | None = None,
    positional: Iterable[str] = (),
    optional: Iterable[str] = (),
    name: str | None = None,
) -> Callable[[Body], Any]:
    """Make a task of `body(common, **own)`, which returns the exit code. Its own flags are its keyword parameters.

    An `optional` one may stand alone, without its value: it is then True.
    """

    def wrap(body: Body) -> Any:
        own = list(inspect.signature(body).parameters.values())[1:]

        def task(context: Any, **given: object) -> None:
            shared = {key: given.pop(key) for key in flags}
            code = _run(context, body, shared, given)
            if code:
                raise Exit(code=code)

        parameters = [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        parameters += [one.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=inspect.Parameter.empty) for one in own]
        parameters += [inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=_DEFAULTS[key]) for key in flags]
        task.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        task.__doc__ = body.__doc__
        task.__name__ = body.__name__
        texts = {key: text for key, text in _HELP.items() if key in flags} | (help or {})
        iterable = [key for key in ("extra_vars",) if key in flags]
        return make_task(
            task,
            name=name,
            help=texts,
            positional=list(positional),
            optional=list(optional),
            iterable=iterable,
            auto_shortflags=False,
        )

    return wrap


def _run(context: Any, body: Body, shared: dict[str, Any], own: dict[str, object]) -> int:
    # What a command loads it keeps: looking through all of it for garbage, while it loads and at the very end, finds nothing.
    gc.set_threshold(20_000, 50, 50)
    from wattherd.console import Screen

    out = Screen(as_json=bool(shared.get("json")), verbose=bool(shared.get("verbose")))
    try:
        common = _common(context, out, shared)
        with out:
            if common.list_hosts:
                # Here and not in each command: one that forgot it would change machines that were only to be listed.
                from wattherd.console import reports

                return reports.host_list(out, common.listed())
            return body(common, **own)
    except errors.Problem as problem:
        if out.as_json:
            out.document({"problem": problem.to_dict()})
        out.problem(problem)
        return 1
    except KeyboardInterrupt:
        out.say("stopped by you; on the nodes a build goes on, a sweep sets its cards back, all else converges in the next run", "yellow")
        sys.stdout.flush()
        # Threads that still wait for a host would keep the process for as long as that host takes.
        os._exit(130)
    finally:
        gc.freeze()


def _common(context: Any, out: Screen, shared: dict[str, Any]) -> Common:
    values: dict[str, Any] = {
        key: value for key, value in shared.items() if key not in ("json", "verbose", "tags", "skip_tags", "extra_vars", "check", "forks")
    }
    return Common(
        root=pathlib.Path(context.config.get("wattherd", {}).get("root", ".")).resolve(),
        screen=out,
        # Invoke's own --dry promises to run nothing: here it can only mean a check.
        check=bool(shared.get("check")) or bool(context.config.run.dry),
        tags=_words(shared.get("tags")),
        skip_tags=_words(shared.get("skip_tags")),
        extra_vars=extra_vars(shared.get("extra_vars") or ()),
        forks=number("forks", shared.get("forks", 32), 1000),
        **values,
    )


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word for word in (text or "").replace(",", " ").split() if word)


def number(flag: str, value: object, most: int) -> int:
    """A whole number from 1 on. Tasks take theirs as text: of a number Invoke itself makes a trace of Python."""
    text = str(value)
    if text.isascii() and text.isdigit() and 1 <= int(text[:20]) <= most:
        return int(text)
    raise errors.Problem("bad-flag", f"--{flag} {text[:40]} is not a number from 1 to {most:,}")


def decimal(flag: str, value: object, most: int) -> Decimal:
    """A number above 0, exactly as it was written."""
    from decimal import Decimal

    text = str(value)
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII) and 0 < Decimal(text) <= most:
        return Decimal(text)
    raise errors.Problem("bad-flag", f"--{flag} {text[:40]} is not a number above 0 and up to {most:,}")


def extra_vars(given: Iterable[str]) -> dict[str, object]:
    """`key=value` (the value is YAML), a YAML mapping, or @file with one; later ones win."""
    if not given:
        return {}
    import yaml

    found: dict[str, object] = {}
    for text in given:
        source = pathlib.Path(text[1:]).expanduser() if text.startswith("@") else None
        try:
            body = source.read_text() if source else text
            key, mark, value = body.partition("=")
            parsed = {key.strip(): yaml.safe_load(value)} if not source and mark and key.strip().isidentifier() else yaml.safe_load(body)
        except (OSError, yaml.YAMLError) as error:
            raise errors.Problem("bad-flag", f"--extra-vars {text}: {error}") from error
        if not isinstance(parsed, dict):
            raise errors.Problem("bad-flag", f"--extra-vars {text}: neither key=value nor a mapping")
        found.update({str(name): value for name, value in parsed.items()})
    return found
