"""Every start failure that was tried with a real llama-server (b11434), in all wrappings that a log can have, and what must stay quiet."""

from __future__ import annotations

import json

import pytest

from wattherd.resources import complaints
from wattherd.resources.complaints import lines
from wattherd.wire import finding

#: How the real server put it -> the code, and words that must be in the finding.
REAL = [
    ("E gguf_init_from_file: failed to open GGUF file '/nope/x.gguf' (No such file or directory)", "model-missing", "/nope/x.gguf"),
    ("E gguf_init_from_reader: failed to read magic", "model-cut", "did not end"),
    ("E gguf_init_from_reader: invalid magic characters: 'hell', expected 'GGUF'", "model-not-gguf", "'hell'"),
    ("E gguf_init_from_reader: invalid magic characters: 'vers', expected 'GGUF'", "model-not-gguf", "Git LFS pointer"),
    ("E gguf_init_from_reader: invalid magic characters: '<!do', expected 'GGUF'", "model-not-gguf", "/resolve/"),
    ("E gguf_init_from_reader: this GGUF file is version 99 but this software only supports up to version 3", "build-too-old", "99"),
    (
        "E gguf_init_from_reader: failed to load model: this GGUF file version 50331648 is extremely large, is there a mismatch?",
        "model-endian",
        "big-endian",
    ),
    ("E gguf_init_from_reader: failed to read key-value pairs", "model-cut", "cut"),
    (
        "E llama_model_load: error loading model: tensor 'blk.16.ffn_down.weight' data is not within the file bounds, model is corrupted",
        "model-cut",
        "cut",
    ),
    ("E load_all_data: tensor 'blk.2.ffn_up.weight' has invalid data", "model-corrupt", "damaged"),
    ("E llama_model_load: error loading model: unknown model architecture: 'qwen9'", "build-too-old", "qwen9"),
    (
        "E llama_model_load: error loading model: error loading model vocabulary: unknown pre-tokenizer type: 'zzzzzz'",
        "build-too-old",
        "pre-tokenizer 'zzzzzz'",
    ),
    ("E llama_init_from_model: quantized V cache requires flash_attn to be enabled", "kv-needs-flash", "flash attention"),
    ("E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", "bind-failed", "127.0.0.1:8080"),
    ("E srv  init_listene: the server is built without SSL support", "tls-missing", "TLS"),
    ("E llama_adapter_lora_init: failed to open '/nope.gguf': No such file or directory", "adapter-failed", "/nope.gguf"),
    (
        "E llama_adapter_lora_init_from_file_ptr: failed to apply lora adapter: expect general.type to be 'adapter', but got: model",
        "adapter-failed",
        "but got: model",
    ),
    ("E srv  llama_server: failed to initialize router models: preset file does not exist: /n.ini", "router-presets", "/n.ini"),
    ("E srv    load_model: failed to load multimodal model, '/m/p.gguf'", "projector-failed", "/m/p.gguf"),
]
#: What the argument parser prints before there is a log.
BARE = [
    ("error: invalid argument: --mlock", "option-unknown", "--mlock"),
    (
        'error while handling argument "--draft-max": the argument has been removed. use --spec-draft-n-max',
        "option-removed",
        "--spec-draft-n-max",
    ),
    ('error while handling argument "-ngl": stoi', "option-value", "-ngl"),
    ("error while handling argument \"-fa\": error: unknown value for --flash-attn: '--port'", "option-value", "--port"),
    ('error while handling argument "--device": invalid device: CUDA0', "device-unknown", "CUDA0"),
    ('error while handling argument "--rpc": RPC not supported in this build', "rpc-missing", "RPC"),
    ("error while handling argument \"--api-key-file\": error: failed to open file '/nope'", "key-file", "/nope"),
    ('error while handling environment variable "LLAMA_ARG_CTX_SIZE": stoi', "env-value", "LLAMA_ARG_CTX_SIZE"),
    (
        "llama-server: error while loading shared libraries: libcudart.so.12: cannot open shared object file",
        "library-missing",
        "libcudart.so.12",
    ),
    ("./llama-server: /lib/aarch64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by x)", "libc-too-old", "GLIBC_2.38"),
    ("./llama-server: /usr/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found", "libc-too-old", "GLIBCXX_3.4.32"),
]
#: Other builds, other numbers, other cards: the kind and not the sample.
KIN = [
    ("llama_model_load: error loading model: unknown model architecture: 'clip'", "projector-as-model", "projector"),
    ("gguf_init_from_file: tensor 'x' has invalid ggml type 41. should be in [0, 40)", "build-too-old", "tensor type 41"),
    ("gguf_init_from_file: invalid magic number 73726576", "model-not-gguf", "Git LFS pointer"),
    ("gguf_init_from_file: invalid magic number 0x76657273", "model-not-gguf", "Git LFS pointer"),
    ("error loading model: unknown (magic, version) combination: 67676a74, 00000003", "model-not-gguf", "before GGUF"),
    ("llama_model_load: error loading model: illegal split file: 3, model must be loaded with the first split", "model-split", "split"),
    ("gguf_init_from_file: failed to open GGUF file '/m/big-00002-of-00013.gguf' (No such file)", "model-split", "part"),
    ("llama_model_load: error loading model: key not found in model: llama.context_length", "model-not-servable", "adapter"),
    ("mismatch between text model (n_embd = 2560) and mmproj (n_embd = 2048)", "projector-mismatch", "2560 and 2048"),
    ("srv init: chat template parsing error: Expected iterable or object type in for loop: got String", "template-failed", "not at fault"),
    ("common_chat_templates_init: failed to initialize chat template", "template-failed", "--no-jinja"),
    ("alloc_buffer: allocating 4095.05 MiB on device 1: cudaMalloc failed: out of memory", "gpu-memory-short", "device 1"),
    ("llama_model_load: error loading model: unable to allocate ROCm0 buffer", "gpu-memory-short", "memory"),
    ("llama_model_load: error loading model: unable to allocate CPU buffer", "memory-short", "memory"),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "memory-short", "memory"),
    ("CUDA error: no kernel image is available for execution on the device", "arch-not-built", "architecture"),
    ("CUDA error: all CUDA-capable devices are busy or unavailable", "gpu-busy", "exclusive"),
    ("ggml_cuda_init: failed to initialize CUDA: system not yet initialized", "fabric-not-ready", "fabricmanager"),
    ("ggml_cuda_init: failed to initialize CUDA: OS call failed or operation not supported on this OS", "gpu-sandbox", "ProcSubset"),
    ("ggml_cuda_init: failed to initialize CUDA: unknown error", "gpu-after-suspend", "nvidia_uvm"),
    ("ggml_cuda_init: failed to initialize ROCm: no ROCm-capable device is detected", "no-gpu-visible", "card"),
    ("CUDA error: an illegal memory access was encountered", "gpu-failed", "illegal memory access"),
    ("NvMapMemAllocInternalTagged: 536870912 error 12", "nvmap-limit", "512.0 MiB"),
    ("Illegal instruction (core dumped)", "wrong-cpu", "another CPU"),
    ("traps: llama-server[431] trap invalid opcode ip:55d0 sp:7ffc error:0 in libggml-cpu.so", "wrong-cpu", "another CPU"),
]  # fmt: skip

