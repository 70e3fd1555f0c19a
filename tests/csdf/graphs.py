"""CSDF graphs to analyse: a short way to write them, and any small consistent one (hypothesis)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from hypothesis import strategies as st

from csdf.graph import Actor, Channel, Graph


def graph(
    times: Mapping[str, Sequence[int]],
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
