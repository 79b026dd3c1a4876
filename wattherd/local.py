"""A connection to a unix socket of this node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket


def connect(path: str, limit_s: float) -> socket.socket:
    """Raises OSError when nobody listens there. By way of its folder: a socket's address holds 107 bytes, a path may be longer."""
    import socket

    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(limit_s)
        link.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    except BaseException:
        link.close()
        raise
    finally:
        os.close(folder)
    return link
