"""The options of one served instance, in the spelling of this node's own binary, in the file that its unit starts from.

Everything is checked on that binary before anything is touched: its help, the translation, and a dry run of the whole command line.
Knows how options become files; not which options a good server has.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import stat
from typing import ClassVar, Dict, Iterator, List, Mapping, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass, field
from wattherd.resources import base, place, scratch

_MODE = 0o644
#: A router's presets lie beside its flags under the same name.
_SUFFIX, _PRESET_SUFFIX = ".flags", ".ini"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?\Z")
#: What the binary warned of when it last tried the options, for those who ask afterwards.
NOTES = f"{scratch.CACHE}/flags"
Words = Tuple[str, ...]


@dataclass(frozen=True)
class Flags(base.Resource):
    """`options` are typed ones in today's spelling, `extra` an operator's raw words; `path` becomes an EnvironmentFile= of the unit.

    `build` is the fingerprint of the release that `binary` belongs to. `sections` are a router's models, written to `preset_path`, each
    with raw words of its own in `section_extra`. `demands`: model -> architecture, pre-tokenizer, tensor types that the binary must know.
    """

    TYPE: ClassVar[str] = "flags"

    name: str
    path: str
    binary: str
    build: str = ""
    options: Tuple[Tuple[str, ...], ...] = ()
    extra: Tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    demands: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    preset_path: str = ""
    sections: Mapping[str, Tuple[Tuple[str, ...], ...]] = field(default_factory=dict)
    section_extra: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        paths = [self.path, self.binary, *([self.preset_path] if self.preset_path else [])]
        if not _NAME.match(self.name) or any(place.plain_path(self.id, path) != path for path in paths):
            raise errors.Problem("manifest-invalid", f"{self.id}: the name is no slug, or a path ends in '/'")
        if bool(self.sections) != bool(self.preset_path) or set(self.section_extra) - set(self.sections):
            raise errors.Problem("manifest-invalid", f"{self.id}: sections and their file belong together")
        if any(len(words) < 2 for words in self.demands.values()):
            raise errors.Problem(
                "manifest-invalid", f"{self.id}: a demand names an architecture and a pre-tokenizer, if only as empty words"
            )
        if not all(option and all(option) for option in [*self.options, *(one for many in self.sections.values() for one in many)]):
            raise errors.Problem("manifest-invalid", f"{self.id}: an option without a name, or with an empty value")
        if self.sections:
            from wattherd.resources.flagging import files

            files.lint(self.id, self.sections)

    @property
    def id(self) -> str:
        return f"flags:{self.name}"

    def wanted(self) -> base.State:
        return {"asked": self._asked(), "text": "as written", "mode": f"{_MODE:04o}"}

    def _asked(self) -> str:
        """A digest of everything that is asked for; which words come of it only the node's binary can tell."""
        from wattherd.wire import fields

        return hashlib.sha256(json.dumps(fields.plain(self), sort_keys=True).encode()).hexdigest()

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        found = machine.lstat(self.path)
        if found is None:
            return None
        if not stat.S_ISREG(found.st_mode) or found.st_size > place.TEXT_LIMIT_BYTES:
            return {"kind": place.kind(found)}
        from wattherd.resources.flagging import files

        preset = machine.text(self.preset_path) if self.preset_path else ""
        asked, whole = files.read(machine.text(self.path), preset)
        whole = whole and not self._left_over(machine)
        return {"asked": asked, "text": "as written" if whole else "changed since", "mode": machine.mode_text(found)}

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        """The whole check, on this node's binary; where that is not there yet, what can be checked without it."""
        if not base.delta(self.wanted(), state):
            return
        for path in self._paths():
            place.check_folders(machine, self.id, path)
            found = machine.lstat(path)
            if found is not None and not stat.S_ISREG(found.st_mode):
                raise place.conflict(self.id, path, found, "a file")
        with self._program(machine) as program:
            if not program:
                self._check_without(machine)
            told = (
                self._render(machine, program, before=True)[2] if program else ("its options are checked when its build is on this node",)
            )
        self._keep_notes(machine, told)

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:
        if set(delta) == {"mode"}:
            machine.chmod(self.path, _MODE)
            return
        with self._program(machine) as program:
            if not program:
                raise errors.Problem(
                    "artifact-missing",
                    f"{self.id}: {self.binary} is not on this node, so the options cannot be checked",
                    hint="the role llama_cpp stands before the server's in roles:, and brings it",
                )
            text, preset, notes = self._render(machine, program, before=False)
        for words in notes:
            tell(words)
        self._keep_notes(machine, notes)
        # The preset first: the file that carries both digests is true only when both are there.
        for path, body in ((self.preset_path, preset), (self.path, text)):
            if path:
                place.need_folder(machine, self.id, path)
                place.sweep(machine, path)
                machine.write(path, body.encode(), mode=_MODE)
        left = self._left_over(machine)
        if left:
            machine.unlink(left)

    def takes(self) -> Tuple[str, ...]:
        return self._paths()

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        for path in filter(None, (*self._paths(), self._notes_path, self._left_over(machine))):
            found = machine.lstat(path)
            if found is not None and not stat.S_ISREG(found.st_mode):
                tell(f"{path} is {place.kind(found)} by now: left as it is")
            elif found is not None:
                machine.unlink(path)

    def texts(self, machine: machines.Machine) -> Tuple[str, str]:
        old = "\n".join(machine.text(path) for path in self._paths())
        with self._program(machine) as program:
            if not program or len(old) > place.TEXT_LIMIT_BYTES:
                return "", ""
            try:
                text, preset, _ = self._written(machine, program)
            except errors.Problem:
                return "", ""  # a refusal is the preflight's to tell
        return old, "\n".join([text, *([preset] if preset else [])])

    def notes(self, machine: machines.Machine) -> Tuple[str, ...]:
        """What an operator should hear before the next upgrade, and what could not be checked yet."""
        from wattherd.resources.flagging import trial

        told: List[str] = []
        with contextlib.suppress(ValueError):
            loaded = json.loads(machine.text(self._notes_path) or "[]")
            told += [words for words in loaded if isinstance(words, str)] if isinstance(loaded, list) else []
        if machine.exists(trial.STRAY):
            told.append(f"{trial.STRAY} is there; the unit hides it from the server, and other llama.cpp programs of this node obey it")
        return tuple(f"{self.id}: {words}" for words in told)

    # -- the way there

    def _left_over(self, machine: machines.Machine) -> str:
        """The presets of the router that this server was before; empty where there are none of ours."""
        path = f"{self.path[: -len(_SUFFIX)]}{_PRESET_SUFFIX}"
        found = machine.lstat(path) if not self.preset_path and self.path.endswith(_SUFFIX) else None
        if found is None or not stat.S_ISREG(found.st_mode) or found.st_size > place.TEXT_LIMIT_BYTES:
            return ""
        return path if machine.text(path).startswith(f"# {self._title}") else ""

    @property
    def _title(self) -> str:
        return f"Wattherd's options of {self.name}"

    def _paths(self) -> Tuple[str, ...]:
        return tuple(path for path in (self.path, self.preset_path) if path)

    @property
    def _notes_path(self) -> str:
        return f"{NOTES}/{self.name}.json"

    @contextlib.contextmanager
    def _program(self, machine: machines.Machine) -> Iterator[str]:
        from wattherd.resources.flagging import trial

        with trial.binary(machine, self.binary, self.build) as program:
            yield program

    def _render(self, machine: machines.Machine, program: str, *, before: bool) -> Tuple[str, str, Tuple[str, ...]]:
        """(environment file, preset file, warnings), after the binary has parsed everything. `before`: files of this run may be to come."""
        from wattherd.gguf import demand
        from wattherd.resources import knowledge
        from wattherd.resources.flagging import files, trial

        known = trial.help_of(machine, program, self.build)
        for model, (architecture, pre_tokenizer, *types) in self.demands.items():
            knowledge.check(machine, program, demand.Demand(architecture, pre_tokenizer, tuple(types)), model)
        text, preset, spoken = self._written(machine, program)
        notes: List[str] = []
        for label, words in spoken.items():
            tried = [one for one in words if one[0] not in files.PRESET_ONLY and not (before and _to_come(machine, one))]
            notes += trial.parse(machine, label, program, tried, self.environment, known)
        return text, preset, tuple(dict.fromkeys(notes))

    def _written(self, machine: machines.Machine, program: str) -> Tuple[str, str, Dict[str, Tuple[Words, ...]]]:
        from wattherd.resources.flagging import files, policy, translate, trial

        known = trial.help_of(machine, program, self.build)
        for name, value in self.environment.items():
            policy.check_words(self.id, (value,))
            policy.check_environment(self.id, name, value, known)
        spoken: Dict[str, Tuple[Words, ...]] = {self.id: translate.translate(self.id, self.options, self.extra, known)}
        sections: Dict[str, Tuple[Words, ...]] = {}
        for name, options in self.sections.items():
            label = f"{self.id} [{name}]"
            own = tuple(one for one in options if one[0] in files.PRESET_ONLY)
            rest = tuple(one for one in options if one[0] not in files.PRESET_ONLY)
            sections[name] = (*translate.translate(label, rest, self.section_extra.get(name, ()), known), *own)
            spoken[label] = sections[name]
        title = self._title + (f" for {self.build}" if self.build else "")
        preset = files.preset_text(title, sections, known) if sections else ""
        return files.environment_text(title, self._asked(), spoken[self.id], self.environment, preset), preset, spoken

    def _check_without(self, machine: machines.Machine) -> None:
        """An earlier binary of this build may have been asked before; else only what no build gets is found out now."""
        from wattherd.resources.flagging import manual, policy, translate, trial

        known = trial.help_of(machine, "", self.build)
        if known.entries:
            translate.translate(self.id, self.options, self.extra, known)
        for word in self.extra:
            if manual.is_option(word):
                policy.check_extra(self.id, (re.split(r"[=\s]", word)[0],))

    def _keep_notes(self, machine: machines.Machine, notes: Tuple[str, ...]) -> None:
        """In the program cache alone, where there is one."""
        if machine.is_dir(scratch.CACHE):
            machine.make_dirs(NOTES)
            machine.write(self._notes_path, json.dumps(notes).encode())


def _to_come(machine: machines.Machine, words: Words) -> bool:
    """A file that is not there may be one that this very run writes: whether it is, the check right before the start tells."""
    return len(words) == 2 and words[1].startswith("/") and not machine.exists(words[1])
