"""The best static orders, against all of them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import pytest

from csdf.errors import CsdfError, TooLargeError
from csdf.execution.static_orders import with_orders
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.best_orders import best_orders
from csdf.timing.throughput import throughput
from tests.csdf import oracle
from tests.csdf.conftest import Csdf
from tests.csdf.graphs import graph, random_graph

MOST = 120
"""Combinations of orders that are looked at."""


def arrangements(left: Counter[str]) -> Iterator[tuple[str, ...]]:
    """All orders in which these firings can be."""
    if not any(left.values()):
        yield ()
    for name in sorted(left):
        if left[name]:
            for rest in arrangements(left - Counter([name])):
                yield (name, *rest)


def count(left: Counter[str]) -> int:
    return math.factorial(left.total()) // math.prod(map(math.factorial, left.values()))


def are_best(found: Graph, draw: random.Random) -> bool:
    """Compare the orders with all others; False if there are too many or none is live."""
    repetitions = repetition_vector(found)
    names = draw.sample(list(found.actor), draw.randint(1, min(4, len(found.actors))))
    on = {name: draw.choice(("p", "q")) for name in names}
    firings = {name: repetitions[name] * found.actor[name].phases for name in names}
    own = {
        p: Counter({n: firings[n] for n in names if on[n] == p}) for p in dict.fromkeys(on.values())
    }
    if math.prod(count(one) for one in own.values()) > MOST or not oracle.executes(
        found, repetitions
    ):
        return False
    try:
        best = best_orders(found, on)
        periods = list(all_periods(found, own))
    except TooLargeError:
        return False
    assert best.exact
    assert best.period == min(periods) == throughput(with_orders(found, best.orders)).period
    for effort in (0, 2, 5):
        less = best_orders(found, on, effort)
        assert less.at_least <= best.period <= less.period
        assert less.period == throughput(with_orders(found, less.orders)).period
    return True


def all_periods(found: Graph, own: dict[str, Counter[str]]) -> Iterator[Fraction]:
    for orders in product(*(list(arrangements(one)) for one in own.values())):
        placed = with_orders(found, dict(zip(own, orders, strict=True)))
        if oracle.executes(placed, repetition_vector(placed)):
            yield throughput(placed).period


@pytest.mark.parametrize("seed", range(40))
def test_no_orders_are_better(seed: int) -> None:
    are_best(random_graph(random.Random(seed), bounded=seed % 2 == 0), random.Random(seed))


def test_some_are_compared() -> None:
    graphs = [random_graph(random.Random(seed), bounded=True) for seed in range(40)]
    assert sum(are_best(one, random.Random(1)) for one in graphs) > 5


CROSSED = graph(
    {"a": (1,), "b": (4,), "c": (1,), "d": (4,)},
    ("a", "d", (1,), (1,)),
    ("c", "b", (1,), (1,)),
    ("b", "a", (1,), (1,), 1),
    ("d", "c", (1,), (1,), 1),
)


def test_the_command(csdf: Csdf) -> None:
    lines = csdf("schedule", CROSSED, "--on", "P=b,a", "--on", "Q=d,c").lines
    assert lines[:2] == ["P=a,b", "Q=c,d"]
    assert lines[-1] == "No static orders have a shorter period than 5."
    found = csdf("schedule", CROSSED, "--on", "P=a,b,c,d", "--json").json
    assert (found["period"], found["at_least"]) == ("10", "10")
    said = csdf("schedule", CROSSED, "--on", "P=a,b", "--order", "Q=c,d", code=2).err
    assert "--on, --processors and --order cannot be combined" in said


def test_without_effort_there_is_a_bound(csdf: Csdf) -> None:
    ring = graph({"a": (1,), "b": (4,)}, ("a", "b", (3,), (2,)), ("b", "a", (2,), (3,), 6))
    out = csdf("schedule", ring, "--on", "P=a", "--on", "Q=b", "--effort", "0").out
    assert ("No static orders" in out) != ("The effort did not suffice" in out)
    with pytest.raises(CsdfError, match="'x' is on a processor, but is not an actor"):
        best_orders(ring, {"x": "P"})
