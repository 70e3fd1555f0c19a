"""Pauses after failures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodes.core.pauses import pause_s


@given(st.integers(1, 10**12), st.floats(0.01, 10.0), st.floats(10.0, 1e6))
def test_a_pause_grows_to_its_bound_however_many_failures_there_are(
    failures: int, first_s: float, longest_s: float
) -> None:
    assert pause_s(1, first_s, longest_s) == first_s
    now_s, then_s = (pause_s(number, first_s, longest_s) for number in (failures, failures + 1))
    assert first_s <= now_s <= then_s <= longest_s
    assert then_s in (2 * now_s, longest_s)
