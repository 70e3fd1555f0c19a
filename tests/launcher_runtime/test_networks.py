"""Several networks on the same nodes, into each of which a program pushes its own frames."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from launcher.core import events as lev
from launcher.core.speeds import FIRINGS_EACH, LEAST_LOOKS, Speeds
from launcher.errors import BadInputError
from launcher.run.deployment import blueprint
from nodes.core import events as nev
from nodes.core.actor import LONGEST_WAIT_S, FairShares
from nodes.protocol.messages import Stats
from partition.plan import Plan
from tests.launcher_runtime.faults import RECOVERING, FaultyWorld
from tests.launcher_runtime.plans import blueprint_of, part_of, spread, subnets_of
from tests.launcher_runtime.simulated_host import Program
from tests.launcher_runtime.simulated_node import FIRING_S, source_value
from tests.launcher_runtime.simulation import World

NEVER = Program((), end_s=500.0)
"""Pushes no frame."""


def two(owner: list[str], reads: list[list[int]], of_first: set[str]) -> tuple[Plan, list[Plan]]:
    """A plan of two networks, the first of which has the phases `of_first`."""
    plan = spread(reads, owner, lambda: 2)
    rest = {phase.name for phase in plan.phases} - of_first
    return plan, [part_of(plan, of_first), part_of(plan, rest)]


def side_by_side(nodes: int = 2) -> tuple[Plan, list[Plan]]:
    """Two networks of one phase on each node."""
    reads = [[-1], *([i] for i in range(nodes - 1)), [-2], *([nodes + i] for i in range(nodes - 1))]
    names = [f"n{i}" for i in range(nodes)]
    return two([*names, *names], reads, {f"p{i}" for i in range(nodes)})


def world_of(plan: Plan, networks: list[Plan], programs: list[Program], **given: object) -> World:
    given = {"take_s": 0.0, "delay_s": lambda: 0.001, **given}
    return World(plan, programs=programs, networks=networks, **given)


def taken_at_s(world: World) -> tuple[list[float], list[float]]:
    """When each network's results are taken, filled as the world runs."""
    times: tuple[list[float], list[float]] = ([], [])
    for lane, own in zip(world.lanes, times, strict=True):

        def take(take=lane.take, own=own):
            own.append(world.now_s)
            return take()

        lane.take = take
    return times


def test_a_network_computes_while_another_one_has_no_frames() -> None:
    world = world_of(*side_by_side(), [Program((0.0,) * 20), NEVER])
    first, second = taken_at_s(world)
    world.run()
    assert (len(first), len(second)) == (20, 0)
    assert first[-1] < 5.0


def test_a_network_that_was_idle_has_no_precedence_over_one_that_has_counted_far() -> None:
    """Both share one node. The second begins when the first has counted to 1000, and from then on
    both have more frames than the node can compute: each gets half of it."""
    busy = Program((0.0,) * 2000)
    late = Program((12.0, *(0.0,) * 500))
    world = world_of(*side_by_side(1), [busy, late])
    first, second = taken_at_s(world)
    world.run()
    both = [at_s for at_s in first if second[0] < at_s < second[-1]]
    assert len([at_s for at_s in first if at_s < second[0]]) > 1000
    assert len(both) == pytest.approx(len(second), rel=0.05)


def test_networks_share_the_time_of_a_node_and_not_its_firings() -> None:
    """The second network's firings take nine times as long."""

    def firings(times: float) -> float:
        return FIRING_S * times

    blueprints = FairShares([0, 1])
    counted = [0, 0]
    for _ in range(1000):
        (phase,) = blueprints.least_served([0, 1])
        blueprints.begin(phase)
        counted[phase] += 1
        blueprints.end(phase, firings(9.0 if phase else 1.0))
    assert counted[0] == pytest.approx(9 * counted[1], rel=0.05)


def test_a_firing_that_took_minutes_costs_its_network_seconds() -> None:
    blueprints = FairShares([0, 1])
    blueprints.begin(0)
    blueprints.end(0, 300.0)
    waited_s = 0.0
    while blueprints.least_served([0, 1]) == [1]:
        blueprints.begin(1)
        blueprints.end(1, 0.1)
        waited_s += 0.1
    assert waited_s == pytest.approx(LONGEST_WAIT_S, abs=0.2)


