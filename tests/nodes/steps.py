"""Something happens between any two calls of the file system: an eviction, a power cut.

A step is a call of a C function that reaches the file system, as `sys.setprofile` sees them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

_MODULES = {"posix", "fcntl", "_io", "io"}


def before_step(number: int, happens: Callable[[], None], scenario: Callable[[], object]) -> bool:
    """Run `scenario` in this thread, and have something happen once, before its step `number`.

    Whether the scenario had so many steps. What it raises is raised.
    """
    left = number

    def profile(_frame: FrameType, event: str, function: object) -> None:
        nonlocal left
        if event == "c_call" and getattr(function, "__module__", None) in _MODULES:
            left -= 1
            if left == 0:
                happens()

    sys.setprofile(profile)
    try:
        scenario()
    finally:
        sys.setprofile(None)
    return left <= 0
