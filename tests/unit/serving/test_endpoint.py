"""Endpoints: addresses, per-slot context and budget, one for each model of a router; and how gateways read them."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from wattherd.console import endpoints as shown
from wattherd.inventory import settings
from wattherd.serving import endpoint

KEY = {"env": "HERD_KEY"}


def found(address: str = "192.0.2.7", trained: dict[str, int] | None = None, **given: Any) -> list[endpoint.Endpoint]:
    server = settings.Serve.model_validate({"name": "smol", "port": 8080, **({} if "router" in given else {"model": "smollm2"}), **given})
    return list(endpoint.endpoints("titan", address, server, trained or {}))


def test_loopback_is_said_to_be_local() -> None:
    (one,) = found(context=4096)
    assert (one.url, one.local, one.model, one.key_name) == ("http://127.0.0.1:8080", True, "smol", "")


def test_every_address_means_the_host_s_own() -> None:
    (one,) = found(host="0.0.0.0", api_key=KEY, address="10.0.0.5")  # noqa: S104 - a setting, nothing listens
    assert (one.url, one.local, one.key_name) == ("http://10.0.0.5:8080", False, "SMOL_API_KEY")
    (six,) = found(host="fd00::7", api_key=KEY)
    assert six.url == "http://[fd00::7]:8080"


def test_the_budget_is_what_one_slot_has_left_for_a_prompt() -> None:
    (one,) = found(context=8192, slots=2, output_cap=1024)
    assert (one.slot_context, one.token_budget) == (4096, 3072)
    (shared,) = found(context=8192, slots=2, kv_unified=True)
    assert (shared.slot_context, shared.token_budget) == (8192, 8192)
    (odd,) = found(context=5000, slots=3)
    assert odd.slot_context == 1792  # llama.cpp pads each slot up to a multiple of 256


def test_an_unknown_context_is_left_out_and_never_zero() -> None:
    (one,) = found()
    assert (one.slot_context, one.token_budget) == (0, 0)
    assert "TOKENS" not in one.environment()
    (known,) = found(trained={"smollm2": 8192})
    assert "WATTHERD_SLOT_CONTEXT_TOKENS=8192\n" in known.environment()


def test_a_router_has_an_endpoint_for_each_model() -> None:
    presets = [{"name": "a", "model": "smollm2", "context": 1024}, {"name": "b", "model": "qwen", "alias": "herd/b"}]
    assert [one.model for one in found(router={"models": presets})] == ["a", "herd/b"]


def test_environment_lines() -> None:
    (one,) = found(context=2048, output_cap=512, host="10.1.1.1", api_key=KEY)
    lines = dict(line.split("=", 1) for line in one.environment().splitlines())
    assert lines["OPENAI_BASE_URL"] == "http://10.1.1.1:8080/v1"
    assert (lines["WATTHERD_PROMPT_BUDGET_TOKENS"], lines["WATTHERD_KEY_VARIABLE"]) == ("1536", "SMOL_API_KEY")


def test_of_several_aliases_a_client_is_told_the_first() -> None:
    """llama-server takes a comma for the end of one name: both as one would be no model of its list."""
    (one,) = found(alias="herd/qwen,gpt-4o")
    assert one.model == "herd/qwen"
    assert "WATTHERD_MODEL=herd/qwen\n" in one.environment()


@pytest.mark.parametrize("alias", ['a"b', "a$(reboot)", "a`b`", "a\\b", "a;b", "a&b"])
def test_an_alias_with_signs_is_one_value_to_a_shell(alias: str) -> None:
    (one,) = found(alias=alias)
    done = subprocess.run(["sh", "-c", f'{one.environment()}printf %s "$WATTHERD_MODEL"'], capture_output=True, text=True, check=True)
    assert done.stdout == alias


def test_litellm_balances_one_name_over_hosts_and_holds_no_key() -> None:
    rows = [*found(context=2048, output_cap=512, host="10.1.1.1", api_key=KEY), *found(context=2048)]
    told = yaml.safe_load(shown.litellm(rows))["model_list"]
    assert [row["model_name"] for row in told] == ["smol", "smol"]
    assert told[0]["litellm_params"]["api_key"] == "os.environ/SMOL_API_KEY"
    assert told[0]["model_info"] == {"mode": "chat", "max_input_tokens": 1536, "max_output_tokens": 512}
    assert told[1]["litellm_params"]["api_base"] == "http://127.0.0.1:8080/v1"


def test_openwebui_lists_addresses_and_keys_in_one_order() -> None:
    rows = [*found(host="10.1.1.1", api_key=KEY), *found(), *found(port=9, kind="embedding")]
    text = shown.openwebui(rows)
    assert 'OPENAI_API_BASE_URLS="http://10.1.1.1:8080/v1;http://127.0.0.1:8080/v1"' in text
    assert 'OPENAI_API_KEYS="${SMOL_API_KEY};none"' in text


def test_the_environment_of_several_says_whose_it_is() -> None:
    text = shown.environment([*found(), *found(host="10.1.1.1", api_key=KEY)])
    assert text.startswith("# titan: smol, reachable on that host only\n")
    assert "\n\n# titan: smol\nOPENAI_BASE_URL=http://10.1.1.1:8080/v1\n" in text
