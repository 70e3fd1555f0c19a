"""Tells when frames are taken, for people and for other programs; no decision rests on it."""

from __future__ import annotations

import time


def now_s() -> float:
    """Return seconds of Unix time."""
    return time.time()
