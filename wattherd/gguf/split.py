"""A model in several files: which names its parts have, and whether names and headers agree. Pure.

llama.cpp finds the other parts by the first one's name, so `split.count` in the header is the truth and the name must agree with it.
"""

from __future__ import annotations

import re
from typing import Iterable, List, Optional, Sequence

from wattherd import errors
from wattherd.gguf.header import Header
from wattherd.records import dataclass

_NAME = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf\Z", re.DOTALL)


@dataclass(frozen=True)
class Name:
    """`stem`-00001-of-00013.gguf."""

    stem: str
    number: int
    count: int

    def of(self, number: int) -> str:
        return f"{self.stem}-{number:05d}-of-{self.count:05d}.gguf"

    @property
    def every(self) -> List[str]:
        return [self.of(number) for number in range(1, self.count + 1)]


def name(file_name: str) -> Optional[Name]:
    """What a file's name says of it; None for a name of another form."""
    found = _NAME.match(file_name)
    if not found or not 1 <= int(found[2]) <= int(found[3]):
        return None
    return Name(found[1], int(found[2]), int(found[3]))


def check_part(file_name: str, header: Header, number: int, count: int, shown: str) -> None:
    """`gguf-split` unless header and name both say that this is part `number` of `count`."""
    if (header.split_part, header.split_count) != (number, count):
        what = f"part {header.split_part} of {header.split_count}" if header.split_count > 1 else "a whole model"
        raise errors.Problem(
            "gguf-split",
            f"{shown} should be part {number} of {count} of a split model, and its header says that it is {what}",
            hint="files of different models or versions lie there under one name: fetch all parts again from one place",
            file=shown,
        )
    said = name(file_name)
    if said is None or (said.number, said.count) != (number, count):
        own = f"-{number:05d}-of-{count:05d}.gguf"
        raise errors.Problem(
            "gguf-split",
            f"{shown} is part {number} of {count} of a split model, and its name should end in {own}",
            hint="give the parts the names under which they were published",
            file=shown,
        )


def not_first(said: Name, shown: str) -> errors.Problem:
    return errors.Problem(
        "gguf-split",
        f"{shown} is part {said.number} of {said.count} of a split model, and a split model is named by its first part",
        hint=f"write {said.of(1)}; the other parts are found beside it",
        file=shown,
    )


def missing(said: Name, names: Iterable[str], shown: str) -> errors.Problem:
    """Every missing part at once; the server would name one after the other."""
    numbers = [part.number for part in (name(one) for one in names) if part is not None]
    return errors.Problem(
        "gguf-split",
        f"{shown} is one of {said.count} parts, and these are missing beside it: {ranges(numbers)}",
        hint="fetch the missing parts and put them beside the others",
        file=shown,
        missing=",".join(str(number) for number in numbers),
    )


def ranges(parts: Sequence[int]) -> str:
    """[2, 3, 4, 7] -> '00002 to 00004, 00007': every part is named, a thousand of them too."""
    runs: List[List[int]] = []
    for part in parts:
        if runs and part == runs[-1][-1] + 1:
            runs[-1].append(part)
        else:
            runs.append([part])
    return ", ".join(f"{run[0]:05d} to {run[-1]:05d}" if len(run) > 2 else ", ".join(f"{part:05d}" for part in run) for run in runs)
