"""The inventory as Wattherd reads it: hosts by group, one host's variables, or one variable's candidates."""

from __future__ import annotations

from wattherd import inventory, units
from wattherd.console import screen
from wattherd.verbs import project


def show(out: screen.Screen, here: project.Project, selection: project.Selection, explain: str | None) -> int:
    loaded = here.load(selection)
    for words in loaded.warnings:
        out.warn(words)
    hosts = project.hosts_of(loaded, selection, writes=False)
    if explain is not None:
        return _explain(out, loaded, [host.name for host in hosts], explain)
    if out.as_json:
        out.document({"hosts": {host.name: {"groups": list(host.groups), "roles": list(host.settings.roles)} for host in hosts}})
    rows = [
        (
            host.name,
            host.connection.host,
            host.connection.user or "",
            " ".join(host.groups),
            " ".join(host.settings.roles),
            " ".join(one.name for one in host.settings.serve),
        )
        for host in hosts
    ]
    out.table(("host", "address", "user", "groups", "roles", "serves"), rows)
    out.say(units.plural(len(hosts), "host"), "dim")
    if out.verbose:
        for path in loaded.skipped:
            out.say(f"not a host source, so not read as one: {path}", "dim")
    return 0


def _explain(out: screen.Screen, loaded: inventory.Inventory, hosts: list[str], variable: str) -> int:
    """Every value a variable could have had, weakest first; the last one won."""
    found = {host: loaded.explain(host, variable) for host in hosts}
    if out.as_json:
        rows = {
            host: {
                "reason": one.reason,
                "candidates": [{"value": each.value, "place": each.place, "layer": each.layer} for each in one.candidates],
            }
            for host, one in found.items()
        }
        out.document({"variable": variable, "hosts": rows})
    for host, one in found.items():
        out.say(f"{host}  {variable}: {one.reason}", "bold")
        out.table(
            ("", "value", "from", "layer"),
            [("->" if each is one.winner else "", str(each.value), each.place, each.layer) for each in one.candidates],
        )
    return 0
