"""The four cases of a secret."""

from __future__ import annotations

from tests.node import strict
from wattherd.resources import secret

PATH = "/etc/demo.env"
BODY = b'DEMO_KEY="a-word-that-opens-nothing"\n'
SALT = "titan"


def wanted(bench: strict.Bench) -> secret.Secret:
    digest = secret.digest_of(BODY, SALT, PATH)
    bench.put(f"{secret.KEPT}/{digest}", BODY, mode=0o600)
    return secret.Secret(PATH, digest=digest, salt=SALT, owner=bench.me, group=bench.my_group)


def absent(bench: strict.Bench) -> secret.Secret:
    bench.folder("/etc")
    return wanted(bench)


def drifted(bench: strict.Bench) -> secret.Secret:
    bench.put(PATH, BODY + b"# more\n", mode=0o644)
    return wanted(bench)


def settled(bench: strict.Bench) -> secret.Secret:
    bench.put(PATH, BODY, mode=0o600)
    return wanted(bench)


def checked(bench: strict.Bench) -> secret.Secret:
    return drifted(bench)
