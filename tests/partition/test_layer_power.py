"""Measured watts of layers in place of a device's mean, in plans and in the cost model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cnn
from cnn.rewrite.rewrites import Slices
from launcher.plan.profile.power import MOST_PIECES, power_pieces
from partition.devices import Device
from partition.planner import make_plan, plan_solution
from partition.prediction.timing import device_energies_j, energy_j
from partition.pricing.layer_power import LayerWatts
from partition.strategies.base import Problem, Solution, apply_rewrites
from tests.launcher.models import DIGITS

MODEL = cnn.read(DIGITS / "digits.onnx")
NETWORK = MODEL.network
DEVICES = (Device("a", busy_w=8.0, idle_w=2.0), Device("b", busy_w=6.0, idle_w=1.0))
LAYERS = [layer.name for layer in NETWORK.layers]
SECONDS = np.full((len(LAYERS), 2), 1e-3)


def problem(layer_w: LayerWatts) -> Problem:
    return Problem(NETWORK, DEVICES, model=MODEL, layer_s=SECONDS, layer_w=layer_w)


@given(st.lists(st.booleans(), min_size=len(LAYERS), max_size=len(LAYERS)), st.floats(1.0, 30.0))
@settings(max_examples=25)
def test_a_second_of_a_layer_takes_its_own_watts_in_search_and_plan_alike(
    on_b: list[bool], watts: float
) -> None:
    plain, measured = problem({}), problem({"a": dict.fromkeys(LAYERS[:5], watts)})
    numbers = np.array(on_b, dtype=np.intp)
    surplus_j = 1e-3 * (watts - 8.0) * sum(not number for number in on_b[:5])
    searched = [each.costs.evaluate(numbers[None, :]).energy_j[0] for each in (plain, measured)]
    assert searched[1] - searched[0] == pytest.approx(surplus_j, abs=1e-9)
    solution = Solution(plain.assignment(numbers), "")
    planned = [energy_j(plan_solution(each, solution, "")) for each in (plain, measured)]
    assert planned[1] - planned[0] == pytest.approx(surplus_j, rel=0.05, abs=1e-6)


def test_watts_equal_to_the_devices_mean_change_nothing() -> None:
    where = dict.fromkeys(LAYERS, "a")
    plan = make_plan(
        NETWORK, "", DEVICES, where, strategy="", explanation="", layer_s=SECONDS,
        layer_w={"a": dict.fromkeys(LAYERS, 8.0)},
    )  # fmt: skip
    assert [phase.busy_w for phase in plan.phases] == [8.0]
    without = replace(plan, phases=tuple(replace(phase, busy_w=None) for phase in plan.phases))
    assert device_energies_j(plan, 1.0) == pytest.approx(device_energies_j(without, 1.0))


def test_the_parts_of_a_layer_have_its_watts() -> None:
    name = "logits"  # it has ten channels
    whole = problem({"a": {name: 20.0}})
    split = apply_rewrites(whole, MODEL, [Slices(name, (6, 4))])
    everything = np.zeros((1, len(split.network.layers)), dtype=np.intp)
    parts = [layer.name for layer in split.network.layers if layer.part_of == name]
    assert len(parts) >= 2
    none = replace(split, layer_w={})
    gained = split.costs.evaluate(everything).energy_j - none.costs.evaluate(everything).energy_j
    assert gained[0] == pytest.approx(1e-3 * 12.0, rel=0.01)


def test_runs_of_layers_take_about_as_long_and_have_every_layer_once() -> None:
    seconds = dict.fromkeys(LAYERS, 1e-3)
    pieces = power_pieces(NETWORK, seconds)
    assert len(pieces) == MOST_PIECES
    assert [name for piece in pieces for name in piece] == LAYERS
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1
    assert power_pieces(NETWORK, dict.fromkeys(LAYERS, 0.0)) == [tuple(LAYERS)]
