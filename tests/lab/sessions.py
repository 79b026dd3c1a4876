"""A verb's own way to a node of the lab, for what no command does by itself: the access of a test's project, and the host in it."""

from __future__ import annotations

import pytest

from tests.lab import cli
from wattherd import inventory
from wattherd.verbs import access, project


def reach(made: cli.Project) -> tuple[access.Access, inventory.Host]:
    """Of a project with one host, whose keys are trusted there already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WATTHERD_STATE", made.environment["WATTHERD_STATE"])
        here = project.Project(cli.ROOT)
        selection = project.Selection(hosts="all", inventory=str(made.folder / "inventory"))
        (host,) = project.hosts_of(here.load(selection), selection, writes=True)
        found = access.Access(project=here)
        assert found.doors is not None  # made while the environment names this project's keys
        return found, host
