"""Every field case of tests/cases/serving.yaml, one test each, named after the case. Their texts are read from there."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from wattherd.node.findings import binary, devices, driver, environment, journal, service, xid
from wattherd.resources import complaints
from wattherd.resources import driver as modules
from wattherd.wire import finding

_CASES = {case["id"]: case for case in yaml.safe_load((Path(__file__).parents[2] / "cases" / "serving.yaml").read_text("utf-8"))["cases"]}
CUDA_RELEASE = {"options": {"GGML_CUDA": "ON", "LLAMA_BUILD_NUMBER": "11434"}}
CPU_RELEASE = {"options": {"GGML_CUDA": "OFF"}}


def lines(case: str, stem: str = "") -> list[str]:
    """The case's input, or its lines that hold `stem`."""
    found = [line for line in _CASES[case]["input"].splitlines() if stem in line]
    assert found, f"{case} has no line with {stem!r}"
    return found


def only(found: list[finding.Finding]) -> finding.Finding:
    assert len(found) == 1, found
    return found[0]


def why(texts: list[str]) -> finding.Finding:
    told = complaints.explain(texts, "llama@m.service")
    assert told is not None
    assert told.severity == finding.ERROR
    assert told.do
    return told


def living(texts: list[str]) -> finding.Finding:
    return only(complaints.living(texts, "llama@m.service"))


def test_every_case_has_its_test() -> None:
    assert _CASES
    assert {f"test_{name.replace('-', '_')}" for name in _CASES} <= set(globals())


def test_a01_jetson_nvcc_not_on_unit_path() -> None:
    """A Jetson with a CPU build is "built without CUDA"; a CUDA build that lists nothing is "no GPU visible", though it ends with 0."""
    listed = devices.read("Available devices:\n")
    assert listed == []
    built = only(devices.of_release(devices.Scene(jetson=True, backend=devices.backend_of(CPU_RELEASE), listed=()), "current"))
    assert built.code == "built-without-cuda"
    assert "built without CUDA" in built.words
    assert "/usr/local/cuda" in built.do
    visible = only(devices.of_release(devices.Scene(jetson=True, backend=devices.backend_of(CUDA_RELEASE), listed=()), "current"))
    assert (visible.code, visible.severity) == ("no-gpu-visible", finding.ERROR)


def test_a02_blas_line_is_not_a_gpu() -> None:
    text = "\n".join(lines("a02-blas-line-is-not-a-gpu"))
    listed = devices.read(text)
    assert [(one.name, one.is_gpu) for one in listed] == [("BLAS", False), ("CPU", False)]
    assert not devices.log_shows_gpu(text.splitlines())
    scene = devices.Scene(cards=1, backend="CUDA", listed=tuple(listed), list_words=text, uvm=True)
    assert only(devices.of_release(scene, "current")).severity == finding.ERROR
    assert only(devices.of_server(scene, "llama@m.service", text.splitlines(), None)).code == "gpu-unused"
    # The other half: an older binary, found through PATH, is what runs.
    older = binary.judge(
        service.Service("llama@m.service", active="active", pid=7),
        "/usr/local/bin/llama-server",
        binary.Deployed("/opt/wattherd/releases/f-b11434-cuda", 11434),
        binary.version("version: 7531 (abc1234)\nbuilt with cc for x86_64-linux-gnu"),
    )
    assert only(older).code == "other-binary-runs"
    assert "build 7531" in only(older).words
    assert "11434" in only(older).words


def test_a04_new_toolkit_old_driver_banner_lies() -> None:
    told = living(lines("a04-new-toolkit-old-driver-banner-lies", "insufficient"))
    assert told.code == "driver-too-old"
    assert told.severity == finding.ERROR, "although the process lives"
    assert "oldest driver" in told.do
    scene = devices.Scene(cards=1, backend="CUDA", listed=None, uvm=True)
    quiet = devices.of_server(scene, "llama@m.service", ["load_backend: loaded CPU backend from /opt/x/libggml-cpu-haswell.so"], None)
    assert only(quiet).code == "no-gpu-visible"
    assert "loaded only CPU" in only(quiet).words


