"""What a person is told about one server's options."""

from __future__ import annotations

from typing import Any

import pytest

from wattherd import errors
from wattherd.inventory import settings
from wattherd.serving import lint


def options(**more: Any) -> settings.Options:
    return settings.Options.model_validate({"output_cap": 64, **more})


@pytest.mark.parametrize(
    ("more", "trained", "words"),
    [
        ({"context": 1024, "slots": 4, "kv_unified": True}, 0, "context: 1,024 tokens in total, 1,024 per request (shared), 4 slots"),
        ({"context": 8192, "slots": 2}, 0, "context: 8,192 tokens in total, 4,096 per request, 2 slots"),
        ({"context": 5000, "slots": 3}, 0, "context: 5,376 tokens in total, 1,792 per request, 3 slots"),
        ({"context": 8192}, 0, "context: 8,192 tokens in total, 8,192 per request, one slot"),
        ({"slots": 4}, 131072, "context: 131,072 tokens in total, 32,768 per request, 4 slots"),
        ({}, 0, "context: as the model was trained, one slot"),
    ],
)
def test_flags_b05_parallel_two_opposite_failures(more: dict[str, Any], trained: int, words: str) -> None:
    assert lint.context(options(**more), trained).words == words


def test_flags_b05_shared_slots_are_oversubscribed() -> None:
    (said,) = lint.warnings(options(context=1024, slots=4, kv_unified=True))
    assert "4 slots share 1,024 tokens" in said
    assert "oversubscribed 4 times" in said
    assert "256 tokens a request are safe" in said
    assert lint.warnings(options(context=1024, slots=4)) == ()
    assert lint.warnings(options(context=1024, slots=1, kv_unified=True)) == ()


def test_flags_b05_a_promise_that_one_slot_cannot_keep() -> None:
    (said,) = lint.warnings(options(context=8192, slots=2), promised=8192)
    assert "one request gets 4,096 of the 8,192 tokens" in said
    assert "context: 16384" in said
    assert lint.warnings(options(context=16384, slots=2), promised=8192) == ()
    assert lint.warnings(options(context=8192, slots=2, kv_unified=True), promised=8192)[0].startswith("2 slots share")


@pytest.mark.parametrize(
    ("more", "trained", "words"),
    [
        ({"context": 16384}, 8192, "trained on 8,192"),
        ({"output_cap": None}, 0, "no output_cap"),
        ({"context": 1024, "output_cap": 1000}, 0, "leaves 24 of 1,024 tokens for the prompt"),
        ({"kind": "embedding", "context": 8192}, 0, "beyond 512 tokens (ubatch)"),
        ({"batch": 128, "ubatch": 512}, 0, "ubatch 512 is more than batch 128"),
        ({"sleep_idle_s": 60}, 0, "keeps its hold on the card"),
    ],
)
def test_flags_oddities_are_told(more: dict[str, Any], trained: int, words: str) -> None:
    said = lint.warnings(options(**more), trained)
    assert len(said) == 1
    assert words in said[0]


@pytest.mark.parametrize(
    "more", [{}, {"context": 4096, "slots": 2, "ubatch": 512, "batch": 2048}, {"kind": "embedding", "context": 512, "output_cap": None}]
)
def test_flags_a_sound_server_is_not_talked_about(more: dict[str, Any]) -> None:
    assert lint.warnings(options(**more), 8192) == ()


@pytest.mark.parametrize(
    ("flash", "kind", "wrong"),
    [("off", "q8_0", True), ("off", "f16", False), ("on", "q8_0", False), ("auto", "q4_0", False), (None, "q8_0", False)],
)
def test_flags_quantised_values_need_flash_attention(flash: str | None, kind: str, *, wrong: bool) -> None:
    one = options(cache_type_v=kind, **({"flash_attention": flash} if flash else {}))
    if not wrong:
        assert lint.refuse("serve 'a'", one) is None  # type: ignore[func-returns-value]
        return
    with pytest.raises(errors.Problem, match="needs flash attention"):
        lint.refuse("serve 'a'", one)


@pytest.mark.parametrize("more", [{"gpu_layers": 99}, {"gpu_layers": "all"}, {"devices": ["GPU-11111111"]}])
def test_flags_layers_for_a_gpu_on_a_build_without_one(more: dict[str, Any]) -> None:
    with pytest.raises(errors.Problem) as caught:
        lint.refuse_gpu("serve 'a'", options(**more), has_gpu=False)
    assert caught.value.code == "inventory-invalid"
    assert "backend: cuda" in caught.value.hint
    lint.refuse_gpu("serve 'a'", options(**more), has_gpu=True)


@pytest.mark.parametrize("more", [{}, {"gpu_layers": 0}, {"gpu_layers": "auto"}])
def test_flags_nothing_asked_of_a_gpu_is_fine_without_one(more: dict[str, Any]) -> None:
    assert lint.refuse_gpu("serve 'a'", options(**more), has_gpu=False) is None  # type: ignore[func-returns-value]
