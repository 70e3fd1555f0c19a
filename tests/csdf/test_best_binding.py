"""The best binding of actors to processors, against all bindings and all orders."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

from csdf.errors import CsdfError, TooLargeError
from csdf.execution.static_orders import with_orders
from csdf.formats import sdf3
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.best_binding import best_binding
from csdf.timing.throughput import throughput
from tests.csdf import oracle
from tests.csdf.conftest import Csdf
from tests.csdf.graphs import graph, random_graph
from tests.csdf.test_best_orders import all_periods, count

MOST = 300
"""Combinations of bindings and orders that are looked at."""

Tables = Mapping[str, Mapping[str, Sequence[Fraction]]]


def tables(found: Graph, draw: random.Random) -> Tables:
    """Times on two or three processors; some are alike, and some actors cannot run on some."""
    own = {actor.name: actor.execution_times for actor in found.actors}
    other = {
        name: tuple(Fraction(draw.randint(0, 4)) for _ in times)
        for name, times in own.items()
        if draw.random() < 0.7
    }
    return {name: draw.choice((own, other)) for name in "pq"[: draw.randint(1, 2)]} | {"r": own}


def is_best(found: Graph, draw: random.Random) -> bool:
    """Compare the binding with all others; False if there are too many or the graph is dead."""
    repetitions = repetition_vector(found)
    if not oracle.executes(found, repetitions):
        return False
    on = tables(found, draw)
    firings = {a.name: repetitions[a.name] * a.phases for a in found.actors}
    bindings = [
        dict(zip(firings, chosen, strict=True))
        for chosen in product(on, repeat=len(firings))
        if all(name in on[p] for name, p in zip(firings, chosen, strict=True))
    ]
    owned = [
        {
            p: Counter({a: firings[a] for a in firings if at[a] == p})
            for p in dict.fromkeys(at.values())
        }
        for at in bindings
    ]
    if sum(math.prod(map(count, own.values())) for own in owned) > MOST:
        return False
    try:
        best = best_binding(found, on)
        periods = [
            period
            for at, own in zip(bindings, owned, strict=True)
            for period in all_periods(placed(found, on, at), own)
        ]
    except TooLargeError:
        return False
    assert best.orders.exact
    assert best.graph == placed(found, on, best.processors)
    ordered = with_orders(best.graph, best.orders.orders)
    assert best.orders.period == min(periods) == throughput(ordered).period
    for effort in (0, 1, 3, 10):
        less = best_binding(found, on, effort)
        assert less.orders.at_least <= best.orders.period <= less.orders.period
    return True


def placed(found: Graph, on: Tables, at: Mapping[str, str]) -> Graph:
    actors = tuple(
        replace(actor, execution_times=tuple(on[at[actor.name]][actor.name]))
        for actor in found.actors
    )
    return replace(found, actors=actors)


@pytest.mark.parametrize("seed", range(40))
def test_no_binding_is_better(seed: int) -> None:
    is_best(random_graph(random.Random(seed), bounded=seed % 2 == 0), random.Random(seed))


def test_some_are_compared() -> None:
    graphs = [random_graph(random.Random(seed), bounded=True) for seed in range(60)]
    assert sum(is_best(one, random.Random(1)) for one in graphs) > 5


LINE = graph({"a": (3,), "b": (2,), "c": (4,)}, ("a", "b", (1,), (1,)), ("b", "c", (1,), (1,)))


def test_the_command(csdf: Csdf) -> None:
    lines = csdf("schedule", LINE, "--processors", "P,Q").lines
    assert lines[-1] == "No binding has a shorter period than 5."
    found = csdf("schedule", LINE, "--processors", "P,Q", "--json").json
    assert (found["period"], found["at_least"]) == ("5", "5")
    assert found["processors"]["a"] == found["processors"]["b"] != found["processors"]["c"]
    said = csdf("schedule", LINE, "--processors", "P", "--on", "P=a", code=2).err
    assert "cannot be combined" in said
    said = csdf("schedule", LINE, "--processors", "P=arm", code=2).err
    assert "graphs in JSON have no types of processors" in said
    assert "different names" in csdf("schedule", LINE, "--processors", "P,P", code=2).err


def test_types_of_processors_are_read_from_sdf3(csdf: Csdf, tmp_path: Path) -> None:
    """`c` takes 1 on a dsp, and `a` has no time there, so `a` and `b` share the other processor."""
    times = '<processor type="default" default="true">{}</processor>'
    old = times.format('<executionTime time="{}"/>')
    text = sdf3.write(LINE)
    dsp = '<processor type="dsp"><executionTime time="1"/></processor>'
    for name, time, more in (("a", 3, ""), ("b", 2, dsp), ("c", 4, dsp)):
        here = old.format(time)
        assert here in text, name
        text = text.replace(here, here.replace("default", "arm", 1) + more)
    path = tmp_path / "types.xml"
    path.write_text(text)
    found = csdf("schedule", path, "--processors", "P=arm,Q=dsp", "--json").json
    assert found["processors"] == {"a": "P", "b": "Q", "c": "Q"}
    assert found["period"] == "3"
    said = csdf("schedule", path, "--processors", "Q=dsp", code=2).err
    assert "actor 'a' can run on none of the processors" in said
    said = csdf("schedule", path, "--processors", "Q=fpga", code=2).err
    assert "no actor has an execution time on a processor 'fpga'" in said


def test_without_effort_there_is_a_bound(csdf: Csdf) -> None:
    many = graph({name: (time,) for name, time in zip("abcdef", (7, 6, 5, 4, 4, 4), strict=True)})
    out = csdf("schedule", many, "--processors", "P,Q,R", "--effort", "0").out
    assert ("No binding" in out) != ("better bindings may exist" in out)


def test_what_is_refused() -> None:
    with pytest.raises(CsdfError, match="there is no processor"):
        best_binding(LINE, [])
    with pytest.raises(CsdfError, match="'P' has times for 'x', which is not an actor"):
        best_binding(LINE, {"P": {"x": (Fraction(1),)}})
    with pytest.raises(CsdfError, match="'P' has 2 times for actor 'a', which has 1 phase"):
        best_binding(LINE, {"P": dict.fromkeys("abc", (Fraction(1), Fraction(2)))})