def test_a06_soname_missing_though_file_is_there() -> None:
    assert why(lines("a06-soname-missing-though-file-is-there", "shared libraries")).code == "library-missing"
    ldd = "\tlinux-vdso.so.1 (0x0)\n\tlibcudart.so.12 => not found\n\tlibcublas.so.12 => /opt/x/libcublas.so.12 (0x0)\n"
    lost = binary.missing(ldd, "current/bin/libggml-cuda.so")
    assert lost is not None
    assert "libcudart.so.12" in lost.words
    assert "libcublas" not in lost.words
    assert "SONAME" in lost.do
    assert "left out without a word" in lost.words, "a plugin's server is clean and has no GPU"


def test_a08_sigill_from_native_build() -> None:
    dumped = service.Service("llama@m.service", active="failed", result="core-dump", exit_code="3", exit_status=4)
    by_shell = service.Service("llama@m.service", active="failed", result="exit-code", exit_code="1", exit_status=132)
    for one in (dumped, by_shell):
        assert "wrong-cpu" in [found.code for found in service.judge(one, [], 0.0)]
    for text in ("Main process exited, code=dumped, status=4/ILL", "exit 132 at model load", "llama-server exited with code -4"):
        told = why([text])
        assert "another CPU" in told.words
        assert "GGML_NATIVE=OFF" in told.do


def test_a09_scary_line_that_is_harmless() -> None:
    scary = lines("a09-scary-line-that-is-harmless")
    assert complaints.explain(scary) is None
    assert complaints.living(scary) == []
    assert devices.log_shows_gpu(scary)
    assert devices.of_server(devices.Scene(cards=1, backend="CUDA", uvm=True), "llama@m.service", scary, ["/dev/null"]) == []


def test_a10_l4t_3647_nvmap() -> None:
    told = why(lines("a10-l4t-3647-nvmap")[1:])
    assert told.code == "nvmap-limit"
    assert "1025.3 MiB" in told.words
    assert "not a model that is too big" in told.words
    plenty = devices.refined(told, devices.Scene(jetson=True, available_bytes=20 * 1024**3))
    assert "20480 MiB are free" in plenty.words
    little = devices.refined(told, devices.Scene(jetson=True, available_bytes=300 * 1024**2))
    assert little.code == "gpu-memory-short", "then it really is too big"


def test_b01_flash_attn_three_wordings() -> None:
    for text, eaten in (
        ("error while handling argument \"--flash-attn\": error: unkown value for --flash-attn: '--ctx-size'", "--ctx-size"),
        ("error while handling argument \"--flash-attn\": error: unknown value for --flash-attn: '--no-mmap'", "--no-mmap"),
    ):
        told = why([text])
        assert told.code == "option-value"
        assert "takes a value" in told.words
        assert eaten in told.words
    last = why(lines("b01-flash-attn-three-wordings", "expected value"))
    assert last.code == "option-value"
    assert "--flash-attn takes a value" in last.words


def test_b02_mmap_removal_build_disagrees() -> None:
    early = living(re.findall(r'"(W DEPRECATED[^"]*)"', "\n".join(lines("b02-mmap-removal-build-disagrees"))))
    assert (early.code, early.severity) == ("option-deprecated", finding.WARNING)
    assert "--load-mode mmap" in early.words
    late = why(lines("b02-mmap-removal-build-disagrees", "invalid argument"))
    assert late.code == "option-unknown"
    assert "--mmap" in late.words


def test_b06_jinja_default_kills_vision_model() -> None:
    told = why([*lines("b06-jinja-default-kills-vision-model")[1:], "E srv  llama_server: exiting due to model loading error"])
    assert told.code == "template-failed"
    assert "--no-jinja" in told.do
    assert "not at fault" in told.words
    assert "corrupt" not in told.words


