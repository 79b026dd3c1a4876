"""CUDA over real SSH: a toolkit from wheels on a node without a card, its release on others, and nodes that have a card by their files.

The source is a llama.cpp in miniature that nvcc really compiles; the real one is test_cuda's and `invoke lab.cuda`'s. The wheels are the
real ones. Cards are simulated: the driver's files are laid over /proc/driver, and no kernel of any of them ever runs.
"""

from __future__ import annotations

import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.lab import cli, cuda, fleet, miniature, nodes
from tests.lab.test_packages import make_package
from tests.lab.waiting import until
from tests.unit.sources.index_server import PackageIndex
from wattherd import material
from wattherd.inventory import places as places_of
from wattherd.resources import toolkit
from wattherd.sources import toolkit as wheels

pytestmark = pytest.mark.lab
RTX_3090, P40 = "NVIDIA GeForce RTX 3090", "Tesla P40"
CURRENT = "/opt/wattherd/current"
FROM_WHEELS = "cuda: {toolkit: wheels, architectures: ['86']}\n"
NOTHING = "roles: [base]\n"


@dataclass(frozen=True)
class Rig:
    """A controller with an empty cache, an index that has one of the wheels, and two nodes with nothing on them."""

    project: cli.Project
    first: str
    second: str
    index: PackageIndex
    cache: pathlib.Path

    def deploy(self, name: str, text: str, *more: str) -> cli.Said:
        self.project.group(text)
        return self.project.invoke("deploy", "--hosts", name, *more)

    def refused(self, name: str, text: str) -> dict[str, str]:
        """Why the host was left out; its problem's code, message and hint."""
        said = self.deploy(name, text, "--json")
        assert said.code == 2, said.words
        return dict(said.host(name)["problem"])


def kit() -> material.Toolkit:
    return next(one for one in wheels.offers() if one.name == "cuda" and one.architecture == "x86_64")


