"""useradd, usermod, groupadd and userdel over the passwd and group files of a root: the few options that Wattherd gives."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tests.node import strict


class Accounts:
    """Plans the four programs on a bench. Options that the real ones do not know end the test."""

    def __init__(self, bench: strict.Bench, passwd: str, group: str) -> None:
        bench.put("/etc/passwd", passwd)
        bench.put("/etc/group", group)
        self._root = Path(bench.machine.root)
        for name, effect in (("useradd", self.useradd), ("usermod", self.usermod), ("groupadd", self.groupadd), ("userdel", self.userdel)):
            bench.runner.plan(name, strict.REST, effect=effect, times=None)

    def useradd(self, argv: Sequence[str]) -> None:
        asked = _options(argv)
        if asked.user_group:
            self.groupadd(["groupadd", asked.name])
        gid = self._gid(asked.gid or asked.name)
        uid = 990 if asked.system else 1001
        self._append("passwd", f"{asked.name}:x:{uid}:{gid}:{asked.comment or ''}:{asked.home_dir}:{asked.shell}")
        self._join(asked.name, asked.groups)

    def usermod(self, argv: Sequence[str]) -> None:
        asked = _options(argv)
        rows = []
        for line in self._lines("passwd"):
            row = line.split(":")
            if row[0] == asked.name:
                row[4:] = [asked.comment or row[4], asked.home or row[5], asked.shell or row[6]]
            rows.append(":".join(row))
        self._write("passwd", rows)
        assert asked.append or not asked.groups, "usermod --groups without --append takes every other group away"
        self._join(asked.name, asked.groups)

    def groupadd(self, argv: Sequence[str]) -> None:
        name = _options(argv).name
        assert name not in [line.split(":")[0] for line in self._lines("group")]
        self._append("group", f"{name}:x:{900 + len(self._lines('group'))}:")

    def userdel(self, argv: Sequence[str]) -> None:
        name = _options(argv).name
        for table in ("passwd", "group"):
            self._write(table, [line for line in self._lines(table) if line.split(":")[0] != name])

    def _gid(self, group: str) -> str:
        return next(line.split(":")[2] for line in self._lines("group") if line.split(":")[0] == group)

    def _join(self, user: str, groups: str | None) -> None:
        wanted = groups.split(",") if groups else []
        rows = [line.split(":") for line in self._lines("group")]
        for row in rows:
            members = [name for name in row[3].split(",") if name]
            row[3] = ",".join([*members, user] if row[0] in wanted and user not in members else members)
        self._write("group", [":".join(row) for row in rows])

    def _lines(self, table: str) -> list[str]:
        return (self._root / "etc" / table).read_text().splitlines()

    def _append(self, table: str, line: str) -> None:
        self._write(table, [*self._lines(table), line])

    def _write(self, table: str, lines: list[str]) -> None:
        (self._root / "etc" / table).write_text("".join(f"{line}\n" for line in lines))


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=argv[0], allow_abbrev=False, exit_on_error=False)
    for flag in ("--system", "--no-create-home", "--create-home", "--user-group", "--append"):
        parser.add_argument(flag, action="store_true")
    for option in ("--shell", "--home-dir", "--home", "--comment", "--gid", "--groups"):
        parser.add_argument(option)
    parser.add_argument("name")
    return parser.parse_args(list(argv[1:]))
