"""From an inventory host to an open session: local or SSH, with the password that was asked once."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wattherd import errors, fleet, inventory
from wattherd.link import boot, connect, session
from wattherd.verbs import project, watch


@dataclass(frozen=True, kw_only=True)
class Access:
    """What every verb that talks to hosts needs. `password` is sudo's; it lives here and in sudo's stdin only."""

    project: project.Project
    password: str | None = field(default=None, repr=False)
    forks: int = 32

    @functools.cached_property
    def doors(self) -> connect.Doors:
        return connect.Doors(self.project.known_hosts)

    def foresee(self, loaded: inventory.Inventory, names: Sequence[str]) -> None:
        """Find out beside the caller how these hosts are reached. Tells nothing: `open` does."""
        with contextlib.suppress(errors.Problem):
            self.doors.foresee([(loaded.connection(name), name) for name in names])

    def open(self, host: inventory.Host) -> session.Session:
        """Raises a Problem of the link's room."""
        link = self.doors.open(host.connection, host.name)
        # The plain name leaves the choice to the boot stage, which also finds a newer one beside an old python3.
        python = None if host.connection.python == "python3" else host.connection.python
        login = boot.Login(become=host.connection.become, password=self.password, python=python)
        try:
            return session.Session.open(link, login)
        except BaseException:
            link.close()
            raise


@dataclass
class Sessions:
    """The open sessions of one command: one per host, held to the end, since every verb of the command uses the same one."""

    access: Access
    live: dict[str, session.Session] = field(default_factory=dict)
    lost: dict[str, fleet.Done[session.Session]] = field(default_factory=dict)

    def open_all(
        self,
        hosts: tuple[inventory.Host, ...],
        seen: watch.Watch,
        then: Callable[[inventory.Host, session.Session], None] = lambda *_: None,
    ) -> None:
        """`then` is done in a host's own thread as soon as it is open, while others still connect."""
        by_name = {host.name: host for host in hosts}
        seen.phase("connect", list(by_name))

        def tell(name: str, done: fleet.Done[session.Session]) -> None:
            if done.problem is not None:
                seen.done(name, fleet.Count().outcome(done.problem))

        def enter(name: str) -> session.Session:
            opened = self.access.open(by_name[name])
            try:
                then(by_name[name], opened)
            except BaseException:
                opened.close()
                raise
            return opened

        opened = fleet.each(list(by_name), enter, forks=self.access.forks, on_done=tell)
        for name, done in opened.items():
            if done.value is None:
                self.lost[name] = done
            else:
                self.live[name] = done.value

    def close(self) -> None:
        """Every session, whatever another one's end throws."""
        fleet.each(list(self.live), lambda name: self.live[name].close(), forks=self.access.forks)
