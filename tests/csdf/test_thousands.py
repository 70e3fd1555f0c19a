"""Thousands of random graphs, each analysed in every way there is, and executed plainly."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import pytest

from csdf.execution.liveness import Deadlock, check_liveness
from csdf.model.consistency import firings, repetition_vector
from csdf.model.graph import Graph
from csdf.timing.throughput import Method, throughput
from tests.csdf import oracle
from tests.csdf.graphs import connected_parts, may_overtake, random_graph
from tests.csdf.test_liveness import applied, is_live, smaller_than

MOST_FIRINGS = 120


@pytest.mark.parametrize("graphs", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_everything_agrees_with_plain_executions(graphs: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(graphs):
        found = random_graph(random.Random(seed), bounded=seed % 2 == 0)
        repetitions = repetition_vector(found)
        if firings(found, repetitions) > MOST_FIRINGS:
            continue
        deadlock = check_liveness(found)
        live = oracle.executes(found, repetitions)
        assert (deadlock is None) == live, seed
        seen["live" if live else "dead"] += 1
        if deadlock is not None:
            check_remedies(found, deadlock, seed)
            continue
        period = throughput(found).period
        check_period(found, period, seed)
        if seed % 2 == 0:
            shown = period_shown(found)
            seen["shown"] += shown is not None
            assert shown in (None, period), seed
        around = throughput(found).critical
        if around:
            seen["held by a cycle"] += 1
            cycle = [(s.actor, s.phase, s.channel, s.for_space) for s in around]
            assert oracle.ratio_of_cycle(found, repetitions, cycle) == period, seed
        else:
            assert period == 0 or may_overtake(found), seed
    assert min(seen[kind] for kind in ("live", "dead", "shown", "held by a cycle")) > graphs // 10


def check_remedies(found: Graph, deadlock: Deadlock, seed: int) -> None:
    """Each frees the graph, and nothing smaller does."""
    for remedy in deadlock.remedies:
        assert is_live(applied(found, remedy)), seed
        for smaller in smaller_than(found, remedy):
            assert not is_live(applied(found, smaller)), seed


def check_period(found: Graph, period: Fraction, seed: int) -> None:
    """By every method that applies."""
    methods: list[Method] = ["state space"]
    if not may_overtake(found):
        methods += ["cycle ratio", "expansion"]
    for method in methods:
        assert throughput(found, method).period == period, (seed, method)


def period_shown(found: Graph) -> Fraction | None:
    """The slowest part's, where the execution shows it."""
    shown = [oracle.period(part, repetition_vector(part)) for part in connected_parts(found)]
    known = [period for period in shown if period is not None]
    return max(known) if len(known) == len(shown) else None
