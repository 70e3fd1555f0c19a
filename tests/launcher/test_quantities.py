"""Sizes as people read them."""

from __future__ import annotations

import pytest

from launcher.quantities import megabytes


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0.0 MB"),
        (40, "40 B"),
        (888, "888 B"),
        (4200, "4.2 kB"),
        (151_000, "151.0 kB"),  # and not 0.2 MB, which exceeds a bound of 162 kB
        (12_340_000, "12.3 MB"),
    ],
)
def test_a_size_has_three_digits_that_count(size: int, text: str) -> None:
    assert megabytes(size) == text
