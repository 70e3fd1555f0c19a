"""Gains that hold on seeds that a study has not seen, and gains that were luck."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga.sweep.spaces import SPACES
from ga.sweep.study import Case, Sweep
from ga.sweep.unseen import SEEDS, UnseenGain, compare
from partition.strategies.base import Problem
from tests.partition.networks import residual
from tests.partition.strategy_contract import equal

SMALL = Problem(residual(2), equal(3))
POOR = {"vertical-paper": {"individuals": 20, "mutation": 0.001, "budget": 0.01}}
GOOD = {"vertical-paper": {"individuals": 400, "mutation": 0.2, "budget": 0.05}}


def sweep() -> Sweep:
    cases = (Case(SMALL, "digest"),)
    return Sweep(SPACES["vertical-paper"], cases, "", "study", repeats=2, budget=0.01)


def compared(values: list[float]) -> UnseenGain:
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return UnseenGain(("cost",), (float(np.mean(values)),), (float(error),), len(values))


def test_the_seeds_are_none_of_the_study_and_none_of_an_earlier_comparison() -> None:
    studied = {problem.seed for problem in sweep().searches()}
    first = {problem.seed for problem in sweep().searches(2 + SEEDS * 10, SEEDS)}
    second = {problem.seed for problem in sweep().searches(2 + SEEDS * 11, SEEDS)}
    assert len(first) == len(second) == SEEDS
    assert not studied & first
    assert not first & second


def test_better_parameters_hold_and_worse_ones_do_not() -> None:
    heard: list[tuple[int, int]] = []
    better = compare(sweep(), POOR, GOOD, 3, lambda done, total: heard.append((done, total)))
    assert better.holds
    assert better.means[0] < 1
    assert heard[-1] == (2 * SEEDS, 2 * SEEDS)
    assert not compare(sweep(), GOOD, POOR, 3, lambda _done, _total: None).holds


def test_the_same_parameters_are_not_a_gain() -> None:
    same = compare(sweep(), POOR, POOR, 3, lambda _done, _total: None)
    assert (same.means, same.errors, same.holds) == ((1.0,), (0.0,), False)


def test_period_and_memory_must_both_be_no_worse() -> None:
    two = UnseenGain(("period", "memory"), (0.9, 1.0), (0.01, 0.0), 5)
    assert two.holds
    assert not replace(two, means=(0.9, 1.01)).holds
    assert not replace(two, errors=(0.06, 0.0)).holds
    assert str(two) == "period -10.00% ± 1.00% and memory +0.00% ± 0.00%"


@given(st.lists(st.floats(0.5, 2.0), min_size=SEEDS, max_size=SEEDS))
def test_of_two_that_are_exchanged_at_most_one_gain_holds(ratios: list[float]) -> None:
    assert not (compared(ratios).holds and compared([1 / each for each in ratios]).holds)


@pytest.mark.parametrize("scale", [0.01, 0.1])
def test_luck_seldom_passes(scale: float) -> None:
    rng = np.random.default_rng(0)
    passed = [compared((1 + scale * rng.normal(size=SEEDS)).tolist()).holds for _ in range(2000)]
    assert np.mean(passed) < 0.08


def test_two_objectives_are_compared_each() -> None:
    found = compare(replace(sweep(), two=True), POOR, GOOD, 0, lambda _done, _total: None)
    assert found.value_names == ("period", "memory")
    assert len(found.means) == len(found.errors) == 2
