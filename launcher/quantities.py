"""Formats sizes, times and shares for people; bounds of the numbers that they write."""

from __future__ import annotations

from math import ceil

MOST_FRAMES, MOST_SEED = 1_000_000_000, 2**32 - 1
"""The largest numbers of frames and of a seed that users may write."""


def megabytes(size: float) -> str:
    """Format a size in bytes, such as `12.3 MB` (10⁶ bytes), or `4.2 kB` for a small one."""
    if size >= 1_000_000 or size == 0:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e3:.1f} kB" if size >= 1000 else f"{size:.0f} B"


def gigabytes(size: float) -> str:
    """Format a size that may become large, such as `1.23 GB`."""
    return f"{size / 1e9:.2f} GB" if size >= 10**9 else megabytes(size)


def seconds(value: float) -> str:
    """Format a short time, such as `12.3 ms`."""
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def duration(value: float) -> str:
    """Format a long time by its two largest units, rounded up to seconds, such as `3 h 5 min`."""
    whole = max(0, ceil(value - 0.001))
    counts = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    largest = next((place for place, count in enumerate(counts) if count), 3)
    units = list(zip(counts, ("d", "h", "min", "s"), strict=True))[largest : largest + 2]
    return " ".join(f"{count} {unit}" for count, unit in units if count) or "0 s"


def operations(count: float) -> str:
    """Format a number of operations with a prefix, such as `4.09 G`, `126 G` or `280 k`."""
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            return f"{float(f'{count / size:.3g}'):g} {prefix}"
    return f"{count:.0f}"


def rate(value: float) -> str:
    """Format frames per second with three significant digits, such as `12.3` or `0.0123`."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def counted(number: int, what: str) -> str:
    """Return a number of things as text.

    >>> counted(1, "link"), counted(3, "link")
    ('1 link', '3 links')
    """
    return f"{number} {what}{'s' * (number != 1)}"
