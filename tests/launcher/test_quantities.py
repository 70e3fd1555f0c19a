"""Sizes as people read them."""

from __future__ import annotations

import pytest

from launcher.quantities import megabytes, operations


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


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (282_000, "282 k"), (349e6, "349 M"), (4.09e9, "4.09 G"), (999.9e6, "1 G")],
)
def test_operations_have_a_prefix_and_three_digits_at_most(count: float, text: str) -> None:
    assert operations(count) == text
