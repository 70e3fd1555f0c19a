"""Measured speeds change the plan if that is worth it, and noise does not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.core import events as lev
from launcher.core.blueprint import Blueprint
from launcher.core.improving import LEAST_GAIN, LOOK_EVERY_S, SETTLE_S, Improver
from launcher.core.recovery import Change, Recoverer
from launcher.core.returns import Returns
from launcher.core.run_state import RunLife, RunStep
from launcher.core.session import Session, SessionState
from launcher.core.speeds import (
    FIRINGS_EACH,
    LEAST_LOOKS,
    REMEMBERED_S,
    Speeds,
    factors_for,
    largest_change,
)
from launcher.core.watch import Limits
from launcher.errors import RunFailedError
from nodes.protocol.messages import PROTOCOL, Hello, Stats, Welcome
from tests.launcher_runtime.faults import recovering
from tests.launcher_runtime.plans import blueprint_of, in_a_row
from tests.launcher_runtime.simulation import World
from tests.launcher_runtime.test_faults import on_all

ADAPTING = recovering(adapt=True)
WORK_S = 3.0


def stats(epoch: int, firings: int, busy_s: float) -> Stats:
    return Stats(epoch, (firings,), (busy_s,), 1.0, 1.0, 0, 0, 1, 1, 1, 0, 0)


def even_blueprint(epoch: int, loads: dict[str, float], slower: dict[str, float]) -> Blueprint:
    """One phase per node that is predicted to take so many seconds."""
    every = blueprint_of(in_a_row(1 + max(int(node[1:]) for node in loads))).deployments
    deployments = {node: every[node] for node in loads}
    return Blueprint(
        epoch, deployments, (), (), phase_s={n: (s,) for n, s in loads.items()}, slower=slower
    )


class Boards:
    """Nodes that really are `true` times as slow as the model says, and plans that share the work
    out as evenly as the factors that they are made for say, among those that are not `left_out`
    times as slow as the fastest."""

    def __init__(
        self, true: list[float], noise: Random, spread: float, left_out: float = math.inf
    ) -> None:
        self.true = {f"n{i}": factor for i, factor in enumerate(true)}
        self.sessions = {n: Session(n, "tcp://x:1", False, SessionState.RUNNING) for n in self.true}
        for session in self.sessions.values():
            session.welcome = Welcome(2, session.node, "0", "tcp://x:2", "none", "sim", 1, 1)
        limits: Limits = ADAPTING
        hello = Hello(PROTOCOL, "test", limits.run.lease_s)
        returns = Returns(self.sessions, hello, lambda _, __: None)
        self.life = RunLife()
        self.life.step(RunStep.START)
        self.recoverer = Recoverer(1, self.sessions, limits, returns, self.life)
        self.improver = Improver(self.sessions, limits, self.recoverer)
        self.now_s, self.changes = 0.0, 0
        self.made: dict[int, Blueprint] = {}
        self.alone: dict[str, float] = {}
        """The nodes that state what their phases take under their quota, relative to the model."""
        self._noise, self._spread, self._left_out = noise, spread, left_out
        self._stream(even_blueprint(1, self._even(dict.fromkeys(self.true, 1.0)), {}))

    def _even(self, slower: dict[str, float]) -> dict[str, float]:
        most = self._left_out * min(slower.values())
        used = [node for node, factor in slower.items() if factor < most]
        return dict.fromkeys(used, WORK_S / sum(1 / slower[node] for node in used))

    @property
    def members(self) -> list[Session]:
        """Those with a part."""
        return [self.sessions[node] for node in self.blueprint.phase_s]

    @property
    def period_s(self) -> float:
        """What a frame really takes the busiest node, now."""
        return self._period_s(self.true)

    def _period_s(self, factors: Mapping[str, float]) -> float:
        assumed = self.blueprint.slower
        return max(
            s / assumed.get(n, 1.0) * factors[n] for n, (s,) in self.blueprint.phase_s.items()
        )

    def _stream(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.counted = dict.fromkeys(self.true, (0, 0.0))
        for session in self.sessions.values():
            session.stats = None
            if session.is_open:
                session.state = (
                    SessionState.RUNNING if session in self.members else SessionState.IDLE
                )
        self.improver.begin_epoch(blueprint, self.now_s)
        self.made[blueprint.epoch] = blueprint
        self._take_results()

    def _take_results(self) -> None:
        self.improver.pace.begin()
        for result in range(5):
            self.improver.pace.record(result, self.now_s + result * self.period_s)

    def run(self, seconds: float) -> None:
        """Look every `LOOK_EVERY_S` at noisy counters, and do what the improver wants."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += LOOK_EVERY_S
            for node, session in ((s.node, s) for s in self.members):
                firings, busy_s = self.counted[node]
                own_s = self.blueprint.phase_s[node][0] / self.blueprint.slower.get(node, 1.0)
                disturbed = 1 + self._noise.uniform(-self._spread, self._spread)
                firings, busy_s = (
                    firings + FIRINGS_EACH,
                    busy_s + FIRINGS_EACH * own_s * self.true[node] * disturbed,
                )
                self.counted[node] = firings, busy_s
                alone_s = own_s * self.alone.get(node, 0.0)
                counted = stats(self.blueprint.epoch, firings, busy_s)
                session.stats = replace(counted, phase_s=(alone_s,))
            self._take_results()
            for action in self.improver.due(self.members, self.now_s):
                if isinstance(action, lev.PlanRequest):
                    self._plan(action)

    def _plan(self, asked: lev.PlanRequest) -> None:
        slower = dict(asked.slower)
        if asked.again is not None:
            self._change(replace(self.made[asked.again], epoch=asked.epoch), 1.0)
            return
        loads = self._even(slower)
        gain = self._period_s(slower) / max(loads.values())
        if asked.better_than is not None and gain < asked.least_gain:
            self.improver.unplannable(lev.Unplannable(asked.epoch, "there is none"))
            return
        self._change(even_blueprint(asked.epoch, loads, slower), gain)

    def _change(self, blueprint: Blueprint, gain: float) -> None:
        found = self.improver.planned(lev.PlanReply(blueprint, gain), self.members, 1_000_000)
        assert isinstance(found, Change)
        self.changes += 1
        self._stream(blueprint)

    def lose(self, node: str) -> None:
        """Go on without a node: by a plan for what is known of the others."""
        self.sessions[node].lose("")
        loss = self.sessions[node], RunFailedError("it is gone")
        self.improver.cancel()
        self.recoverer.give_up([loss], self.blueprint.epoch, self.now_s)
        told = self.recoverer.halted(
            lev.Halted((lev.NetworkCounts(0, 0, 1),), 0), 1_000_000, self.now_s
        )
        assert isinstance(told, list)
        (asked,) = [action for action in told if isinstance(action, lev.PlanRequest)]
        slower = dict(asked.slower)
        loads = self._even(slower or dict.fromkeys(asked.nodes, 1.0))
        self.life.step(RunStep.ROLL_OUT)
        self.life.step(RunStep.START)
        self.recoverer.finish(self.now_s)
        self._stream(even_blueprint(asked.epoch, loads, slower))


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32), scale=st.floats(0.2, 5.0), nodes=st.integers(2, 5))
def test_noise_never_changes_a_balanced_plan_however_wrong_the_scale(
    seed: int, scale: float, nodes: int
) -> None:
    boards = Boards([scale] * nodes, Random(seed), 0.12)
    boards.run(600.0)
    assert boards.changes == 0


