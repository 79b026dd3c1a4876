"""`invoke ask`: one real completion from every host, made by the node itself over loopback, through the SSH session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wattherd import errors, fleet, inventory
from wattherd.inventory import settings
from wattherd.serving import instance
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
    server, model = server_of(host, question.server)
    opened = reach.open(host)
    try:
        order = {
            "verb": "ask",
            "host": server.own_address,
            "port": server.port,
            "prompt": question.prompt,
            "max_tokens": question.max_tokens,
            "timeout_s": question.timeout_s,
            "model": model,
            "kind": _kind(server, model),
            # The node reads the key itself: it is the one that its server was started with, whatever this controller holds by now.
            "key_file": instance.key_file(server),
            "certificate": instance.certificate_file(server),
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


def server_of(host: inventory.Host, name: str | None) -> tuple[settings.Serve, str]:
    """The instance, and the model to ask for where it is a router: the one that was named, else the first that starts with it."""
    served = host.settings.serve
    if not served:
        raise errors.Problem(
            "unknown-model", f"{host.name} serves nothing", hint="list an instance under serve: in its group_vars or host_vars, then deploy"
        )
    if name is None:
        return served[0], _first(served[0])
    for one in served:
        if name in (one.name, one.model):
            return one, _first(one)
        inside = [preset.name for preset in one.router.models if name in _called(one, preset)] if one.router is not None else []
        if inside:
            return one, inside[0]
    known = [one.name for one in served] + [f"{one.name}/{preset.name}" for one in served if one.router for preset in one.router.models]
    raise errors.Problem("unknown-model", f"{host.name} serves no '{name}'", hint=f"it serves: {', '.join(known)}")


def _called(server: settings.Serve, preset: settings.Preset) -> tuple[str, ...]:
    return preset.name, preset.alias or preset.name, f"{server.name}/{preset.name}"


def _kind(server: settings.Serve, model: str) -> str:
    return next((one.kind for one in server.router.models if one.name == model), "chat") if server.router is not None else server.kind


def _first(server: settings.Serve) -> str:
    if server.router is None:
        return ""
    return next((preset.name for preset in server.router.models if preset.load_on_start), server.router.models[0].name)
