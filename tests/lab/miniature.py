"""A llama.cpp in miniature whose CUDA plugin nvcc really compiles: two kernels' worth of device code, and a server that loads it.

Its plugin asks CUDA's runtime for cards, as the real one does. Where no card can be, a file in the place of the driver's own stands
for one that works: SIMULATED, whose line the server then lists.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

from tests.lab import nodes
from tests.node import tiny

#: The line of a card that works, below the driver's own folder; absent where the driver fails.
SIMULATED = "/proc/driver/nvidia/simulated"
CARD = "CUDA0: NVIDIA GeForce RTX 3090 (24576 MiB, 24300 MiB free)"

_SERVER = r"""
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
int number();
int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        fprintf(stderr, "version: 0.6.0-dev (build %d, commit miniature)\n", number());
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--list-devices") == 0) {
        printf("Available devices:\n");
        void *plugin = dlopen("libggml-cuda.so", RTLD_NOW);
        auto list = plugin ? (void (*)()) dlsym(plugin, "list_cards") : nullptr;
        if (list) list();
        return 0;
    }
    return 1;
}
"""
_CARDS = r"""
#include <cstdio>
#include <cuda_runtime.h>
extern "C" void list_cards() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
    for (int at = 0; at < count; at++) {
        cudaDeviceProp card;
        if (cudaGetDeviceProperties(&card, at) == cudaSuccess)
            printf("  CUDA%d: %s (%zu MiB, 0 MiB free)\n", at, card.name, card.totalGlobalMem >> 20);
    }
    char line[200];
    FILE *told = count ? nullptr : fopen("SIMULATED", "r");
    if (told && fgets(line, sizeof line, told)) printf("  %s\n", line);
    if (told) fclose(told);
}
""".replace("SIMULATED", SIMULATED)
_SCALE = r"""
__global__ void scale(float *values, float by, int count) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] *= by;
}
extern "C" void scale_on_card(float *values, float by, int count) { scale<<<(count + 255) / 256, 256>>>(values, by, count); }
"""
_CMAKE = r"""
cmake_minimum_required(VERSION 3.18)
project(miniature CXX)
option(GGML_CUDA "a plugin for NVIDIA's cards" OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(number ggml/number.cpp)
target_compile_definitions(number PRIVATE NUMBER=${LLAMA_BUILD_NUMBER})
foreach(name llama-server llama-bench llama-fit-params)
  add_executable(${name} server.cpp)
  target_link_libraries(${name} number ${CMAKE_DL_LIBS})
endforeach()
if(GGML_CUDA)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  add_library(ggml-cuda MODULE ggml/cards.cu ggml/scale.cu)
  target_link_libraries(ggml-cuda PRIVATE CUDA::cudart)
  add_dependencies(llama-server ggml-cuda)
endif()
if(GGML_RPC)
  add_subdirectory(tools/rpc)
endif()
"""


@dataclass(frozen=True)
class Archive:
    """A source archive that lies on this machine, and how an inventory names it."""

    path: pathlib.Path
    sha256: str
    number: int

    def setting(self, **more: str) -> str:
        words = {"source": f"'path:{self.path}'", "sha256": self.sha256, "build_number": str(self.number), **more}
        return f"llama_cpp: {{{', '.join(f'{key}: {value}' for key, value in words.items())}}}\n"


def archive(folder: pathlib.Path, number: int, *, seconds_s: int = 0) -> Archive:
    """Write the source of one build. Compiling its plugin takes `seconds_s` longer than it needs."""
    slow = f"if(GGML_CUDA)\n  add_custom_command(TARGET ggml-cuda PRE_LINK COMMAND sleep {seconds_s})\nendif()\n" if seconds_s else ""
    files = {
        "CMakeLists.txt": _CMAKE + slow,
        "server.cpp": _SERVER,
        "tools/rpc/CMakeLists.txt": "add_executable(ggml-rpc-server ../../server.cpp)\ntarget_link_libraries(ggml-rpc-server number)\n",
        "ggml/number.cpp": "int number() { return NUMBER; }\n",
        "ggml/cards.cu": _CARDS,
        "ggml/scale.cu": _SCALE,
    }
    body = tiny.pack_tar({f"miniature-1.0/{name}": text.encode() for name, text in files.items()})
    path = folder / f"miniature-{number}-{seconds_s}.tar.gz"
    path.write_bytes(body)
    return Archive(path, hashlib.sha256(body).hexdigest(), number)


@contextlib.contextmanager
def card(name: str, model: str, driver: str, *, works: bool = False) -> Iterator[None]:
    """A card and its loaded driver as the node's files show them; one that `works` is listed by the"""
    place = "/proc/driver/nvidia"
    version = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue Sep 23 10:11:41 UTC 2025"
    told = f"Model: \\t\\t {model}\\nIRQ:   \\t\\t 44\\nGPU UUID: \\t GPU-1\\nBus Location: \\t 0000:01:00.0\\n"
    script = f"""set -e
mount -t tmpfs tmpfs /proc/driver
mkdir -p {place}/gpus/0000:01:00.0
echo '{version}' > {place}/version
printf '{told}' > {place}/gpus/0000:01:00.0/information
{f"echo '{CARD}' > {SIMULATED}" if works else ""}
"""
    nodes.run(name, ["sh", "-c", script])
    try:
        yield
    finally:
        nodes.run(name, ["umount", "/proc/driver"])
