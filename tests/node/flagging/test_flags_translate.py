"""The same options for different builds, decided by what each build's own help says."""

from __future__ import annotations

import pytest

from tests import corpus
from wattherd import errors
from wattherd.resources.flagging import manual, translate

Words = tuple[str, ...]
BARE = "-fa,   --flash-attn                     enable Flash Attention (default: disabled)\n"
VALUE_FA = "-fa,   --flash-attn FA                  set Flash Attention use ('on', 'off', or 'auto', default: 'auto')\n"
every_build = pytest.mark.parametrize("build", corpus.helps())
OURS: tuple[Words, ...] = (
    ("--model", "/m.gguf"),
    ("--parallel", "2"),
    ("--no-kv-unified",),
    ("--cache-ram", "2048"),
    ("--metrics",),
    ("--sse-ping-interval", "5"),
    ("--offline",),
    ("--no-ui",),
)


def known(build: str) -> manual.Manual:
    return manual.parse(corpus.helped(build))


def flash(entry: str) -> manual.Manual:
    """A build of that wording, by its help."""
    return manual.parse(corpus.with_entry(corpus.helped("b9093"), "--flash-attn", entry))


def said(build: manual.Manual, *extra: str, ours: tuple[Words, ...] = ()) -> tuple[Words, ...]:
    return translate.translate("flags:smol", ours, extra, build)


def refused(build: manual.Manual, *extra: str, ours: tuple[Words, ...] = ()) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        said(build, *extra, ours=ours)
    assert caught.value.message.startswith("flags:smol: ")
    assert caught.value.hint
    return caught.value


@every_build
def test_flags_what_we_set_can_be_said_to_every_build(build: str) -> None:
    words = said(known(build), ours=OURS)
    assert words[:4] == (("--model", "/m.gguf"), ("--parallel", "2"), ("--no-kv-unified",), ("--cache-ram", "2048"))
    assert all(known(build).find(option[0]) for option in words)
    assert ("--no-webui",) in words or ("--no-ui",) in words


@every_build
@pytest.mark.parametrize(
    "words", [("--mlock",), ("--no-mmap",), ("--mmap",), ("-dio",), ("--mlock", "--no-mmap"), ("--load-mode", "mlock")]
)
def test_flags_b02_a_load_mode_is_spelled_as_the_binary_knows_it(build: str, words: Words) -> None:
    """Both directions, by the help alone: a build that knows the word keeps it, any other one gets its own."""
    other = {
        ("--mlock",): ("--load-mode", "mlock"),
        ("--no-mmap",): ("--load-mode", "none"),
        ("--mmap",): ("--load-mode", "mmap"),
        ("-dio",): ("--load-mode", "dio"),
        ("--mlock", "--no-mmap"): ("--load-mode", "mlock"),
    }
    binary = known(build)
    spoken = said(binary, *words)
    flat = tuple(word for option in spoken for word in option)
    if binary.find(words[0]) is not None:
        assert flat == words
    else:
        assert flat == other.get(words, ("--mlock", "--no-mmap"))


def test_flags_b02_mmap_removal_build_disagrees() -> None:
    """One of the four builds has neither --mmap nor a number that two trackers agree on: it is its help that decides."""
    with_both = [build for build in corpus.helps() if known(build).find("--load-mode") and known(build).find("--mmap")]
    gone = [build for build in corpus.helps() if not known(build).find("--mmap")]
    assert with_both, "a build between the two spellings, where the old one only warns"
    assert gone
    for build in gone:
        assert said(known(build), "--no-mmap") == (("--load-mode", "none"),)
    for build in with_both:
        assert said(known(build), "--no-mmap") == (("--no-mmap",),)


@pytest.mark.parametrize(
    ("mode", "old"),
    [
        ("auto", ()),
        ("mlock", (("--mlock",), ("--no-mmap",))),
        ("mmap+mlock", (("--mmap",), ("--mlock",))),
        ("mmap", (("--mmap",),)),
        ("none", (("--no-mmap",),)),
        ("dio", (("--direct-io",),)),
    ],
)
def test_flags_every_load_mode_for_a_build_before_load_modes(mode: str, old: tuple[Words, ...]) -> None:
    assert said(known("b9093"), ours=(("--load-mode", mode),)) == old


def test_flags_a_positive_switch_that_an_old_build_lacks_needs_no_saying() -> None:
    """Where only --no-mmap exists, mapping is what happens anyway."""
    text = corpus.with_entry(corpus.helped("b9093"), "--mmap", "--no-mmap            do not memory-map model\n")
    assert said(manual.parse(text), ours=(("--load-mode", "mmap+mlock"),)) == (("--mlock",),)
    assert said(manual.parse(text), ours=(("--load-mode", "mmap"),)) == ()


