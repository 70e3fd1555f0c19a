"""Makes random live CSDF graphs of a given size, the same ones every time."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction

from csdf.execution.liveness import check_liveness
from csdf.model.graph import Actor, Channel, Graph

CYCLES = (1, 2, 3, 4, 6, 8, 12, 24)
"""How often actors fire their phases in an iteration."""


def bounded_graph(actors: int, channels: int, firings: int, *, roomy: bool) -> Graph:
    """Actors without overlap, and about that many firings; every channel goes forward.

    Each channel has a capacity, so that SDF3 XML has twice as many. A `roomy` one holds what an
    iteration moves; otherwise those of a spanning tree hold little more than they need to be live,
    which makes actors wait for space.
    """
    draw = random.Random(f"{actors} {channels} {firings}")
    cycles = [draw.choice(CYCLES) for _ in range(actors)]
    phases = [max(1, round(draw.uniform(0.5, 1.5) * firings / actors / q)) for q in cycles]
    made = tuple(
        Actor(f"a{i}", tuple(Fraction(draw.randint(0, 100)) for _ in range(count)), concurrency=1)
        for i, count in enumerate(phases)
    )
    forward = []
    for i in range(channels):
        target = i + 1 if i + 1 < actors else draw.randrange(1, actors)
        source = draw.randrange(max(0, target - 8), target)
        common = math.gcd(cycles[source], cycles[target])
        moved = draw.randint(1, 3) * math.lcm(cycles[source], cycles[target]) * 4
        production = _rates(draw, phases[source], moved // cycles[source])
        consumption = _rates(draw, phases[target], moved // cycles[target])
        tight = (sum(production) + sum(consumption)) * 2 // common
        room = moved if roomy or i + 1 >= actors else min(moved, tight)
        forward.append(
            Channel(f"c{i}", f"a{source}", f"a{target}", production, consumption, 0, room)
        )
    name = f"{actors} actors, {'roomy' if roomy else 'tight'}"
    graph = Graph(name, made, tuple(forward))
    while check_liveness(graph) is not None:
        graph = replace(graph, channels=tuple(_larger(channel) for channel in graph.channels))
    return graph


def _rates(draw: random.Random, phases: int, total: int) -> tuple[int, ...]:
    cuts = sorted(draw.randint(0, total) for _ in range(phases - 1))
    return tuple(high - low for low, high in zip([0, *cuts], [*cuts, total], strict=True))


def _larger(channel: Channel) -> Channel:
    assert channel.capacity is not None
    return replace(channel, capacity=channel.capacity * 5 // 4 + 1)
