"""Losses at delicate moments, such as after the last result has arrived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from launcher.core import events as lev
from launcher.core.blame import stuck
from launcher.core.blueprint import Blueprint, Dealing
from launcher.core.events import NetworkCounts
from launcher.core.rollout import Rollout
from launcher.core.session import Session, SessionState
from launcher.core.watch import Watch
from launcher.run import deployment
from nodes.protocol.messages import Failed
from tests.launcher_runtime.faults import RECOVERING
from tests.launcher_runtime.plans import EPOCH, blueprint_of, in_a_row, phase, plan_of, subnets_of
from tests.launcher_runtime.simulation import World
from tests.launcher_runtime.test_faults import streaming


def when_all_has_arrived(world: World, happen: Callable[[], object]) -> None:
    """Let something happen once the last result is there and the user has not taken it."""

    def look() -> None:
        if world.stream.complete == world.stream.frames:
            assert world.stream.taken < world.stream.frames
            happen()
        else:
            world.at(world.now_s + 0.001, look)

    world.at(0.5, look)


@pytest.mark.parametrize("nodes", [1, 3])
def test_results_that_have_all_arrived_are_taken_although_a_node_is_lost_then(nodes: int) -> None:
    """Nobody is asked for a plan, and there is none: the user is slow, the nodes are done."""
    world = World(in_a_row(nodes), 40, limits=RECOVERING, take_s=0.5)
    when_all_has_arrived(
        world, lambda: [world.event(lev.Disconnected(name)) for name in list(world.nodes)]
    )
    world.run()
    assert world.end == lev.End(None)
    assert world.results == list(range(40))
    assert not any("plan epoch" in text for text in world.story)
    assert any("every result had arrived" in text for text in world.notices)


def test_if_no_node_is_left_and_none_comes_back_every_loss_is_reported() -> None:
    world = streaming(2)
    world.at(1.9, lambda: world.silent.update(world.nodes))
    world.at(2.0, lambda: world.event(lev.Disconnected("n0")))
    world.at(2.1, lambda: world.event(lev.Disconnected("n1")))
    world.run()
    assert world.end is not None
    error = str(world.end.error)
    assert "node 'n1'" in error
    assert "no node is left, and none came back in 2 min. Before: node 'n0'" in error


def test_a_ping_that_waits_when_the_frames_begin_is_not_silence_yet() -> None:
    """It was sent while loading, when an agent may be silent for longer than `heartbeat_s`."""
    blueprint = blueprint_of(in_a_row(2))
    sessions = {
        name: Session(
            name, "ipc://there", started_by_us=False, state=SessionState.READY, pinged_s=1.0
        )
        for name in blueprint.deployments
    }
    Rollout(blueprint, sessions, RECOVERING, renews=False).start()
    assert not Watch(sessions, RECOVERING).find_lost(1.0 + RECOVERING.recovery.heartbeat_s)


def test_one_that_stands_by_and_never_was_there_does_not_disturb_the_planning() -> None:
    world = streaming(2, standby=("n9",))
    world.silent.add("n9")
    world.at(2.0, lambda: world.event(lev.Disconnected("n0")))
    world.at(2.1, lambda: world.event(lev.MessageMalformed("n9", "nonsense")))
    world.run()
    assert world.end == lev.End(None)
    before = world.story[: next(i for i, t in enumerate(world.story) if "streaming again" in t)]
    assert sum("plan epoch" in text for text in before) == 1
    assert world.supervisor.recoveries[0].nodes == ("n0",)


def test_one_that_could_not_store_a_blob_is_lost_with_the_next_and_not_asked_again() -> None:
    """It answered a question with a failure, so its later answers cannot be told apart."""
    world = streaming(4)
    world.at(2.0, lambda: world.event(lev.Disconnected("n0")))

    def fail() -> None:
        if world.supervisor.sessions["n2"].state is SessionState.QUERYING:
            world.event(lev.MessageReceived("n2", Failed(0, "disk full")))
            world.event(lev.Disconnected("n1"))
        else:
            world.at(world.now_s + 0.001, fail)

    world.at(2.001, fail)
    world.run()
    assert world.end == lev.End(None)
    (recovery,) = world.supervisor.recoveries
    assert recovery.nodes == ("n0", "n1", "n2")
    assert "disk full" in recovery.reasons[2]


def test_one_that_answers_a_question_by_accusing_another_is_lost_by_its_own_words() -> None:
    """The dispute is settled before the accuser is given up for the question that it left."""
    world = streaming(4)
    world.at(2.0, lambda: world.event(lev.Disconnected("n0")))

    def fail() -> None:
        if world.supervisor.sessions["n2"].state is SessionState.QUERYING:
            world.silent.add("n2")
            world.event(lev.MessageReceived("n2", Failed(0, "no way to n1", "n1")))
        else:
            world.at(world.now_s + 0.001, fail)

    world.at(2.001, fail)
    world.run()
    assert world.end == lev.End(None)
    (recovery,) = world.supervisor.recoveries
    assert recovery.nodes == ("n0", "n2")
    assert "no way to n1" in recovery.reasons[-1]


def two_copies() -> Blueprint:
    """Frames go in turn to `a` and to `b`, each of one phase, with 3 places in and 5 out."""
    read, written = in_a_row(1).channels
    phases, channels = [], []
    for node, made in (("a", "t1"), ("b", "t2")):
        own = phase(f"p{node}", node, 0, ["t0"], [made])
        phases.append(own)
        channels += [
            replace(read, target_device=node, targets=(own.name,), capacity_frames=3),
            replace(
                written,
                tensor=replace(written.tensor, name=made),
                source=own.name,
                source_device=node,
                capacity_frames=5,
            ),
        ]
    plan = plan_of(phases, channels)
    blueprint = deployment.blueprint(plan, subnets_of(plan), {}, EPOCH, "pipelined")
    copy_of = {c.number: int(c.target_node == "b") for c in blueprint.from_host}
    copy_of |= {c.number: int(c.source_node == "b") for c in blueprint.to_host}
    return replace(blueprint, dealing=Dealing((0, 1), copy_of))


def test_a_copy_that_is_fed_no_more_because_another_one_is_full_is_not_stuck() -> None:
    """b hangs before its first frame and has 3: the host waits for it with frame 7, b's fourth. So
    a had 4 frames, and all of them are done."""
    blueprint = two_copies()
    assert stuck(blueprint, {"a": [4], "b": [0]}, NetworkCounts(1, 100, 100)) == ["b"]
    assert stuck(blueprint, {"a": [3], "b": [0]}, NetworkCounts(1, 100, 100)) == ["a", "b"]
