"""Checks the machine's clock: is it plausible, and does something keep it right?

Nothing in a cluster is decided by the time of day, and keys do not expire. A wrong clock still
makes TLS certificates (of webhooks, brokers, package servers) look expired or not yet valid, and
log lines of several machines impossible to compare.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nodes.doctor.findings import Finding, Severity

_UNSYNCHRONISED = 0x40
"""STA_UNSYNC of adjtimex(2)."""

_WRITTEN_S = 1_767_225_600.0
"""The beginning of 2026, before this was written. Some systems date all files to 1970."""

_FUTURE_S = 20 * 365.25 * 86400
"""A clock this far behind the installation of this package is certainly wrong."""

_TOLERANCE_S = 86400.0
"""Files may come from a machine whose clock was a little ahead, or from another time zone."""

WHERE = "the clock"
SYNCHRONISE = "sudo timedatectl set-ntp true"


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The time of day, when this package was installed (both in seconds since 1970), and whether
    the kernel's clock is synchronised (None if the kernel does not tell)."""

    now_s: float
    installed_s: float
    is_synchronised: bool | None


def read_clock() -> ClockReading:
    """Read the clock, the age of this package's files, and the kernel's state of the clock."""
    installed_s = max(Path(__file__).stat().st_mtime, _WRITTEN_S)
    return ClockReading(time.time(), installed_s, _is_synchronised())


def _is_synchronised() -> bool | None:
    """Return whether the kernel says that its clock is disciplined (adjtimex(2))."""
    timex = (ctypes.c_long * 64)()  # struct timex begins with modes, which 0 leaves unchanged
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if libc.adjtimex(timex) < 0:
            return None
    except AttributeError:
        return None
    status = ctypes.cast(timex, ctypes.POINTER(ctypes.c_int))
    # modes, padding, then four longs (offset, freq, maxerror, esterror), then status
    return not status[5 * ctypes.sizeof(ctypes.c_long) // ctypes.sizeof(ctypes.c_int)] & (
        _UNSYNCHRONISED
    )


def judge_clock(reading: ClockReading) -> Iterator[Finding]:
    """Yield what is wrong with the clock."""
    behind_s = reading.installed_s - reading.now_s
    if behind_s > _TOLERANCE_S or -behind_s > _FUTURE_S:
        direction = "before" if behind_s > 0 else "after"
        yield Finding(
            Severity.ERROR,
            WHERE,
            f"It is wrong: the time that it shows is {abs(behind_s) / 86400:.0f} days "
            f"{direction} this package was installed.",
            SYNCHRONISE,
        )
        return
    if reading.is_synchronised is False:
        yield Finding(
            Severity.WARNING,
            WHERE,
            "Nothing synchronises it, so it drifts away from the clocks of the other machines.",
            SYNCHRONISE,
        )


def check_clock(_: object = None) -> Iterable[Finding]:
    """Check this machine's clock."""
    return judge_clock(read_clock())
