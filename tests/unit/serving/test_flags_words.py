"""Typed options in the newest build's spelling, checked against that build's real help."""

from __future__ import annotations

from typing import Any

import pytest

from tests import corpus
from wattherd import errors, material
from wattherd.inventory import settings
from wattherd.resources.flagging import files, manual, policy, translate
from wattherd.serving import words

PATH = "/etc/wattherd/serve/smol.flags"
FINGERPRINT = "0123456789abcdef-b11434-cpu"
LISTEN = (("--host", "127.0.0.1"), ("--port", "8080"))
GPU = "GPU-11111111-2222-3333-4444-555555555555"
OTHER_GPU = "GPU-66666666-7777-8888-9999-000000000000"
MIG = "MIG-11111111-2222-3333-4444-555555555555"


def file(name: str) -> material.File:
    return material.File(sha256="a" * 64, size_bytes=1, file_name=name)


MODELS = {
    "big": material.Model(
        name="big", files=(file("b.gguf"),), projector=file("p.gguf"), adapters={"law": file("l"), "med": file("m")}, draft="small"
    ),
    "small": material.Model(name="small", files=(file("s.gguf"),)),
}


def served(**more: Any) -> settings.Serve:
    values = {"name": "smol", "port": 8080, **({} if "router" in more else {"model": "small"}), **more}
    return settings.Serve.model_validate(values)


def flags(**more: Any) -> Any:
    return words.server_flags(
        served(**more), MODELS, path=PATH, binary=f"/opt/wattherd/releases/{FINGERPRINT}/bin/llama-server", build=FINGERPRINT, listen=LISTEN
    )


def refused(**more: Any) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        flags(**more)
    assert caught.value.hint
    return caught.value


#: Every key with a value that is not its default -> what becomes of it.
EVERY: dict[str, tuple[Any, tuple[tuple[str, ...], ...]]] = {
    "context": (8192, (("--ctx-size", "8192"),)),
    "slots": (3, (("--parallel", "3"),)),
    "kv_unified": (True, (("--kv-unified",),)),
    "batch": (1024, (("--batch-size", "1024"),)),
    "ubatch": (256, (("--ubatch-size", "256"),)),
    "threads": (6, (("--threads", "6"),)),
    "threads_batch": (8, (("--threads-batch", "8"),)),
    "flash_attention": ("on", (("--flash-attn", "on"),)),
    "cache_type_k": ("q8_0", (("--cache-type-k", "q8_0"),)),
    "cache_type_v": ("q8_0", (("--cache-type-v", "q8_0"),)),
    "cache_reuse": (256, (("--cache-reuse", "256"),)),
    "cache_ram_mib": (0, (("--cache-ram", "0"),)),
    "load_mode": ("mlock", (("--load-mode", "mlock"),)),
    "gpu_layers": ("all", (("--n-gpu-layers", "all"),)),
    "devices": ([GPU, OTHER_GPU], ()),
    "split_mode": ("layer", (("--split-mode", "layer"),)),
    "tensor_split": ([3, 1.5], (("--tensor-split", "3,1.5"),)),
    "cpu_moe": ("all", (("--cpu-moe",),)),
    "draft": ({"max_tokens": 8, "min_tokens": 1, "min_probability": 0.75, "gpu_layers": 99}, ()),
    "adapters": ([{"name": "law"}], (("--lora-scaled", "/var/lib/wattherd/models/big.lora-law.gguf:1"),)),
    "rpc": (["a:50052", "b:50052"], (("--rpc", "a:50052,b:50052"),)),
    "output_cap": (512, (("--predict", "512"),)),
    "jinja": (False, (("--no-jinja",),)),
    "chat_template": ("chatml", (("--chat-template", "chatml"),)),
    "kind": ("embedding", (("--embeddings",),)),
    "alias": ("herd/small", (("--alias", "herd/small"),)),
    "sleep_idle_s": (600, (("--sleep-idle-seconds", "600"),)),
    "extra_flags": (["--temp", "0.2"], ()),
}


def test_flags_every_typed_option_is_in_the_table() -> None:
    assert set(EVERY) == set(settings.Options.model_fields)