def test_flags_a_negative_switch_that_an_old_build_lacks_needs_no_saying() -> None:
    text = corpus.with_entry(
        corpus.helped("b9093"), "--kv-unified", "--kv-unified, -kvu        use single unified KV buffer (default: false)\n"
    )
    assert said(manual.parse(text), ours=(("--no-kv-unified",), ("--parallel", "2"))) == (("--parallel", "2"),)


def test_flags_b01_flash_attn_three_wordings() -> None:
    bare, value, choices = flash(BARE), flash(VALUE_FA), known("b11434")
    assert said(bare, ours=(("--flash-attn", "on"),)) == (("--flash-attn",),)
    assert said(bare, ours=(("--flash-attn", "off"),)) == ()
    assert said(bare, ours=(("--flash-attn", "auto"),)) == ()
    for newer in (value, choices):
        assert said(newer, ours=(("--flash-attn", "on"),)) == (("--flash-attn", "on"),)
        assert said(newer, "--flash-attn", "--temp", "0.2") == (("--flash-attn", "on"), ("--temp", "0.2")), "it swallows no word"
        assert said(newer, "-fa") == (("--flash-attn", "on"),), "as the last word"
    assert said(bare, "--flash-attn", "on") == (("--flash-attn",),), "an operator who writes for newer builds"
    assert said(bare, "-fa", "--temp", "0.2") == (("-fa",), ("--temp", "0.2"))


@every_build
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--draft-max", "--spec-draft-n-max"),
        ("--draft-n", "--spec-draft-n-max"),
        ("--draft-min", "--spec-draft-n-min"),
        ("--threads-draft", "--spec-draft-threads"),
    ],
)
def test_flags_renamed_options_are_translated(build: str, old: str, new: str) -> None:
    binary = known(build)
    spoken = said(binary, old, "5")
    assert spoken == ((old if binary.find(old) else new, "5"),)
    assert binary.find(spoken[0][0]) is not None


def test_flags_renames_go_back_too() -> None:
    """A build from before the new names: its help has only the old ones."""
    old = manual.parse(
        "--draft-max, --draft N   tokens to draft\n-md, --model-draft FNAME   draft model\n"
        "--no-webui   no web UI\n--embedding   only embed\n"
    )
    ours = (
        ("--spec-draft-n-max", "5"),
        ("--spec-draft-model", "/d.gguf"),
        ("--spec-type", "draft-simple"),
        ("--no-ui",),
        ("--embeddings",),
    )
    assert said(old, ours=ours) == (("--draft-max", "5"), ("--model-draft", "/d.gguf"), ("--no-webui",), ("--embedding",))


def test_flags_a_draft_is_named_as_the_kind_of_speculation_only_where_that_kind_exists() -> None:
    draft = (("--spec-draft-model", "/d.gguf"), ("--spec-type", "draft-simple"))
    assert said(known("b11434"), ours=draft) == draft
    assert said(known("b9093"), ours=draft) == draft[:1]


def test_flags_all_layers_for_a_build_that_wants_a_number() -> None:
    text = corpus.with_entry(
        corpus.helped("b9093"), "--n-gpu-layers", "-ngl,  --gpu-layers, --n-gpu-layers N   number of layers to store in VRAM\n"
    )
    assert said(manual.parse(text), ours=(("--n-gpu-layers", "all"),)) == (("--n-gpu-layers", "999"),)
    problem = refused(manual.parse(text), ours=(("--n-gpu-layers", "auto"),))
    assert problem.code == "flag-value"
    assert "gpu_layers" in problem.message
    assert "a number" in problem.hint


def test_flags_only_defaults_of_ours_are_dropped_silently() -> None:
    old = manual.parse("-m, --model FNAME   model\n")
    assert said(old, ours=(("--model", "/m"), ("--offline",), ("--no-ui",), ("--sse-ping-interval", "5"), ("--cache-ram", "2048"))) == (
        ("--model", "/m"),
    )
    for extra in ("--offline", "--no-ui"):
        assert refused(old, extra).code == "flag-unknown"
    problem = refused(old, ours=(("--cache-reuse", "256"),))
    assert problem.code == "flag-unknown"
    assert "serve: cache_reuse" in problem.message
    assert "newer llama.cpp" in problem.hint


