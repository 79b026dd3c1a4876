"""The whole surface that role authors see: resources, host, facts, and text from templates.

A role is one module in roles/ with `resources(host, facts)`, a pure function that yields resources in the order in which
they are to be made. It knows no engine, no SSH and no clock.
"""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from wattherd import errors, material, store, templates
from wattherd.power.wanted import FOLDER as POWER_FOLDER
from wattherd.power.wanted import encode as power_policy
from wattherd.powering.plan import Plan as PowerPlan
from wattherd.powering.plan import of as power_plan
from wattherd.records import replace
from wattherd.resources.artifact import Artifact
from wattherd.resources.base import Resource
from wattherd.resources.build import Build
from wattherd.resources.directory import Directory
from wattherd.resources.driver import Driver
from wattherd.resources.file import File
from wattherd.resources.flagging.policy import STRIPPED
from wattherd.resources.flags import Flags
from wattherd.resources.haproxy import Haproxy
from wattherd.resources.jetson import Jetson
from wattherd.resources.package import Package
from wattherd.resources.power import Power, PowerPolicy
from wattherd.resources.program import Program
from wattherd.resources.secret import Secret
from wattherd.resources.symlink import Symlink
from wattherd.resources.unit import Unit
from wattherd.resources.user import User
from wattherd.resources.weights import Weights
from wattherd.serving import endpoint, instance
from wattherd.serving.cards import has_gpu
from wattherd.serving.cuda import Choice as CudaChoice
from wattherd.serving.cuda import choose as choose_cuda
from wattherd.serving.held import held_models
from wattherd.serving.secrets import KEY, Book
from wattherd.serving.words import server_flags
from wattherd.wire.facts import Facts

__all__ = [
    "CURRENT",
    "KEY",
    "MODELS",
    "POWER_FOLDER",
    "RELEASES",
    "STRIPPED",
    "Archive",
    "Artifact",
    "Build",
    "CudaChoice",
    "Directory",
    "Driver",
    "Facts",
    "File",
    "Flags",
    "Haproxy",
    "Host",
    "Jetson",
    "Model",
    "ModelFile",
    "Options",
    "Package",
    "Power",
    "PowerPlan",
    "PowerPolicy",
    "Problem",
    "Program",
    "Resource",
    "Role",
    "Secret",
    "Server",
    "Symlink",
    "Toolkit",
    "Unit",
    "User",
    "Weights",
    "choose_cuda",
    "digest_of",
    "has_gpu",
    "held_models",
    "instance",
    "power_plan",
    "power_policy",
    "replace",
    "server_flags",
    "unit_word",
]

Problem = errors.Problem
CURRENT, RELEASES, MODELS = store.CURRENT, store.RELEASES, material.MODELS
Archive = material.Archive
Model = material.Model
ModelFile = material.File
Toolkit = material.Toolkit
if TYPE_CHECKING:
    from wattherd.inventory import settings

    Server = settings.Serve
    Options = settings.Options
    Place = settings.Secret
else:
    Options = object
    Server = object  # for annotations alone: its module brings pydantic, which is loaded when a host's settings are worked out


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host as a role sees it: its name, groups, settings (checked), free variables, and what the controller resolved for it.

    `program` is the digest of the node program that this controller runs with (link/archive.py).
    """

    name: str
    groups: tuple[str, ...]
    settings: settings.Settings
    variables: Mapping[str, object] = field(default_factory=dict)
    folders: tuple[pathlib.Path, ...] = ()
    models: Mapping[str, Model] = field(default_factory=dict)
    archive: Archive | None = None
    secrets: Book | None = None
    toolkits: tuple[Toolkit, ...] = ()
    program: str = ""

    def text(self, template: str, **more: object) -> str:
        """Render templates/`template` with the host's variables, `host` and whatever the role adds."""
        return templates.render(self.folders, template, _Layered({**more, "host": self}, self.variables), host=self.name)

    def source(self, path: str) -> bytes:
        """A file of the project that the inventory names, read on the controller."""
        for folder in self.folders:
            found = (folder.parent / path).resolve()
            if found.is_relative_to(folder.parent.resolve()) and found.is_file():
                return found.read_bytes()
        raise Problem(
            "source-missing",
            f"{self.name}: {path} is not in the project",
            hint="paths are relative to the folder that holds inventory/ and templates/",
        )

    def secret(
        self,
        place: Place,
        path: str,
        *,
        form: str = "raw",
        mode: str = "0600",
        owner: str = "root",
        group: str = "root",
        certificate: str = "",
    ) -> Secret:
        """A file with a secret of the inventory. `form`: raw, pem, or the name of the environment variable that systemd makes of it.

        `certificate` is a file of the controller that comes before a key in the same file.
        """
        if self.secrets is None:
            raise Problem("internal", f"{self.name}: nobody reads secrets here")
        before = type(place)(file=certificate) if certificate else None
        digest = self.secrets.digest(self.name, path, place, form, before)
        return Secret(path=path, digest=digest, salt=self.name, mode=mode, owner=owner, group=group)

    def endpoints(self, server: Server) -> tuple[endpoint.Endpoint, ...]:
        """How clients on the host itself reach what this instance serves."""
        trained = {name: model.context for name, model in self.models.items()}
        return tuple(endpoint.endpoints(self.name, server.own_address, server, trained))

    def model(self, name: str) -> Model:
        return self.models[name]


class _Layered(Mapping[str, object]):
    """A role's own words over the host's variables, each evaluated only when a template asks for it."""

    def __init__(self, over: Mapping[str, object], under: Mapping[str, object]) -> None:
        self._over = over
        self._under = under

    def __getitem__(self, key: str) -> object:
        return self._over[key] if key in self._over else self._under[key]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._over, *(key for key in self._under if key not in self._over)])

    def __len__(self) -> int:
        return len(list(iter(self)))


class Role(Protocol):
    """What a module in roles/ must offer."""

    def resources(self, host: Host, facts: Facts) -> Iterable[Resource]: ...


def digest_of(parts: Sequence[str]) -> str:
    """One sha256 over several texts, each with its length, so that no two lists collide. For a unit's `inputs`."""
    summing = hashlib.sha256()
    for part in parts:
        body = part.encode()
        summing.update(f"{len(body)}:".encode())
        summing.update(body)
    return summing.hexdigest()


def unit_word(text: str) -> str:
    """One word of an ExecStart= line, exactly as given: quoted where it must be, `%` and `$` without their meaning (systemd.service(5))."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = bool(escaped) and not any(char.isspace() or char in "\"';" for char in escaped)
    return escaped if plain else f'"{escaped}"'