WRAPPINGS = {
    "bare": "{}",
    "stamped": "0.00.010.335 {}",
    "hours": "123.59.999.001 {}",
    "journal": "Dec 01 04:00:00 node-1 llama-server[4711]: 0.00.010.335 {}",
    "iso": "2026-12-01T04:00:00+0000 node-1 llama-server[1]: {}",
    "compose": "llama-1  | {}",
    "coloured": "\x1b[34m0.00.010.335\x1b[0m \x1b[31m{}\x1b[0m",
}


def explained(text: str) -> finding.Finding:
    told = complaints.explain(text.splitlines(), "llama@m.service")
    assert told is not None, text
    return told


@pytest.mark.parametrize("wrapping", WRAPPINGS.values(), ids=WRAPPINGS)
@pytest.mark.parametrize(("text", "code", "words"), [*REAL, *BARE, *KIN])
def test_each_known_complaint_in_every_wrapping(text: str, code: str, words: str, wrapping: str) -> None:
    told = explained(wrapping.format(text))
    assert (told.code, told.severity) == (code, finding.ERROR)
    assert words in f"{told.words} -> {told.do}"
    assert told.do
    assert told.evidence
    assert "\x1b" not in told.evidence


@pytest.mark.parametrize(("text", "code", "words"), [*REAL, *KIN])
def test_each_known_complaint_in_a_json_log(text: str, code: str, words: str) -> None:
    said = text.removeprefix("E ")
    for row in ({"type": "log", "time": 1, "level": "error", "msg": f"{said}\n"}, {"timestamp": 1, "level": "ERR", "message": said}):
        told = explained(json.dumps(row))
        assert told.code == code
        assert words in f"{told.words} -> {told.do}"


@pytest.mark.parametrize(("text", "code", "words"), [*REAL, *BARE, *KIN])
def test_noise_around_it_and_the_generic_end_change_nothing(text: str, code: str, words: str) -> None:
    noise = ["0.00.001.600 I srv  llama_server: initializing ...", "0.00.008.790 W srv  llama_server: security: no API key is set"]
    end = [
        "0.00.398.953 E common_fit_params: encountered an error while trying to fit params: failed to create llama_context",
        f"0.00.400.000 {text}",  # --fit tries first, so it is said twice
        "0.00.729.824 E srv    load_model: failed to create_context with model 'm.gguf'",
        "0.00.730.372 E srv  llama_server: exiting due to model loading error",
    ]  # fmt: skip
    told = explained("\n".join([*noise, text, *end]))
    assert told.code == code
    assert words in f"{told.words} -> {told.do}"


