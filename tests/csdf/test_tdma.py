"""Worst execution times with slices of a time wheel, against executions with slices anywhere."""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

from csdf.cli.command import main
from csdf.errors import CsdfError
from csdf.formats import json_format
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Actor, Graph
from csdf.timing.tdma import Slice, with_slices
from tests.csdf import oracle
from tests.csdf.graphs import graph, may_overtake, random_graph
from tests.csdf.test_live_actors import Execution

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


class Sliced(Execution):
    """An execution in which some actors execute only in their slices; it keeps the ends."""

    def __init__(self, found: Graph, slices: Mapping[str, tuple[Slice, Fraction]]) -> None:
        super().__init__(found)
        self.slices = slices
        self.ends: dict[str, list[Fraction]] = {name: [] for name in found.actor}

    def start(self, actor: Actor) -> bool:
        """Start a firing if it can start."""
        if not super().start(actor):
            return False
        if actor.name in self.slices:
            own = next(one for one in self.running if one[1] == actor.name)
            self.running.remove(own)
            heapq.heapify(self.running)
            time = own[0] - self.now
            end = served(self.now, time, *self.slices[actor.name])
            heapq.heappush(self.running, (end, actor.name, own[2]))
        return True

    def run(self, wanted: Mapping[str, int]) -> None:
        """Execute that many firings of each actor."""
        while True:
            while any(
                self.fired[a.name] < wanted[a.name] and self.start(a) for a in self.graph.actors
            ):
                pass
            if not self.running:
                return
            name = self.running[0][1]
            self.end()
            self.ends[name].append(self.now)


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
    wanted = {a.name: ITERATIONS * repetitions[a.name] * a.phases for a in found.actors}
    plain = Sliced(worst, {})
    plain.run(wanted)
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
    real.run(wanted)
    for name, ends in plain.ends.items():
        assert len(ends) == len(real.ends[name]) == wanted[name]
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


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "graph.json"
    file.write_text(json_format.write(graph({"A": (5,), "B": (1,)}, ("A", "B", (1,), (1,)))))
    assert main(["analyze", str(file), "--json", "--slice", "A=2/10", "--slice", "B=1/2"]) == 0
    assert json.loads(capsys.readouterr().out)["period"] == "29"
    assert main(["analyze", str(file), "--slice", "C=2/10"]) == 2
    assert "'C', which is not an actor" in capsys.readouterr().err
    for wrong in ("A=3/2", "A=0/2"):
        assert main(["analyze", str(file), "--slice", wrong]) == 2
        assert "a time above 0" in capsys.readouterr().err
    for wrong in ("A=2", "A", "=1/2", "A=1/0"):
        with pytest.raises(SystemExit):
            main(["analyze", str(file), "--slice", wrong])
    with pytest.raises(CsdfError, match="has 3 of every 2"):
        with_slices(graph({"A": (5,)}), {"A": Slice(Fraction(3), Fraction(2))})
