"""Endpoints as clients and gateways read them: environment lines, a LiteLLM configuration, Open WebUI's variables. Never a key."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from wattherd import errors, fleet
from wattherd.console import reports, screen
from wattherd.serving import endpoint
from wattherd.verbs import endpoints

FORMATS = ("env", "litellm", "openwebui")
_MODES = {"chat": "chat", "embedding": "embedding", "reranking": "rerank"}


def text(out: screen.Screen, found: Sequence[endpoint.Endpoint], form: str) -> int:
    """The text alone on stdout, so that it can be written to a file; under --json inside the document."""
    body = {"env": environment, "litellm": litellm, "openwebui": openwebui}[form](found)
    if out.as_json:
        out.document({"format": form, "text": body})
    else:
        out.text(body)
    return 0


def table(
    out: screen.Screen,
    found: Sequence[endpoint.Endpoint],
    uses: Mapping[tuple[str, str, str], endpoints.Use],
    lost: Mapping[str, errors.Problem],
) -> int:
    rows = [(one, uses.get((one.host, one.instance, one.preset))) for one in found]
    if out.as_json:
        out.document(
            {
                "endpoints": [
                    {**dataclasses.asdict(one), "token_budget": one.token_budget, "used": dataclasses.asdict(use) if use else None}
                    for one, use in rows
                ],
                "problems": {name: reports.problem_document(problem) for name, problem in lost.items()},
            }
        )
    titles = ["host", "model", "url", "slots", "tokens a slot", "prompt budget", "key"]
    cells = [
        [one.host, one.model, one.url, str(one.slots), str(one.slot_context or "?"), str(one.token_budget or "?"), _key(one)]
        for one in found
    ]
    if uses:
        titles.append("fullest slot")
        cells = [[*row, _fullest(one, use)] for row, (one, use) in zip(cells, rows, strict=True)]
    out.table(titles, cells, right=(3, 4, 5, 7))
    if any(not one.slot_context for one in found):
        out.say("?: the model's own context, which the catalogue does not say (models.yaml: context)", "dim")
    for name, problem in lost.items():
        out.problem(problem, name)
    return fleet.exit_code([fleet.status_of(problem) for problem in lost.values()] or ["ok"])


def _key(one: endpoint.Endpoint) -> str:
    return one.key_name or ("loopback" if one.local else "none")


def _fullest(one: endpoint.Endpoint, use: endpoints.Use | None) -> str:
    """Since the server's process began; a model that is not loaded has no figure."""
    if use is None or use.most_tokens is None:
        return "unknown"
    return f"{use.most_tokens} ({100 * use.most_tokens // one.slot_context} %)" if one.slot_context else str(use.most_tokens)


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
