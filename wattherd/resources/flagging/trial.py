"""The binary that will get the options: found or unpacked for the while, asked for its help, and made to parse the whole command line.

A binary is run without rights, without a configuration file's help, and never to serve: `--version` is always the last word.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple

from wattherd import errors, store
from wattherd import machine as machines
from wattherd.resources import scratch, tree
from wattherd.resources.flagging import manual, policy, renames, translate
from wattherd.resources.flagging.renames import Words

HELP = f"{scratch.CACHE}/help"
#: Read silently by every llama.cpp program. The unit hides it; a trial cannot.
STRAY = "/etc/llama.cpp/config.ini"
ACCOUNT = "llama"
_NOBODY = (65534, 65534)
_KEPT_HELPS = 12
_LIMIT_S = 30.0
_FEWEST_OPTIONS = 20
_LINE_LIMIT = 300
_NOTES_LIMIT = 10
#: Nothing but the command line may decide here (HOME and XDG_CONFIG_HOME are where configuration files would be looked for).
_BARE = {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}
#: Stems, never whole sentences: those changed from build to build.
_ARGUMENT = re.compile(r'error while handling argument "([^"]+)":\s*(?:error:\s*)?(.*)')
_VARIABLE = re.compile(r'error while handling environment variable "([^"]+)":\s*(?:error:\s*)?(.*)')
_UNKNOWN = re.compile(r"invalid argument: (\S+)")
_STAMP = re.compile(r"^[\d.]+ (?:W )?")
_NO_GPU = re.compile(r"no usable GPU|without support for GPU offload")
_GPU_LAYERS = frozenset(renames.names("--n-gpu-layers"))
_WARNING = re.compile(r"DEPRECATED|^(?:[\d.]+ )?W |\bwarn(?:ing)?:", re.IGNORECASE)


@contextlib.contextmanager
def binary(machine: machines.Machine, path: str, build: str) -> Iterator[str]:
    """The binary at `path`, or the same one unpacked from the store for as long as this lasts; empty when the node has it in neither."""
    if machine.exists(path):
        yield path
        return
    found = store.built(machine, build) if build else None
    if found is None:
        yield ""
        return
    before = os.umask(0o022)  # the account without rights must get in
    try:
        with scratch.folder(machine, "trial", build) as folder:
            tree.unpack(machine, store.blob(found.digest), folder)
            yield f"{folder}/{path.partition(f'/{build}/')[2] or f'bin/{posixpath.basename(path)}'}"
    finally:
        os.umask(before)


def help_of(machine: machines.Machine, program: str, build: str) -> manual.Manual:
    """What this binary knows; from the record of an earlier look where there is one. `program` may be empty: only the record then."""
    key = build or (machine.digest(program) if program else "")
    held = machine.text(f"{HELP}/{key}.txt") if key else ""
    known = manual.parse(held)
    if len(known.entries) >= _FEWEST_OPTIONS or not program:
        return known
    done = _run(machine, [program, "--help"], {})
    text = done.text[: manual.LIMIT_BYTES]
    known = manual.parse(text)
    if done.code != 0 or len(known.entries) < _FEWEST_OPTIONS or known.find("--model") is None:
        raise errors.Problem(
            "release-does-not-run",
            f"{program} --help ended with {done.code} and named {len(known.entries)} options: {_first_line(done.words)}",
            hint="run it by hand on this node; a binary that was built for another machine says so there",
        )
    _remember(machine, f"{HELP}/{key}.txt", text)
    return known


def _remember(machine: machines.Machine, path: str, text: str) -> None:
    """In Wattherd's own program cache alone, and never a reason to fail."""
    if not machine.is_dir(scratch.CACHE):
        return
    with contextlib.suppress(OSError, errors.Problem):
        machine.make_dirs(HELP)
        machine.write(path, text.encode("utf-8", "replace"))
        found = [(one.st_mtime_ns, name) for name in machine.names(HELP) for one in [machine.lstat(f"{HELP}/{name}")] if one is not None]
        for _, name in sorted(found)[:-_KEPT_HELPS]:
            machine.unlink(f"{HELP}/{name}")


def parse(
    machine: machines.Machine, label: str, program: str, words: Sequence[Words], environment: Mapping[str, str], known: manual.Manual
) -> Tuple[str, ...]:
    """Let the binary parse it all. Its first complaint becomes the Problem; its warnings are given back."""
    argv = [program, *(word for option in words for word in option), "--version"]
    try:
        done = _run(machine, argv, environment)
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        longest = max((word for option in words for word in option), key=len)
        hint = f"the longest word has {len(longest):,} characters and begins with {_plain(longest)[:60]}"
        raise errors.Problem("flag-value", f"{label}: its options are longer than Linux lets a program have", hint=hint) from None
    if done.code != 0 or not re.search(r"version\b", done.words):
        raise _complaint(machine, label, done, words, known)
    said = [_plain(_STAMP.sub("", line)) for line in done.words.splitlines() if _WARNING.search(line)]
    _check_gpu(machine, label, said, words)
    return tuple(dict.fromkeys(said))[:_NOTES_LIMIT]


