"""From worked-out data to Settings, with errors that name file, line, what is allowed and the nearest known name.

Owns the words of these errors and the checks between settings (a served model is in the catalogue, two servers never share a port).
The shapes themselves are in `settings`.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pydantic
from pydantic_core import ErrorDetails

from wattherd import errors
from wattherd.inventory import document, names, settings

M = typing.TypeVar("M", bound=pydantic.BaseModel)
Steps = tuple[int | str, ...]

_ALLOWED = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "greater_than": "more than {gt}",
    "float_type": "a number",
    "literal_error": "{expected}",
    "allowed": "{allowed}",
}
_MOST_SHOWN = 5


@dataclass(frozen=True)
class Known:
    """What names in settings may refer to. `roles` is None where any role is taken."""

    roles: frozenset[str] | None
    models: Collection[str]
    hosts: Collection[str]


@dataclass(frozen=True)
class Subject:
    """Whose data is validated, and where each top-level value was written."""

    given: Mapping[str, document.Value]
    whose: str
    host: str | None = None

    def place(self, steps: Sequence[int | str]) -> str:
        if not steps or str(steps[0]) not in self.given:
            return self.whose
        return self.given[str(steps[0])].place_of(steps[1:])

    def problem(self, code: str, steps: Steps, message: str, hint: str = "") -> errors.Problem:
        return errors.Problem(code, f"{self.place(steps)}: {message}", hint=hint, host=self.host, key=_path(steps))


def validated(model: type[M], data: Mapping[str, object], subject: Subject) -> M:
    try:
        return model.model_validate(data)
    except pydantic.ValidationError as error:
        found = [_problem(model, detail, subject) for detail in error.errors(include_url=False)]
        raise _joined(found) from error


def build(data: Mapping[str, object], subject: Subject, known: Known) -> settings.Settings:
    found = validated(settings.Settings, data, subject)
    problem = next(_cross_checks(found, subject, known), None)
    if problem is not None:
        raise problem
    return found


def _problem(model: type[pydantic.BaseModel], detail: ErrorDetails, subject: Subject) -> errors.Problem:
    steps: Steps = tuple(step for step in detail["loc"] if step != "[key]")
    if detail["type"] == "extra_forbidden":
        known = tuple(_model_at(model, steps[:-1]).model_fields)
        owner = _path(steps[:-1]) or subject.whose
        hint = names.meant(str(steps[-1]), known) or f"it knows {', '.join(known)}"
        return subject.problem("unknown-key", steps, f"{owner} does not know '{steps[-1]}'", hint)
    if detail["type"] == "missing":
        owner = _path(steps[:-1]) or subject.whose
        return subject.problem("inventory-invalid", steps, f"{owner} lacks '{steps[-1]}'")
    allowed = _ALLOWED.get(detail["type"], "").format(**detail.get("ctx", {})) or detail["msg"]
    given = _shown(detail["input"])
    hint = "an empty list is written []" if given == "nothing" and allowed == "a list" else ""
    if allowed == "a list" and isinstance(detail["input"], str):
        hint = "one of its own, in brackets: [VALUE]"
    if detail["type"] == "model_type" and steps and _is_secret(model, steps):
        hint = f"name the place where it is, never itself: {steps[-1]}: {{file: secrets/herd.key}}"
    if detail["type"] == "string_type" and isinstance(detail["input"], int | float):
        hint = "put it in quotes"
    told = "" if allowed.startswith("given ") or _is_secret(model, steps) else f", not {given}"
    return subject.problem("inventory-invalid", steps, f"{_path(steps)} must be {allowed}{told}", hint)


def _is_secret(model: type[pydantic.BaseModel], steps: Steps) -> bool:
    """Whoever writes a key where its place belongs must not find it again in an error on a screen or in a log."""
    return any(_model_at(model, steps[:depth]) is settings.Secret for depth in range(1, len(steps) + 1))


def _joined(found: list[errors.Problem]) -> errors.Problem:
    """All of them in one message, so that a file is corrected once; code and hint are the first one's."""
    found = sorted(found, key=lambda item: item.code != "unknown-key")  # an unknown key is often why another one is lacking
    first = found[0]
    lines = list(dict.fromkeys(f"{item.message}{f' ({item.hint})' if item.hint and item is not first else ''}" for item in found))
    if len(lines) > _MOST_SHOWN:
        lines = [*lines[:_MOST_SHOWN], f"and {len(lines) - _MOST_SHOWN} more"]
    return errors.Problem(first.code, "\n".join(lines), hint=first.hint, **first.context)


