"""Worst execution times with slices of a time wheel, against executions with slices anywhere."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction

import pytest

from csdf.errors import CsdfError
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Actor, Graph
from csdf.timing.tdma import Slice, with_slices
from tests.csdf import oracle
from tests.csdf.conftest import Csdf
from tests.csdf.graphs import graph, may_overtake, random_graph

ITERATIONS = 3


def served(start: Fraction, time: Fraction, own: Slice, offset: Fraction) -> Fraction:
    """Return the end of a firing whose actor has [offset, offset + slice) of every turn."""
    now, left = start, time
    while left:
        place = (now - offset) % own.wheel
        if place >= own.time:
            now += own.wheel - place
            continue
        step = min(left, own.time - place)
        now, left = now + step, left - step
    return now


class Sliced(oracle.Bounded):
    """An execution in which some actors execute only in their slices; it keeps the ends."""

    def __init__(self, found: Graph, slices: Mapping[str, tuple[Slice, Fraction]]) -> None:
        super().__init__(found, repetition_vector(found), ITERATIONS)
        self.slices = slices
        self.ends: dict[str, list[Fraction]] = {name: [] for name in found.actor}
        self.run()

    def start(self, actor: str) -> oracle.Firing:
        """Start a firing, which takes as long as the slices let it."""
        one = super().start(actor)
        if actor in self.slices:
            one.left = served(self.now, one.left, *self.slices[actor]) - self.now
        return one

    def end(self, one: oracle.Firing) -> None:
        """See `Timed.end`."""
        super().end(one)
        self.ends[one.actor].append(self.now)


def none_is_later(found: Graph, draw: random.Random) -> bool:
    """Compare the ends of firings with slices anywhere with those with worst times."""
    repetitions = repetition_vector(found)
    names = draw.sample(list(found.actor), draw.randint(1, len(found.actor)))
    slices = {}
    for name in names:
        wheel = Fraction(draw.randint(1, 6))
        slices[name] = Slice(wheel * Fraction(draw.randint(1, 4), 4), wheel)
    worst = with_slices(found, slices)
    if may_overtake(worst) or not oracle.executes(found, repetitions):
        return False
    plain = Sliced(worst, {})
    alone = Graph(
        found.name,
        tuple(
            Actor(a.name, a.execution_times, 1 if a.name in slices else a.concurrency)
            for a in found.actors
        ),
        found.channels,
    )
    placed = {name: (own, Fraction(draw.randint(0, 12), 2)) for name, own in slices.items()}
    real = Sliced(alone, placed)
    for name, ends in plain.ends.items():
        assert len(ends) == len(real.ends[name]) == plain.iterations * plain.cycle[name]
        assert all(own <= most for own, most in zip(real.ends[name], ends, strict=True))
    return True


@pytest.mark.parametrize("seed", range(60))
def test_no_firing_ends_later(seed: int) -> None:
    none_is_later(random_graph(random.Random(seed), bounded=seed % 2 == 0), random.Random(seed))


def test_some_are_compared() -> None:
    graphs = [random_graph(random.Random(seed), bounded=True) for seed in range(60)]
    assert sum(none_is_later(one, random.Random(1)) for one in graphs) > 15


@pytest.mark.parametrize(
    ("time", "own"), [(5, Slice(Fraction(2), Fraction(10))), (4, Slice(Fraction(2), Fraction(3)))]
)
def test_the_worst_start_takes_that_long(time: int, own: Slice) -> None:
    starts = [Fraction(n, 10) for n in range(int(own.wheel) * 10)]
    took = [served(start, Fraction(time), own, Fraction(0)) - start for start in starts]
    assert max(took) == own.worst(Fraction(time))


def test_the_command(csdf: Csdf) -> None:
    file = graph({"A": (5,), "B": (1,)}, ("A", "B", (1,), (1,)))
    found = csdf("analyze", file, "--json", "--slice", "A=2/10", "--slice", "B=1/2").json
    assert found["period"] == "29"
    assert "'C', which is not an actor" in csdf("analyze", file, "--slice", "C=2/10", code=2).err
    twice = ("--slice", "A=2/10", "--slice", "A=3/10")
    assert "actor 'A' has two slices" in csdf("analyze", file, *twice, code=2).err
    for wrong in ("A=3/2", "A=0/2"):
        assert "a time above 0" in csdf("analyze", file, "--slice", wrong, code=2).err
    for wrong in ("A=2", "A", "=1/2", "A=1/0"):
        csdf("analyze", file, "--slice", wrong, code=2)
    with pytest.raises(CsdfError, match="has 3 of every 2"):
        with_slices(graph({"A": (5,)}), {"A": Slice(Fraction(3), Fraction(2))})
