"""Transfer times as a line through measurements."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partition.errors import PartitionError
from partition.pricing.linear_models import fit_transfer


@settings(max_examples=30)
@given(
    st.floats(0, 1e-3),
    st.floats(1e-11, 1e-6),
    st.lists(st.integers(1, 10**8), min_size=2, unique=True),
)
def test_measurements_on_a_line_give_the_line(
    per_message: float, per_byte: float, sizes: list[int]
) -> None:
    seconds = [per_message + size * per_byte for size in sizes]
    found = fit_transfer(sizes, seconds)
    assert [found.seconds(size) for size in sizes] == pytest.approx(seconds, rel=1e-6)
    assert found.rms_s <= 1e-6 * max(seconds)


def test_a_message_never_gives_time_back() -> None:
    found = fit_transfer([10**6, 2 * 10**6], [0.001, 0.004])
    assert found.s_per_message == 0
    assert found.s_per_byte == pytest.approx(1.8e-9)
    assert found.rms_s > 0


def test_what_says_nothing_about_a_byte_is_refused() -> None:
    with pytest.raises(PartitionError, match="two sizes"):
        fit_transfer([1000, 1000], [0.1, 0.2])
    with pytest.raises(PartitionError, match="no longer"):
        fit_transfer([1, 10**9], [0.5, 0.0])