def test_flags_a_build_without_rpc_is_told_how_to_get_it() -> None:
    """Some builds list --rpc only where it is built in."""
    problem = refused(known("b10423"), ours=(("--rpc", "a:50052"),))
    assert problem.code == "flag-unknown"
    assert "serve: rpc" in problem.message
    assert "llama_cpp: {rpc: true}" in problem.hint


@every_build
def test_flags_unknown_ones_are_refused_with_the_nearest_name(build: str) -> None:
    problem = refused(known(build), "--temprature", "0.2")
    assert problem.code == "flag-unknown"
    assert "--temprature" in problem.message
    assert "--temperature" in problem.hint
    assert refused(known(build), "--zzz-qqq").code == "flag-unknown"


def test_flags_a_removed_option_without_a_successor_says_what_the_binary_says() -> None:
    problem = refused(known("b11434"), "--spec-ngram-size-n", "3")
    assert problem.code == "flag-unknown"
    assert "--spec-ngram-mod-n-match" in problem.message


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--temp", "0.2"), (("--temp", "0.2"),)),
        (("--temp=0.2",), (("--temp", "0.2"),)),
        (("--temp 0.2",), (("--temp", "0.2"),)),
        (("--top_k", "-1"), (("--top-k", "-1"),)),
        (("--override-kv", "a.b=int:1"), (("--override-kv", "a.b=int:1"),)),
        (("--reverse-prompt", "-- end"), (("--reverse-prompt", "-- end"),)),
        (("--control-vector-layer-range", "1", "9"), (("--control-vector-layer-range", "1", "9"),)),
        (("--no-warmup", "--temp", "0"), (("--no-warmup",), ("--temp", "0"))),
        (("--chat-template-kwargs", '{"a": "b c"}'), (("--chat-template-kwargs", '{"a": "b c"}'),)),
        (("--temp", "0.2", "--temp", "0.2"), (("--temp", "0.2"),)),
        (("--spec-type", "ngram-mod", "--spec-type", "ngram-cache"), (("--spec-type", "ngram-mod"), ("--spec-type", "ngram-cache"))),
    ],
)
def test_flags_raw_words_in_every_form(extra: Words, words: tuple[Words, ...]) -> None:
    assert said(known("b11434"), *extra) == words


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("foo",), "nothing takes the word 'foo'"),
        (("--temp", "0.2", "0.3"), "nothing takes the word '0.3': --temp takes a number"),
        (("--metrics", "yes"), "nothing takes the word 'yes': --metrics takes no value"),
        (("--temp",), "--temp lacks its value"),
        (("--temp", "--top-k", "1"), "--temp lacks its value"),
        (("--top-k", "many"), "--top-k many is no value"),
        (("--chat-template", "nonsense"), "--chat-template nonsense is no value"),
        (("--no-warmup=1",), "--no-warmup 1 is no value"),
    ],
)
def test_flags_values_that_are_missing_too_many_or_wrong(extra: Words, words: str) -> None:
    problem = refused(known("b11434"), *extra)
    assert problem.code == "flag-value"
    assert words in problem.message


def test_flags_a_template_of_ones_own_is_no_name() -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert said(known("b11434"), "--chat-template", template) == (("--chat-template", template),)


@pytest.mark.parametrize(
    ("ours", "extra", "words"),
    [
        ((("--load-mode", "mmap"),), ("--mlock",), "--mlock is set already, by load_mode: as --load-mode mmap"),
        ((("--flash-attn", "on"),), ("-fa", "off"), "-fa off is set already, by flash_attention: as --flash-attn on"),
        ((("--flash-attn", "on"),), ("-fa", "on"), "is set already"),
        ((), ("--temp", "0.1", "--temperature", "0.2"), "--temperature 0.2 is set already, as --temp 0.1"),
        ((), ("--warmup", "--no-warmup"), "--no-warmup is set already, as --warmup"),
    ],
)
def test_flags_two_values_for_one_option_are_refused(ours: tuple[Words, ...], extra: Words, words: str) -> None:
    problem = refused(known("b11434"), *extra, ours=ours)
    assert problem.code == "flag-refused"
    assert words in problem.message


@pytest.mark.parametrize("word", ["a\nb", "a\x00", "\x1b[31m"])
def test_flags_control_characters_are_refused_wherever_they_stand(word: str) -> None:
    assert refused(known("b11434"), "--reverse-prompt", word).code == "flag-refused"
    assert refused(known("b11434"), ours=(("--alias", word),)).code == "flag-refused"
