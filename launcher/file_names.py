"""Names of files that are made from names of tensors, which are anybody's text."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST = 100
"""Characters; with what is put around them, a name stays below the 255 bytes of file systems."""


def plain(name: str) -> str:
    """`name` as a part of a file's name: letters, digits, _ and - only."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:LONGEST]


def distinct(names: Iterable[str]) -> list[str]:
    """The same names, those that repeat an earlier one followed by a dot and their index.

    Case makes no difference, as on some file systems.
    """
    found: list[str] = []
    taken: set[str] = set()
    for index, name in enumerate(names):
        found.append(f"{name}.{index}" if name.lower() in taken else name)
        taken.add(name.lower())
    return found