def _cross_checks(found: settings.Settings, subject: Subject, known: Known) -> Iterator[errors.Problem]:
    yield from _roles(found, subject, known)
    yield from _models(found, subject, known)
    yield from _servers(found, subject)
    builder = found.llama_cpp.builder if found.llama_cpp else None
    if builder is not None and builder not in known.hosts:
        message = f"llama_cpp.builder is '{builder}', and no host has that name"
        yield subject.problem("unknown-host", ("llama_cpp", "builder"), message, names.meant(builder, known.hosts))


def _roles(found: settings.Settings, subject: Subject, known: Known) -> Iterator[errors.Problem]:
    for index, role in enumerate(found.roles):
        steps = ("roles", index)
        if known.roles is not None and role not in known.roles:
            hint = names.meant(role, known.roles) or f"the roles are {', '.join(sorted(known.roles))}"
            yield subject.problem("unknown-role", steps, f"no role is named '{role}'", hint)
        if role in found.roles[:index]:
            yield subject.problem("inventory-invalid", steps, f"the role '{role}' is listed twice")


def _models(found: settings.Settings, subject: Subject, known: Known) -> Iterator[errors.Problem]:
    wanted: list[tuple[Steps, str]] = [(("models", index), name) for index, name in enumerate(found.models)]
    for index, server in enumerate(found.serve):
        if server.router is not None:
            wanted += [
                (("serve", index, "router", "models", number, "model"), one.model) for number, one in enumerate(server.router.models)
            ]
        elif server.model is not None:
            wanted.append((("serve", index, "model"), server.model))
    for steps, name in wanted:
        if name not in known.models:
            hint = names.meant(name, known.models) or _offer(known.models)
            yield subject.problem("unknown-model", steps, f"the catalogue has no model '{name}'", hint)


def _offer(models: Collection[str]) -> str:
    return f"models.yaml has {', '.join(sorted(models)[:8])}" if models else "describe it in models.yaml in the inventory's folder"


def _servers(found: settings.Settings, subject: Subject) -> Iterator[errors.Problem]:
    for index, server in enumerate(found.serve):
        for other in found.serve[:index]:
            if other.name == server.name:
                yield subject.problem("inventory-invalid", ("serve", index, "name"), f"two servers are named '{server.name}'")
            if other.port == server.port and (other.own_address == server.own_address or other.is_everywhere or server.is_everywhere):
                message = f"'{server.name}' and '{other.name}' both listen on port {server.port}"
                yield subject.problem("inventory-invalid", ("serve", index, "port"), message, "each server has a port of its own")


def _path(steps: Sequence[int | str]) -> str:
    shown = ""
    for step in steps:
        shown += f"[{step}]" if isinstance(step, int) else f".{step}" if shown else step
    return shown


def _model_at(model: type[pydantic.BaseModel], steps: Sequence[int | str]) -> type[pydantic.BaseModel]:
    for step in steps:
        field = model.model_fields.get(str(step))
        found = next(_models_in(field.annotation), None) if field is not None else None
        model = found or model
    return model


def _models_in(annotation: object) -> Iterator[type[pydantic.BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models_in(inner)


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    shown = repr(value) if isinstance(value, str) else str(value)
    return shown if len(shown) <= 80 else shown[:77] + "…"
