"""NaN and infinity are found wherever they are, and large numbers are not taken for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from nodes.protocol.errors import NodeError
from nodes.protocol.payload import check_finite, is_finite

floating = st.sampled_from([np.float16, np.float32, np.float64])
any_floats = floating.flatmap(lambda kind: arrays.arrays(kind, arrays.array_shapes(min_side=0)))


@given(any_floats)
def test_a_tensor_is_finite_exactly_if_all_its_values_are(array: np.ndarray) -> None:
    assert is_finite(array) is bool(np.isfinite(array).all())


def test_a_sum_that_overflows_is_no_infinity() -> None:
    assert is_finite(np.full(8, 3e38, np.float32))
    assert is_finite(np.array([np.iinfo(np.int64).max]))
    assert not is_finite(np.array([np.inf, -np.inf], np.float32))


def test_it_is_whose_inputs_are_finite_who_is_to_blame() -> None:
    fine, bad = np.ones(2), np.array([1.0, np.nan])
    check_finite([fine, bad], {"y": bad}, frozenset())
    check_finite([fine], {"y": bad, "z": fine}, frozenset({"y"}))
    with pytest.raises(NodeError, match="'z' holds NaN"):
        check_finite([fine], {"y": bad, "z": bad}, frozenset({"y"}))
