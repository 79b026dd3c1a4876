"""Real CUDA objects of the real source, compiled by the product for a named card without one: `invoke lab.cuda` compiles all of them."""

from __future__ import annotations

import pytest

from tests.lab import cuda

pytestmark = pytest.mark.lab


def test_cuda_objects_of_the_real_source_hold_the_cards_architecture_and_no_other() -> None:
    machine, wanted, found = cuda.compile_objects(("arange", "clamp"), print)
    assert set(found) == {"arange", "clamp"}
    for name, architectures in found.items():
        assert set(architectures) == {"sm_86"}, name
    log = machine.text(wanted.log)
    assert "Using CMAKE_CUDA_ARCHITECTURES=86-real" in log
    assert (
        f"CUDA compiler: {machine.path(wanted.toolkit)}/bin/nvcc" in log or f"-DCMAKE_CUDA_COMPILER={machine.path(wanted.toolkit)}" in log
    )
    assert "GGML_CUDA_NO_VMM=ON" in log, "wheels have no stub of libcuda to link with"
