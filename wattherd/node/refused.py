"""What ended a whole verb without being one of our own problems: the operating system that refuses, or a defect."""

from __future__ import annotations

import os

from wattherd import errors
from wattherd import machine as machines


def problem(machine: machines.Machine, error: Exception) -> errors.Problem:
    """Call it where `error` was caught. `permission`, with what to do, for what this user may not do; else `internal`, with the trace."""
    if isinstance(error, PermissionError):
        return _permission(machine, error)
    import traceback

    trace = traceback.format_exc(limit=8)
    return errors.Problem("internal", f"{type(error).__name__}: {error}", hint="please report this", trace=trace[-1500:])


def _permission(machine: machines.Machine, error: PermissionError) -> errors.Problem:
    """A user who is not root, or a root that may not everything (in a container, or an immutable file)."""
    words = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if os.geteuid() == 0:
        hint = "not even root may do it here: a container without that right, or an immutable file (lsattr)"
        return errors.Problem("permission", words, hint=hint)
    user = machine.owner_name(os.geteuid())
    hint = "ansible_become: true in the inventory lets it become root there (by sudo); or log in as root"
    return errors.Problem("permission", f"{words}: this takes root, and the session there runs as {user}", hint=hint)
