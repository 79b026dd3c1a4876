"""From a long log to the one line that helps. Cases of the field in their own words."""

from __future__ import annotations

import pytest

from wattherd.node import complaint

NINJA = """\
[1/9] Building C object a.c.o
a.c:3:5: warning: unused variable \u2018error\u2019 [-Wunused-variable]
[2/9] Building CXX object b.cpp.o
FAILED: b.cpp.o
/usr/bin/c++ -Werror=return-type -o b.cpp.o -c /src/b.cpp
In file included from /src/b.cpp:1:
/src/b.h:7:3: error: \u2018size_t\u2019 does not name a type
/src/b.h:9:3: error: a later one
ninja: build stopped: subcommand failed.
"""
MAKE = """\
[ 12%] Building C object a.c.o
/src/a.c:4:1: fatal error: missing.h: No such file or directory
compilation terminated.
make[2]: *** [CMakeFiles/a.dir/build.make:76: a.c.o] Error 1
make: *** [Makefile:136: all] Error 2
"""
LINKER = """\
[4/6] Linking C executable bin/x
FAILED: bin/x
: && /usr/bin/cc -O3 x.o -o bin/x && :
/usr/bin/ld: x.o: in function `main':
x.c:(.text.startup+0x1): undefined reference to `foo'
collect2: error: ld returned 1 exit status
"""
CUDA_COMPILER = """\
-- The CUDA compiler identification is unknown
CMake Error at /usr/share/cmake-3.25/Modules/CMakeDetermineCompilerId.cmake:739 (message):
  Compiling the CUDA compiler identification source file
  "CMakeCUDACompilerId.cu" failed.

  Compiler: /usr/local/cuda/bin/nvcc

  /usr/include/bits/mathcalls.h(206): error: exception specification is incompatible with that of previous function "rsqrtf"
"""
CMAKE_OLD = """\
CMake Error at CMakeLists.txt:1 (cmake_minimum_required):
  CMake 3.18 or higher is required.  You are running version 3.16.3


-- Configuring incomplete, errors occurred!
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NINJA, "/src/b.h:7:3: error: \u2018size_t\u2019 does not name a type"),
        (MAKE, "/src/a.c:4:1: fatal error: missing.h: No such file or directory"),
        (LINKER, "x.c:(.text.startup+0x1): undefined reference to `foo'"),
        (
            CUDA_COMPILER,
            '/usr/include/bits/mathcalls.h(206): error: exception specification is incompatible with that of previous function "rsqrtf"',
        ),
        (
            CMAKE_OLD,
            "CMake Error at CMakeLists.txt:1 (cmake_minimum_required): CMake 3.18 or higher is required.  You are running version 3.16.3",
        ),
        (
            "CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage\n-- Configuring incomplete\n",
            "CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage",
        ),
        (
            "FAILED: x\nnvcc fatal   : Unsupported gpu architecture 'compute_70'\n",
            "nvcc fatal   : Unsupported gpu architecture 'compute_70'",
        ),
        ("{standard input}:12: Error: no such instruction: `vpdpbusd'\n", "{standard input}:12: Error: no such instruction: `vpdpbusd'"),
        ("ninja: error: unknown target 'llama-swerver'\nmore\n", "ninja: error: unknown target 'llama-swerver'"),
        ("something\nended oddly\n", "something / ended oddly"),
        ("", ""),
    ],
)
def test_first_error(text: str, expected: str) -> None:
    assert complaint.first_error(text) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[12/196] Building CXX object", (12, 196)),
        ("[ 12%] Building C object", (12, 100)),
        ("[100%] Built target", (100, 100)),
        ("-- Detecting C compile features", None),
        ("see [1/2] in the middle", None),
    ],
)
def test_step(line: str, expected: tuple[int, int] | None) -> None:
    assert complaint.step(line) == expected


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("c++: fatal error: Killed signal terminated program cc1plus", "memory"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_70'", "nvcc --list-gpu-arch"),
        ("x.h(206): error: exception specification is incompatible with that of", "CUDA 13.2 or newer"),
        ("host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later than 13 are not supported!", "host_compiler"),
        ("CMake 3.18 or higher is required.  You are running version 3.16.3", "newer cmake"),
        ("No CMAKE_CXX_COMPILER could be found.", "compiler is missing"),
    ],
)
def test_known_errors_have_a_hint(error: str, words: str) -> None:
    assert words in complaint.hint(error)


def test_an_unknown_error_has_no_invented_hint() -> None:
    assert complaint.hint("x.c:1:1: error: whatever") == ""
