"""Endpoints as clients and gateways read them: environment lines, a LiteLLM configuration, Open WebUI's variables. Never a key."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from wattherd.console import screen
from wattherd.serving import endpoint

FORMATS = ("env", "litellm", "openwebui")
_MODES = {"chat": "chat", "embedding": "embedding", "reranking": "rerank"}


def show(out: screen.Screen, found: Sequence[endpoint.Endpoint], form: str | None) -> int:
    """Without a form: a table for people. With one: the text alone on stdout, so that it can be written to a file."""
    if out.as_json:
        out.document({"endpoints": [{**dataclasses.asdict(one), "token_budget": one.token_budget} for one in found]})
        return 0
    if form is not None:
        out.text({"env": environment, "litellm": litellm, "openwebui": openwebui}[form](found))
        return 0
    rows = [
        (
            one.host,
            one.model,
            one.url,
            str(one.slots),
            str(one.slot_context or "?"),
            str(one.token_budget or "?"),
            one.key_name or ("loopback" if one.local else "none"),
        )
        for one in found
    ]
    out.table(("host", "model", "url", "slots", "tokens a slot", "prompt budget", "key"), rows, right=(3, 4, 5))
    if any(not one.slot_context for one in found):
        out.say("?: the model's own context, which the catalogue does not say (models.yaml: context)", "dim")
    return 0


def environment(found: Sequence[endpoint.Endpoint]) -> str:
    blocks = [f"# {one.host}: {one.model}{', reachable on that host only' if one.local else ''}\n{one.environment()}" for one in found]
    return "\n".join(blocks)


def litellm(found: Sequence[endpoint.Endpoint]) -> str:
    """A model_list; the same model on several hosts is one name there, between which LiteLLM balances."""
    import yaml

    rows = [
        {
            "model_name": one.model,
            "litellm_params": {
                "model": f"openai/{one.model}",
                "api_base": f"{one.url}/v1",
                "api_key": f"os.environ/{one.key_name}" if one.key_name else "none",
                "timeout": one.timeout_s,
                "max_parallel_requests": one.slots,
            },
            "model_info": {
                "mode": _MODES[one.kind],
                **({"max_input_tokens": one.token_budget} if one.token_budget else {}),
                **({"max_output_tokens": one.output_cap} if one.output_cap else {}),
            },
        }
        for one in found
    ]
    return "# keys come from the environment of the gateway\n" + yaml.safe_dump({"model_list": rows}, sort_keys=False)


def openwebui(found: Sequence[endpoint.Endpoint]) -> str:
    """Variables of Open WebUI's environment: one address a host and port, with the keys in the same order."""
    keys = {one.url: one.key_name for one in found if one.kind == "chat"}
    addresses = ";".join(f"{url}/v1" for url in keys)
    secrets = ";".join(f"${{{name}}}" if name else "none" for name in keys.values())
    note = "# ${…} stands for a key: docker compose puts it in from its own environment\n" if any(keys.values()) else ""
    return f"{note}OPENAI_API_BASE_URLS={json.dumps(addresses)}\nOPENAI_API_KEYS={json.dumps(secrets)}\n"