@settings(deadline=None, max_examples=10)
@given(
    seed=st.integers(0, 2**32),
    factor=st.floats(1.6, 8.0),
    others=st.integers(1, 4),
)
def test_a_node_that_slows_down_gets_less_to_do_once_and_noise_does_not_make_it_swing(
    seed: int, factor: float, others: int
) -> None:
    boards = Boards([1.0] * (others + 1), Random(seed), 0.05)
    boards.run(60.0)
    boards.true["n0"] = factor
    slow_s = boards.period_s
    boards.run(2000.0)
    ideal_s = WORK_S / (others + 1 / factor)
    if slow_s / ideal_s > 1.1 * LEAST_GAIN:
        assert boards.changes >= 1
        assert boards.period_s < 1.3 * ideal_s
    assert boards.changes <= 2


def test_a_plan_that_was_unbalanced_to_begin_with_is_changed_too() -> None:
    boards = Boards([1.0, 1.0, 3.0], Random(1), 0.02)
    boards.run(SETTLE_S + 3 * LOOK_EVERY_S)
    assert boards.changes == 1
    assert boards.period_s < 1.05 * WORK_S / (2 + 1 / 3)


def without_n1() -> Boards:
    """Four boards, of which n1 was found to be so slow that it has no part any more."""
    boards = Boards([1.0, 8.0, 1.0, 1.0], Random(1), 0.02, left_out=4.0)
    boards.run(SETTLE_S + 3 * LOOK_EVERY_S)
    assert (boards.changes, set(boards.blueprint.phase_s)) == (1, {"n0", "n2", "n3"})
    return boards


