"""Say what a user can do about an address at which this machine cannot listen."""

from __future__ import annotations

import errno


def bind_hint(number: int | None) -> str:
    """Return what a user can do about an address that cannot be listened on, by `errno`."""
    match number:
        case errno.EADDRINUSE:
            return "; is another agent running there?"
        case errno.ENODEV | errno.EADDRNOTAVAIL:
            return "; give an IP address of this machine, or 0.0.0.0 for all that it has"
        case _:
            return ""
