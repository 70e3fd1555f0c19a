"""Sizes as people read them."""

from __future__ import annotations

import pytest

from launcher.quantities import duration, megabytes, operations


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.2, "1 s"),
        (59, "59 s"),
        (60, "1 min"),
        (160, "2 min 40 s"),
        (3 * 3600 + 59, "3 h"),
        (3 * 3600 + 301, "3 h 5 min"),
        (2 * 86400 + 3600, "2 d 1 h"),
    ],
)
def test_a_duration_has_two_units_at_most_and_is_rounded_up(seconds: float, text: str) -> None:
    assert duration(seconds) == text
