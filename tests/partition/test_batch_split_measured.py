"""Frames dealt out by measured batches, held to every other way to deal them out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from cnn.model import Model
from cnn.rewrite.rewrites import Copies, Rewrite, copy_name
from partition.devices import Device
from partition.errors import PartitionError
from partition.measured.profiles import NodeProfile, Profile
from partition.plan import Plan
from partition.planner import make_plan
from partition.pricing.linear_models import LinearTime
from partition.strategies import batch_split
from partition.strategies.base import Problem
from partition.strategies.batch_split import TOLERANCE, BatchSplit
from tests.partition.rewriting_contract import _made, _proto

NAMES = "abc"
CYCLE = 5
_NONE: tuple[Rewrite, ...] = ()
SIDE, CHANNELS = 512, 8
FRAME_BYTES = 4 * CHANNELS * SIDE * SIDE
"""Of the input and of the output: so much that what waits matters beside the engine."""


@cache
def model() -> Model:
    nodes = [helper.make_node("Conv", [f"t{i}", f"w{i}"], [f"t{i + 1}"], f"l{i}") for i in (0, 1)]
    weights: dict[str, Sequence[int]] = {f"w{i}": (CHANNELS, CHANNELS, 1, 1) for i in (0, 1)}
    return _made(_proto(nodes, weights, (1, CHANNELS, SIDE, SIDE), "t0", "t2"))


def problem(
    frame_s: Mapping[str, float], memory: Mapping[str, int | None] | None = None
) -> Problem:
    limits = memory or {}
    devices = tuple(Device(name, memory_bytes=limits.get(name)) for name in frame_s)
    copies = {name: LinearTime(0.01, seconds) for name, seconds in frame_s.items()}
    return Problem(model().network, devices, slack_frames=0, model=model(), copies=copies)


def planned(given: Problem, frames: Mapping[str, int]) -> Plan:
    """The plan that deals so many frames of a cycle to each device; raises if it does not fit."""
    counts = {name: count for name, count in frames.items() if count}
    layers = [layer.name for layer in given.network.layers]
    if len(counts) == 1:
        network, rewrites = given.network, _NONE
        assignment = {layer: name for name in counts for layer in layers}
    else:
        rewrites = (Copies(tuple(counts.values())),)
        network = model().rewritten(rewrites).network
        assignment = {
            copy_name(layer, number): name
            for number, name in enumerate(counts, start=1)
            for layer in layers
        }
    return make_plan(
        network, "", given.devices, assignment, strategy="", explanation="", slack_frames=0,
        rewrites=rewrites,
    )  # fmt: skip


def dealt(given: Problem) -> dict[str, int]:
    solution = BatchSplit().solve(given)
    used = [d.name for d in given.devices if d.name in set(solution.assignment.values())]
    counts = solution.rewrites[0].frames if solution.rewrites else (1,)  # type: ignore[union-attr]
    return dict(zip(used, counts, strict=True))


def period_s(given: Problem, frames: Mapping[str, int]) -> float:
    return max(n * given.copies[name].frame_s for name, n in frames.items()) / sum(frames.values())


def fits(given: Problem, frames: Mapping[str, int]) -> bool:
    try:
        planned(given, frames)
    except PartitionError:
        return False
    return True


@pytest.mark.slow
@settings(max_examples=20)
@given(st.data())
def test_no_other_deal_that_fits_is_faster(data: st.DataObject) -> None:
    speeds = {name: data.draw(st.sampled_from([1.0, 1.5, 2.0, 3.0, 4.0, 10.0])) for name in NAMES}
    alone = planned(problem({"a": 1.0}), {"a": 1}).memory["a"].total_bytes
    frame = FRAME_BYTES
    rooms = st.sampled_from([None, alone - 1, alone, *(alone + k * frame for k in (1, 2, 3))])
    limited = problem(speeds, {"a": None} | {name: data.draw(rooms) for name in NAMES[1:]})
    every = (
        dict(zip(NAMES, counts, strict=True))
        for counts in itertools.product(range(CYCLE + 1), repeat=len(NAMES))
        if 0 < sum(counts) <= CYCLE
    )
    best = min(period_s(limited, frames) for frames in every if fits(limited, frames))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch_split, "LONGEST_CYCLE", CYCLE)
        found = dealt(limited)
    assert fits(limited, found)
    assert period_s(limited, found) <= best * (1 + TOLERANCE)


def test_measured_batches_decide_and_not_what_devices_are_said_to_be() -> None:
    given = problem({"a": 3.0, "b": 1.0})
    boastful = (replace(given.devices[0], macs_per_s=1e15), given.devices[1])
    solution = BatchSplit().solve(replace(given, devices=boastful))
    assert solution.rewrites == (Copies((1, 3)),)
    assert "of 4 frames 1 to a, 3 to b, by measured batches" in solution.explanation


def test_estimates_are_reported_as_that() -> None:
    given = replace(problem({"a": 1.0, "b": 1.0}), copies={})
    assert "by estimates, not measured batches" in BatchSplit().solve(given).explanation


def test_a_device_too_slow_for_a_frame_of_a_cycle_is_left_out() -> None:
    assert dealt(problem({"a": 1.0, "b": 1.0, "c": 100.0})) == {"a": 1, "b": 1}


def test_memory_bounds_what_waits_in_a_row_and_not_the_frames_of_a_cycle() -> None:
    """a has room for one frame that waits; turns of b in between let it have three frames."""
    alone = planned(problem({"a": 1.0}), {"a": 1}).memory["a"].total_bytes
    room = {"a": alone + FRAME_BYTES, "b": None}
    assert dealt(problem({"a": 1.0, "b": 1.5}, room)) == {"a": 3, "b": 2}
    tight = problem({"a": 1.0, "b": 2.5}, room)
    assert dealt(tight) == {"a": 2, "b": 1}
    assert not fits(tight, {"a": 5, "b": 2})


def test_two_batches_of_a_profile_are_a_copys_line() -> None:
    slow, fast = (
        NodeProfile(batches=((2, 1.2), (8, 4.2))),
        NodeProfile(batches=((2, 0.3), (8, 0.9))),
    )
    lines = Profile({"slow": slow, "fast": fast, "small": NodeProfile()}).copies()
    assert set(lines) == {"slow", "fast"}
    assert (lines["slow"].fixed_s, lines["slow"].frame_s) == pytest.approx((0.2, 0.5))
    assert lines["fast"].frame_s == pytest.approx(0.1)


def test_batches_that_say_nothing_of_a_frame_are_not_used() -> None:
    assert NodeProfile(batches=((2, 1.0), (8, 0.9))).copy is None