@pytest.mark.parametrize("key", EVERY)
def test_flags_every_typed_option_becomes_an_option_that_the_newest_build_knows(key: str) -> None:
    value, expected = EVERY[key]
    made = flags(model="big", **{key: value})
    assert set(expected) <= set(made.options)
    known = manual.parse(corpus.helped("b11434"))
    assert translate.translate(made.id, made.options, made.extra, known)[: len(made.options)] == made.options, "its own spelling"
    plain = flags(model="big")
    assert made != plain
    for option in set(made.options) - set(plain.options):
        owner = policy.key_of(option[0]).split(" ")[0].split(".")[0]
        assert owner == key, f"{option[0]} is written by {key}, and the list of owners says {owner!r}"


@pytest.mark.parametrize("build", corpus.helps())
def test_flags_a_full_configuration_can_be_said_to_every_build(build: str) -> None:
    everything = {key: value for key, (value, _) in EVERY.items() if key not in {"kind", "cpu_moe", "rpc"}}
    made = flags(model="big", **everything)
    spoken = translate.translate(made.id, made.options, made.extra, manual.parse(corpus.helped(build)))
    assert ("--temp", "0.2") in spoken
    assert len(spoken) >= len(made.options) - 4


def test_flags_slots_and_unified_kv_are_always_written_out() -> None:
    assert {("--parallel", "1"), ("--no-kv-unified",), ("--cache-ram", "2048")} <= set(flags().options)
    assert {("--parallel", "4"), ("--kv-unified",)} <= set(flags(slots=4, kv_unified=True).options)


def test_flags_what_every_server_has() -> None:
    made = flags(request_timeout_s=60)
    assert {
        *LISTEN,
        ("--alias", "smol"),
        ("--metrics",),
        ("--timeout", "60"),
        ("--sse-ping-interval", "5"),
        ("--offline",),
        ("--no-ui",),
        ("--model", "/var/lib/wattherd/models/small.gguf"),
    } <= set(made.options)
    assert ("--metrics",) in flags(metrics=False).options, "the front proxy says who may see them"
    assert made.environment == {}


def test_flags_a_draft_model_names_its_kind_of_speculation() -> None:
    """A plain draft model without it is loaded and never used."""
    made = flags(model="big", draft=EVERY["draft"][0])
    assert {
        ("--spec-draft-model", "/var/lib/wattherd/models/small.gguf"),
        ("--spec-type", "draft-simple"),
        ("--spec-draft-n-max", "8"),
        ("--spec-draft-n-min", "1"),
        ("--spec-draft-p-min", "0.75"),
        ("--spec-draft-ngl", "99"),
    } <= set(made.options)
    problem = refused(model="small", draft={})
    assert problem.code == "unknown-model"
    assert "models.yaml: small: {draft: NAME}" in problem.hint


def test_flags_projector_and_adapters_come_from_the_catalogue() -> None:
    made = flags(model="big", adapters=[{"name": "law", "scale": 0.5}, {"name": "med", "scale": 0}])
    assert ("--mmproj", "/var/lib/wattherd/models/big.mmproj.gguf") in made.options
    lora = "/var/lib/wattherd/models/big.lora-"
    assert ("--lora-scaled", f"{lora}law.gguf:0.5,{lora}med.gguf:0") in made.options
    problem = refused(model="big", adapters=[{"name": "lwa"}])
    assert problem.code == "unknown-model"
    assert "law, med" in problem.hint


def test_flags_experts_of_some_layers_and_a_template_from_a_file() -> None:
    made = flags(cpu_moe=12, chat_template="/etc/wattherd/t.jinja", kind="reranking", jinja=True)
    assert {("--n-cpu-moe", "12"), ("--chat-template-file", "/etc/wattherd/t.jinja"), ("--reranking",), ("--jinja",)} <= set(made.options)
    assert ("--cpu-moe",) not in made.options


