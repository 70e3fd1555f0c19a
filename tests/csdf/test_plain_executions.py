"""Random graphs, each analysed in every way there is, and executed plainly."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

from csdf.execution.liveness import Deadlock, check_liveness
from csdf.model.consistency import firings, repetition_vector
from csdf.model.graph import Graph
from csdf.timing.throughput import Method, throughput
from tests.csdf import oracle
from tests.csdf.graphs import may_overtake, random_graph
from tests.csdf.test_liveness import applied, is_live, smaller_than

MOST_FIRINGS = 120


def test_everything_agrees_with_plain_executions() -> None:
    graphs = 400
    seen: Counter[str] = Counter()
    for seed in range(graphs):
        seen.update(agreeing(seed))
    assert min(seen[kind] for kind in ("live", "dead", "shown", "held by a cycle")) > graphs // 10


def agreeing(seed: int) -> list[str]:
    """What a graph is, after all that is said of it agrees with executions."""
    found = random_graph(random.Random(seed), bounded=seed % 2 == 0)
    repetitions = repetition_vector(found)
    if firings(found, repetitions) > MOST_FIRINGS:
        return []
    deadlock = check_liveness(found)
    live = oracle.executes(found, repetitions)
    assert (deadlock is None) == live, seed
    if deadlock is not None:
        check_remedies(found, deadlock, seed)
        return ["dead"]
    kinds = ["live"]
    period = throughput(found).period
    check_period(found, period, seed)
    if seed % 2 == 0:
        shown = oracle.period(found)
        assert shown in (None, period), seed
        kinds += ["shown"] * (shown is not None)
    around = throughput(found).critical
    if not around:
        assert period == 0 or may_overtake(found), seed
        return kinds
    cycle = [(s.actor, s.phase, s.channel, s.for_space) for s in around]
    assert oracle.ratio_of_cycle(found, repetitions, cycle) == period, seed
    return [*kinds, "held by a cycle"]


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
