"""States that share units between devices: seeds, moves and estimates."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cnn
from ga.hybrid.moves import Moves, seeds
from ga.hybrid.shares import Shares, Weights
from ga.hybrid.strategy import carry_out
from ga.hybrid.unit_rows import UnitRows, unit_rows
from ga.objectives import smooth_maximum
from partition.devices import Device
from partition.pricing.memory_budget import fair_memory
from partition.pricing.paper_equations import beta_bytes, layer_beta_bytes
from partition.strategies.base import Problem
from partition.strategies.units import find_units
from tests.partition.rewriting_contract import chain_model
from tests.partition.strategy_contract import MB, equal

DEVICES = 4


@cache
def squeezenet() -> tuple[cnn.Model, Problem, UnitRows]:
    model = cnn.read("onnx-wheel:squeezenet")
    pins = {model.network.layers[4].name: "d2"}
    problem = Problem(model.network, equal(DEVICES), pins, model=model)
    return model, problem, unit_rows(problem, model, find_units(problem, model, 1e6), 0.05)


def check(states: np.ndarray, rows: UnitRows) -> None:
    assert (states >= 0).all()
    assert (states.sum(axis=2) == rows.grains).all()
    for unit in np.flatnonzero(rows.pinned >= 0):
        assert (states[:, unit, rows.pinned[unit]] == rows.grains[unit]).all()


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 20))
@settings(max_examples=20)
def test_moves_lose_no_grain_and_leave_pins_alone(seed: int, steps: int) -> None:
    _, _, rows = squeezenet()
    rng = np.random.default_rng(seed)
    states = seeds(rng, rows, np.ones(DEVICES))
    check(states, rows)
    moves, before = Moves(rows), states.copy()
    moved = states
    for _ in range(steps):
        moved = moves(rng, moved)
    check(moved, rows)
    assert (states == before).all()
    for _ in range(10):  # a single step may move a grain to where it was
        moved = moves(rng, moved)
    assert (moved != before).any()


def test_a_necklace_gives_every_device_its_part_of_work_and_of_bytes() -> None:
    _, problem, _ = squeezenet()
    model = cnn.read("onnx-wheel:squeezenet")
    free = Problem(model.network, problem.devices, model=model)
    rows = unit_rows(free, model, find_units(free, model, None), 0.01)
    state = seeds(np.random.default_rng(0), rows, np.ones(DEVICES))[3]
    share = state / rows.grains[:, None]
    work = (share * rows.layer_s).sum(axis=0)
    bytes_ = share.T @ (rows.own_bytes + rows.shared_bytes)
    assert work.max() <= 1.1 * work.mean()
    assert bytes_.max() <= 1.1 * bytes_.mean()


def test_each_device_with_work_has_a_run() -> None:
    _, problem, rows = squeezenet()
    slow = replace(problem, devices=tuple(replace(d, run_s=2.0) for d in problem.devices))
    state = np.zeros((1, len(rows.units), DEVICES), dtype=np.int16)
    state[0, :, 0] = rows.grains
    state[0, ::2, 0], state[0, ::2, 2] = 0, rows.grains[::2]
    without, with_runs = (
        Shares(each, rows, np.ones(DEVICES)).evaluate(state).busy_s for each in (problem, slow)
    )
    assert (with_runs - without)[:, 0] == pytest.approx([2.0, 0.0, 2.0, 0.0])


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_whole_units_are_priced_exactly(seed: int) -> None:
    model, problem, rows = squeezenet()
    rng = np.random.default_rng(seed)
    numbers = np.where(rows.pinned >= 0, rows.pinned, rng.integers(0, DEVICES, len(rows.units)))
    state = np.zeros((len(rows.units), DEVICES), dtype=np.int16)
    state[np.arange(len(rows.units)), numbers] = rows.grains
    split = carry_out(problem, model, rows, state)
    assert split.rewrites == ()
    estimate = Shares(problem, rows, np.ones(DEVICES)).evaluate(state[None])
    costs = problem.costs.evaluate(split.numbers[None])
    beta = beta_bytes(layer_beta_bytes(problem.network), split.numbers[None], DEVICES)
    assert estimate.compute_s[:, 0] == pytest.approx(costs.compute_s[0])
    results = sum(problem.network.tensors[name].bytes for name in problem.network.outputs)
    assert estimate.wire_bytes[0] == pytest.approx(costs.wire_bytes[0] - results)
    held = beta[0] > 0
    assert (estimate.beta_bytes[held, 0] >= beta[0, held] * (1 - 1e-9)).all()


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_split_units_are_priced_nearly(seed: int) -> None:
    model, problem, rows = squeezenet()
    rng = np.random.default_rng(seed)
    state = seeds(rng, rows, np.ones(DEVICES))[rng.integers(0, 11)]
    split = carry_out(problem, model, rows, state)
    estimate = Shares(problem, rows, np.ones(DEVICES)).evaluate(state[None])
    costs = split.problem.costs.evaluate(split.numbers[None])
    assert estimate.compute_s[:, 0] == pytest.approx(costs.compute_s[0], rel=0.1, abs=1e-4)
    assert estimate.wire_bytes[0] == pytest.approx(costs.wire_bytes[0], rel=0.35)


def test_what_was_missed_is_learnt() -> None:
    model, problem, rows = squeezenet()
    state = seeds(np.random.default_rng(0), rows, np.ones(DEVICES))[5]
    split = carry_out(problem, model, rows, state)
    costs = split.problem.costs.evaluate(split.numbers[None])
    shares = Shares(problem, rows, np.ones(DEVICES))
    shares.calibrate(state, costs.compute_s[0], costs.busy_s[0], np.full(DEVICES, 7.0))
    learnt = shares.evaluate(state[None])
    assert learnt.compute_s[:, 0] == pytest.approx(costs.compute_s[0])
    assert learnt.busy_s[:, 0] == pytest.approx(costs.busy_s[0])
    assert learnt.beta_bytes[:, 0] == pytest.approx(7.0)


def test_a_state_over_a_memory_limit_is_worse() -> None:
    model = chain_model(3, channels=384)  # 16 MB of weights
    rates, worst = Weights(1.0, 0.0, 0.0, 0.0), []
    for memory in (None, 56 * MB):
        problem = Problem(model.network, equal(2, memory), model=model)
        rows = unit_rows(problem, model, find_units(problem, model, None), 0.05)
        state = np.zeros((1, len(rows.units), 2), dtype=np.int16)
        state[0, :, 0] = rows.grains
        worst.append(Shares(problem, rows, np.ones(2)).score(state, rates)[0])
    assert worst[1] > worst[0] + 1


def test_fair_is_what_memory_allows() -> None:
    assert fair_memory(equal(3)).tolist() == [1.0, 1.0, 1.0]
    small, large = fair_memory((Device("small", 100 * MB), Device("large", 500 * MB)))
    assert small < large
    assert small + large == pytest.approx(2.0)


@given(values=st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=10))
def test_a_smooth_maximum_is_nearly_the_maximum(values: list[float]) -> None:
    found = smooth_maximum(np.array(values)[:, None], 0)[0]
    assert 0.9 * max(values) <= found <= max(values) * (1 + 1e-9)