@pytest.mark.parametrize("after_s", [0.0, 10.0, 90.0, REMEMBERED_S - LOOK_EVERY_S - 40.0])
def test_a_slow_node_without_a_part_is_still_slow_at_the_next_loss(after_s: float) -> None:
    boards = without_n1()
    boards.run(after_s)
    boards.lose("n0")
    assert set(boards.blueprint.phase_s) == {"n2", "n3"}
    boards.run(600.0)
    assert boards.changes == 1


def test_after_a_while_it_has_another_chance_and_keeps_it_if_it_is_fast_again() -> None:
    boards = without_n1()
    boards.true["n1"] = 1.0
    boards.run(REMEMBERED_S + LOOK_EVERY_S)
    boards.lose("n0")
    boards.run(600.0)
    assert set(boards.blueprint.phase_s) == {"n1", "n2", "n3"}
    assert boards.changes == 1


def test_one_that_is_as_slow_as_ever_loses_its_part_again() -> None:
    boards = without_n1()
    boards.run(REMEMBERED_S + LOOK_EVERY_S)
    boards.lose("n0")
    assert "n1" in boards.blueprint.phase_s
    boards.run(100.0)
    assert set(boards.blueprint.phase_s) == {"n2", "n3"}
    assert boards.changes == 2


def test_a_factor_is_known_after_some_looks_and_is_their_median() -> None:
    speeds = Speeds(even_blueprint(1, {"n0": 1.0}, {}))
    busy_s = 0.0
    for look, took_s in enumerate([0.0, 2.0, 90.0, 2.0]):
        assert speeds.factors is None
        busy_s += FIRINGS_EACH * took_s
        speeds.record("n0", stats(1, look * FIRINGS_EACH, busy_s))
    assert LEAST_LOOKS == 3
    assert speeds.factors == {"n0": pytest.approx(2.0)}


def test_counters_of_another_epoch_do_not_count() -> None:
    speeds = Speeds(even_blueprint(2, {"n0": 1.0}, {}))
    for look in range(9):
        speeds.record("n0", stats(1, look * FIRINGS_EACH, float(look)))
    assert speeds.factors is None


def test_counters_of_other_phases_than_the_plans_do_not_count() -> None:
    speeds = Speeds(even_blueprint(1, {"n0": 1.0}, {}))
    speeds.record("n0", stats(1, 0, 0.0))
    for look in range(9):
        fired = FIRINGS_EACH * (look + 1)
        speeds.record("n0", replace(stats(1, fired, 1.0), firings=(fired, fired)))
    assert speeds.factors is None


def test_only_differences_between_nodes_count() -> None:
    assert largest_change({"a": 3.0, "b": 3.0}, {}) == pytest.approx(1.0)
    assert largest_change({"a": 4.0, "b": 1.0}, {}) == pytest.approx(2.0)
    assert factors_for({"a": 2.0, "b": 4.0}, ("a", "b", "c")) == {
        "a": 2.0,
        "b": 4.0,
        "c": 3.0,
    }


def streaming(frames: int = 300, slow: float = 30.0) -> World:
    world = World(
        in_a_row(3), frames, limits=ADAPTING, replan=on_all(3), take_s=0.0, delay_s=lambda: 0.001
    )
    world.at(1.0, lambda: world.slow.update(n1=slow))
    return world


def test_a_node_that_slows_down_in_a_run_changes_the_plan_and_no_frame_is_lost_or_doubled() -> None:
    world = streaming()
    world.run()
    assert world.end == lev.End(None)
    assert world.results == list(range(300))
    assert [past.cause for past in world.supervisor.recoveries][:1] == ["slow"]
    assert any("n1 is slower than planned" in notice for notice in world.notices)


def test_nodes_that_a_quota_leaves_at_full_speed_for_moments_are_not_taken_to_be_faster() -> None:
    boards = Boards([1.0, 0.2, 0.4, 0.3], Random(1), 0.02)
    boards.alone = dict.fromkeys(boards.true, 1.0)
    boards.run(600.0)
    assert boards.changes == 0


def test_a_change_that_makes_frames_slower_is_taken_back_once() -> None:
    """The nodes seem faster than they are, until they have more to do."""
    boards = Boards([1.0, 0.2, 1.0], Random(1), 0.02)
    first = dict(boards.blueprint.phase_s)
    boards.run(SETTLE_S + 3 * LOOK_EVERY_S)
    assert boards.changes == 1
    boards.true = dict.fromkeys(boards.true, 1.0)
    boards.run(LEAST_LOOKS * LOOK_EVERY_S + 3 * LOOK_EVERY_S)
    assert boards.changes == 2
    assert boards.blueprint.phase_s == first
    boards.run(600.0)
    assert boards.changes == 2


def test_without_adapting_nothing_changes() -> None:
    world = streaming(100)
    world.supervisor._improver._limits = recovering()
    world.run()
    assert world.supervisor.recoveries == []
