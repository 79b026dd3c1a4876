"""group_vars/ and host_vars/ beside an inventory: which files belong to a name, in Ansible's order, and what they hold.

Owns the choice of files; every file is read once. Knows nothing of precedence, groups' depth or what a variable means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from wattherd.inventory import document, names, tree

_EXTENSIONS = (".yml", ".yaml", ".json")  # Ansible's order: the first that exists is the only one that counts


@dataclass(frozen=True)
class Files:
    groups: Mapping[str, tree.Variables]
    hosts: Mapping[str, tree.Variables]
    warnings: tuple[str, ...]


def read(folder: Path, show: Callable[[Path], str], known: tree.Tree) -> Files:
    warnings: list[str] = []
    groups = _read(folder / "group_vars", known.groups, "group", show, warnings)
    hosts = _read(folder / "host_vars", known.hosts, "host", show, warnings)
    warnings += [
        f"{value.place}: ansible_group_priority counts only in an inventory file, as in Ansible; here it changes nothing"
        for found in groups.values()
        for value in found.get("ansible_group_priority", ())
    ]
    return Files(groups, hosts, tuple(warnings))


def _read(folder: Path, known: Collection[str], kind: str, show: Callable[[Path], str], warnings: list[str]) -> dict[str, tree.Variables]:
    if not folder.is_dir():
        return {}
    present: dict[str, list[Path]] = {}
    for item in sorted(folder.iterdir()):
        if not _is_ignored(item):
            present.setdefault(_name(item), []).append(item)
    found: dict[str, tree.Variables] = {}
    for name, items in present.items():
        chosen = min(items, key=_rank)
        if name not in known:
            hint = names.meant(name, known)
            warnings.append(f"{show(chosen)} belongs to no {kind} and is not used" + (f"; {hint}" if hint else ""))
            continue
        warnings += [f"{show(item)} is not used: {show(chosen)} comes first, as in Ansible" for item in items if item != chosen]
        found[name] = _variables(chosen, show)
    return found


def _is_ignored(item: Path) -> bool:
    return item.name.startswith(".") or item.name.endswith("~") or (item.is_file() and item.suffix in {".md", ".txt", ".bak", ".orig"})


def _name(item: Path) -> str:
    """host_vars/web1.lab is the host web1.lab; only the three known endings are cut off."""
    return item.name.removesuffix(item.suffix) if item.suffix in _EXTENSIONS and not item.is_dir() else item.name


def _rank(item: Path) -> int:
    return _EXTENSIONS.index(item.suffix) + 1 if item.suffix in _EXTENSIONS and not item.is_dir() else 0


def _variables(chosen: Path, show: Callable[[Path], str]) -> tree.Variables:
    collected: dict[str, list[document.Value]] = {}
    for file in _inside(chosen) if chosen.is_dir() else (chosen,):
        shown = show(file)
        node = document.compose(document.text(file, shown), shown)
        for name, value in document.variables(node, shown, "a variable file").items():
            collected.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in collected.items()}


def _inside(folder: Path) -> Iterator[Path]:
    for item in sorted(folder.iterdir()):
        if item.name.startswith(".") or item.name.endswith("~"):
            continue
        if item.is_dir():
            if not item.suffix:
                yield from _inside(item)
        elif not item.suffix or item.suffix in _EXTENSIONS:
            yield item
