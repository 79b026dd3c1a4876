"""The percent tokens, home signs and variables that `ssh -G` leaves in paths and commands (ssh_config(5), TOKENS).

Owns their expansion for one machine. Knows nothing of how the settings were found.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wattherd import errors
from wattherd.link import noise

_IN_PATHS = "%dhiklLnpru"
_IN_COMMANDS = "%hnpr"
_TOKEN = re.compile(r"%(.?)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True)
class Tokens:
    """What each token stands for on the way to one machine."""

    values: Mapping[str, str]
    environ: Mapping[str, str]

    def path(self, text: str) -> Path:
        named = _VARIABLE.sub(lambda found: self.environ.get(found.group(1), ""), text)
        home = self.values["d"]
        at_home = home + named[1:] if named == "~" or named.startswith("~/") else named
        return Path(self._expand(at_home, _IN_PATHS)).expanduser()

    def command(self, text: str) -> str:
        return self._expand(text, _IN_COMMANDS)

    def agent(self, value: str) -> str:
        """The socket of the agent that IdentityAgent names; "" for none."""
        if value == "none":
            return ""
        if value in {"", "SSH_AUTH_SOCK"}:
            return self.environ.get("SSH_AUTH_SOCK", "")
        if value.startswith("$") and not value.startswith("${"):
            return self.environ.get(value[1:], "")
        return str(self.path(value))

    def _expand(self, text: str, allowed: str) -> str:
        def stands_for(found: re.Match[str]) -> str:
            letter = found.group(1)
            if not letter or letter not in allowed:
                raise errors.Problem(
                    "ssh-config", f"%{letter} in {noise.plain(text)!r} is not understood", hint=f"understood here: %{' %'.join(allowed)}"
                )
            return self.values[letter]

        return _TOKEN.sub(stands_for, text)


def for_machine(*, asked: str, hostname: str, port: str, user: str, alias: str, environ: Mapping[str, str]) -> Tokens:
    # As ssh does it: the home folder is the account's own, whatever HOME says.
    account = pwd.getpwuid(os.getuid())
    here = socket.gethostname()
    values = {"%": "%", "d": account.pw_dir, "i": str(os.getuid()), "u": account.pw_name}
    values |= {"l": here, "L": here.partition(".")[0]}
    values |= {"h": hostname, "k": alias or asked, "n": asked, "p": port, "r": user}
    return Tokens(values, environ)
