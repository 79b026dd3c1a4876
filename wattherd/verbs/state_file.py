"""One JSON file of the project's state folder: changed whole, by one command at a time, so that two at once leave both of theirs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping


def change(path: pathlib.Path, changed: Callable[[], Mapping[str, object]]) -> None:
    """`changed` reads the file, while nobody else can write it, and gives what it should hold. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path):
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(changed(), indent=1, sort_keys=True) + "\n")
        fresh.replace(path)


@contextlib.contextmanager
def _alone(path: pathlib.Path) -> Iterator[None]:
    with path.with_suffix(".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
