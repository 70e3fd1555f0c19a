"""Whole copies, frames dealt out: as many as a device is fast, none to those that are no use."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnn.rewrite.rewrites import Copies, original_name
from partition.devices import Device
from partition.errors import PartitionError
from partition.measured.profiles import NodeProfile, Profile, fused_phases, subnet_time
from partition.objective import Objective
from partition.planner import plan_solution
from partition.pricing.linear_models import (
    LinearTime,
    batch_ratio,
    deal_by_ratio,
    deal_frames,
    fit,
)
from partition.strategies.base import Problem
from partition.strategies.batch_split import (
    LONGEST_CYCLE,
    BatchSplit,
    CopyLoads,
)
from tests.partition.networks import chain
from tests.partition.rewriting_contract import RewritingContract
from tests.partition.strategy_contract import MB, equal


def fast(name: str, times: float, **more: object) -> Device:
    """A device that is `times` as fast as others; its wire costs it nothing."""
    return Device(
        name,
        macs_per_s=times * 1e9,
        memory_bytes_per_s=times * 1e9,
        firing_s=0.0,
        wire_is_free=True,
        **more,  # type: ignore[arg-type]
    )


class TestBatchSplit(RewritingContract):
    strategy = BatchSplit()

    def test_devices_compute_what_the_network_computes(self, tmp_path: Path) -> None:
        """Every device has all layers (that copies compute the same is a test of theirs)."""
        network = self.residual(2)
        solution = self.solve(network, equal(3))
        for device in ("d0", "d1", "d2"):
            own = [name for name, where in solution.assignment.items() if where == device]
            assert {original_name(name) for name in own} == set(network.layer)

    def test_pins_are_respected(self) -> None:
        solution = self.solve(self.residual(2), equal(3), {"l0": "d2"})
        assert set(solution.assignment.values()) == {"d2"}

    def test_pins_to_several_devices_are_refused(self) -> None:
        with pytest.raises(PartitionError, match="remove the pins"):
            self.solve(self.residual(2), equal(3), {"l0": "d2", "l3": "d1"})

    def test_equal_devices_take_turns(self) -> None:
        solution = self.solve(self.residual(2), equal(3))
        assert solution.rewrites == (Copies((1, 1, 1)),)

    def test_a_device_gets_frames_as_it_is_fast(self) -> None:
        devices = (fast("slow", 1), fast("fast", 3))
        solution = self.solve(self.residual(3), devices)
        assert solution.rewrites == (Copies((1, 3)),)
        assert set(solution.assignment.values()) == {"slow", "fast"}

    def test_the_plans_period_is_that_of_all_speeds_together(self) -> None:
        devices = (fast("slow", 1), fast("fast", 3))
        problem = self.problem(self.residual(3), devices)
        both = plan_solution(problem, self.strategy.solve(problem), "batch-split")
        alone = self.problem(self.residual(3), devices[1:])
        one = plan_solution(alone, self.strategy.solve(alone), "batch-split")
        assert both.period_s == pytest.approx(one.period_s * 3 / 4, rel=1e-3)

    def test_a_measured_copy_is_the_measured_network(self) -> None:
        devices = (fast("slow", 1), fast("fast", 3))
        problem = self.problem(self.residual(3), devices)
        one = self.problem(self.residual(3), devices[:1])
        whole = plan_solution(one, self.strategy.solve(one), "batch-split")
        (phase,) = whole.phases
        node = NodeProfile().with_subnets([subnet_time(whole, phase, 0.5)])
        copies = plan_solution(problem, self.strategy.solve(problem), "batch-split")
        measured = fused_phases(copies, Profile({"slow": node, "fast": node}))
        assert measured == {phase.name: 0.5 for phase in copies.phases}
        again = [subnet_time(copies, phase, 0.25) for phase in copies.phases]
        (known,) = node.with_subnets(again).subnets
        assert (known.seconds, known.rewrites) == (0.25, "")

    def test_a_device_that_is_too_slow_for_a_frame_of_a_cycle_is_left_out(self) -> None:
        devices = (fast("snail", 1 / (2 * LONGEST_CYCLE)), fast("a", 1), fast("b", 1))
        solution = self.solve(self.residual(2), devices)
        assert set(solution.assignment.values()) == {"a", "b"}
        assert "not worth a copy: snail" in solution.explanation

    def test_devices_that_share_a_core_are_no_faster_together(self) -> None:
        devices = tuple(fast(name, 1, host="pc", host_cores=1) for name in "ab")
        assert len(set(self.solve(self.residual(2), devices).assignment.values())) == 1

    def test_a_device_without_room_for_the_network_is_left_out(self) -> None:
        network = chain(*[10**6] * 8, weights=[5 * MB] * 8)
        devices = (fast("tiny", 1, memory_bytes=71 * MB), fast("a", 1))
        solution = BatchSplit().solve(Problem(network, devices))
        assert set(solution.assignment.values()) == {"a"}
        assert "too small: tiny" in solution.explanation

    @pytest.mark.parametrize("objective", ["latency", "energy"])
    def test_what_copies_cannot_better_is_left_to_one_device(self, objective: Objective) -> None:
        devices = (fast("slow", 1), fast("fast", 3))
        network = self.residual(2)
        problem = Problem(
            network, devices, objective=objective, model=self.problem(network, devices).model
        )
        assert set(BatchSplit().solve(problem).assignment.values()) == {"fast"}


class TestBatchSplitPaper(RewritingContract):
    strategy = BatchSplit("batch-split-paper", by_ratio=True)
    test_pins_are_respected = TestBatchSplit.test_pins_are_respected
    test_devices_compute_what_the_network_computes = (
        TestBatchSplit.test_devices_compute_what_the_network_computes
    )


def test_the_published_rebalancing_of_a_batch() -> None:
    """Vanishree et al. (ICACCS 2020): 36:27:37 of 100 images, of which the second takes only 6."""
    speeds = [LinearTime(0.0, 1 / share) for share in (36, 27, 37)]
    for deal in (deal_frames, deal_by_ratio):
        assert deal(speeds, 100) == (36, 27, 37)
        assert deal(speeds, 100, [None, 6, None]) == (46, 6, 48)


def test_the_papers_ratio_counts_the_fixed_part_of_the_whole_batch() -> None:
    """Eq. 1 of Vanishree et al. (2020): r_i = (1/t_i) / Σ (1/t_j), t_i for all frames of the batch.

    The second device needs 5 s before its first frame. Half of that is saved by no share, so by Eq.
    1 it gets too many frames and the batch is done later than need be.
    """
    devices = [LinearTime(0.0, 0.1), LinearTime(5.0, 0.05)]
    assert batch_ratio(devices, 100).tolist() == [0.5, 0.5]  # 10 s each
    assert deal_by_ratio(devices, 100) == (50, 50)
    assert [device.seconds(50) for device in devices] == [5.0, 7.5]
    assert deal_frames(devices, 100) == (67, 33)


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=4), st.integers(0, 40))
def test_without_fixed_parts_the_ratio_is_that_of_speeds(seconds: list[float], frames: int) -> None:
    devices = [LinearTime(0.0, frame_s) for frame_s in seconds]
    dealt = deal_by_ratio(devices, frames)
    assert sum(dealt) == frames
    ratio = batch_ratio(devices, max(frames, 1))
    assert all(abs(n - frames * r) < 1 + 1e-6 for n, r in zip(dealt, ratio, strict=True))
    sooner, by_ratio = deal_frames(devices, frames), dealt
    done = [
        max(d.seconds(n) for d, n in zip(devices, way, strict=True)) for way in (sooner, by_ratio)
    ]
    assert done[0] <= done[1] * (1 + 1e-9)


def test_the_papers_strategy_deals_by_batches_and_ours_as_a_stream() -> None:
    network = chain(1, 1)
    copies = {"a": LinearTime(0.0, 0.1), "b": LinearTime(0.8, 0.05)}  # 32 frames: 3.2 and 2.4 s
    problem = Problem(network, (fast("a", 1), fast("b", 1)), copies=copies)
    ours, papers = (
        CopyLoads(problem, by_ratio=by_ratio).frames((0, 1)) for by_ratio in (False, True)
    )
    assert ours == (1, 2)
    assert papers == (7, 9)


times = st.builds(LinearTime, st.floats(0, 5), st.floats(0.1, 5))


@given(st.lists(times, min_size=1, max_size=3), st.integers(0, 6))
def test_no_other_deal_is_done_sooner(devices: list[LinearTime], frames: int) -> None:
    def done(dealt: tuple[int, ...]) -> float:
        return max(d.seconds(count) for d, count in zip(devices, dealt, strict=True))

    dealt = deal_frames(devices, frames)
    assert sum(dealt) == frames
    every = itertools.product(range(frames + 1), repeat=len(devices))
    assert done(dealt) == min(done(other) for other in every if sum(other) == frames)


@given(times)
def test_two_batches_determine_the_line(device: LinearTime) -> None:
    found = fit((8, device.seconds(8)), (2, device.seconds(2)))
    assert found.fixed_s == pytest.approx(device.fixed_s, abs=1e-9)
    assert found.frame_s == pytest.approx(device.frame_s)


@pytest.mark.parametrize(
    ("few", "many"), [((2, 1.0), (2, 2.0)), ((2, 1.0), (4, 1.0)), ((0, 0.0), (1, 1.0))]
)
def test_measurements_without_a_slope_are_refused(
    few: tuple[int, float], many: tuple[int, float]
) -> None:
    with pytest.raises(PartitionError, match="measure"):
        fit(few, many)


def test_a_batch_beyond_all_memory_is_refused() -> None:
    for deal in (deal_frames, deal_by_ratio):
        with pytest.raises(PartitionError, match="does not hold"):
            deal([LinearTime(0, 1)], 3, [2])
