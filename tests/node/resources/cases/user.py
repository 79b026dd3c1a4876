"""The four cases of a user."""

from __future__ import annotations

from tests.node import strict
from tests.node.resources import accounts
from wattherd.resources import user

PASSWD = "root:x:0:0:root:/root:/bin/bash\nllamas:x:1000:1000::/home/llamas:/bin/sh\n"
GROUP = "root:x:0:\nvideo:x:44:llamas\nrender:x:104:\nllamas:x:1000:\naudio:x:29:\n"


def wanted() -> user.User:
    return user.User("llama", groups=("video", "render"), comment="llama.cpp server")


def absent(bench: strict.Bench) -> user.User:
    accounts.Accounts(bench, PASSWD, GROUP)
    return wanted()


def drifted(bench: strict.Bench) -> user.User:
    """Made by hand: another shell, one group lacking, and a group of its own that is nobody's business."""
    accounts.Accounts(
        bench,
        PASSWD + "llama:x:991:1000::/home/llama:/bin/bash\n",
        GROUP.replace("video:x:44:llamas", "video:x:44:llamas,llama").replace("audio:x:29:", "audio:x:29:llama"),
    )
    return wanted()


def settled(bench: strict.Bench) -> user.User:
    bench.put("/etc/passwd", PASSWD + "llama:x:991:991:llama.cpp server:/nonexistent:/usr/sbin/nologin\n")
    bench.put(
        "/etc/group",
        GROUP.replace("video:x:44:llamas", "video:x:44:llamas,llama").replace("render:x:104:", "render:x:104:llama") + "llama:x:991:\n",
    )
    return wanted()


def checked(bench: strict.Bench) -> user.User:
    return drifted(bench)
