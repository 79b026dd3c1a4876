"""A GPU build on a GPU: what counts as a device, what a log proves, and what the node adds to it."""

from __future__ import annotations

import pytest

from wattherd.node.findings import devices
from wattherd.wire import finding

UNIT = "llama@m.service"
CUDA0 = devices.Device("CUDA0", "NVIDIA A100", 40000, 39000)


@pytest.mark.parametrize(
    ("row", "gpu"),
    [
        ("  CUDA0: NVIDIA GeForce RTX 3090 (24111 MiB, 23600 MiB free)", True),
        ("  ROCm1: AMD Radeon (16368 MiB, 16342 MiB free)", True),
        ("  Vulkan0: Intel(R) Graphics (12 MiB, 1 MiB free)", True),
        ("  SYCL0: Arc (16225 MiB, 16225 MiB free)", True),
        ("0.00.100.000 I   - CUDA0   : NVIDIA A100 (40000 MiB, 39000 MiB free)", True),
        ("  CUDA0: NVIDIA GeForce (0 MiB, 0 MiB free)", False),
        ("  BLAS: OpenBLAS (0 MiB, 0 MiB free)", False),
        ("  BLAS: OpenBLAS (24111 MiB, 24111 MiB free)", False),
        ("  CPU: AMD EPYC (32048 MiB, 32048 MiB free)", False),
        ("  AMX: AMX (1 MiB, 1 MiB free)", False),
        ("  CUDAX: nothing of ours (1 MiB, 1 MiB free)", False),
    ],
)
def test_a_device_counts_by_its_prefix_and_its_memory(row: str, gpu: bool) -> None:
    (device,) = devices.read(f"Available devices:\n{row}\n")
    assert device.is_gpu is gpu


def test_rows_that_are_none() -> None:
    assert devices.read("Available devices:\n  (none)\nload_backend: loaded CPU backend\nCUDA0: cut (24111 MiB, 236") == []


@pytest.mark.parametrize(
    ("document", "backend"),
    [
        ({"options": {"GGML_CUDA": "ON"}}, "CUDA"),
        ({"options": {"GGML_CUDA": "1"}}, "CUDA"),
        ({"options": {"GGML_CUDA": "OFF"}}, ""),
        ({"options": {"GGML_VULKAN": "ON"}}, "Vulkan"),
        ({"options": {}, "files": [{"path": "bin/libggml-cuda.so"}]}, "CUDA"),
        ({"options": {}, "files": [{"path": "bin/libggml-cpu.so"}]}, ""),
        ({"options": None, "files": "x"}, ""),
        ({}, ""),
    ],
)
def test_the_back_end_of_a_release(document: dict[str, object], backend: str) -> None:
    assert devices.backend_of(document) == backend


@pytest.mark.parametrize(
    ("line", "proves"),
    [
        ("register_device: registered device CUDA0 (NVIDIA A100)", True),
        ("ggml_cuda_init: found 2 CUDA devices (Total VRAM: 48222 MiB):", True),
        ("ggml_cuda_init: found 0 CUDA devices", False),
        ("llama_model_load_from_file_impl: using device CUDA1 (NVIDIA A100) - 39000 MiB free", True),
        ("load_tensors:        CUDA0 model buffer size =  4095.05 MiB", True),
        ("load_tensors:        CUDA0 model buffer size =     0.00 MiB", False),
        ("load_tensors:   CPU_Mapped model buffer size =  4095.05 MiB", False),
        ("load_tensors: offloaded 33/33 layers to GPU", False),
        ("wrapper: all layers offloaded to CUDA", False),
        ("register_device: registered device CPU (EPYC)", False),
    ],
)
def test_what_proves_a_gpu_in_a_log(line: str, proves: bool) -> None:
    assert devices.log_shows_gpu([line]) is proves


@pytest.mark.parametrize(
    ("path", "holds"),
    [
        ("/dev/nvidia0", True),
        ("/dev/nvidia-uvm", True),
        ("/dev/nvmap", True),
        ("/dev/dri/renderD128", True),
        ("/dev/nvidiactl", False),
        ("/dev/null", False),
        ("socket:[1]", False),
        ("/tmp/dev/nvidia0", False),
    ],
)
def test_what_a_process_holds_open(path: str, holds: bool) -> None:
    assert devices.holds_card([path, "/dev/null"]) is holds


def test_a_release_on_the_right_kind_of_node_is_well() -> None:
    assert devices.of_release(devices.Scene(), "r") == []
    assert devices.of_release(devices.Scene(cards=1, backend="CUDA", listed=(CUDA0,)), "r") == []
    assert devices.of_release(devices.Scene(cards=1, backend="CUDA", listed=None), "r") == [], (
        "nobody could ask it: not known is no finding"
    )


def test_a_cpu_release_on_a_gpu_node_may_be_on_purpose_but_unused_layers_are_not() -> None:
    (built,) = devices.of_release(devices.Scene(cards=2), "r")
    assert (built.code, built.severity) == ("built-without-cuda", finding.WARNING)
    line = "warning: no usable GPU found, --gpu-layers option will be ignored"
    (unused,) = devices.of_server(devices.Scene(cards=2), UNIT, [line], None)
    assert (unused.code, unused.severity) == ("built-without-cuda", finding.ERROR)
    (visible,) = devices.of_server(devices.Scene(cards=2, backend="CUDA", uvm=True), UNIT, [line], None)
    assert visible.code == "gpu-unused"


def test_the_cause_is_told_once_and_not_its_consequence() -> None:
    log = ["ggml_cuda_init: failed to initialize CUDA: unknown error", "warning: no usable GPU found, --gpu-layers option will be ignored"]
    (told,) = devices.of_server(devices.Scene(cards=1, backend="CUDA", uvm=True), UNIT, log, ["/dev/null"])
    assert told.code == "gpu-after-suspend"


def test_a_list_without_gpu_quotes_the_reason_that_the_program_gave() -> None:
    words = "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version\nAvailable devices:\n"
    (told,) = devices.of_release(devices.Scene(cards=1, backend="CUDA", listed=(), list_words=words), "r")
    assert told.code == "driver-too-old"
    blas = devices.Device("BLAS", "OpenBLAS", 0, 0)
    (none,) = devices.of_release(
        devices.Scene(cards=1, backend="CUDA", listed=(blas,), list_words="  BLAS: OpenBLAS (0 MiB, 0 MiB free)"), "r"
    )
    assert (none.code, "BLAS (0 MiB)" in none.words) == ("no-gpu-visible", True)


def test_a_quiet_log_is_settled_by_what_the_process_holds() -> None:
    scene = devices.Scene(cards=1, backend="CUDA", listed=(CUDA0,), uvm=True)
    assert devices.of_server(scene, UNIT, ["I quiet"], ["/dev/nvidiactl", "/dev/nvidia0"]) == []
    assert devices.of_server(scene, UNIT, ["I quiet"], None) == [], "nothing is known: nothing is said"
    (told,) = devices.of_server(scene, UNIT, ["I quiet"], ["/dev/null"])
    assert (told.code, told.severity) == ("no-gpu-visible", finding.ERROR)
    assert "restart" in told.do


def test_a_cpu_server_owes_nobody_a_card() -> None:
    assert devices.of_server(devices.Scene(), UNIT, ["load_backend: loaded CPU backend from x"], ["/dev/null"]) == []
