"""The rehearsal may correct the plan before the first frame; a search continues after that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.core import events as lev
from launcher.core.improving import MOST_CORRECTIONS
from nodes.core.dataplane import FEWEST_FIRINGS, SETTLED
from partition.plan import Plan
from tests.launcher_runtime.faults import recovering
from tests.launcher_runtime.plans import in_a_row
from tests.launcher_runtime.simulation import Replan, World, no_plan
from tests.launcher_runtime.test_faults import on_all

ADAPTING = recovering(adapt=True)


def world_of(
    frames: int = 300, replan: Replan | None = None, plan: Plan | None = None, **slow: float
) -> World:
    """Three nodes, whose phases take these multiples of their planned times in the rehearsal."""
    world = World(
        plan or in_a_row(3),
        frames,
        limits=ADAPTING,
        replan=replan or on_all(3),
        take_s=0.0,
        delay_s=lambda: 0.001,
    )
    world.slow_in_rehearsal = dict(slow)
    return world


def ended_well(world: World, frames: int = 300) -> None:
    assert world.end == lev.End(None)
    assert world.results == list(range(frames))


def test_a_slow_node_changes_the_plan_before_the_first_frame() -> None:
    world = world_of(n1=10.0)
    world.gain = lambda: 2.0 if len(world.asked) == 1 else 1.0
    world.run()
    ended_well(world)
    first, *more = world.streams
    assert first.blueprint.epoch == world.asked[0].epoch
    assert not more
    (past,) = world.supervisor.recoveries
    assert (past.cause, past.nodes, past.frame, past.replayed) == ("rehearsal", ("n1",), 0, 0)
    assert world.asked[0].effort == "quick"
    assert any("as its rehearsal shows" in notice for notice in world.notices)


def test_what_nodes_took_in_the_rehearsal_is_expected_of_them_in_the_stream() -> None:
    world = world_of(n1=10.0)
    world.gain = lambda: 1.0
    world.run()
    assert world.supervisor.blueprint.phase_s["n1"] == (pytest.approx(0.1),)


@pytest.mark.parametrize("factor", [0.1, 0.7, 1.4, 10.0])
def test_a_board_far_from_its_figures_measures_itself_again_after_the_run(factor: float) -> None:
    world = world_of(n1=factor)
    world.gain = lambda: 1.0
    world.run()
    ended_well(world)
    doubted = ["n1"] if factor in (0.1, 10.0) else []
    assert world.measured_again == doubted
    assert any("measured again now" in notice for notice in world.notices) == bool(doubted)


@pytest.mark.parametrize("slow", [{}, {"n0": 10.0, "n1": 10.0, "n2": 10.0}])
def test_nodes_that_are_all_as_slow_keep_the_plan_and_nothing_is_searched(
    slow: dict[str, float],
) -> None:
    world = world_of(**slow)
    world.run()
    ended_well(world)
    assert world.asked == []
    assert world.supervisor.recoveries == []


@pytest.mark.parametrize(("cores", "searches"), [(1, 0), (2, 0), (3, 1)])
def test_nodes_that_share_cores_gain_little_by_moving_work_among_them(
    cores: int, searches: int
) -> None:
    plan = in_a_row(3)
    shared = tuple(replace(each, host="pc", host_cores=cores) for each in plan.devices)
    world = world_of(plan=replace(plan, devices=shared), n1=1.2)
    world.gain = lambda: 1.0
    world.run()
    ended_well(world)
    assert len(world.asked) == searches


def test_a_plan_that_is_uneven_on_purpose_is_not_corrected() -> None:
    plan = in_a_row(3)
    first, *others = plan.phases
    uneven = replace(plan, phases=(replace(first, predicted_s=4 * first.predicted_s), *others))
    world = world_of(plan=uneven)
    world.run()
    ended_well(world)
    assert world.asked == []


@pytest.mark.parametrize("replan", [no_plan, on_all(3)])
def test_where_no_plan_is_better_the_first_one_streams(replan: Replan) -> None:
    world = world_of(replan=replan, n1=10.0)
    world.gain = lambda: 1.0
    world.run()
    ended_well(world)
    assert len(world.asked) == 1
    assert world.supervisor.recoveries == []
    assert not any("kept" in notice for notice in world.notices)


def test_for_a_few_frames_no_other_plan_is_loaded() -> None:
    world = world_of(frames=2, n1=3.0)
    world.run()
    ended_well(world, 2)
    assert world.asked == []


def test_a_plan_is_corrected_a_few_times_and_then_streams() -> None:
    world = world_of(n1=10.0)
    world.run()
    ended_well(world)
    causes = [past.cause for past in world.supervisor.recoveries]
    assert causes.count("rehearsal") == MOST_CORRECTIONS
    assert len(world.streams) == len(causes) - MOST_CORRECTIONS + 1


def test_a_node_that_is_lost_while_its_plan_is_corrected_is_done_without() -> None:
    world = world_of(n1=10.0)

    def lose() -> None:
        if world.asked and not world.streams:
            world.silent.add("n1")
        elif not world.streams:
            world.at(world.now_s + 0.01, lose)

    world.at(0.01, lose)
    world.run()
    ended_well(world)
    assert world.streams
    assert any(past.cause == "loss" for past in world.supervisor.recoveries)


def test_after_a_quick_first_plan_the_search_continues_while_frames_stream() -> None:
    world = world_of(frames=3000)
    world.supervisor._improver._searches_on = True
    world.run()
    ended_well(world, 3000)
    assert [asked.effort for asked in world.asked] == ["whole"]
    (past,) = world.supervisor.recoveries
    assert past.cause == "search"
    assert past.frame > 0


def test_the_search_continues_only_where_the_limits_say_so() -> None:
    world = world_of(frames=3000)
    world.run()
    assert world.asked == []


def test_without_adapting_the_rehearsal_changes_nothing() -> None:
    world = world_of(n1=10.0)
    world.supervisor._improver._limits = replace(ADAPTING, recovery=recovering().recovery)
    world.run()
    ended_well(world)
    assert world.asked == []


@pytest.mark.parametrize("more", [-1, 1, 1000])
def test_a_node_that_tells_the_times_of_other_phases_than_it_has_is_done_without(
    more: int,
) -> None:
    world = world_of()
    world.phases_too_many["n1"] = more
    world.run()
    ended_well(world)
    assert "n1" not in world.supervisor.blueprint.deployments
    assert any(f"the times of {1 + more} phases, but has 1" in said for said in world.notices)


def kept_by(world: World) -> list[lev.Rehearsed]:
    """What later runs learn from the stream."""
    return [learned for learned in world.learned if learned.in_stream]


def test_what_phases_took_in_the_stream_is_kept_at_the_end() -> None:
    world = world_of()
    world.slow = {"n1": 1.25}
    world.run()
    ended_well(world)
    (kept,) = kept_by(world)
    assert kept.epoch == world.supervisor.blueprint.epoch
    took_s = {node: each.phase_s for node, each in kept.deployed.items()}
    assert took_s == {
        "n0": (pytest.approx(0.01),),
        "n1": (pytest.approx(0.0125),),
        "n2": (pytest.approx(0.01),),
    }
    assert kept.welcomes.keys() == took_s.keys()


def test_a_few_firings_say_nothing_of_the_stream() -> None:
    world = world_of(frames=SETTLED + FEWEST_FIRINGS - 1)
    world.run()
    assert kept_by(world) == []
    world = world_of(frames=SETTLED + FEWEST_FIRINGS)
    world.run()
    assert len(kept_by(world)) == 1


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_nothing_is_kept_of_a_node_that_was_disturbed(factor: float) -> None:
    world = world_of()
    world.slow = {"n1": factor}
    world.supervisor._improver._limits = recovering()
    world.run()
    ended_well(world)
    (kept,) = kept_by(world)
    assert kept.deployed.keys() == {"n0", "n2"}


def test_nothing_is_kept_of_a_node_that_was_lost() -> None:
    world = world_of(replan=on_all(3))
    world.at(1.5, lambda: world.silent.add("n1"))
    world.run()
    assert any(past.cause == "loss" for past in world.supervisor.recoveries)
    assert all("n1" not in kept.deployed for kept in kept_by(world))


def test_a_long_stream_keeps_its_times_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.core.supervisor.KEPT_EVERY_S", 5.0)
    world = world_of(frames=3000)  # of 10 ms
    world.run()
    ended_well(world, 3000)
    assert len(kept_by(world)) == pytest.approx(30 / 5, abs=1)


def test_a_plan_that_was_corrected_in_a_hurry_is_searched_once_frames_stream() -> None:
    """The plan before may have been kept from a run in which other programs disturbed the nodes."""
    world = world_of(frames=3000, n1=10.0)
    world.gain = lambda: 2.0 if len(world.asked) == 1 else 1.0
    world.supervisor._improver._limits = replace(ADAPTING, corrects_in_a_hurry=True)
    world.run()
    ended_well(world, 3000)
    assert [asked.effort for asked in world.asked][-1] == "whole"
