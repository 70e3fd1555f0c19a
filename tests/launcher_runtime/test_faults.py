"""Whatever faults occur, every frame has one result, in order, or the run ends with an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from launcher.config.run import RunConfig
from launcher.core import events as lev
from launcher.core.blueprint import Blueprint
from launcher.errors import RunFailedError
from nodes.protocol.messages import HOST
from partition.devices import Device
from tests.launcher_runtime.faults import RECOVERING, FaultyWorld
from tests.launcher_runtime.fuzz import NODES_FAIL, history, try_seeds, ways
from tests.launcher_runtime.plans import blueprint_of, in_a_row
from tests.launcher_runtime.simulation import World

FOUND = {
    94: "an engine hangs: it is not the node that waits beside it",
    15131: "one fails while a plan is made with it",
    10229: "both control connections are cut, and a Stop is refused",
}
"""Seeds that failed once, and why."""


@pytest.mark.parametrize("seed", range(40))
def test_a_history_of_faults_keeps_every_promise(seed: int) -> None:
    history(seed)


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_is_not_found_again(seed: int) -> None:
    history(seed, NODES_FAIL)


@pytest.mark.parametrize("seed", [34, 3861])
def test_a_node_is_lost_while_others_prepare_another_plan(seed: int) -> None:
    """One still says that it is prepared when it turns to a third plan; another one reports its
    broken connection while it is asked what it has."""
    history(seed)


@pytest.mark.parametrize(
    ("seed", "way"),
    [
        (51, "used a node again"),
        (345, "used one by consent"),
        (62, "used a node again"),
        (250, "adapted"),
        (337, "adapted"),
        (13, "corrected the plan before the first frame"),
        (4, "searched on"),
    ],
)
def test_histories_go_the_ways_that_plans_are_improved(seed: int, way: str) -> None:
    """Several of them more than once; if what is drawn changes, other seeds do."""
    assert {way, "ended well"} <= set(ways(history(seed)))


@pytest.mark.slow
@pytest.mark.further
def test_hundreds_of_histories_of_faults_keep_every_promise() -> None:
    """`make histories` tries ten thousand, `python -m tests.launcher_runtime.fuzz` as many as one
    likes."""
    tried = try_seeds(range(100_000, 100_300))
    assert tried["recovered"] > 60
    assert tried["ended well"] > 120
    assert tried["used a node again"] > 2
    assert tried["adapted"] > 2


def test_the_same_seed_gives_the_same_history() -> None:
    assert history(7).story == history(7).story


def test_a_seed_that_fails_prints_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_a_result(world: FaultyWorld) -> None:
        world.tell_story("a result is lost")
        raise AssertionError("a result is missing")

    monkeypatch.setattr(FaultyWorld, "check_end", lose_a_result)
    with pytest.raises(AssertionError, match=r"(?s)seed 3: .*missing.*gets epoch 7.*is lost"):
        history(3)


class AnyHistory(RuleBasedStateMachine):
    """Hypothesis chooses what happens and when; at the end every promise is checked."""

    world: FaultyWorld

    @initialize(
        seed=st.integers(0, 2**32),
        nodes=st.integers(1, 4),
        standby=st.integers(0, 2),
        room=st.sampled_from([None, 2, 3]),
        keeps=st.lists(st.integers(0, 6), max_size=2),
    )
    def begin(
        self, seed: int, nodes: int, standby: int, room: int | None, keeps: list[int]
    ) -> None:
        self.world = FaultyWorld(Random(seed), nodes=nodes, standby=standby, room=room, keeps=keeps)
        self.world.event(lev.Begin())

    def _node(self, number: int) -> str:
        return list(self.world.nodes)[number % len(self.world.nodes)]

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.5, 2.5]))
    def time_passes(self, seconds: float) -> None:
        until_s = self.world.now_s + seconds
        while self.world.end is None and self.world.now_s < until_s and self.world.step():
            pass

    @precondition(lambda self: self.world.end is None)
    @rule(
        what=st.sampled_from(
            ["crash", "restart", "pause", "resume", "hang", "break_engine", "fill_disk"]
        ),
        number=st.integers(0, 5),
    )
    def befalls(self, what: str, number: int) -> None:
        getattr(self.world, what)(self._node(number))

    @precondition(lambda self: self.world.end is None)
    @rule(number=st.integers(0, 99))
    def is_cut(self, number: int) -> None:
        self.world.cut_any(number)

    @precondition(lambda self: self.world.end is None)
    @rule(
        number=st.integers(0, 5),
        other=st.integers(-1, 5),
        seconds=st.sampled_from([0.5, 5.0, 60.0]),
    )
    def is_partitioned(self, number: int, other: int, seconds: float) -> None:
        self.world.partition(self._node(number), HOST if other < 0 else self._node(other), seconds)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.go_on(until_s=3000.0)
            self.world.check_end()


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(deadline=None, max_examples=20, stateful_step_count=12)


# ---------------------------------------------------------------- single histories, told


def on_all(nodes: int) -> Callable[[int, tuple[str, ...]], Blueprint]:
    """Plans the row of `nodes` phases on the first nodes that are left."""

    def replan(epoch: int, left: tuple[str, ...]) -> Blueprint:
        plan = in_a_row(nodes)
        place = {f"n{i}": left[i % len(left)] for i in range(nodes)}
        index = {f"p{i}": i // len(left) for i in range(nodes)}
        phases = tuple(replace(p, device=place[p.device], index=index[p.name]) for p in plan.phases)
        channels = tuple(
            replace(
                c,
                source_device=place.get(c.source_device, c.source_device),
                target_device=place.get(c.target_device, c.target_device),
            )
            for c in plan.channels
        )
        devices = tuple(Device(name) for name in sorted(set(place.values())))
        moved = replace(plan, devices=devices, phases=phases, channels=channels)
        return replace(blueprint_of(moved), epoch=epoch)

    return lambda epoch, left: _of_epoch(replan(epoch, left), epoch)


def _of_epoch(blueprint: Blueprint, epoch: int) -> Blueprint:
    deployments = {n: replace(d, epoch=epoch) for n, d in blueprint.deployments.items()}
    return replace(blueprint, epoch=epoch, deployments=deployments)


def streaming(nodes: int = 3, **given: object) -> World:
    return World(in_a_row(nodes), 40, limits=RECOVERING, replan=on_all(nodes), **given)


def test_a_node_that_dies_is_replaced_and_no_frame_is_lost_or_doubled() -> None:
    world = streaming(started_by_us=True)
    world.at(2.0, lambda: world.event(lev.AgentExited("n1", -9, "")))
    world.run()
    assert world.end == lev.End(None)
    assert world.results == list(range(40))
    (recovery,) = world.supervisor.recoveries
    assert recovery.nodes == ("n1",)
    assert "signal 9 (SIGKILL)" in recovery.reasons[0]
    assert recovery.frame + recovery.replayed <= 40
    assert recovery.replayed > 0
    assert recovery.seconds < 1.5
    assert any("continuing with n0, n2" in text for text in world.notices)
    assert any("streaming again after" in text for text in world.notices)


def test_only_what_a_node_lacks_is_uploaded_for_the_next_epoch() -> None:
    world = streaming(cached=lambda _: True)
    world.at(2.0, lambda: world.event(lev.Disconnected("n1")))
    world.run()
    assert "Put" not in [word for _, word in world.trace]
    assert world.nodes["n0"].words == [
        "Hello", "Query", "Deploy", "Start", "Stop", "Query", "Deploy", "Start", "Stop", "Bye"
    ]  # fmt: skip


def test_a_silent_node_is_lost_after_the_heartbeat_and_not_the_silence_timeout() -> None:
    world = streaming()
    world.at(2.0, lambda: world.silent.add("n2"))
    world.run()
    assert world.end == lev.End(None)
    assert "silent for 2 s" in world.supervisor.recoveries[0].reasons[0]
    assert world.streams[1].blueprint.epoch == world.streams[0].blueprint.epoch + 1


def test_one_that_stands_by_is_used_once_another_is_lost() -> None:
    world = streaming(2, standby=("n9",))
    world.at(2.0, lambda: world.event(lev.Disconnected("n0")))
    world.run()
    assert world.end == lev.End(None)
    words = [word for word in world.nodes["n9"].words if word != "Put"]
    assert words == ["Hello", "Query", "Deploy", "Start", "Stop", "Bye"]


def test_one_that_stands_by_and_is_not_there_is_not_needed() -> None:
    world = streaming(2, standby=("n9",))
    world.silent.add("n9")
    world.run()
    assert world.end == lev.End(None)
    assert not world.supervisor.recoveries


def test_if_the_others_cannot_continue_the_error_names_the_loss_and_what_is_missing() -> None:
    world = World(in_a_row(3), 40, limits=RECOVERING, replan=lambda *_: "n2 holds 1 GB, 2 needed")
    world.at(1.9, lambda: world.silent.add("n1"))
    world.at(2.0, lambda: world.event(lev.Disconnected("n1")))
    world.run()
    assert world.end is not None
    error = world.end.error
    assert isinstance(error, RunFailedError)
    assert "node 'n1' at tcp://10.0.0.1:7000 was lost while running, after" in str(error)
    assert "the other nodes cannot continue: n2 holds 1 GB, 2 needed; no other node" in str(error)
    assert world.nodes["n0"].words[-1] == "Bye"


@pytest.mark.usefixtures("unwatched")
def test_an_engine_that_hangs_is_found_by_what_every_phase_completed() -> None:
    world = streaming(4)
    world.at(2.0, lambda: world.hanging.add("n2"))
    world.run()
    assert world.end == lev.End(None)
    assert world.supervisor.recoveries[0].nodes == ("n2",)


def test_one_that_does_not_let_go_of_its_old_part_is_lost_too() -> None:
    world = streaming(4)
    world.at(2.0, lambda: world.hanging.add("n2"))
    world.at(2.1, lambda: world.event(lev.Disconnected("n1")))
    world.run()
    assert world.end == lev.End(None)
    (recovery,) = world.supervisor.recoveries
    assert recovery.nodes == ("n1", "n2")
    assert "did not switch to its new part within 10 s" in recovery.reasons[1]
    assert recovery.seconds < 12.0


@pytest.mark.parametrize("delay_s", [0.01, 0.05])
def test_what_was_asked_for_an_epoch_that_is_given_up_is_not_mistaken_for_the_next(
    delay_s: float,
) -> None:
    """A second node is lost while a third one is looking which blobs it has, or receives them."""
    for later_s in (0.41, 0.43, 0.45, 0.5, 0.55):
        world = streaming(4, delay_s=lambda: delay_s)
        world.at(2.0, lambda w=world: w.event(lev.Disconnected("n1")))
        world.at(2.0 + later_s, lambda w=world: w.event(lev.Disconnected("n2")))
        world.run()
        assert world.end == lev.End(None)
        assert [r.nodes for r in world.supervisor.recoveries] in (
            [("n1", "n2")],
            [("n1",), ("n2",)],
        )


def test_a_node_that_is_lost_before_frames_stream_ends_a_run_that_begins_with_all() -> None:
    limits = replace(RECOVERING, run=RunConfig(start="all"))
    world = World(in_a_row(3), 40, limits=limits, replan=on_all(3))
    world.at(0.1, lambda: world.event(lev.Disconnected("n1")))
    world.run()
    assert world.end is not None
    assert "node 'n1'" in str(world.end.error)


def test_a_node_that_is_lost_after_the_last_result_does_no_harm() -> None:
    world = streaming()
    lost = False

    def lose() -> None:
        nonlocal lost
        if len(world.results) == 40 and not lost:
            lost = True
            world.silent.add("n1")
            world.event(lev.Disconnected("n1"))
        elif world.end is None:
            world.at(world.now_s + 0.001, lose)

    world.at(0.5, lose)
    world.run()
    assert lost
    assert world.end == lev.End(None)
    assert not world.supervisor.recoveries
