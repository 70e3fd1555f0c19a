"""What keeps a device busy is the same wherever it is counted: for plans, populations, segments and
in the linear model of `exact`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partition.planner import plan_solution
from partition.strategies.base import Problem, Solution
from partition.strategies.exact import Exact
from partition.strategies.segments import segments
from partition.timing import loads
from tests.partition.networks import chain, device_sets


@st.composite
def cut_chains(draw: st.DrawFn) -> tuple[Problem, list[int]]:
    """A chain in runs of layers, each on a device of its own, to which all layers are pinned."""
    devices = tuple(replace(device, host=None) for device in draw(device_sets(max_devices=3)))
    length = draw(st.integers(len(devices), 6))
    macs = draw(st.lists(st.sampled_from((1024, 65536, 1 << 20)), min_size=length, max_size=length))
    weights = draw(st.lists(st.sampled_from((0, 16, 4096)), min_size=length, max_size=length))
    inner = st.integers(1, length - 1) if length > 1 else st.nothing()
    count = len(devices) - 1
    cuts = sorted(draw(st.lists(inner, min_size=count, max_size=count, unique=True)))
    network = chain(*macs, elements=draw(st.sampled_from((16, 4096))), weights=weights)
    numbers = np.searchsorted(cuts, np.arange(length), side="right")
    pins = {
        layer.name: devices[number].name
        for layer, number in zip(network.layers, numbers, strict=True)
    }
    return Problem(network, devices, pins), [0, *cuts, length]


@given(cut_chains())
@settings(deadline=None, max_examples=20)
def test_plans_populations_segments_and_the_linear_model_agree(
    case: tuple[Problem, list[int]],
) -> None:
    problem, ends = case
    numbers = problem.numbers(problem.pins)
    costs = problem.costs.evaluate(numbers[None])
    expected = costs.busy_s[0]

    solution = Solution(problem.pins, "as pinned")
    plan = plan_solution(problem, solution, model_digest="", strategy="manual")
    load = loads(plan.devices, plan.phases, plan.channels)
    assert [load[d.name].busy_s for d in problem.devices] == pytest.approx(expected, rel=1e-9)

    priced = segments(problem)
    kind_of = {number: kind for kind, own in enumerate(priced.kinds) for number in own}
    found = [
        priced.busy_s[kind_of[number], ends[number], ends[number + 1]]
        for number in range(len(problem.devices))
    ]
    assert found == pytest.approx(expected, rel=1e-9)

    # All is pinned, so its bound is the period that it counts; had it counted more than this
    # assignment has, which it starts from, there would be no solution.
    bounded = Exact().solve(problem)
    assert bounded.gap is not None
    assert bounded.gap <= 1e-3
