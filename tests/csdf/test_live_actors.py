"""Which actors fire for ever, and where tokens pile up, against long executions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

import pytest

from csdf.execution.liveness import live_actors
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.throughput import accumulating_channels, actor_periods
from tests.csdf import oracle
from tests.csdf.conftest import Csdf
from tests.csdf.graphs import graph, random_graph

WINDOW = 24
"""Iterations after which the state of most small random graphs has recurred."""


def fire_for_ever(found: Graph) -> bool:
    """Check the actors that fire for ever against an execution of more iterations than tokens.

    A token lets an actor behind a deadlock fire for one iteration at most.
    """
    repetitions = repetition_vector(found)
    most = 2 + sum(c.initial_tokens + (c.capacity or 0) for c in found.channels)
    wanted = {a.name: most * repetitions[a.name] * a.phases for a in found.actors}
    state = oracle.Untimed(found)
    while able := [a for a, n in state.fired.items() if n < wanted[a] and not state.lacking(a)]:
        for actor in able:
            while state.fired[actor] < wanted[actor] and not state.lacking(actor):
                state.fire(actor)
    assert live_actors(found) == [a for a, n in state.fired.items() if n == wanted[a]]
    return True


def highest(found: Graph, ends: Sequence[Fraction]) -> list[dict[str, int]]:
    """Return the most tokens in each channel until each of these times, since the one before.

    At each instant, tokens are counted after all firings that end there.
    """
    execution = oracle.Timed(found)
    seen: list[dict[str, int]] = [dict.fromkeys(execution.tokens, 0) for _ in ends]
    for end, most in zip(ends, seen, strict=True):
        while execution.now < end:
            while able := [actor for actor in execution.fired if execution.able(actor)]:
                execution.start(able[0])
            execution.pass_time()
            execution.end_due()
            for name, there in execution.tokens.items():
                most[name] = max(most[name], there)
    return seen


def pile_up(found: Graph) -> bool:
    """Check the channels in which tokens pile up by an execution; False if it would be endless."""
    periods = actor_periods(found)
    paces = sorted(periods.values())
    if (
        not oracle.executes(found, repetition_vector(found))
        or not paces[0]
        or paces[-1] > 40 * paces[0]
    ):
        return False
    begin, window = 40 * paces[-1], WINDOW * paces[-1]
    early, late, later = highest(found, [begin, begin + window, begin + 2 * window])
    endless = {c.name for c in found.channels if c.capacity is None}  # others fill up, however late
    growing = [n for n, most in later.items() if n in endless and most > max(early[n], late[n])]
    own = accumulating_channels(found, periods)
    slowly = [
        c.name
        for c in found.channels
        if periods[c.source] < periods[c.target] < periods[c.source] * Fraction(3, 2)
    ]
    assert set(growing) <= set(own) <= endless & {*growing, *slowly}
    return True


@pytest.mark.parametrize("seed", range(60))
def test_long_executions_agree(seed: int) -> None:
    found = random_graph(random.Random(seed), bounded=seed % 2 == 0)
    fire_for_ever(found)
    if oracle.executes(found, repetition_vector(found)):
        pile_up(found)


def test_a_graph_may_be_free_of_deadlock_and_not_live(csdf: Csdf) -> None:
    found = graph(
        {"A": (1,), "B": (1,), "C": (1,)},
        ("A", "B", (1,), (1,)),
        ("B", "C", (1,), (1,)),
        ("C", "B", (1,), (1,)),
    )
    assert live_actors(found) == ["A"]
    assert csdf("analyze", found, code=1).out.endswith(
        "            These actors fire forever: A.\n"
    )
    assert csdf("analyze", "--json", found, code=1).json["live_actors"] == ["A"]


def test_a_bound_makes_the_first_actor_wait(csdf: Csdf) -> None:
    for capacity, channels in ((None, ["c1"]), (2, [])):
        found = graph({"A": (1,), "B": (3,)}, ("A", "B", (1,), (1,), 0, capacity))
        assert accumulating_channels(found, actor_periods(found)) == channels
        assert csdf("analyze", "--throughput", "--json", found).json["accumulating"] == channels
        said = csdf("analyze", "--throughput", found).out
        assert ("pile up without end in c1." in said) == bool(channels)