def test_b09_empty_env_value() -> None:
    known = environment.known_names("-ncmoe, --n-cpu-moe N  keep experts (env: LLAMA_ARG_N_CPU_MOE)\n--port N (env: LLAMA_ARG_PORT)")
    found = environment.judge(
        "llama@m.service",
        environment.of_process(b"PATH=/bin\0LLAMA_ARG_N_CPU_MOE=\0LLAMA_ARG_PORT=8080\0LLAMA_ARG_MLOCK=1\0LLAMA_API_KEY=s3cret\0"),
        known,
    )
    assert [(one.code, one.severity) for one in found] == [("env-empty", finding.ERROR), ("env-unknown", finding.WARNING)]
    assert "LLAMA_ARG_N_CPU_MOE" in found[0].words
    assert "LLAMA_ARG_MLOCK" in found[1].words
    assert "s3cret" not in str(found)
    assert why(['error while handling environment variable "LLAMA_ARG_N_CPU_MOE": stoi']).code == "env-value"


def test_c07_build_too_old_for_file() -> None:
    needs = {
        "pre-tokenizer 'deepseek-r1-qwen'": "deepseek-r1-qwen",
        "pre-tokenizer 'gpt-4o'": "gpt-4o",
        "tensor type 39": "ggml type 39",
        "architecture 'minimax-m3'": "minimax-m3",
    }
    for words, stem in needs.items():
        told = why(lines("c07-build-too-old-for-file", stem))
        assert told.code == "build-too-old"
        assert words in told.words
        assert "build number" in told.do
    failed = service.Service("llama@m.service", active="failed", result="exit-code", exit_code="1", exit_status=1)
    start = journal.Start(0.0, 1.0, "exited, status 1/FAILURE", "exit-code", lines=tuple(lines("c07-build-too-old-for-file", "minimax-m3")))
    found = service.judge(failed, [start], 2.0, binary.version("version: 7531 (abc)").words)
    assert "build 7531 (abc) runs here" in found[1].words, "reporters were sure to run the latest"


def test_d03_uvm_late_at_boot() -> None:
    told = living(lines("d03-uvm-late-at-boot", "no CUDA-capable"))
    assert (told.code, told.severity) == ("no-gpu-visible", finding.ERROR)
    cuda0 = devices.Device("CUDA0", "NVIDIA A100", 40000, 39000)
    missing = devices.refined(told, devices.Scene(cards=1, backend="CUDA", listed=(), uvm=False))
    assert "/dev/nvidia-uvm" in missing.words
    assert "nvidia-modprobe" in missing.do
    late = devices.refined(told, devices.Scene(cards=1, backend="CUDA", listed=(cuda0,), uvm=True))
    assert "it came later" in late.words
    assert "restart" in late.do


def test_d04_cuda_error_304_under_sandbox() -> None:
    told = living(lines("d04-cuda-error-304-under-sandbox", "304"))
    assert told.code == "gpu-sandbox"
    assert "not a device file" in told.words
    for rule in ("ProcSubset", "InaccessiblePaths", "AppArmor"):
        assert rule in told.do


def test_d06_driver_library_mismatch() -> None:
    history = (
        "Start-Date: 2021-04-22  06:12:34\nCommandline: /usr/bin/unattended-upgrade\n"
        "Upgrade: libnvidia-common-460:amd64 (460.56, 460.73.01), bash:amd64 (5.0, 5.1)\nEnd-Date: 2021-04-22  06:13:00\n\n"
        "Start-Date: 2021-04-23  06:12:34\nCommandline: apt upgrade\nUpgrade: bash:amd64 (5.1, 5.2)\n"
    )
    words = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144"
    running = modules.loaded("NVRM version: NVIDIA UNIX x86_64 Kernel Module  520.56.06  Thu Oct  6 21:38:55 UTC 2022\nGCC version: gcc 11")
    told = only(driver.judge(18, words, running, driver.installed([], words), history))
    assert told.code == "driver-mismatch"
    assert "520.56.06" in told.words
    assert "550.144" in told.words
    assert "do not restart a working llama-server" in told.do
    assert "reboot" in told.do
    assert "Package-Blacklist" in told.do
    assert told.evidence == "2021-04-22 06:12:34 /usr/bin/unattended-upgrade libnvidia-common-460 (460.56 -> 460.73.01)"


