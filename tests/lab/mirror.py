"""Where packages come from: the machine's own apt configuration, put into words that mmdebstrap understands.

No registry address stands here: sources, proxy and keyrings are those with which this machine installs its own packages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.lab import commands

_FORMAT = "$(REPO_URI)|$(RELEASE)|$(CODENAME)|$(COMPONENT)|$(SOURCESENTRY)"
# Settings about how to reach a mirror; the others (caches, hooks, languages) are this machine's own affair.
_REACHING = re.compile(r"Acquire::(https?|ftp|Check-[\w-]+|Retries|ForceIPv[46]|Max-ValidTime|AllowInsecure\w*)(::|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """One release of one mirror: `deb [signed-by=keyring] uri release components`."""

    uri: str
    release: str
    components: tuple[str, ...]
    keyring: str

    def line(self) -> str:
        options = f" [signed-by={self.keyring}]" if self.keyring else ""
        return f"deb{options} {self.uri} {self.release} {' '.join(self.components)}"


def lines(suite: str) -> tuple[str, ...]:
    """Source lines for a Debian suite, from the mirrors of this machine's own suite; empty where it is no Debian."""
    own = _codename()
    if not own:
        return ()
    sources = _sources(own)
    if not sources:
        commands.run(["apt-get", "update", "-q"], timeout_s=600)
        sources = _sources(own)
    wanted = (suite, f"{suite}-updates", f"{suite}-security")
    renamed = (Source(s.uri, s.release.replace(own, suite, 1), s.components, s.keyring) for s in sources)
    return tuple(source.line() for source in renamed if source.release in wanted)


def settings() -> str:
    """The machine's apt settings that reach mirrors (proxy, certificates, validity), as text for an apt.conf."""
    dump = commands.run(["apt-config", "dump", "Acquire"]).stdout
    kept = (line for line in dump.splitlines() if _REACHING.match(line.split(" ", 1)[0]) and not line.endswith(' "";'))
    return "".join(f"{line}\n" for line in kept)


def _sources(codename: str) -> tuple[Source, ...]:
    listed = commands.run(["apt-get", "indextargets", "--format", _FORMAT, "Created-By: Packages"]).stdout
    found: dict[tuple[str, str, str], list[str]] = {}
    for line in listed.splitlines():
        uri, release, named, component, entry = line.split("|", 4)
        # A source may say "stable": the release file knows the name. Security calls itself bookworm-security in both.
        release = release if release.startswith(codename) else named
        if release.startswith(codename):
            components = found.setdefault((uri, release, _keyring(entry)), [])
            components.extend([component] if component not in components else [])
    return tuple(Source(uri, release, tuple(components), keyring) for (uri, release, keyring), components in found.items())


def _keyring(entry: str) -> str:
    """The keyring that a source names for itself ("file:number"); empty where it relies on those that apt trusts for everything."""
    name, _, number = entry.rpartition(":")
    path = Path(name)
    if not (path.is_file() and number.isdigit()):
        return ""
    text = path.read_text(errors="replace")
    if path.suffix == ".list":
        lines_ = text.splitlines()
        named = re.search(r"signed-by=(/[^\s\]]+)", lines_[int(number) - 1]) if int(number) <= len(lines_) else None
        return named[1] if named else ""
    stanzas = [stanza for stanza in re.split(r"\n\s*\n", text) if stanza.strip()]
    named = (
        re.search(r"^Signed-By:[ \t]*(/\S+)", stanzas[int(number) - 1], re.MULTILINE | re.IGNORECASE)
        if int(number) <= len(stanzas)
        else None
    )
    return named[1] if named else ""


def _codename() -> str:
    pairs = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return pairs.get("VERSION_CODENAME", "").strip('"') if pairs.get("ID", "").strip('"') == "debian" else ""
