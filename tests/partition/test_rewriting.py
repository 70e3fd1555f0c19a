"""What remains of a problem after a rewrite: pins, and measured seconds in proportion to work."""

from __future__ import annotations

import numpy as np
import pytest

from cnn.rewrite.rewrites import Bands, Slices
from partition.errors import PartitionError
from partition.strategies.base import Problem, apply_rewrites
from tests.partition.rewriting_contract import chain_model, residual_model
from tests.partition.strategy_contract import equal


def test_measured_seconds_of_a_layer_are_divided_among_its_slices() -> None:
    model = residual_model(1)
    rng = np.random.default_rng(0)
    measured = rng.uniform(1, 2, (len(model.network.layers), 2))
    problem = Problem(model.network, equal(2), model=model, layer_s=measured)
    # A convolution, which works by multiply-accumulates, and a rectifier, which has none.
    rewritten = apply_rewrites(problem, model, [Slices("l0", (4, 12)), Slices("l1", (8, 8))])
    assert rewritten.layer_s is not None
    names = [layer.name for layer in rewritten.network.layers]
    rows = dict(zip(names, rewritten.layer_s, strict=True))
    assert rows["l0[1/2]"] == pytest.approx(measured[0] / 4)
    assert rows["l0[2/2]"] == pytest.approx(measured[0] * 3 / 4)
    assert rows["l1[1/2]"] == pytest.approx(measured[1] / 2)
    assert rows["l2"] == pytest.approx(measured[2])
    assert rewritten.layer_s.sum(axis=0) == pytest.approx(measured.sum(axis=0))


def test_what_a_halo_computes_twice_is_counted_twice() -> None:
    model = chain_model(2, is_heavy=True)
    measured = np.ones((2, 1))
    problem = Problem(model.network, equal(1), model=model, layer_s=measured)
    rewritten = apply_rewrites(problem, model, [Bands(("l0", "l1"), (14, 14))])
    assert rewritten.layer_s is not None
    # Each band of l0 makes 15 of 28 rows.
    assert rewritten.layer_s.sum() == pytest.approx(2 * 15 / 28 + 1)


def test_estimates_are_made_again() -> None:
    model = residual_model(1)
    problem = Problem(model.network, equal(2), model=model)
    assert apply_rewrites(problem, model, [Slices("l0", (4, 12))]).layer_s is None


def test_pins_stay_with_the_layers_that_are_left() -> None:
    model = residual_model(1)
    problem = Problem(model.network, equal(2), {"l2": "d1"}, model=model)
    assert apply_rewrites(problem, model, [Slices("l0", (4, 12))]).pins == {"l2": "d1"}


def test_a_rewrite_that_cannot_be_carried_out_ends_in_a_sentence() -> None:
    model = residual_model(1)
    problem = Problem(model.network, equal(2), model=model)
    with pytest.raises(PartitionError, match="'l6'"):
        apply_rewrites(problem, model, [Slices("l6", (4, 12))])
