"""The number of random graphs for a property: some in every run, many in `make properties`."""

from __future__ import annotations

from hypothesis import settings

MORE = 10


def examples(number: int) -> settings:
    """Decorate a property that holds for this many graphs, ten times as many in a search."""
    return settings(max_examples=number * (1 if settings.default.derandomize else MORE))
