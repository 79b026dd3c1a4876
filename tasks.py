"""The commands of this checkout: Wattherd's own, plus the lab and the developer's. `invoke --list` shows them."""

import pathlib

from tests.lab import demo
from tests.lab import tasks as lab
from wattherd import tasks
from wattherd.tasks import develop

namespace = tasks.collection(pathlib.Path(__file__).parent)
namespace.add_collection(lab.namespace, "lab")
for _task in (demo.demo, *develop.TASKS):
    namespace.add_task(_task)