def test_after_a_loss_each_network_continues_with_its_own_first_frame_without_a_result() -> None:
    plan, networks = side_by_side(2)
    again, parts = two(["n0"] * 4, [[-1], [0], [-2], [2]], {"p0", "p1"})
    world = world_of(
        plan,
        networks,
        [Program((0.0,) * 200), Program((0.5,) * 7)],
        limits=RECOVERING,
        replan=lambda epoch, _: blueprint_of(again, epoch=epoch, networks=parts),
    )
    world.at(1.5, lambda: setattr(world.nodes["n1"], "is_gone", True))
    world.run()
    assert world.end == lev.End(None)
    assert [lane.results for lane in world.lanes] == [list(range(200)), list(range(7))]
    (recovery,) = world.supervisor.recoveries
    assert recovery.frame > 2


def test_a_firing_that_fails_in_one_network_costs_no_other_a_right_result() -> None:
    """As `check: phases` does when a phase makes NaN: the node has failed, and both continue."""
    plan, networks = side_by_side(2)
    again, parts = two(["n0"] * 4, [[-1], [0], [-2], [2]], {"p0", "p1"})

    class Failing(World):
        failed = False

        def end_firing(self, name, node):
            fire = node.firings[0]
            if name == "n1" and fire.phase == 0 and fire.frame == 50 and not self.failed:
                self.failed = True
                node.firings.popleft()
                return nev.FiringFailed(fire.epoch, fire.phase, fire.frame, "NaN")
            return super().end_firing(name, node)

    world = Failing(
        plan,
        programs=[Program((0.0,) * 100), Program((0.01,) * 100)],
        networks=networks,
        take_s=0.0,
        limits=RECOVERING,
        replan=lambda epoch, _: blueprint_of(again, epoch=epoch, networks=parts),
    )
    world.run()
    assert world.end == lev.End(None)
    assert world.failed
    assert [lane.results for lane in world.lanes] == [list(range(100))] * 2


class Poisoned(FaultyWorld):
    """Its agents crash at frame 5 of the first network, and are started again a little later."""

    def end_firing(self, name, node):
        is_poison = node.firings[0].inputs.get("x-1") == source_value("x-1", 5)
        ended = super().end_firing(name, node)
        if is_poison:
            self.crash(name)
            self.at(self.now_s + 0.5, lambda: self.restart(name))
        return ended


def test_a_frame_that_crashes_every_agent_ends_the_run_although_another_network_continues() -> None:
    world = Poisoned(
        Random(1),
        nodes=2,
        standby=0,
        room=None,
        programs=[Program((1.0,) * 9), Program((0.2,) * 4000)],
        started_by_us=False,
        limits=RECOVERING,
    )
    world.run(until_s=2000.0)
    assert world.end is not None
    assert "node 'n" in str(world.end.error)
    assert world.end_s < 700.0
    assert world.lanes[0].results == list(range(5))
    assert len(world.lanes[1].results) > 30


@pytest.mark.usefixtures("unwatched")
def test_a_phase_that_hangs_is_found_although_another_network_continues() -> None:
    plan, networks = two(["n0", "n1"], [[-1], [-2]], {"p0"})
    world = world_of(plan, networks, [Program((0.5,) * 1000), Program((0.5,) * 1000)])
    world.at(5.0, lambda: world.hanging.add("n1"))
    world.run()
    assert world.end is not None
    assert "no result" in str(world.end.error)
    assert world.end_s < 80.0


def test_a_plan_whose_phases_span_two_networks_is_refused() -> None:
    plan = spread([[-2, -1]], ["n0"], lambda: 1)
    with pytest.raises(BadInputError, match="make the plan again"):
        blueprint(plan, subnets_of(plan), {}, 1, "pipelined", networks=[["x-1"], ["x-2"]])


def test_the_speed_of_a_node_is_known_while_one_of_its_networks_is_idle() -> None:
    plan, networks = side_by_side(1)
    blueprint = replace(blueprint_of(plan, networks=networks), phase_s={"n0": (1.0, 5.0)})
    speeds = Speeds(blueprint)
    for look in range(LEAST_LOOKS + 1):
        assert speeds.factors is None
        firings = look * FIRINGS_EACH
        busy_s = (3.0 * firings, 0.0)
        speeds.record(
            "n0", Stats(blueprint.epoch, (firings, 0), busy_s, 1.0, 1.0, 0, 0, 1, 1, 1, 0, 0)
        )
    assert speeds.factors == {"n0": pytest.approx(3.0)}
