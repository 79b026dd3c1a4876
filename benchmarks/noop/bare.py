"""The least that can be done over SSH by Fabric: one connection and one command a node, all nodes at once, one line back from each.

`python bare.py PLAN`: the plan names the nodes, the key, and for each node the finished text that goes down its pipe. It renders
nothing, knows no inventory, and takes any host key: what a tool adds to this is what it costs.
"""

from __future__ import annotations

import json
import sys
from concurrent import futures
from pathlib import Path

import fabric


def ask(address: str, key: str, text: bytes) -> dict[str, object]:
    options = {"key_filename": key, "look_for_keys": False, "allow_agent": False}
    with fabric.Connection(address, user="root", connect_kwargs=options) as connection:
        connection.open()
        channel = connection.transport.open_session()
        channel.exec_command("python3 -IS -")
        channel.sendall(text)
        channel.shutdown_write()
        said = b"".join(iter(lambda: channel.recv(65536), b""))
        if channel.recv_exit_status():
            raise SystemExit(f"{address}: {channel.recv_stderr(65536).decode(errors='replace')}")
        answer: dict[str, object] = json.loads(said)
        return answer


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    with futures.ThreadPoolExecutor(len(plan["nodes"])) as pool:
        asked = {
            name: pool.submit(ask, node["address"], plan["key"], Path(node["text"]).read_bytes()) for name, node in plan["nodes"].items()
        }
    print(json.dumps({name: one.result() for name, one in asked.items()}))


if __name__ == "__main__":
    main()