def test_d07_suspend_loses_cuda() -> None:
    told = living(lines("d07-suspend-loses-cuda", "999"))
    assert told.code == "gpu-after-suspend"
    order = [told.do.index(word) for word in ("stop the server", "modprobe -r nvidia_uvm", "modprobe nvidia_uvm,", "start it", "fuser")]
    assert order == sorted(order)
    assert "proves nothing" in told.words


def test_d09_crash_loop_slower_than_the_limit() -> None:
    unit = service.Service("llama@m.service", active="activating", sub="auto-restart", restarts=6, restart_s=3, limit_s=10, burst=5)
    starts = [
        journal.Start(
            8.0 * number,
            8.0 * number + 5,
            "exited, status 1/FAILURE",
            "exit-code",
            lines=("E gguf_init_from_file: failed to read magic" if number == 0 else "E couldn't bind HTTP server socket",),
        )
        for number in range(7)
    ]
    loop, cause = service.judge(unit, starts, 54.0)
    assert loop.code == "crash-loop"
    assert "6 restarts" in loop.words
    assert "40 s" in loop.words
    assert "above 41 s" in loop.do
    assert cause.code == "model-cut", "the FIRST failing start tells"
    assert not service.never_trips(service.Service("u", restart_s=3, limit_s=41, burst=5), 5.0)
    assert service.never_trips(service.Service("u", restart_s=3, limit_s=40, burst=5), 5.0)
    assert service.never_trips(service.Service("u", restart_s=3, limit_s=0, burst=5), 5.0), "StartLimitIntervalSec=0 is no limit"


def test_d10_oom_by_prompt_cache() -> None:
    saved = lines("d10-oom-by-prompt-cache", "prompt_save")[0].split("   ->")[0]
    unit = service.Service(
        "llama@m.service", active="failed", result="oom-kill", argv=("llama-server", "--cache-ram", "2048"), exit_code="2", exit_status=9
    )
    slots = "I srv load_model: initializing, n_slots = 1, n_ctx_slot = 40000, kv_unified = 'false'"
    log = (slots, "saving prompt with length 10, total state size = 1.000 MiB", f"0.12.345.678 T {saved}")
    told = service.judge(unit, [journal.Start(0.0, 9.0, "killed, status 9/KILL", "oom-kill", peak="11.4G", lines=log)], 10.0)[0]
    assert told.code == "oom-kill"
    for words in ("28960 tokens", "3463 MiB", "122 KiB a token", "cache_ram (2048 MiB) does not bound one entry", "11.4G"):
        assert words in told.words
    assert "40000 tokens takes up to 4.7 GiB" in told.do, "40000 x 122.44 KiB"


def test_d11_xid_table() -> None:
    events = xid.read(lines("d11-xid-table"))
    assert [(one.bus, one.number) for one in events] == [("0000:06:00", 79), ("0000:07:00", 79), ("0000:10:1c", 63), ("0000:01:00", 31)]
    found = {(one.where, one.code): one.severity for one in xid.judge(events)}
    assert found == {
        ("card 0000:06:00", "card-lost"): finding.ERROR,
        ("card 0000:07:00", "card-lost"): finding.ERROR,
        ("card 0000:10:1c", "xid"): finding.NOTE,
        ("card 0000:01:00", "xid"): finding.WARNING,
    }
    stops = [number for number in range(1, 200) if xid.stops_a_roll([number], number)]
    assert stops == [48, 62, 64, 74, 79, 95, 109, 119, 120]
    assert not xid.stops_a_roll([48, 94], 48)


def test_d12_off_the_bus_without_an_xid() -> None:
    text = lines("d12-off-the-bus-without-an-xid")
    assert not any("Xid" in line for line in text)
    lost = only(xid.judge(xid.read(text)))
    numbered = only(xid.judge(xid.read(["NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus."])))
    assert (lost.code, lost.severity, lost.where, lost.do) == (numbered.code, numbered.severity, numbered.where, numbered.do)
    assert lost.where == "card 0000:b3:00"
    fewer = only(driver.cards(["0000:b3:00", "0000:c1:00"], ["0000:c1:00"], None, []))
    assert fewer.code == "card-missing"
    assert "b3:00" in fewer.words