def _check_gpu(machine: machines.Machine, label: str, said: Sequence[str], words: Sequence[Words]) -> None:
    """Layers that were meant for a GPU and are not there make a server that is healthy and slow. `auto` asks for nothing."""
    meant = [one for one in words if one[0] in _GPU_LAYERS and one[1:] not in (("auto",), ("0",), ("-1",))]
    blind = next((line for line in said if _NO_GPU.search(line)), "")
    if meant and blind and _account(machine) is not None:
        raise errors.Problem(
            "flag-value",
            f"{label}: {' '.join(meant[0])} wants a GPU, and this llama-server finds none: {blind}",
            hint="nvidia-smi tells whether driver and card are well; --list-devices of the binary what it was built for; or gpu_layers: 0",
        )


def _run(machine: machines.Machine, argv: Sequence[str], environment: Mapping[str, str]) -> machines.Result:
    command = [*_without_rights(machine), machine.path(argv[0]), *argv[1:]]
    return machine.run(command, timeout_s=_LIMIT_S, environment={**environment, **_BARE})


def _without_rights(machine: machines.Machine) -> List[str]:
    """As the account that will serve, or as nobody while that is not there yet: a file that only root can read is found out now."""
    if os.geteuid() != 0:
        return []
    user, group = _account(machine) or _NOBODY
    # With the account's own groups, since on some machines a card belongs to one (video, render).
    groups = "--init-groups" if _account(machine) else "--clear-groups"
    return ["setpriv", f"--reuid={user}", f"--regid={group}", groups, "--no-new-privs", "--"]


def _account(machine: machines.Machine) -> Optional[Tuple[int, int]]:
    with contextlib.suppress(errors.Problem):
        return machine.owner_ids(ACCOUNT, ACCOUNT)
    return None


def _complaint(
    machine: machines.Machine, label: str, done: machines.Result, words: Sequence[Words], known: manual.Manual
) -> errors.Problem:
    for line in done.words.splitlines():
        argument, variable, unknown = _ARGUMENT.search(line), _VARIABLE.search(line), _UNKNOWN.search(line)
        if argument:
            return _wrong_value(label, argument.group(1), argument.group(2), words, known)
        if variable:
            reason = _plain(variable.group(2)) or "it cannot be used"
            return errors.Problem(
                "flag-value", f"{label}: environment variable {_plain(variable.group(1))}: {reason}", hint=_stray(machine)
            )
        if unknown:
            near = translate.nearest(unknown.group(1), known)
            hint = f"did you mean {near}?" if near else "llama-server --help on the node lists what it knows"
            return errors.Problem("flag-unknown", f"{label}: this llama-server has no option {_plain(unknown.group(1))}", hint=hint)
    ended = f"ended with {done.code}" if done.code != 0 else "did not get as far as --version"
    return errors.Problem(
        "flag-value",
        f"{label}: llama-server {ended} on its options: {_first_line(done.words)}",
        hint=_stray(machine) or "the node is as it was; run the server's command line with --version at its end by hand",
    )


def _wrong_value(label: str, name: str, reason: str, words: Sequence[Words], known: manual.Manual) -> errors.Problem:
    given = next((option for option in words if manual.plain(option[0]) == name), (name,))
    entry = known.find(name)
    hint = policy.remedy(name) or (f"{name} takes {manual.shown(entry)}" if entry is not None else "")
    key = policy.key_of(name)
    said = f"{' '.join(given)}" + (f" (serve: {key})" if key else "")
    return errors.Problem("flag-value", f"{label}: {said}: {_plain(reason) or 'this llama-server refuses it'}", hint=hint, flag=name)


def _stray(machine: machines.Machine) -> str:
    return f"{STRAY} is read too, and may be what it complains about: move it away" if machine.exists(STRAY) else ""


def _first_line(text: str) -> str:
    """The line that tells most: the first that speaks of an error, else the last."""
    lines = [_plain(line) for line in text.splitlines() if line.strip()]
    return next((line for line in lines if re.search(r"(?i)\berror\b| E |fail|cannot|not found", line)), (lines or ["it said nothing"])[-1])


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text).strip()[:_LINE_LIMIT]
