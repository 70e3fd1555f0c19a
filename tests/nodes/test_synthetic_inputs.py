"""Inputs to warm up with: a network must compute with them as with real ones."""

from __future__ import annotations

import numpy as np
import pytest

from nodes.executors.synthetic_inputs import synthetic_input


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_are_positive_small_and_all_over(dtype: str) -> None:
    made = synthetic_input(dtype, (3, 50, 40))
    assert made.shape == (3, 50, 40)
    assert made.dtype == dtype
    assert made.min() > 0
    assert made.max() <= 1
    tenths, _ = np.histogram(made, 10, (0, 1))
    assert tenths.min() > 0.09 * made.size


@pytest.mark.parametrize("shape", [(), (0, 3), (1,)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    assert synthetic_input("float32", shape).shape == shape


def test_whole_numbers_are_zero() -> None:
    assert not synthetic_input("int64", (2, 3)).any()
