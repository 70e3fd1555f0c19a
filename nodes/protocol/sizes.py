"""Parse sizes as users write them, in options and in `cluster.yaml`: `4GB` is 4·10⁹ bytes."""

from __future__ import annotations

import re

LONGEST_SHOWN = 100
"""Characters of a wrong value that an error message shows."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12} | {
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
}  # fmt: skip
NUMBER = r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)"
"""A number above zero as people write it, such as 2e9, 0.5 or .5."""

_SIZE = re.compile(rf"\s*{NUMBER}\s*((?:[kmgt]i?)?)b?\s*", re.IGNORECASE | re.ASCII)


def parse_bytes(value: object) -> int:
    """Return the bytes that a number or a text such as `4GB` (10⁹) or `512MiB` (2²⁰) means.

    Raises `ValueError` for anything else, with a clause to put after the key or option's name.
    """
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        size = float(match[1]) * _UNITS[match[2].lower()]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        size = float(value)
    else:
        raise ValueError(
            f"must be a size such as 4GB, 512MiB or a number of bytes, not {brief(value)}"
        )
    if not 1 <= size < 2**63:
        raise ValueError(f"must be a size of one byte or more, not {brief(value)}")
    return int(size)


def brief(value: object) -> str:
    """Return a wrong value as an error message shows it, at most `LONGEST_SHOWN` characters."""
    try:
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
    except RecursionError:
        return "something that is nested too deeply"
    return shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}…"
