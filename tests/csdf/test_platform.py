"""Realistic processors: they share CPUs, wake up, choose ahead, and vary in speed."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from csdf.errors import CsdfError
from csdf.execution.liveness import check_liveness
from csdf.execution.shared_machine import FINENESS, Machine, Platform
from csdf.execution.simulation import Link, Timeline, simulate, with_links
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from tests.csdf.graphs import consistent_graphs, graph, in_order
from tests.csdf.plain_platform import Plain
from tests.csdf.test_simulation import plainly
from tests.effort import examples

SLICES = {"a": Fraction(1), "b": Fraction(1)}


def independent(**works: int) -> tuple[Graph, dict[str, str]]:
    """Actors that fire once an iteration, each on a processor called like it."""
    return graph({name: (work,) for name, work in works.items()}), {name: name for name in works}


def ends(timeline: Timeline) -> dict[str, Fraction]:
    return {firing.actor: firing.end for firing in timeline.firings}


@examples(45)
@given(consistent_graphs(), st.data())
def test_processors_and_links_do_what_a_plain_simulation_does(
    some: Graph, data: st.DataObject
) -> None:
    found = in_order(some)
    assume(check_liveness(found) is None)
    carried = data.draw(st.sets(st.sampled_from([c.name for c in found.channels] or [""])))
    wires = {
        name: Link(data.draw(st.sampled_from(("w", "v"))), Fraction(1, 2), Fraction(1, 3))
        for name in sorted(carried - {""})
    }
    linked, links_on = with_links(found, wires)
    linked = in_order(linked)
    devices = data.draw(st.dictionaries(st.sampled_from(list(found.actor)), st.sampled_from("PQ")))
    on = {name: devices[name] for name in linked.actor if name in devices} | links_on
    plain = Plain(linked, repetition_vector(linked), 3, on)
    assert plainly(simulate(linked, 3, on)) == sorted(plain.all())


def test_cpus_that_slow_each_other_down() -> None:
    found, on = independent(a=2, b=6)
    machine = Machine(
        ("x", "y"), dict.fromkeys("ab", ("x", "y")), SLICES, (Fraction(1), Fraction(2, 3))
    )
    # Both at 2/3 until a ends at 3; b has 4 left and then a whole core.
    assert ends(simulate(found, 1, on, platform=Platform((machine,)))) == {"a": 3, "b": 7}


def test_waking_up_is_paid_after_idling_only() -> None:
    found = graph({"A": (5,), "B": (2,), "C": (2,)}, ("A", "B", (1,), (1,)), ("A", "C", (1,), (1,)))
    platform = Platform(wakes={"P": Fraction(1)})
    timeline = simulate(found, 2, {"B": "P", "C": "P"}, platform=platform)
    spans = [(f.actor, f.start, f.end) for f in timeline.firings if f.actor != "A"]
    assert spans == [("B", 5, 8), ("C", 8, 10), ("B", 10, 12), ("C", 12, 14)]
    assert timeline.worked() == {"P": 9}


def test_looking_ahead_commits_to_what_is_there_now() -> None:
    """X's second firing is chosen while its first runs; Y, of an older frame, comes too late."""
    found = graph({"X": (4,), "W": (1,), "Y": (1,)}, ("X", "W", (1,), (1,)), ("W", "Y", (1,), (1,)))
    on = {"X": "P", "Y": "P"}

    def order(platform: Platform) -> list[str]:
        firings = simulate(found, 3, on, platform=platform).firings
        return [f"{f.actor}{f.iteration}" for f in firings if f.actor != "W"]

    assert order(Platform()) == ["X0", "X1", "Y0", "Y1", "X2", "Y2"]
    assert order(Platform(ahead={"P": 1})) == ["X0", "X1", "X2", "Y0", "Y1", "Y2"]


@examples(30)
@given(consistent_graphs())
def test_looking_ahead_changes_nothing_where_there_is_no_choice(some: Graph) -> None:
    found = in_order(some)
    assume(check_liveness(found) is None)
    on = {name: name for name in found.actor}
    ahead = simulate(found, 3, on, platform=Platform(ahead=dict.fromkeys(on, 1)))
    assert plainly(ahead) == plainly(simulate(found, 3, on))


@given(st.integers(0, 2**32), st.fractions(0, 1, max_denominator=100))
@settings(max_examples=25)
def test_uneven_times_stay_within_their_spread_and_repeat(seed: int, share: Fraction) -> None:
    found, on = independent(a=6)
    platform = Platform(spread={"a": share}, seed=seed)
    timeline = simulate(found, 9, on, platform=platform)
    for firing in timeline.firings:
        assert abs(firing.end - firing.start - 6) <= 6 * share + Fraction(1, FINENESS)
    assert plainly(timeline) == plainly(simulate(found, 9, on, platform=platform))


def test_uneven_times_are_right_on_average() -> None:
    found, on = independent(a=6)
    end = simulate(found, 10_000, on, platform=Platform(spread={"a": Fraction(1)})).end
    assert float(end) == pytest.approx(60_000, rel=0.02)


def test_platforms_that_make_no_sense() -> None:
    with pytest.raises(CsdfError, match="'a' is to run on CPU 'z'; its machine has x, y"):
        Machine(("x", "y"), {"a": ("z",)}, {})
    with pytest.raises(CsdfError, match="'a' is to run on no CPU"):
        Machine(("x",), {"a": ()}, {})
    with pytest.raises(CsdfError, match="speed is 0 or less"):
        Machine(("x",), {}, {}, (Fraction(0),))
    two = tuple(Machine((cpu,), {"a": (cpu,)}, {"a": Fraction(1)}) for cpu in "xy")
    with pytest.raises(CsdfError, match="'a' is to run on two machines"):
        Platform(two)
    with pytest.raises(CsdfError, match="'a' has a spread of 2"):
        Platform(spread={"a": Fraction(2)})
