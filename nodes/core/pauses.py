"""Says how long to wait after failures in a row: twice as long each time, up to a bound."""

from __future__ import annotations

MOST_DOUBLINGS = 60
"""More would change nothing, and a number of failures without a bound would overflow: a board that
refuses for a night is asked a thousand times."""


def pause_s(failures: int, first_s: float, longest_s: float) -> float:
    """Return the seconds to wait after that many failures in a row, of which there is at least one.

    >>> [pause_s(failures, 0.5, 3.0) for failures in (1, 2, 3, 4, 10_000)]
    [0.5, 1.0, 2.0, 3.0, 3.0]
    """
    return min(longest_s, first_s * 2.0 ** min(failures - 1, MOST_DOUBLINGS))
