"""Generate random live graphs of a given size, the same ones for the same seed."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from csdf.errors import CsdfError
from csdf.execution.liveness import check_liveness
from csdf.model.graph import Actor, Channel, Graph

CYCLES = (1, 2, 3, 4, 6, 8, 12, 24)
"""How often actors fire their phases in an iteration."""

Capacities = Literal["none", "roomy", "tight"]
"""Capacities of channels: unbounded, an iteration's tokens, or little more than liveness needs."""


def generate(
    actors: int,
    channels: int,
    firings: int,
    *,
    capacities: Capacities = "none",
    feedback: int = 0,
    seed: int = 0,
) -> Graph:
    """Return a consistent, live and connected graph of actors that do not overlap their firings.

    It has about `firings` firings per iteration. `channels` go from an actor to a later one, and
    `feedback` more go back with as many initial tokens as an iteration moves. With `tight`
    capacities, those of a spanning tree make actors wait for space.

    Raises `CsdfError` if so few channels cannot connect the actors, or one actor has channels.

    >>> graph = generate(4, 5, 40, capacities="tight", feedback=1, seed=7)
    >>> len(graph.actors), len(graph.channels)
    (4, 6)
    """
    if actors == 1 and channels + feedback:
        raise CsdfError("a graph of one actor has no channels; give 0 channels and no feedback")
    if channels < actors - 1:
        raise CsdfError(f"{channels} channels do not join {actors} actors; {actors - 1} or more do")
    draw = random.Random(f"{actors} {channels} {firings}" + (f" {seed}" if seed else ""))  # noqa: S311
    cycles = [draw.choice(CYCLES) for _ in range(actors)]
    phases = [max(1, round(draw.uniform(0.5, 1.5) * firings / actors / q)) for q in cycles]
    made = tuple(
        Actor(f"a{i}", tuple(Fraction(draw.randint(0, 100)) for _ in range(count)), concurrency=1)
        for i, count in enumerate(phases)
    )
    found = []
    for i in range(channels + feedback):
        target = i + 1 if i + 1 < actors else draw.randrange(1, actors)
        source = draw.randrange(max(0, target - 8), target)
        if i >= channels:
            source, target = target, source
        common = math.gcd(cycles[source], cycles[target])
        moved = draw.randint(1, 3) * math.lcm(cycles[source], cycles[target]) * 4
        production = _rates(draw, phases[source], moved // cycles[source])
        consumption = _rates(draw, phases[target], moved // cycles[target])
        tight = (sum(production) + sum(consumption)) * 2 // common
        room = moved if capacities != "tight" or i + 1 >= actors else min(moved, tight)
        tokens = moved if i >= channels else 0
        capacity = None if capacities == "none" else room + tokens
        found.append(
            Channel(f"c{i}", f"a{source}", f"a{target}", production, consumption, tokens, capacity)
        )
    graph = Graph(f"{actors} actors, capacities {capacities}", made, tuple(found))
    while check_liveness(graph) is not None:
        graph = replace(graph, channels=tuple(_larger(channel) for channel in graph.channels))
    return graph


def _rates(draw: random.Random, phases: int, total: int) -> tuple[int, ...]:
    cuts = sorted(draw.randint(0, total) for _ in range(phases - 1))
    return tuple(high - low for low, high in zip([0, *cuts], [*cuts, total], strict=True))


def _larger(channel: Channel) -> Channel:
    assert channel.capacity is not None  # noqa: S101 (without capacities the graph is live)
    return replace(channel, capacity=channel.capacity * 5 // 4 + 1)
