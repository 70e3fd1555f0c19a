"""CSDF graphs to analyse: a short way to write them, and any small consistent one (hypothesis)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st

from csdf.errors import InconsistentGraphError
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Actor, Channel, Graph


def graph(
    times: Mapping[str, Sequence[int | Fraction]],
    *channels: tuple[object, ...],
    concurrency: int | None = 1,
) -> Graph:
    """A graph with actors of these times; a channel is what `Channel` takes, after its name.

    `("A", "B", (1, 2), (3,), initial_tokens, capacity)`; the n-th is called `cn`.
    """
    return Graph(
        "example",
        tuple(
            Actor(name, tuple(Fraction(time) for time in phases), concurrency)
            for name, phases in times.items()
        ),
        tuple(Channel(f"c{i}", *about) for i, about in enumerate(channels, 1)),  # type: ignore[arg-type]
    )


@st.composite
def rates(draw: st.DrawFn, phases: int, total: int) -> tuple[int, ...]:
    """One rate per phase, of this total; zeros are likely."""
    if draw(st.booleans()):
        parts = [0] * phases
        parts[draw(st.integers(0, phases - 1))] = total
        return tuple(parts)
    cuts = sorted(draw(st.integers(0, total)) for _ in range(phases - 1))
    return tuple(high - low for low, high in zip([0, *cuts], [*cuts, total], strict=True))


@st.composite
def consistent_graphs(
    draw: st.DrawFn,
    max_actors: int = 4,
    max_channels: int = 6,
    *,
    bounded: bool | None = None,
    times: st.SearchStrategy[Fraction] | None = None,
) -> Graph:
    """Any small consistent graph: live or dead, with or without capacities, zero rates and times.

    `bounded` forces every channel to have a capacity (or none to).
    """
    if times is None:
        times = st.sampled_from([Fraction(n, d) for n in range(5) for d in (1, 1, 2, 3)])
    actors = [
        Actor(
            f"a{i}",
            tuple(draw(st.lists(times, min_size=1, max_size=3))),
            draw(st.sampled_from((1, 1, 2, None))),
        )
        for i in range(draw(st.integers(1, max_actors)))
    ]
    cycles = [draw(st.integers(1, 3)) for _ in actors]
    channels = []
    for i in range(draw(st.integers(0, max_channels))):
        s, t = (draw(st.integers(0, len(actors) - 1)) for _ in range(2))
        factor = draw(st.integers(1, 2))
        common = math.gcd(cycles[s], cycles[t])
        production = draw(rates(actors[s].phases, factor * cycles[t] // common))
        consumption = draw(rates(actors[t].phases, factor * cycles[s] // common))
        # On average enough to be live about as often as not.
        tokens = draw(st.integers(0, 6)) if s >= t else draw(st.sampled_from((0, 0, 1, 3)))
        has_capacity = draw(st.booleans()) if bounded is None else bounded
        capacity = tokens + draw(st.integers(0, 8)) if has_capacity else None
        channels.append(
            Channel(f"c{i}", f"a{s}", f"a{t}", production, consumption, tokens, capacity)
        )
    return Graph("random", tuple(actors), tuple(channels))


TIMES = ((1,), (0, 1), (0, 0, 5), (0, 1, 2, 3, 4), (1, 2, 3, Fraction(1, 2), Fraction(7, 5)))


def random_graph(draw: random.Random, *, bounded: bool) -> Graph:
    """A consistent graph of up to six actors of up to five phases; all kinds are likely.

    Connected or not, with self-channels and parallel ones; `bounded` gives every channel a
    capacity. Where thousands are wanted, this is quicker than hypothesis, but does not shrink.
    """
    times = draw.choice(TIMES)
    most_phases = draw.choice((1, 2, 3, 5))
    overlap = draw.choice(((1,), (1, 1, 2, None), (None,), (1, 2, 3)))
    actors = tuple(
        Actor(
            f"a{i}",
            tuple(Fraction(draw.choice(times)) for _ in range(draw.randint(1, most_phases))),
            draw.choice(overlap),
        )
        for i in range(draw.randint(1, draw.choice((2, 3, 4, 6))))
    )
    cycles = [draw.randint(1, draw.choice((1, 2, 4))) for _ in actors]
    is_tree, share = draw.random() < 0.6, 1.0 if bounded else draw.random()
    channels = []
    for i in range(draw.randint(0, len(actors) + 4)):
        s, t = draw.randrange(len(actors)), draw.randrange(len(actors))
        if is_tree and i + 1 < len(actors):
            s, t = draw.choice(((i + 1, draw.randint(0, i)), (draw.randint(0, i), i + 1)))
        factor, common = draw.randint(1, 3), math.gcd(cycles[s], cycles[t])
        production = _random_rates(draw, actors[s].phases, factor * cycles[t] // common)
        consumption = _random_rates(draw, actors[t].phases, factor * cycles[s] // common)
        tokens = draw.randint(0, 8) if s >= t else draw.choice((0, 0, 0, 1, 3))
        capacity = tokens + draw.randint(0, 12) if draw.random() < share else None
        channels.append(
            Channel(f"c{i}", f"a{s}", f"a{t}", production, consumption, tokens, capacity)
        )
    return Graph("random", actors, tuple(channels))


def _random_rates(draw: random.Random, phases: int, total: int) -> tuple[int, ...]:
    if draw.random() < 0.4:
        place = draw.randrange(phases)
        return tuple(total if phase == place else 0 for phase in range(phases))
    cuts = sorted(draw.randint(0, total) for _ in range(phases - 1))
    return tuple(high - low for low, high in zip([0, *cuts], [*cuts, total], strict=True))


def connected_parts(found: Graph) -> list[Graph]:
    """The parts of a graph between which there is no channel."""
    group = {name: {name} for name in found.actor}
    for channel in found.channels:
        together = group[channel.source] | group[channel.target]
        for name in together:
            group[name] = together
    names = {min(together): together for together in group.values()}
    return [
        Graph(
            found.name,
            tuple(a for a in found.actors if a.name in together),
            tuple(c for c in found.channels if c.source in together),
        )
        for together in names.values()
    ]


def in_order(found: Graph) -> Graph:
    """The graph with one firing of each actor at a time."""
    return replace(found, actors=tuple(replace(a, concurrency=1) for a in found.actors))


def may_overtake(found: Graph) -> bool:
    """Whether a firing may end before one of the same actor that started earlier."""
    return any(len(set(a.execution_times)) > 1 and a.concurrency != 1 for a in found.actors)


def inconsistent_graph(draw: random.Random, *, bounded: bool) -> Graph:
    """A random graph of which one channel, on a loop, produces too much."""
    while True:
        found = random_graph(draw, bounded=bounded)
        for place, channel in enumerate(found.channels):
            more = (channel.production[0] + 1, *channel.production[1:])
            channels = [*found.channels]
            channels[place] = replace(channel, production=more)
            changed = replace(found, channels=tuple(channels))
            try:
                repetition_vector(changed)
            except InconsistentGraphError:
                return changed
