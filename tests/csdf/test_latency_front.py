"""Smallest capacities for latencies, against all distributions and constraints between firings."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from csdf.buffers.latency_front import latency_front
from csdf.buffers.storage import unbounded, with_capacities
from csdf.errors import CsdfError, DeadlockError, OvertakingError
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from tests.csdf import brute_force, oracle
from tests.csdf.conftest import Csdf
from tests.csdf.firing_times import k_periodic_edges, longest, waits
from tests.csdf.graphs import graph, random_graph
from tests.csdf.test_capacities_brute_force import distributions

REFERENCE = Path(__file__).parent.parent / "fixtures" / "csdf_reference"
MOST = 150
"""Distributions that are looked at."""


def distance(found: Graph, repetitions: Mapping[str, int], source: str, sink: str) -> int | None:
    """The least number of iterations on a way of waits from the first to the last firing."""
    per = {a.name: repetitions[a.name] * a.phases for a in found.actors}
    steps: list[tuple[object, object, Fraction]] = [
        ((s, n % per[s]), (t, m % per[t]), Fraction(n // per[s] - m // per[t]))
        for (s, n), (t, m), _ in waits(found, repetitions)
    ]
    reached = longest(steps, (source, 0))
    assert reached is not None
    last = reached.get((sink, per[sink] - 1))
    return None if last is None else -int(last)


def paced(
    found: Graph, repetitions: Mapping[str, int], source: str, sink: str, pace: Fraction, apart: int
) -> Fraction | None:
    """The smallest latency of schedules with this period; None if there are none."""
    edges = k_periodic_edges(found, repetitions, repetitions, pace)
    if not oracle.executes(found, repetitions) or longest(edges) is None:
        return None
    reached = longest(edges, (source, 0))
    assert reached is not None
    times = found.actor[sink].execution_times
    last = repetitions[sink] * len(times) - 1
    return reached[sink, last] + apart * pace + times[-1]


def is_the_front(found: Graph, draw: random.Random) -> bool:
    """Compare the points at one pace, and at all, with every distribution up to their size."""
    names = unbounded(found)
    way = found.channel[draw.choice(names)]
    ends = (way.source, way.target), (draw.choice(found.actors).name, way.target)
    source, sink = draw.choice(ends)
    weighed = tuple(replace(c, token_bytes=draw.randint(1, 3)) for c in found.channels)
    found = replace(found, channels=weighed)
    repetitions = repetition_vector(found)
    period = None
    if draw.random() < 0.5:
        times = (repetitions[a.name] * sum(a.execution_times) for a in found.actors)
        period = sum(times, Fraction(0)) * Fraction(draw.randint(1, 6), 4)
    try:
        front = latency_front(found, source, sink, period, unit="bytes", effort=2000)
    except (DeadlockError, OvertakingError):
        return False
    except CsdfError as error:
        why = str(error)
    else:
        why = ""
    if why:
        reasons = "no pace", "no capacities", "leads from", "more room", "nothing bounds"
        assert any(part in why for part in reasons)
        return False
    cost = [found.channel[name].token_bytes for name in names]
    size = max(point.size for point in front.points)
    if not front.complete or distributions(found, names, cost, size) > MOST:
        return False
    apart = distance(with_capacities(found, dict.fromkeys(names)), repetitions, source, sink)
    assert apart is not None
    best = set()
    for own, room in brute_force.distributions(found, names, cost, size):
        candidate = with_capacities(found, room)
        for pace in front.paces:
            latency = paced(candidate, repetitions, source, sink, pace, apart)
            if latency is not None:
                best.add((own, pace, latency))
    points = {(one.size, one.pace, one.latency) for one in front.points}
    assert points == {
        one
        for one in best
        if not any(
            other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in best
        )
    }
    for point in front.points:
        candidate = with_capacities(found, point.capacities)
        assert paced(candidate, repetitions, source, sink, point.pace, apart) == point.latency
    return True


def sizable(draw: random.Random) -> Graph:
    """A random graph that is live without bounds, and has one to three channels to size."""
    while True:
        found = random_graph(draw, bounded=False)
        free = with_capacities(found, dict.fromkeys(unbounded(found)))
        if 1 <= len(unbounded(found)) <= 3 and oracle.executes(free, repetition_vector(free)):
            return found


@pytest.mark.parametrize("seed", range(60))
def test_no_distribution_is_better(seed: int) -> None:
    is_the_front(sizable(random.Random(seed)), random.Random(seed))


def test_some_are_compared() -> None:
    graphs = [sizable(random.Random(seed)) for seed in range(60)]
    assert sum(is_the_front(one, random.Random(1)) for one in graphs) > 10


CHAIN = graph(
    {"A": (1,), "B": (2, 3), "C": (1,)}, ("A", "B", (2,), (1, 1)), ("B", "C", (1, 1), (1,))
)


def test_the_front_of_a_chain() -> None:
    front = latency_front(CHAIN, "A", "C")
    assert front.complete
    assert [(one.size, one.pace, one.latency) for one in front.points] == [
        (3, 7, 8),
        (4, 6, 7),
        (5, 5, 7),
    ]


def test_what_is_refused() -> None:
    with pytest.raises(CsdfError, match="no path leads from 'C' to 'A'"):
        latency_front(CHAIN, "C", "A")
    with pytest.raises(CsdfError, match="'X' is not an actor"):
        latency_front(CHAIN, "X", "A")
    with pytest.raises(CsdfError, match="no capacities reach a period of 1"):
        latency_front(CHAIN, "A", "C", Fraction(1))


def test_the_command(csdf: Csdf) -> None:
    file = "cnnrows_unbounded.xml"
    way = ["--source", "in", "--sink", "fc"]
    found = csdf("capacities", file, *way, "--json", "--period", "50").json
    assert (found["unit"], found["periods"], found["complete"]) == ("tokens", ["50"], True)
    assert found["points"] == [
        {"size": 8, "period": "50", "latency": "58", "capacities": {"i": 2, "p": 2, "f": 4}},
        {"size": 9, "period": "50", "latency": "55", "capacities": {"i": 2, "p": 3, "f": 4}},
    ]
    assert csdf("capacities", file, *way).lines == [
        "size (tokens)  period  latency  capacities",
        "            7      59       69  i 1, p 2, f 4",
        "            8      48       58  i 2, p 2, f 4",
        "            9      45       55  i 2, p 3, f 4",
        "Each row is proved: nothing smaller has its latency at its period or a shorter one.",
    ]
    assert "The effort did not suffice" in csdf("capacities", file, *way, "--effort", "1").out
    assert "given together" in csdf("capacities", file, "--source", "in", code=2).err
