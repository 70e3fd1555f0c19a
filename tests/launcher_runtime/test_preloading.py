"""Nodes have the subnets of a better plan, prepared, before the present one is given up."""

from __future__ import annotations

from random import Random

import pytest

from launcher.core import events as lev
from launcher.core.blueprint import Blueprint
from launcher.core.run_state import RunState
from launcher.core.session import SessionState
from tests.launcher_runtime.faults import BLOB_BYTES, FaultyWorld, recovering
from tests.launcher_runtime.plans import blueprint_of, spread
from tests.launcher_runtime.simulation import LOADING_S, PREPARING_S


def back_again(frames: int = 300) -> FaultyWorld:
    """Three daemons, one of which crashes, is started again, and is worth a change of plans."""
    world = FaultyWorld(
        Random(5),
        nodes=3,
        standby=0,
        room=3,
        delay_s=lambda: 0.01,
        frames=frames,
        started_by_us=False,
        take_s=0.3,
        limits=recovering(),
    )
    world.gain = lambda: 1.5
    world.at(2.0, lambda: world.crash("n1"))
    world.at(5.0, lambda: world.restart("n1"))
    return world


def finish(world: FaultyWorld) -> float:
    """To the end, which must be a good one; returns the pause of the change."""
    world.run(2000.0)
    world.check_end()
    assert world.end == lev.End(None)
    assert [past.cause for past in world.supervisor.recoveries] == ["loss", "return"]
    return world.supervisor.recoveries[1].seconds


def test_subnets_are_sent_and_prepared_while_frames_stream() -> None:
    world = back_again()
    pause_s = finish(world)
    assert pause_s < PREPARING_S
    for name in world.supervisor.blueprint.deployments:
        words = world.nodes[name].words
        prepared = words.index("Prepare")
        assert "Query" in words[:prepared]
        # What was prepared is all that the node needs: nothing is sent during the pause.
        assert "Put" not in words[prepared:]


def test_the_pause_is_that_of_opening_what_is_prepared() -> None:
    world = back_again()
    phases = len(world.reads)
    assert finish(world) < phases * LOADING_S + 0.25


def test_a_node_that_cannot_prepare_while_it_computes_does_so_in_the_pause() -> None:
    world = back_again()
    world.cannot_prepare |= world.nodes.keys()
    finish(world)


def test_a_node_whose_disk_is_full_keeps_its_part_and_the_plan_is_kept() -> None:
    world = back_again()
    world.at(4.0, lambda: world.fill_disk("n1"))
    world.run(2000.0)
    world.check_end()
    assert world.end == lev.End(None)
    assert [past.cause for past in world.supervisor.recoveries] == ["loss"]
    assert any(
        "n1 is back, but the plan is kept: node 'n1' at tcp://10.0.0.1:7000: no space" in text
        for text in world.notices
    )


def test_a_loss_while_nodes_prepare_is_a_loss_like_any() -> None:
    world = back_again()

    def lose_when_preparing() -> None:
        preparing = [name for name, word in world.trace if word == "Prepare"]
        if preparing:
            world.crash(next(n for n in world.supervisor.blueprint.deployments if n != "n1"))
        else:
            world.at(world.now_s + 0.05, lose_when_preparing)

    world.at(6.0, lose_when_preparing)
    world.run(2000.0)
    world.check_end()
    assert world.end == lev.End(None)
    assert [past.cause for past in world.supervisor.recoveries][:2] == ["loss", "loss"]


def test_the_loss_of_a_node_that_was_to_be_used_again_keeps_the_present_plan() -> None:
    world = back_again()

    def lose_when_preparing() -> None:
        if ("n1", "Prepare") in world.trace:
            world.crash("n1")
        elif world.end is None:
            world.at(world.now_s + 0.05, lose_when_preparing)

    world.at(6.0, lose_when_preparing)
    world.run(2000.0)
    world.check_end()
    assert world.end == lev.End(None)
    assert [past.cause for past in world.supervisor.recoveries] == ["loss"]


def test_the_end_of_the_frames_ends_the_preparation() -> None:
    world = back_again(frames=34)
    world.gain = lambda: 100.0
    world.run(2000.0)
    world.check_end()
    assert world.end == lev.End(None)


def test_what_is_loaded_ahead_is_taken_over_without_loading_it_again() -> None:
    assert finish(back_again()) < LOADING_S


def test_a_node_without_memory_for_two_plans_loads_its_part_in_the_pause_and_says_so() -> None:
    world = back_again()
    world.without_room |= world.nodes.keys()
    assert LOADING_S < finish(world) < PREPARING_S
    expected = "loads its next subnets only in the pause: it lacks memory for two plans"
    assert any(expected in text for text in world.notices)


def test_what_is_loaded_ahead_is_freed_if_the_plan_is_kept() -> None:
    world = back_again()

    def lose_once_loaded() -> None:
        if any(node.ahead for node in world.nodes.values()):
            world.crash("n1")
        elif world.end is None:
            world.at(world.now_s + 0.05, lose_once_loaded)

    world.at(6.0, lose_once_loaded)
    world.run(2000.0)
    world.check_end()
    assert [past.cause for past in world.supervisor.recoveries] == ["loss"]
    others = [name for name in world.nodes if name != "n1"]
    for name in others:
        after = world.nodes[name].words[world.nodes[name].words.index("Prepare") + 1 :]
        assert "Deploy" not in after
        assert after.count("Stop") == 2  # of what was loaded ahead, and at the end


@pytest.mark.parametrize("state", [SessionState.QUERYING, SessionState.DEPLOYING])
def test_what_is_loaded_ahead_is_freed_by_nodes_that_another_plan_leaves_out(
    state: SessionState,
) -> None:
    world = back_again()
    one, other = (name for name in world.nodes if name != "n1")
    sessions = world.supervisor.sessions

    def lose_while_rolling_out() -> None:
        is_down = world.supervisor.life.state is RunState.ROLLOUT and world.supervisor.taken
        if is_down and sessions["n1"].state is state:
            world._replan = all_on_one
            world.crash("n1")
        elif world.end is None:
            world.at(world.now_s + 0.005, lose_while_rolling_out)

    def all_on_one(epoch: int, _: tuple[str, ...]) -> Blueprint:
        plan = spread(world.reads, [one] * len(world.reads), lambda: 2, world.keeps)
        return blueprint_of(plan, BLOB_BYTES, epoch, world._networks(plan))

    def look() -> None:
        if len(world.supervisor.recoveries) == 2:
            assert world.supervisor.blueprint.deployments.keys() == {one}
            assert world.nodes[other].ahead is None
            looked.append(other)
        elif world.end is None:
            world.at(world.now_s + 0.1, look)

    looked: list[str] = []
    world.at(5.9, lose_while_rolling_out)
    world.at(6.0, look)
    world.run(2000.0)
    world.check_end()
    assert looked
