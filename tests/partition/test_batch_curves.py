"""Times of firings of several frames, from a few measured numbers of frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cnn
from partition.devices import Device
from partition.measured.batch_curves import seconds_at
from partition.measured.profiles import (
    BatchTimes,
    NodeProfile,
    Profile,
    SubnetTime,
    fused_phases,
    measured_part,
)
from partition.planner import make_plan
from tests.launcher.models import DIGITS

points = st.dictionaries(st.integers(1, 64), st.floats(1e-6, 10.0), min_size=1, max_size=6)
lines = st.tuples(st.floats(0, 1), st.floats(1e-6, 1))


@given(points)
def test_measured_numbers_of_frames_have_their_measured_seconds(known: dict[int, float]) -> None:
    for frames, seconds in known.items():
        assert seconds_at([*known.items()], frames) == pytest.approx(seconds)


@given(lines, st.sets(st.integers(1, 64), min_size=2), st.integers(1, 200))
def test_a_fixed_part_and_a_part_per_frame_are_found_from_any_two_points(
    line: tuple[float, float], measured: set[int], frames: int
) -> None:
    fixed_s, frame_s = line
    known = [(number, fixed_s + frame_s * number) for number in measured]
    if frames >= min(measured):
        assert seconds_at(known, frames) == pytest.approx(fixed_s + frame_s * frames, rel=1e-6)


def test_single_frames_alone_tell_of_no_gain() -> None:
    assert seconds_at([(1, 0.5)], 8) == 4.0


def test_beyond_points_that_fall_seconds_are_proportional() -> None:
    assert seconds_at([(2, 0.5), (4, 0.4)], 8) == pytest.approx(0.8)


WHOLE = SubnetTime(("one", "two"), ("x",), ("z",), "", 3.0)
FUSED = SubnetTime(("one",), ("x",), ("y",), "", 1.0)
SLICED = SubnetTime(("one/0",), ("x",), ("y",), "rewrites", 0.5)
OF_FOUR = SubnetTime(("one", "two"), ("x",), ("z",), "", 9.0)
NODE = NodeProfile(
    {"one": 1.0, "two": 2.0},
    (WHOLE, FUSED, SLICED),
    batches=((2, 6.0), (8, 24.0)),
    batched=(BatchTimes(4, {"one": 2.0, "two": 8.0}, (OF_FOUR,)),),
)


def test_layers_follow_their_own_curves() -> None:
    assert NODE.in_batches(4).layer_s == {"one": 2.0, "two": 8.0}
    assert NODE.in_batches(8).layer_s == pytest.approx({"one": 2 + 4 / 3, "two": 16.0})
    assert NODE.in_batches(1) is NODE


def test_a_subnet_measured_in_this_batch_is_measured_and_others_are_derived() -> None:
    found = {subnet.key: subnet for subnet in NODE.in_batches(4).subnets}
    assert found[WHOLE.key].seconds == 9.0
    assert not found[WHOLE.key].is_derived
    assert found[FUSED.key].seconds == pytest.approx(2.0)
    assert found[FUSED.key].is_derived
    assert SLICED.key not in found
    between = {subnet.key: subnet for subnet in NODE.in_batches(2).subnets}
    assert between[WHOLE.key].seconds == pytest.approx(5.0)
    assert between[WHOLE.key].is_derived


def test_frames_of_a_copy_become_batches_that_take_as_long_as_their_layers() -> None:
    (few, few_s), (many, many_s) = NODE.in_batches(4).batches
    assert (few, many) == (2, 8)
    assert (few_s, many_s) == pytest.approx((20.0, 80.0))


def test_times_of_one_batch_are_added_to_those_that_are_known() -> None:
    later = SubnetTime(FUSED.layers, FUSED.inputs, FUSED.outputs, "", 1.5)
    found = NODE.with_batched(BatchTimes(4, {}, (later,))).with_batched(BatchTimes(2, {"one": 1.2}))
    assert found.batched is not None
    assert [each.frames for each in found.batched] == [2, 4]
    assert found.batched[1].layer_s == {"one": 2.0, "two": 8.0}
    assert found.batched[1].subnets[-1] == later


def test_a_plan_in_batches_counts_only_what_was_measured_in_them() -> None:
    model = cnn.read(DIGITS / "digits.onnx").in_batches(4)
    network = model.network
    assignment = {layer.name: "a" for layer in network.layers}
    plan = make_plan(network, "", (Device("a"),), assignment, strategy="", explanation="")
    (phase,) = plan.phases
    whole = SubnetTime(phase.layers, phase.inputs, phase.outputs, "", 1.0)
    single = NodeProfile(dict.fromkeys(network.layer, 1.0), (whole,))
    measured = single.with_batched(BatchTimes(4, {}, (whole,)))
    assert fused_phases(plan, Profile({"a": measured}).in_batches(4)) == {phase.name: 1.0}
    of_singles = Profile({"a": single}).in_batches(4)
    assert fused_phases(plan, of_singles) == {}
    assert measured_part(plan, of_singles) == (
        "times of 1 phase: 1 computed from other measurements of the node"
    )
