"""`invoke ask`: one real completion from every host, made by the node itself over loopback, through the SSH session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wattherd import errors, fleet, inventory
from wattherd.inventory import settings
from wattherd.verbs import access, project, watch
from wattherd.wire import fields


@dataclass(frozen=True, kw_only=True)
class Question:
    """`server` names one served instance where a host has several; `max_tokens` bounds the answer, `timeout_s` the wait."""

    prompt: str
    server: str | None = None
    max_tokens: int = 128
    timeout_s: float = 120.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """As the server told it: text, the model's name, token counts, the build that answered (b11434-…), and the node's own seconds."""

    text: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    build: str = ""


def ask(reach: access.Access, selection: project.Selection, question: Question, seen: watch.Watch) -> Mapping[str, fleet.Done[Answer]]:
    loaded = reach.project.load(selection)
    for words in loaded.warnings:
        seen.warn(words)
    hosts = {host.name: host for host in project.hosts_of(loaded, selection, writes=True)}
    seen.phase("ask", list(hosts))
    return fleet.each(list(hosts), lambda name: _one(reach, hosts[name], question), forks=reach.forks)


def _one(reach: access.Access, host: inventory.Host, question: Question) -> Answer:
    server = _server(host, question.server)
    opened = reach.open(host)
    try:
        order = {
            "verb": "ask",
            "host": server.own_address,
            "port": server.port,
            "prompt": question.prompt,
            "max_tokens": question.max_tokens,
            "timeout_s": question.timeout_s,
        }
        told = opened.call(order)
    finally:
        opened.close()
    return Answer(
        text=fields.text(told, "text"),
        model=fields.text(told, "model"),
        prompt_tokens=fields.integer(told, "prompt_tokens"),
        completion_tokens=fields.integer(told, "completion_tokens"),
        seconds=fields.number(told, "seconds"),
        build=fields.text(told, "build", ""),
    )


def _server(host: inventory.Host, name: str | None) -> settings.Serve:
    served = host.settings.serve
    if not served:
        raise errors.Problem(
            "unknown-model", f"{host.name} serves nothing", hint="list an instance under serve: in its group_vars or host_vars, then deploy"
        )
    if name is None:
        return served[0]
    for one in served:
        if name in (one.name, one.model):
            return one
    raise errors.Problem("unknown-model", f"{host.name} serves no '{name}'", hint=f"it serves: {', '.join(one.name for one in served)}")