@pytest.mark.parametrize(
    "text",
    [
        "0.00.002.720 I srv  init_listene: Use --ui/--no-ui (or deprecated --webui/--no-webui) to enable/disable",
        "[45083] 0.00.002.720 I srv  init_listene: Use --ui/--no-ui (or deprecated --webui/--no-webui) to enable/disable",
        "0.01.001.875 W srv  llama_server: notice: server default port will be changed to :9931 in a future release",
        "0.00.002.798 W srv  llama_server: security: no API key is set and CORS allows all origins",
        "load_backend: failed to find ggml_backend_init in /opt/x/libggml-cuda.so",
        "0.00.004.188 I srv    load_model: loading model '/m/unknown model architecture: x.gguf'",
        "0.02.000.000 I slot: prompt: 'why do I get CUDA error: unknown error (999)?'",
        "",
    ],
)
def test_what_is_harmless_or_somebody_elses_words_gives_nothing(text: str) -> None:
    assert complaints.explain([text]) is None
    assert complaints.living([text]) == []


def test_an_unknown_error_line_is_quoted_as_it_is() -> None:
    told = explained(
        "I fine\n0.00.010.335 E srv  load_model: the flux capacitor is out of phase (88)\nE srv: exiting due to model loading error"
    )
    assert told.code == "server-error"
    assert "the flux capacitor is out of phase (88)" in told.words
    assert "llama@m.service" in told.do


def test_only_generic_errors_are_still_better_than_silence() -> None:
    assert explained("E srv llama_server: exiting due to model loading error").code == "server-error"
    assert complaints.explain(["I all is well", "loading"]) is None


def test_the_first_deadly_line_wins_over_milder_ones_before_it() -> None:
    cuda = "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected"
    assert explained(f"{cuda}\nE gguf_init_from_file: failed to read magic").code == "model-cut"
    assert explained(f'{cuda}\nerror while handling argument "--device": invalid device: CUDA0').code == "no-gpu-visible"
    assert explained(cuda).code == "no-gpu-visible"


@pytest.mark.parametrize(("text", "code", "words"), REAL)
def test_a_cut_line_is_classified_or_quoted_but_never_crashes(text: str, code: str, words: str) -> None:
    del words
    for length in range(1, len(text)):
        told = complaints.explain([text[:length]])
        assert told is None or told.severity == finding.ERROR
    assert explained(text + " " + "x" * 100_000).code == code


@pytest.mark.parametrize(
    ("text", "code", "name"),
    [
        ("W DEPRECATED: --mmap and --no-mmap are deprecated. use --load-mode mmap instead", "option-deprecated", "--load-mode mmap"),
        (
            "0.00.000.123 W DEPRECATED: --defrag-thold is deprecated and no longer necessary to specify",
            "option-deprecated",
            "--defrag-thold",
        ),
        ("warning: the argument '--draft-n' is deprecated, use --spec-draft-n-max", "option-deprecated", "--spec-draft-n-max"),
        ("W DEPRECATED: argument '--lora' specified multiple times, use comma-separated values instead", "option-repeated", "--lora"),
    ],
)
def test_a_deprecation_is_an_advance_warning(text: str, code: str, name: str) -> None:
    (told,) = complaints.living([text, text])
    assert (told.code, told.severity) == (code, finding.WARNING)
    assert name in told.words
    assert complaints.explain([text]) is None, "it works"


def test_a_running_server_is_not_blamed_for_requests() -> None:
    assert complaints.living(["E srv send_error: task id = 4, error: request (5000 tokens) exceeds the available context size"]) == []
    assert complaints.living(["0.9.1.2 E srv: failed to read magic"]) == []


def test_secrets_do_not_travel() -> None:
    for text in (
        "error: invalid argument: --api-key=hunter2-hunter2",
        "error: invalid argument: --api-kez x\nE LLAMA_API_KEY=hunter2-hunter2",
        "E srv: Authorization: Bearer hunter2-hunter2",
        "E HF_TOKEN=hunter2-hunter2 was refused",
    ):
        told = explained(text)
        assert "hunter2" not in str(told), told


@pytest.mark.parametrize(
    ("raw", "level", "text"),
    [
        ("0.00.123.456 E srv  load: x", "E", "srv  load: x"),
        ("E llama: x", "E", "llama: x"),
        ("Everything is fine", "", "Everything is fine"),
        ("I am a model", "I", "am a model"),
        ("main: error: unable to load", "E", "main: error: unable to load"),
        ('ERR [              load_model] unable to load model | tid="1" timestamp=1', "E", "load_model: unable to load model"),
        ('{"level":"ERROR","function":"f","line":1,"message":"no"}', "E", "no"),
        ('{"type":"log","time":3,"level":"warn","msg":"careful\\n"}', "W", "careful"),
        ('{"type":"log","level":"error","msg":"cut', "", '{"type":"log","level":"error","msg":"cut'),
        ("[2026-12-01 04:00:00.123] warning: x", "W", "warning: x"),
    ],
)
def test_lines_lose_their_wrapping(raw: str, level: str, text: str) -> None:
    (line,) = lines.read([raw])
    assert (line.level, line.text) == (level, text)


def test_reading_is_bounded() -> None:
    assert len(lines.read("E x" for _ in range(lines.LINES_LIMIT * 3))) == lines.LINES_LIMIT
    (one,) = lines.read(["x" * 10_000_000])
    assert len(one.text) == lines.LENGTH_LIMIT
