"""The fastest K-periodic schedules, against constraints between single firings."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from csdf.errors import CsdfError, DeadlockError, OvertakingError
from csdf.execution.liveness import check_liveness
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.k_periodic import k_periodic_schedule
from csdf.timing.throughput import throughput
from tests.csdf.conftest import Csdf
from tests.csdf.firing_times import k_periodic_edges, longest
from tests.csdf.graphs import graph, random_graph

NO_SCHEDULE = graph(
    {"A": (1,), "B": (1,), "C": (1,)},
    ("A", "B", (4,), (3,), 1),
    ("B", "C", (5,), (4,), 7),
    ("C", "A", (3,), (5,), 2),
    concurrency=None,
)
"""Live, but not at even distances of firings."""


def is_fastest(found: Graph, draw: random.Random) -> bool:
    """Check a schedule against the constraints, and that no shorter period has one.

    Return False if there is no schedule.
    """
    names = list(found.actor)
    cycles = draw.choice((1, 2, 3, {name: draw.randint(1, 3) for name in names}))
    chosen = dict.fromkeys(names, cycles) if isinstance(cycles, int) else cycles
    try:
        schedule = k_periodic_schedule(found, cycles)
    except (DeadlockError, OvertakingError):
        return False
    repetitions = repetition_vector(found)
    if schedule is None:
        times = (repetitions[a.name] * sum(a.execution_times, Fraction(0)) for a in found.actors)
        slow = 1000 * sum(times, Fraction(1))
        assert longest(k_periodic_edges(found, repetitions, chosen, slow)) is None
        return True
    period = throughput(found).period
    assert schedule.period >= period
    if all(chosen[name] % q == 0 for name, q in repetitions.items()):
        assert schedule.period == period
    edges = k_periodic_edges(found, repetitions, chosen, schedule.period)
    for (source, i), (target, j), time in edges:  # type: ignore[misc]
        assert schedule.starts[target][j] - schedule.starts[source][i] >= time  # type: ignore[has-type]
    for name, k in chosen.items():
        assert len(schedule.starts[name]) == k * found.actor[name].phases
        assert schedule.turns[name] == schedule.period * k / repetitions[name]
    if schedule.period:
        shorter = schedule.period - Fraction(1, 10**9)
        assert longest(k_periodic_edges(found, repetitions, chosen, shorter)) is None
    return True


@pytest.mark.parametrize("seed", range(60))
def test_schedules_are_valid_and_none_is_faster(seed: int) -> None:
    is_fastest(random_graph(random.Random(seed), bounded=seed % 2 == 0), random.Random(seed))


@pytest.mark.parametrize("seed", range(8))
def test_where_there_is_none(seed: int) -> None:
    assert is_fastest(NO_SCHEDULE, random.Random(seed))


def test_a_live_graph_may_have_none() -> None:
    assert check_liveness(NO_SCHEDULE) is None
    assert k_periodic_schedule(NO_SCHEDULE) is None
    whole = repetition_vector(NO_SCHEDULE)
    found = k_periodic_schedule(NO_SCHEDULE, whole)
    assert found is not None
    assert found.period == throughput(NO_SCHEDULE).period


def test_more_cycles_are_faster() -> None:
    pair = graph({"A": (2,), "B": (3,)}, ("A", "B", (3,), (2,), 0, 5))
    periods = [k_periodic_schedule(pair, k) for k in (1, 2, 3, 6)]
    assert [one and one.period for one in periods] == [15, 15, 11, 11]


def test_what_is_refused() -> None:
    with pytest.raises(OvertakingError, match="'A' may overlap"):
        k_periodic_schedule(graph({"A": (1, 2)}, concurrency=2))
    with pytest.raises(CsdfError, match="'B', which is not an actor"):
        k_periodic_schedule(graph({"A": (1,)}), {"B": 1})
    with pytest.raises(CsdfError, match="has 0 cycles"):
        k_periodic_schedule(graph({"A": (1,)}), 0)


def test_the_command(csdf: Csdf) -> None:
    pair = graph({"A": (2,), "B": (3,)}, ("A", "B", (3,), (2,), 0, 5))
    lines = csdf("schedule", pair, "--cycles", "1").lines
    assert lines[0] == "period 15 per iteration; actors start at"
    found = csdf("schedule", pair, "--cycles", "A=2,B=3", "--json").json
    assert (found["period"], found["cycles"]) == ("11", {"A": 2, "B": 3})
    said = csdf("schedule", pair, "--cycles", "1", "--period", "20", code=2).err
    assert "cannot be combined with --period or --memory" in said
    said = csdf("schedule", NO_SCHEDULE, "--cycles", "1", code=1).out
    assert "There is no such schedule" in said
    csdf("schedule", pair, "--cycles", "A=0", code=2)