@pytest.fixture(scope="module")
def rig(plain: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("cuda")
    index = PackageIndex(tmp_path_factory.mktemp("index"))
    made = cli.project(folder, cache=folder / "cache")
    (folder / "cache/sources").mkdir()
    made = cli.Project(folder, {**made.environment, "PIP_INDEX_URL": index.url})
    known = {node.name: node.address for node in fleet.status().nodes}
    made.hosts(**{name.replace("-", "_"): known[name] for name in plain})
    assert made.invoke("trust", "--hosts", "all", "--yes").code == 0
    for name in plain:
        nodes.run(name, ["sh", "-c", "rm -rf /var/lib/wattherd/builds /opt/wattherd"])
    yield Rig(made, *plain, index, folder / "cache")
    index.stop()
    made.group(NOTHING)
    said = made.invoke("remove", "--hosts", "all", "--yes")
    assert said.code == 0, said.words
    for name in plain:
        assert nodes.run(name, ["sh", "-c", "ls -A /opt/wattherd 2>/dev/null || true"]).stdout == "", "1.2 GB of toolkit too"


def stock(rig: Rig) -> material.File:
    """The user's cache has the wheels; all but one small one are laid into the rig's, and the index has that one. Gives it."""
    scarce = min(kit().wheels, key=lambda file: file.size_bytes)
    for file in kit().wheels:
        path = wheels.wheel(file, places_of.cache_dir(), lambda _done, _total: None)
        if file is scarce:
            rig.index.add("nvidia-cuda-crt", file.file_name, path.read_bytes())
            continue
        for one in (path, path.with_name(path.name + ".json")):
            (rig.cache / "sources" / one.name).symlink_to(one)
    return scarce


@dataclass(frozen=True)
class Deployed:
    """What the first node's deploy said the second and the third time, having been cut twice, and which release it made."""

    source: miniature.Archive
    scarce: material.File
    again: str
    attached: str
    release: str
    begun_s: float

    @property
    def wanted(self) -> str:
        return "roles: [base, cuda, llama_cpp]\n" + self.source.setting(backend="cuda") + FROM_WHEELS


@pytest.fixture(scope="module")
def deployed(rig: Rig) -> Deployed:
    """The controller is killed while it sends the largest wheel, and again while nvcc compiles."""
    begun_s = time.time()
    source = miniature.archive(rig.project.folder, 7, seconds_s=8)
    rig.project.group("roles: [base, cuda, llama_cpp]\n" + source.setting(backend="cuda") + FROM_WHEELS)
    said = rig.project.invoke("deploy", "--hosts", rig.first, "--check")
    assert said.code == 0, said.words
    assert rig.index.asked == [], "a check asks for no wheel"
    assert list((rig.cache / "sources").iterdir()) == []
    scarce = stock(rig)
    large = max(kit().wheels, key=lambda file: file.size_bytes)
    killed_when(rig, f"test $(stat -c %s /var/lib/wattherd/store/{large.sha256}.partial) -gt 80000000")
    again = killed_when(rig, "systemctl list-units --plain --no-legend 'wattherd-build-*' | grep -q running")
    attached = rig.project.invoke("deploy", "--hosts", rig.first)
    assert attached.code == 0, attached.words
    return Deployed(source, scarce, again, attached.words, current(rig.first), begun_s)


def killed_when(rig: Rig, script: str) -> str:
    """What a deploy had said until the script succeeded on the first node, which was its end."""
    argv, environment = rig.project.argv("deploy", "--hosts", rig.first), {**rig.project.environment, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        argv, cwd=cli.ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as controller:
        until(rig.first, script)
        controller.send_signal(signal.SIGKILL)
        words = controller.communicate()[0]
    assert controller.returncode == -signal.SIGKILL, words
    return words


def current(name: str) -> str:
    return nodes.run(name, ["readlink", CURRENT]).stdout.strip()


def listing(name: str) -> str:
    """Wattherd's places on a node, each file with its time."""
    script = "find /opt/wattherd /etc/wattherd /var/lib/wattherd -printf '%p %T@ %s\\n' 2>/dev/null | sort; true"
    return nodes.run(name, ["sh", "-c", script]).stdout


# -- a builder without a card


def test_wheels_are_fetched_when_the_builder_asks_and_once(rig: Rig, deployed: Deployed) -> None:
    assert [one.path for one in rig.index.files_asked()] == [f"/files/{deployed.scarce.file_name}"]
    assert (rig.cache / "sources" / deployed.scarce.file_name).stat().st_size == deployed.scarce.size_bytes


def test_a_killed_controller_costs_neither_the_bytes_nor_the_build(rig: Rig, deployed: Deployed) -> None:
    assert "were there from a copy that was cut; it went on from there" in deployed.again
    assert "re-attached" in deployed.attached
    unit = f"wattherd-build-{deployed.release.rpartition('/')[2][:12]}.service"
    started = nodes.run(rig.first, ["sh", "-c", f"journalctl -b -o cat -u {unit} --since=@{deployed.begun_s:.0f} | grep -c Started"]).stdout
    assert int(started) == 1, "started once, by a controller that was killed"


def test_the_toolkit_stands_whole_and_its_wheels_have_left_the_store(rig: Rig, deployed: Deployed) -> None:
    assert deployed.release.endswith("-b7-cuda")
    assert nodes.run(rig.first, ["ls", toolkit.HOME]).stdout.split() == [kit().place.rpartition("/")[2]]
    said = nodes.run(rig.first, [f"{kit().place}/bin/nvcc", "--version"]).stdout
    assert f"release {kit().version}" in said
    links = nodes.run(rig.first, ["readlink", f"{kit().place}/lib64", f"{kit().place}/lib/libcublas.so"]).stdout.split()
    assert links == ["lib", "libcublas.so.13"]
    left = nodes.run(rig.first, ["ls", "/var/lib/wattherd/store"]).stdout
    assert not [file.file_name for file in kit().wheels if file.sha256 in left]


def test_the_release_holds_the_cards_code_and_the_runtime_under_its_soname(rig: Rig, deployed: Deployed, tmp_path: pathlib.Path) -> None:
    folder = nodes.root(rig.first) / deployed.release[1:] / "bin"
    plugin = tmp_path / "libggml-cuda.so"
    plugin.write_bytes((folder / "libggml-cuda.so").read_bytes())
    assert set(cuda.architectures(plugin)) == {"sm_86"}
    assert (folder / "libcudart.so.13").stat().st_size > 500_000
    said = nodes.run(rig.first, ["ldd", f"{deployed.release}/bin/libggml-cuda.so"]).stdout
    assert f"libcudart.so.13 => {deployed.release}/bin/libcudart.so.13" in said
    assert "not found" not in said
    listed = nodes.run(rig.first, [f"{CURRENT}/bin/llama-server", "--list-devices"]).stdout
    assert listed.split() == ["Available", "devices:"], "the plugin loads, asks CUDA's runtime, and there is no card"


def test_the_second_time_nothing_changes_and_another_node_receives_without_a_toolkit(rig: Rig, deployed: Deployed) -> None:
    sources = rig.cache / "sources"
    sources.rename(rig.cache / "elsewhere")
    try:
        said = rig.deploy("all", deployed.wanted, "--json")
    finally:
        (rig.cache / "elsewhere").rename(sources)
    assert said.code == 0, said.words
    assert said.host(rig.first)["changed"] == 0
    changes = said.host(rig.second)["changes"]
    assert "symlink:/opt/wattherd/current" in changes
    assert not [change for change in changes if change.startswith("build:")]
    assert current(rig.second) == deployed.release
    assert nodes.run(rig.second, ["ls", "/opt/wattherd"]).stdout.split() == ["current", "releases"]
    assert nodes.run(rig.second, [f"{CURRENT}/bin/llama-server", "--version"]).stderr.startswith("version: 0.6.0-dev (build 7")


# -- nodes that have a card by their files


@pytest.mark.parametrize(
    ("model", "driver", "setting", "reason", "fix"),
    [
        (P40, "580.95.05", "{}", "sm_61 is older than it knows (from sm_75)", "/usr/local/cuda-12.9"),
        (P40, "580.95.05", "{toolkit: wheels}", "sm_61 is older than it knows (from sm_75)", "/usr/local/cuda-12.9"),
        (RTX_3090, "535.183.01", "{}", "it needs driver 580 or newer, and 535.183.01 is loaded", "upgrade the driver to 580"),
        (RTX_3090, "580.95.05", "{toolkit: installed}", "no CUDA toolkit is installed there", "cuda: {toolkit: auto}"),
        ("NVIDIA Nobody Knows", "580.95.05", "{}", "whose compute capability is not known", "cuda: {architectures: ['86']}"),
    ],
)
def test_a_card_that_nothing_builds_for_is_refused_before_anything_is_touched(
    rig: Rig, deployed: Deployed, model: str, driver: str, setting: str, reason: str, fix: str
) -> None:
    before = listing(rig.second)
    with miniature.card(rig.second, model, driver):
        problem = rig.refused(rig.second, f"roles: [base, cuda, llama_cpp]\n{deployed.source.setting()}cuda: {setting}\n")
    assert problem["code"] == "cuda-unfit"
    assert reason in problem["message"]
    assert fix in problem["hint"]
    assert listing(rig.second) == before


def test_a_card_without_a_driver_is_no_reason_to_build_for_the_cpu(rig: Rig, deployed: Deployed) -> None:
    bus = "/sys/bus/pci/devices"
    script = (
        f"mount -t tmpfs tmpfs {bus} && mkdir {bus}/0000:01:00.0 && cd {bus}/0000:01:00.0 && echo 0x10de > vendor && echo 0x030000 > class"
    )
    nodes.run(rig.second, ["sh", "-c", script])
    try:
        problem = rig.refused(rig.second, f"roles: [base, cuda, llama_cpp]\n{deployed.source.setting()}")
    finally:
        nodes.run(rig.second, ["umount", bus])
    assert problem["code"] == "cuda-unfit"
    assert "no NVIDIA driver is loaded there" in problem["message"]


def test_a_release_that_shows_no_card_never_becomes_current(rig: Rig, deployed: Deployed) -> None:
    plain = miniature.archive(rig.project.folder, 8)
    said = rig.deploy(rig.second, "roles: [base, llama_cpp]\n" + plain.setting(backend="cpu"))
    assert said.code == 0, said.words
    before = current(rig.second)
    assert before.endswith("-b8-cpu")
    wanted = "roles: [base, cuda, llama_cpp]\n" + deployed.source.setting()
    with miniature.card(rig.second, RTX_3090, "580.95.05"):
        problem = rig.refused(rig.second, wanted)
    assert problem["code"] == "release-does-not-run"
    assert "it shows no CUDA device with memory, so it would run on the CPU" in problem["message"]
    assert current(rig.second) == before
    with miniature.card(rig.second, RTX_3090, "580.95.05", works=True):
        said = rig.deploy(rig.second, wanted)
    assert said.code == 0, said.words
    assert current(rig.second) == deployed.release, "a card of the architecture that was asked for by name wants the same release"


def test_a_builder_whose_card_does_not_show_ships_nothing(rig: Rig, deployed: Deployed) -> None:
    other = miniature.archive(rig.project.folder, 9)
    before = current(rig.first)
    wanted = "roles: [base, cuda, llama_cpp]\n" + other.setting(rpc="true")
    with miniature.card(rig.first, RTX_3090, "580.95.05"):
        problem = rig.refused(rig.first, wanted)
    assert problem["code"] == "release-does-not-run"
    assert "it shows no CUDA device with memory" in problem["message"]
    assert "nothing was shipped" in problem["hint"]
    assert current(rig.first) == before
    assert not list((rig.cache / "releases").glob("*-b9-*"))
    with miniature.card(rig.first, RTX_3090, "580.95.05", works=True):
        said = rig.deploy(rig.first, wanted)
    assert said.code == 0, said.words
    assert current(rig.first).endswith("-b9-cuda")
    assert current(rig.first) != deployed.release
    assert "ggml-rpc-server" in nodes.run(rig.first, ["ls", f"{CURRENT}/bin"]).stdout.split()
    assert "ggml-rpc-server" not in nodes.run(rig.first, ["ls", f"{deployed.release}/bin"]).stdout.split()


def test_a_driver_of_two_pieces_is_said_before_anything_is_touched(rig: Rig, deployed: Deployed) -> None:
    library = nodes.root(rig.second) / "usr/lib/x86_64-linux-gnu/libcuda.so.590.44.01"
    library.write_bytes(b"")
    before = listing(rig.second)
    try:
        with miniature.card(rig.second, RTX_3090, "580.95.05", works=True):
            problem = rig.refused(rig.second, "roles: [base, cuda]\n" + deployed.source.setting())
    finally:
        library.unlink()
    assert problem["code"] == "cuda-unfit"
    assert "of two pieces" in problem["message"]
    assert "reboot" in problem["hint"]
    assert listing(rig.second) == before


def test_the_drivers_packages_are_held_when_asked_and_freed_when_not(rig: Rig, tmp_path: pathlib.Path) -> None:
    name = rig.second
    for package in ("nvidia-driver-580", "libnvidia-compute-580", "nvidia-settings"):
        make_package(tmp_path, package, "1.0")
        (nodes.root(name) / f"root/{package}.deb").write_bytes((tmp_path / f"{package}_1.0_all.deb").read_bytes())
    nodes.run(name, ["sh", "-c", "dpkg -i /root/*.deb && apt-mark hold nvidia-driver-580"])
    try:
        with miniature.card(name, RTX_3090, "580.95.05"):
            assert rig.deploy(name, "roles: [base, cuda]\ncuda: {hold_driver: true}\n").code == 0
            assert nodes.run(name, ["apt-mark", "showhold"]).stdout.split() == ["libnvidia-compute-580", "nvidia-driver-580"]
            again = rig.deploy(name, "roles: [base, cuda]\ncuda: {hold_driver: true}\n", "--json")
            assert again.host(name)["changed"] == 0, again.words
            assert rig.deploy(name, "roles: [base, cuda]\n").code == 0
            assert nodes.run(name, ["apt-mark", "showhold"]).stdout.split() == ["nvidia-driver-580"], "the administrator's own stays"
    finally:
        nodes.run(
            name,
            [
                "sh",
                "-c",
                "apt-mark unhold nvidia-driver-580; dpkg --purge nvidia-driver-580 libnvidia-compute-580 nvidia-settings; rm /root/*.deb",
            ],
        )