def test_flags_d08_mig_and_order() -> None:
    """Cards by UUID and by nothing else; one process sees one MIG slice."""
    made = flags(devices=[GPU, OTHER_GPU], tensor_split=[2, 1])
    assert made.environment == {"CUDA_VISIBLE_DEVICES": f"{GPU},{OTHER_GPU}", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert not {option[0] for option in made.options} & {"--device", "--main-gpu"}
    assert flags(devices=[MIG]).environment["CUDA_VISIBLE_DEVICES"] == MIG
    assert flags(devices=[MIG], split_mode="none").environment
    for wrong in (
        {"devices": [MIG, MIG.replace("1", "2")]},
        {"devices": [GPU, MIG]},
        {"devices": [MIG], "split_mode": "layer"},
        {"devices": [MIG], "tensor_split": [1, 1]},
    ):
        problem = refused(**wrong)
        assert problem.code == "inventory-invalid"
        assert "MIG slice" in problem.message
    assert "2 shares for 1 devices" in refused(devices=[GPU], tensor_split=[1, 1]).message
    assert refused(extra_flags=["-mg", "1"]).code == "flag-refused"
    assert refused(extra_flags=["--device=CUDA0"]).code == "flag-refused"


@pytest.mark.parametrize(
    "extra", [["--tools", "all"], ["--tools=all"], ["--agent"], ["--port 9"], ["--api_key", "k"], ["-hf", "a/b"], ["-c", "9"], ["--x\ny"]]
)
def test_flags_that_no_server_gets_are_refused_before_any_host_is_asked(extra: list[str]) -> None:
    problem = refused(extra_flags=extra)
    assert problem.code == "flag-refused"
    assert "serve 'smol'" in problem.message
    router = {"models": [{"name": "a", "model": "small", "extra_flags": extra}]}
    assert "router model 'a'" in refused(router=router).message


def test_flags_quantised_values_without_flash_attention_are_refused() -> None:
    assert refused(flash_attention="off", cache_type_v="q8_0").code == "inventory-invalid"
    assert flags(flash_attention="off", cache_type_v="bf16").options
    assert refused(router={"models": [{"name": "a", "model": "small", "flash_attention": "off", "cache_type_v": "q4_0"}]})


def test_flags_meant_for_a_gpu_are_refused_where_the_role_knows_that_none_is() -> None:
    made: dict[str, Any] = {"path": PATH, "binary": "/b/llama-server", "build": "", "listen": LISTEN}
    server = served(gpu_layers=99)
    with pytest.raises(errors.Problem, match="gpu_layers 99"):
        words.server_flags(server, MODELS, has_gpu=False, **made)
    assert words.server_flags(server, MODELS, has_gpu=True, **made) == words.server_flags(server, MODELS, **made)


def test_flags_of_a_router() -> None:
    made = flags(
        router={
            "models": [
                {"name": "large", "model": "big", "context": 4096, "alias": "gpt", "load_on_start": True, "draft": {}},
                {"name": "small", "model": "small", "alias": "small", "stop_timeout_s": 30, "extra_flags": ["--temp", "0.2"]},
            ],
            "max_loaded": 1,
            "autoload": False,
        },
        devices=[GPU],
        extra_flags=["--threads-http", "9"],
    )
    assert made.preset_path == "/etc/wattherd/serve/smol.ini"
    assert {("--models-preset", made.preset_path), ("--models-max", "1"), ("--no-models-autoload",), *LISTEN, ("--metrics",)} <= set(
        made.options
    )
    assert not {option[0] for option in made.options} & {"--model", "--parallel", "--ctx-size", "--cache-ram", "--alias"}, (
        "they would overrule the presets"
    )
    assert made.extra == ("--threads-http", "9")
    assert made.environment["CUDA_VISIBLE_DEVICES"] == GPU
    assert set(made.sections) == {"large", "small"}
    assert {
        ("--model", "/var/lib/wattherd/models/big.gguf"),
        ("--ctx-size", "4096"),
        ("--alias", "gpt"),
        ("load-on-startup", "true"),
    } <= set(made.sections["large"])
    assert not any(option[0] == "--alias" for option in made.sections["small"])
    assert ("stop-timeout", "30") in made.sections["small"]
    assert made.section_extra == {"small": ("--temp", "0.2")}
    assert "[large]" in files.preset_text("t", made.sections, manual.parse(corpus.helped("b11434")))


@pytest.mark.parametrize(
    ("more", "words_in_it"),
    [
        ({"context": 4096}, "context is for one model"),
        ({"slots": 1}, "slots is for one model"),
        ({"router": {"models": [{"name": "a", "model": "small", "devices": [GPU]}]}}, "devices of router model 'a'"),
        (
            {"router": {"models": [{"name": "a", "model": "small"}, {"name": "b", "model": "small", "alias": "c,a"}]}},
            "its alias 'a' is taken",
        ),
    ],
)
def test_flags_of_a_router_that_cannot_be(more: dict[str, Any], words_in_it: str) -> None:
    assert words_in_it in refused(**{"router": {"models": [{"name": "a", "model": "small"}]}, **more}).message
