"""Every field case of tests/cases/units.yaml, one test each, named after the case; and what else a server's units must and must not say."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests import goldens
from wattherd import errors, material, plan, role
from wattherd.inventory import settings
from wattherd.resources.flags import Flags
from wattherd.resources.unit import Unit
from wattherd.serving import secrets
from wattherd.wire import facts, fields

CASES = goldens.ROOT / "tests" / "cases" / "units.yaml"
GIB = 2**30
RIG = facts.decode(json.loads((goldens.FOLDER / "server-cuda-key" / "facts.json").read_text()))
ROLE: Any = plan.load_roles(goldens.ROOT / "roles")["server"]
CARDS = tuple(card.uuid for card in RIG.gpus)


def host(*servers: Mapping[str, object], size_bytes: int = 98_362_432, roles: tuple[str, ...] = ("server",), **more: object) -> role.Host:
    file = material.File(sha256="b1" * 32, size_bytes=size_bytes, file_name="m.gguf")
    return role.Host(
        name="rig",
        groups=(),
        settings=settings.Settings.model_validate({"roles": list(roles), "serve": list(servers), **more}),
        folders=(goldens.ROOT / "templates",),
        models={name: role.Model(name=name, files=(file,)) for name in ("m", "n")},
        secrets=secrets.Book(lambda _place: secrets.Hidden(b"a-word-that-opens-nothing", "here")),
    )


def server(**more: object) -> dict[str, object]:
    return {"name": "smol", "port": 8080, **({} if "router" in more else {"model": "m"}), **more}


def made(told: facts.Facts, *servers: Mapping[str, object], **more: Any) -> dict[str, Any]:
    return {one.id: one for one in ROLE.resources(host(*servers, **more), told)}


def unit(told: facts.Facts, given: Mapping[str, object], **more: Any) -> Unit:
    found = made(told, given, **more)[f"unit:llama@{given['name']}.service"]
    assert isinstance(found, Unit)
    return found


def values(text: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


PLAIN = facts.Facts(facts.System("n"), facts.Cpu("x86_64"), facts.Python("/usr/bin/python3", "3.11.2"))
JETSON = facts.Facts(facts.System("n"), facts.Cpu("aarch64"), facts.Python("/usr/bin/python3", "3.8.10"), jetson="# R35 (release)")


def test_b09_empty_env_value() -> None:
    """Nothing with an empty value reaches a server's environment, and what somebody else put into the manager's is taken out."""
    for given in (server(), server(devices=list(CARDS)), server(api_key={"env": "K"})):
        found = made(RIG, given)
        text = found["unit:llama@smol.service"].text
        assert all(pair.partition("=")[2] for line in values(text, "Environment") for pair in line.split())
        flags = found["flags:smol"]
        assert isinstance(flags, Flags)
        assert all(flags.environment.values())
        unset = values(text, "UnsetEnvironment")[0].split()
        assert {"LLAMA_ARG_TOOLS", "LLAMA_ARG_AGENT", "LLAMA_ARG_MCP_SERVERS_CONFIG", "LLAMA_ARG_HOST", "AIP_MODE"} <= set(unset)
        assert ("LLAMA_API_KEY" in unset) is ("api_key" not in given), "a key from elsewhere would lock the server, ours must stay"


def test_d02_device_class_renamed_by_driver() -> None:
    text = unit(RIG, server()).text
    allowed = [line.split()[0] for line in values(text, "DeviceAllow")]
    assert {"char-nvidia", "char-nvidia-frontend", "char-nvidiactl", "char-nvidia-uvm", "char-nvidia-caps"} <= set(allowed)
    assert values(text, "DevicePolicy") == ["closed"]
    assert "PrivateDevices" not in text, "it hides the cards"
    assert "AF_UNIX" in values(text, "RestrictAddressFamilies")[0]


def test_d03_uvm_late_at_boot() -> None:
    found = made(RIG, server())
    text, waiter = found["unit:llama@smol.service"].text, found["unit:wattherd-nvidia.service"]
    assert "wattherd-nvidia.service" in values(text, "After")[0].split()
    assert values(text, "Wants") == ["wattherd-nvidia.service"], "not Requires: a start that waited in vain must fail and be tried again"
    assert values(text, "ExecStartPre") == ["/usr/bin/test -c /dev/nvidia-uvm"]
    assert values(text, "Restart") == ["always"]
    assert "RemainAfterExit" not in waiter.text, "it runs before every start, not once a boot"
    assert values(waiter.text, "ExecStart")[0].endswith(" 60")
    assert "nvidia-modprobe -u -c0" in found["file:/opt/wattherd/libexec/await-nvidia.sh"].text
    assert "unit:wattherd-nvidia.service" not in made(PLAIN, server())
    assert "ExecStartPre" not in unit(PLAIN, server()).text


def test_d04_cuda_error_304_under_sandbox() -> None:
    for told in (RIG, JETSON):
        text = unit(told, server()).text
        assert "ProcSubset" not in text.replace(
            "# Drivers from 570 on read /proc/driver and write their threads' names: no ProcSubset=pid", ""
        )
        assert values(text, "MemoryDenyWriteExecute") == []
        assert values(text, "InaccessiblePaths") == ["-/etc/llama.cpp"]
    plain = unit(PLAIN, server()).text
    assert (values(plain, "ProcSubset"), values(plain, "MemoryDenyWriteExecute"), values(plain, "PrivateDevices")) == (
        ["pid"],
        ["yes"],
        ["yes"],
    )


def test_d08_mig_and_order() -> None:
    found = made(RIG, server(devices=list(CARDS)))
    assert found["flags:smol"].environment == {"CUDA_VISIBLE_DEVICES": ",".join(CARDS), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in " ".join(values(unit(RIG, server()).text, "Environment")), "also where no card was named"
    with pytest.raises(errors.Problem) as caught:
        made(RIG, server(devices=["MIG-11111111-aaaa", "MIG-22222222-bbbb"]))
    assert caught.value.code == "inventory-invalid"


@pytest.mark.parametrize("size_bytes", [1, 98_362_432, 20 * GIB, 60 * 10**9, 400 * 10**9])
@pytest.mark.parametrize("restart_s", [0, 5, 60])
@pytest.mark.parametrize("told", [PLAIN, RIG], ids=["cpu", "cuda"])
def test_d09_crash_loop_slower_than_the_limit(told: facts.Facts, size_bytes: int, restart_s: int) -> None:
    """The interval is longer than all starts that it allows, however late each of them fails."""
    one = unit(told, server(restart_s=restart_s), size_bytes=size_bytes)
    (interval,), (burst,) = values(one.text, "StartLimitIntervalSec"), values(one.text, "StartLimitBurst")
    worst_s = one.ready_timeout_s + (60 if told is RIG else 0)
    assert worst_s >= 60 + size_bytes // 100_000_000, "from a slow disk"
    assert int(interval) > int(burst) * (restart_s + worst_s)
    assert one.text.index("StartLimitIntervalSec") < one.text.index("[Service]"), "elsewhere systemd passes it over"
    assert values(one.text, "Type") == ["exec"], "the server never sends READY"
    assert int(values(one.text, "RestartSec")[0]) == restart_s


def test_every_case_has_its_test() -> None:
    names = {case["id"].replace("-", "_") for case in yaml.safe_load(CASES.read_text())["cases"]}
    assert names == {name.removeprefix("test_") for name in globals() if re.match(r"test_[bd]\d\d_", name)}


def test_a_jetson_gets_its_nodes_and_groups() -> None:
    text = unit(JETSON, server()).text
    allowed = {line.split()[0] for line in values(text, "DeviceAllow")}
    assert {"char-nvhost*", "char-nvgpu*", "/dev/nvmap", "/dev/nvhost-ctrl-gpu", "char-drm"} <= allowed
    assert values(text, "SupplementaryGroups") == ["video render"]


def test_a_gpu_box_that_is_told_to_build_for_its_cpu_gets_a_closed_unit() -> None:
    text = unit(RIG, server(), llama_cpp={"source": "pypi:x==1", "backend": "cpu"}).text
    assert values(text, "PrivateDevices") == ["yes"]


def test_limits_become_the_units() -> None:
    text = unit(PLAIN, server(limits={"memory": "24G", "cpu_percent": 250, "tasks": 99, "nice": -5}, load_mode="mmap+mlock")).text
    shown = {key: values(text, key) for key in ("MemoryMax", "CPUQuota", "TasksMax", "Nice", "LimitMEMLOCK")}
    assert shown == {"MemoryMax": ["24G"], "CPUQuota": ["250%"], "TasksMax": ["99"], "Nice": ["-5"], "LimitMEMLOCK": ["infinity"]}
    bare = unit(PLAIN, server()).text
    assert [values(bare, key) for key in ("MemoryMax", "CPUQuota", "Nice", "LimitMEMLOCK")] == [[], [], [], []]


@pytest.mark.parametrize(
    ("given", "local"),
    [({}, True), ({"host": "::1"}, True), ({"host": "10.0.0.1", "api_key": {"env": "K"}}, False), ({"rpc": ["10.0.0.9:50052"]}, False)],
)
def test_a_server_for_this_machine_alone_can_reach_nothing_else(given: dict[str, object], local: bool) -> None:
    assert (values(unit(PLAIN, server(**given)).text, "IPAddressDeny") == ["any"]) is local


def test_behind_the_proxy_it_listens_on_a_socket_and_is_drained_first() -> None:
    one = unit(PLAIN, server(host="10.0.0.1", api_key={"env": "K"}, drain_s=30), roles=("server", "proxy"))
    flags = made(PLAIN, server(), roles=("server", "proxy"))["flags:smol"]
    assert ("--host", "/run/wattherd/llama-smol/llama.sock") in flags.options
    assert (one.ports, one.ready_url) == ((), "unix:/run/wattherd/llama-smol/llama.sock:/health")
    assert (one.drain["server"], one.drain["limit_s"], one.drain["key_file"]) == ("smol/llama", "30", "/etc/wattherd/serve/smol.env")
    assert (values(one.text, "RuntimeDirectoryMode"), values(one.text, "UMask")) == (["0750"], ["0007"])
    alone = unit(PLAIN, server())
    assert (alone.ports, alone.drain, values(alone.text, "UMask")) == ((8080,), {}, ["0077"])


def test_a_key_changes_what_the_process_was_started_from_and_stands_in_no_text() -> None:
    found = made(PLAIN, server(api_key={"env": "K"}))
    assert "secret:/etc/wattherd/serve/smol.env" in found["unit:llama@smol.service"].started_from
    assert "secret:/etc/wattherd/serve/smol.env" in found["unit:llama-watchdog@smol.service"].started_from
    assert values(found["unit:llama@smol.service"].text, "EnvironmentFile")[-1] == "/etc/wattherd/serve/smol.env"
    assert "opens-nothing" not in "".join(json.dumps(fields.plain(one)) for one in found.values())


def router(*models: Mapping[str, object], **more: object) -> dict[str, object]:
    return server(router={"models": list(models) or [{"name": "one", "model": "m"}, {"name": "two", "model": "n"}], **more})


def test_a_router_goes_on_when_a_preset_changes_and_not_when_it_does_itself() -> None:
    def inputs(given: Mapping[str, object], size_bytes: int = 1) -> tuple[object, object]:
        found = made(PLAIN, given, size_bytes=size_bytes)
        main = found["unit:llama@smol.service"]
        assert not any(one.startswith(("flags:", "artifact:")) for one in main.started_from)
        assert "flags:smol" in found["unit:llama-presets@smol.service"].started_from
        return (main.text.replace(str(values(main.text, "StartLimitIntervalSec")), ""), main.inputs), found["flags:smol"].sections

    before, sections = inputs(router({"name": "one", "model": "m", "context": 1024}))
    after, others = inputs(router({"name": "one", "model": "m", "context": 2048}))
    assert (before == after, sections == others) == (True, False)
    assert inputs(router({"name": "one", "model": "m", "context": 1024}, max_loaded=7))[0] != before


def test_another_file_of_the_same_name_is_another_section() -> None:
    one = made(PLAIN, router())["flags:smol"]
    assert isinstance(one, Flags)
    assert ("--tags", f"sha256-{'b1' * 6}") in one.sections["one"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            router(
                {"name": "one", "model": "m", "load_on_start": True}, {"name": "two", "model": "n", "load_on_start": True}, max_loaded=1
            ),
            "push",
        ),
        (server(tls={"certificate": "/c.pem", "key": {"file": "/k.pem"}}), "front proxy"),
    ],
)
def test_what_would_not_work_is_refused(given: Mapping[str, object], words: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        made(PLAIN, given)
    assert caught.value.code == "inventory-invalid"
    assert words in caught.value.message


def test_the_watchdog_gives_a_sleeper_the_time_that_its_model_needs_to_come_back() -> None:
    def stall_s(**more: object) -> int:
        found = made(PLAIN, server(watchdog={"stall_s": 60}, **more), size_bytes=40 * GIB)["unit:llama-watchdog@smol.service"]
        (words,) = values(found.text, "ExecStart")
        return int(re.findall(r"--stall-s (\d+)", words)[0])

    assert stall_s() == 60
    assert stall_s(sleep_idle_s=600) > 40 * GIB // 100_000_000
    assert "unit:llama-watchdog@smol.service" not in made(PLAIN, server(watchdog={"enabled": False}))


def test_programs_on_the_node_run_on_the_oldest_python() -> None:
    """What is written to the node is what lies in templates/: nothing in it is taken for a template."""
    found = made(PLAIN, router())
    for name in ("llama_door.py", "llama_watchdog.py", "llama_presets.py"):
        text = found[f"file:/opt/wattherd/libexec/{name}"].text
        assert text == (goldens.ROOT / "templates/server" / name).read_text()
        assert ast.parse(text, feature_version=(3, 8)).body
