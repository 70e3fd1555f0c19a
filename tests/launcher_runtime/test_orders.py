"""Several agents together fire their phases in the plan's order, within the places of channels.

Plans are arbitrary, and so are the times that messages and firings take. `World` checks that every
result is the next one and the whole network's.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodes.core import events as nev
from nodes.protocol.messages import HOST, Order
from partition.plan import Plan
from tests.launcher_runtime.plans import plans, spread
from tests.launcher_runtime.simulated_node import SimulatedNode
from tests.launcher_runtime.simulation import World
from tests.launcher_runtime.test_supervisor import delays


class WatchedWorld(World):
    """Keeps the firings of each node, and checks the channels whenever something has happened."""

    def __init__(self, plan: Plan, frames: int, **given: Any) -> None:
        self.fired: dict[str, list[tuple[int, int]]] = defaultdict(list)
        super().__init__(plan, frames, **given)

    def end_firing(self, name: str, node: SimulatedNode) -> nev.Event:
        ended = super().end_firing(name, node)
        assert isinstance(ended, nev.FiringEnded)
        self.fired[name].append((ended.phase, ended.frame))
        return ended

    def step(self) -> bool:
        goes_on = super().step()
        self.check_channels()
        return goes_on

    def check_channels(self) -> None:
        """No channel between agents holds more than its capacity, at whichever end."""
        planes = {name: node.agent.life.plane for name, node in self.nodes.items()}
        for deployment in self.supervisor.blueprint.deployments.values():
            for spec in deployment.channels:
                if HOST in (spec.source_node, spec.target_node):
                    continue
                source, target = planes[spec.source_node], planes[spec.target_node]
                if source is None or target is None:
                    continue
                outlet, inlet = source._outlets[spec.number], target._inlets[spec.number]
                assert 0 <= outlet.claimed - inlet.freed <= spec.capacity_frames
                assert outlet.sent - inlet.freed <= spec.consumer_frames
                if spec.unsent_frames:
                    assert 0 <= outlet.claimed - outlet.left <= spec.unsent_frames


@settings(max_examples=120)
@given(plans(), st.sampled_from(["pipelined", "strict"]), st.integers(1, 6), st.integers(0, 2**32))
def test_every_phase_fires_for_every_frame_in_order(
    plan: Plan, order: Order, frames: int, seed: int
) -> None:
    world = WatchedWorld(plan, frames, order=order, delay_s=delays(seed))
    random = Random(seed)
    world.slow = {name: random.choice((0.1, 1.0, 10.0)) for name in world.nodes}
    world.run()
    assert world.end is not None
    assert world.end.error is None
    assert world.results == list(range(frames))
    for name, deployment in world.supervisor.blueprint.deployments.items():
        fired, phases = world.fired[name], range(len(deployment.phases))
        for phase in phases:
            assert [k for p, k in fired if p == phase] == list(range(frames))
        if order == "strict":
            assert fired == [(p, k) for k in range(frames) for p in phases]


def test_an_early_and_a_late_phase_of_one_node_overlap_frames() -> None:
    """n0 → n1 → n0: while frame 0 is at n1, n0 fires its first phase for frame 1."""
    plan = spread([[-1], [0], [1]], ["n0", "n1", "n0"], lambda: 2)
    world = WatchedWorld(plan, 6)
    world.run()
    fired = world.fired["n0"]
    assert fired.index((0, 1)) < fired.index((1, 0))
    assert sorted(fired) == [(p, k) for p in range(2) for k in range(6)]
