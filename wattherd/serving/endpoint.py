"""How clients reach a served model and what it will take: one place for the unit, the client's environment file, gateways and reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattherd.resources import secret

if TYPE_CHECKING:
    from wattherd.inventory import settings

#: Everything else means something to a shell, to systemd or to docker, each its own.
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+=\[\]-]*")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One model at one address. Token counts of 0 are unknown: neither the inventory nor the catalogue says.

    `slot_context` is what one request can have, prompt and answer together; `token_budget` what is left of it for the prompt when the
    answer may be `output_cap` long. `key_name` is the environment variable that a client should hold the key in, empty where none is asked.
    """

    host: str
    instance: str
    preset: str
    model: str
    url: str
    local: bool
    kind: str
    slots: int
    slot_context: int
    output_cap: int
    timeout_s: int
    key_name: str

    @property
    def token_budget(self) -> int:
        return max(0, self.slot_context - self.output_cap) if self.slot_context else 0

    def environment(self) -> str:
        """The lines of an environment file for a client; what is unknown is left out rather than written as 0."""
        known = {
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "WATTHERD_URL": self.url,
            "WATTHERD_MODEL": self.model,
            "WATTHERD_KIND": self.kind,
            "WATTHERD_SLOTS": self.slots,
            "WATTHERD_SLOT_CONTEXT_TOKENS": self.slot_context,
            "WATTHERD_OUTPUT_CAP_TOKENS": self.output_cap,
            "WATTHERD_PROMPT_BUDGET_TOKENS": self.token_budget,
            "WATTHERD_TIMEOUT_S": self.timeout_s,
            "WATTHERD_KEY_VARIABLE": self.key_name,
        }
        return "".join(f"{name}={_quoted(str(value))}\n" for name, value in known.items() if value)


def _quoted(value: str) -> str:
    """Read alike by a shell and by systemd."""
    return value if _PLAIN.fullmatch(value) else secret.quoted(value)


def endpoints(host: str, address: str, server: settings.Serve, trained: dict[str, int]) -> Iterator[Endpoint]:
    """The endpoints of one instance: one, or one for each model of its router. `address` is how the host is reached from outside.

    `trained` gives a model's own context in tokens by its name in the catalogue, where that is known.
    """
    local = server.is_local
    seen = server.own_address if local else address if server.is_everywhere else server.host
    url = f"{'https' if server.tls else 'http'}://{_bracketed(seen)}:{server.port}"
    for name, model, options in _served(server):
        yield Endpoint(
            host=host,
            instance=server.name,
            preset=name if server.router is not None else "",
            model=(options.alias or name).partition(",")[0],
            url=url,
            local=local,
            kind=options.kind,
            slots=options.slots,
            slot_context=options.slot_context(trained.get(model, 0)),
            output_cap=options.output_cap or 0,
            timeout_s=server.request_timeout_s,
            key_name=f"{server.name}_API_KEY".upper().replace("-", "_") if server.api_key else "",
        )


def _served(server: settings.Serve) -> Iterator[tuple[str, str, settings.Options]]:
    if server.router is None:
        yield server.name, server.model or "", server
        return
    for preset in server.router.models:
        yield preset.name, preset.model, preset


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
