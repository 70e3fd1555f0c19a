"""Self-timed start times are those of a plain execution, and recur as reported."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from csdf.execution.liveness import check_liveness
from csdf.execution.static_orders import ordered
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.expansion import expand
from csdf.timing.latency import SelfTimedFirings, latency
from tests.csdf import oracle
from tests.csdf.graphs import consistent_graphs, graph, in_order
from tests.effort import examples


def reaching(found: Graph, sink: str) -> set[str]:
    """The actors whose tokens or space `sink` needs in the end."""
    found_ = {sink}
    while True:
        more = {c.source for c in found.channels if c.target in found_} | {
            c.target for c in found.channels if c.source in found_ and c.capacity is not None
        }
        if more <= found_:
            return found_
        found_ |= more


@examples(12)
@given(consistent_graphs(), st.data())
def test_starts_come_back_later_by_the_pace_of_all(some: Graph, data: st.DataObject) -> None:
    """Also where some actors run ahead without end, and the tokens pile up before the others."""
    found = in_order(some)
    assume(check_liveness(found) is None)
    sink = data.draw(st.sampled_from(sorted(found.actor)))
    actors = sorted(reaching(found, sink))
    expansion = expand(found)
    firings = [firing for name in actors for firing in expansion.firings(name)]
    execution = SelfTimedFirings(expansion, ordered(found, {}), firings)
    starts = execution.run(firings, 30_000, 1)
    assume(starts.recurs is not None and starts.length is not None)
    assert starts.recurs is not None
    assert starts.length is not None
    iterations = starts.recurs + 3 * starts.length
    assume(iterations <= 40)
    plain: dict[str, list[Fraction]] = {name: [] for name in found.actor}
    for actor, start, _ in oracle.timed(found, repetition_vector(found), iterations):
        plain[actor].append(start)
    unit = expansion.events.time_unit
    later = set[Fraction]()
    for place, firing in enumerate(firings):
        name, number = next(
            (a, firing - expansion.firings(a)[0]) for a in actors if firing in expansion.firings(a)
        )
        column = plain[name][number :: len(expansion.firings(name))]
        rows = zip(starts.begins, column, strict=False)
        assert all(row[place] == start * unit for row, start in rows)
        turns = zip(column[starts.recurs :], column[starts.recurs + starts.length :], strict=False)
        if execution.is_held(firing):
            later |= {after - before for before, after in turns}
    assert len(later) == 1
    assert execution.is_held(expansion.firings(sink)[0])


def test_a_second_source_may_run_ahead() -> None:
    """B's tokens pile up before C, but C waits for A's only, at A's pace."""
    found = graph({"A": (5,), "B": (3,), "C": (1,)}, ("A", "C", (1,), (1,)), ("B", "C", (1,), (1,)))
    result = latency(found, "A", "C")
    assert (result.first, result.steady, result.worst) == (6, 6, 6)
    assert latency(found, "B", "C").steady is None
