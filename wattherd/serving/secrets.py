"""Secrets of one run on the controller: each read once, held where nothing prints them, and made into the files that nodes get.

Knows what an API key may look like and what a file of each form holds; where a secret is read is `sources.secrets`' business.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NoReturn

from wattherd import errors
from wattherd.resources import secret

if TYPE_CHECKING:
    from wattherd.inventory import settings

#: Below the first a key is refused, below the second it is warned about: guessing it over the network is then cheap.
SHORTEST_KEY, SHORT_KEY = 8, 20
KEY = secret.API_KEY
_PEM_BEGIN = "-----BEGIN "


class Hidden:
    """A value that nothing prints, pickles or formats. Only `reveal` gives it, and only what sends or compares it calls that.

    `open_to_all`: every account of this controller can read it at its place, or write it.
    """

    __slots__ = ("_value", "open_to_all", "place")

    def __init__(self, value: bytes, place: str, *, open_to_all: bool = False) -> None:
        self._value = value
        self.place = place
        self.open_to_all = open_to_all

    def reveal(self) -> bytes:
        return self._value

    def __repr__(self) -> str:
        return f"<secret from {self.place}>"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret does not travel")


class Book:
    """The secrets of one run. `read` is asked once for each distinct place, however many hosts name it, and never before one does."""

    def __init__(self, read: Callable[[settings.Secret], Hidden]) -> None:
        self._read = read
        self._lock = threading.RLock()
        self._values: dict[Hashable, Hidden] = {}
        self._made: dict[tuple[Hashable, ...], str] = {}
        self._contents: dict[str, Hidden] = {}
        self.warnings: dict[str, None] = {}

    def value(self, place: settings.Secret) -> Hidden:
        with self._lock:
            if place not in self._values:
                self._values[place] = self._read(place)
            return self._values[place]

    def private(self, place: settings.Secret) -> Hidden:
        """One that nobody else should see: a key, other than a certificate."""
        held = self.value(place)
        if held.open_to_all:
            self.warnings[f"{held.place} holds a secret and is open to every account of this machine: chmod 600 {held.place}"] = None
        return held

    def api_key(self, place: settings.Secret) -> Hidden:
        """The key, or several joined by commas, as llama-server wants them."""
        held = self.private(place)
        keys = keys_in(held)
        short = min(len(key) for key in keys)
        if short < SHORT_KEY:
            self.warnings[f"the API key from {held.place} is only {short} characters long: 32 random ones are better"] = None
        return Hidden(",".join(keys).encode(), held.place)

    def token(self, place: settings.Secret) -> Hidden:
        """A secret of one line, such as an access token."""
        held = self.value(place)
        lines = _text(held).splitlines()
        if len([line for line in lines if line.strip()]) > 1 or any(line != line.strip() for line in lines):
            raise errors.Problem("secret-invalid", f"the secret from {held.place} is not one line without blanks around it")
        word = "".join(lines)
        if not word:
            raise _empty(held)
        return Hidden(word.encode(), held.place)

    def digest(self, host: str, path: str, place: settings.Secret, form: str, certificate: settings.Secret | None = None) -> str:
        """What names this secret in this host's manifest. The content is remembered under it, for `content`.

        A `certificate` comes before the key in the same file: HAProxy wants the two together.
        """
        with self._lock:
            key = (host, path, place, form, certificate)
            if key not in self._made:
                body = self._body(place, form)
                if certificate is not None:
                    body = Hidden(self._body(certificate, form).reveal() + body.reveal(), body.place)
                self._made[key] = secret.digest_of(body.reveal(), host, path)
                self._contents[self._made[key]] = body
            return self._made[key]

    def content(self, digest: str) -> Hidden | None:
        return self._contents.get(digest)

    def _body(self, place: settings.Secret, form: str) -> Hidden:
        if form == "raw":
            return self.value(place)
        if form == "pem":
            return _pem(self.value(place))
        held = self.api_key(place) if form == KEY else self.token(place)
        return Hidden(secret.environment_line(form, held.reveal().decode()).encode(), held.place)


def keys_in(held: Hidden) -> list[str]:
    """The API keys in a secret, one a line; comments and blank lines are none. Without any, llama-server would ask nobody for a key."""
    lines = [line for line in _text(held).splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise _empty(held)
    for number, key in enumerate(lines, 1):
        wrong = _wrong_with(key)
        if wrong:
            which = f"API key {number} of {len(lines)}" if len(lines) > 1 else "the API key"
            raise errors.Problem("secret-invalid", f"{which} from {held.place} {wrong}", hint="openssl rand -hex 24 makes a good one")
    return list(dict.fromkeys(lines))


def _wrong_with(key: str) -> str:
    if key != key.strip():
        return "has blanks at its end or beginning: no client could ever send it"
    if "," in key:
        return "has a comma in it, which llama-server takes for the end of a key"
    if not (key.isascii() and key.isprintable()) or " " in key:
        return "has blanks or characters in it that no HTTP header carries"
    return f"is only {len(key)} characters long: at least {SHORTEST_KEY} are needed" if len(key) < SHORTEST_KEY else ""


def _pem(held: Hidden) -> Hidden:
    text = _text(held).strip()
    if not text:
        raise _empty(held)
    if not text.startswith(_PEM_BEGIN) or "-----END " not in text:
        raise errors.Problem("secret-invalid", f"the secret from {held.place} is no PEM text (-----BEGIN … -----END …)")
    return Hidden(f"{text}\n".encode(), held.place)


def _text(held: Hidden) -> str:
    try:
        return held.reveal().decode("utf-8")
    except UnicodeDecodeError:
        raise errors.Problem("secret-invalid", f"the secret from {held.place} is not text (UTF-8)") from None


def _empty(held: Hidden) -> errors.Problem:
    return errors.Problem(
        "secret-empty",
        f"the secret from {held.place} is empty, or holds only comments and blank lines",
        hint="an empty API key would mean no authentication at all, so nothing was touched",
    )
