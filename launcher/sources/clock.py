"""Tells when frames are taken, for people and for other programs; no decision rests on it."""

from __future__ import annotations

import time


def now_s() -> float:
    """Return seconds of Unix time."""
    return time.time()


def as_local_time(unix_s: float) -> str:
    """Return Unix time as the clock on this machine's wall shows it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))
