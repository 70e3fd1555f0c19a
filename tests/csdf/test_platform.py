"""Realistic processors: they share CPUs, wake up, choose ahead, and vary in speed."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from csdf.errors import CsdfError
from csdf.execution.liveness import check_liveness
from csdf.execution.shared_machine import EVEN, Machine, Platform
from csdf.execution.simulation import Link, Timeline, simulate, with_links
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from tests.csdf.effort import examples, holds
from tests.csdf.graphs import consistent_graphs, graph
from tests.csdf.plain_platform import Plain
from tests.csdf.test_simulation import in_order, plainly


def independent(**works: int) -> tuple[Graph, dict[str, str]]:
    """Actors that fire once an iteration, each on a processor called like it."""
    return graph({name: (work,) for name, work in works.items()}), {name: name for name in works}


def ends(timeline: Timeline) -> dict[str, Fraction]:
    return {firing.actor: firing.end for firing in timeline.firings}


@examples(30, 250)
def test_processors_and_links_do_what_a_plain_simulation_does(tries: int) -> None:
    @given(consistent_graphs(), st.data())
    def check(some: Graph, data: st.DataObject) -> None:
        found = in_order(some)
        assume(check_liveness(found) is None)
        carried = data.draw(st.sets(st.sampled_from([c.name for c in found.channels] or [""])))
        wires = {
            name: Link(data.draw(st.sampled_from(("w", "v"))), Fraction(1, 2), Fraction(1, 3))
            for name in sorted(carried - {""})
        }
        linked, links_on = with_links(found, wires)
        linked = in_order(linked)
        devices = data.draw(
            st.dictionaries(st.sampled_from(list(found.actor)), st.sampled_from("PQ"))
        )
        on = {name: devices[name] for name in linked.actor if name in devices} | links_on
        plain = Plain(linked, repetition_vector(linked), 3, on)
        assert plainly(simulate(linked, 3, on)) == sorted(plain.all())

    holds(tries, check)


@examples(30, 250)
def test_a_shared_cpu_does_what_a_plain_simulation_does(tries: int) -> None:
    @given(consistent_graphs(), st.data())
    def check(some: Graph, data: st.DataObject) -> None:
        found = in_order(some)
        assume(check_liveness(found) is None)
        on = {name: name for name in found.actor}  # no choice, so rounding cannot change one
        shared = data.draw(st.frozensets(st.sampled_from(list(on)), min_size=1))
        machine = Machine(("cpu",), dict.fromkeys(shared, ("cpu",)))
        plain = Plain(found, repetition_vector(found), 3, on, shared)
        simulated = plainly(simulate(found, 3, on, platform=Platform((machine,))))
        for one, other in zip(simulated, sorted(plain.all()), strict=True):
            assert one[0] == other[0]
            assert float(one[1]) == pytest.approx(float(other[1]), abs=1e-3)
            assert float(one[2]) == pytest.approx(float(other[2]), abs=1e-3)

    holds(tries, check)


def test_firings_on_one_cpu_progress_equally() -> None:
    found, on = independent(a=2, b=3)
    machine = Machine(("cpu",), {"a": ("cpu",), "b": ("cpu",)})
    # Half speed each until a has done its 2 at 4; the last 1 of b goes at full speed.
    assert ends(simulate(found, 1, on, platform=Platform((machine,)))) == {"a": 4, "b": 5}


def test_an_idle_cpu_takes_over_what_it_may() -> None:
    found, on = independent(a=2, b=6, c=6)
    anywhere = Machine(("x", "y"), dict.fromkeys("abc", ("x", "y")))
    # a and c share x until both have done 2 at 4; then c has x to itself.
    assert ends(simulate(found, 1, on, platform=Platform((anywhere,)))) == {"a": 4, "b": 6, "c": 8}
    bound = Machine(("x", "y"), {"a": ("y",), "b": ("x",), "c": ("x",)})
    assert ends(simulate(found, 1, on, platform=Platform((bound,)))) == {"a": 2, "b": 12, "c": 12}
    helped = Machine(("x", "y"), {"a": ("y",), "b": ("x",), "c": ("x", "y")})
    found, on = independent(a=2, b=6, c=6)
    assert ends(simulate(found, 1, on, platform=Platform((helped,))))["c"] < 12


def test_cpus_that_slow_each_other_down() -> None:
    found, on = independent(a=2, b=6)
    machine = Machine(("x", "y"), dict.fromkeys("ab", ("x", "y")), (Fraction(1), Fraction(2, 3)))
    # Both at 2/3 until a ends at 3; b has 4 left and then a whole core.
    assert ends(simulate(found, 1, on, platform=Platform((machine,)))) == {"a": 3, "b": 7}


@examples(20, 150)
def test_a_cpu_for_each_processor_is_as_good_as_none(tries: int) -> None:
    @given(consistent_graphs())
    def check(some: Graph) -> None:
        found = in_order(some)
        assume(check_liveness(found) is None)
        on = {name: name for name in found.actor}
        machine = Machine(tuple(on), {name: (name,) for name in on})
        shared = simulate(found, 3, on, platform=Platform((machine,)))
        assert plainly(shared) == plainly(simulate(found, 3, on))

    holds(tries, check)


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


@examples(20, 150)
def test_looking_ahead_changes_nothing_where_there_is_no_choice(tries: int) -> None:
    @given(consistent_graphs())
    def check(some: Graph) -> None:
        found = in_order(some)
        assume(check_liveness(found) is None)
        on = {name: name for name in found.actor}
        ahead = simulate(found, 3, on, platform=Platform(ahead=dict.fromkeys(on, 1)))
        assert plainly(ahead) == plainly(simulate(found, 3, on))

    holds(tries, check)


@given(st.integers(0, 2**32), st.fractions(0, 1, max_denominator=100))
@settings(max_examples=25)
def test_uneven_times_stay_within_their_spread_and_repeat(seed: int, share: Fraction) -> None:
    found, on = independent(a=6)
    platform = Platform(spread={"a": share}, seed=seed)
    timeline = simulate(found, 9, on, platform=platform)
    for firing in timeline.firings:
        assert abs(firing.end - firing.start - 6) <= 6 * share + Fraction(1, EVEN)
    assert plainly(timeline) == plainly(simulate(found, 9, on, platform=platform))


def test_uneven_times_are_right_on_average() -> None:
    found, on = independent(a=6)
    end = simulate(found, 10_000, on, platform=Platform(spread={"a": Fraction(1)})).end
    assert float(end) == pytest.approx(60_000, rel=0.02)


def test_platforms_that_make_no_sense() -> None:
    with pytest.raises(CsdfError, match="'a' is to run on CPU 'z'; its machine has x, y"):
        Machine(("x", "y"), {"a": ("z",)})
    with pytest.raises(CsdfError, match="'a' is to run on no CPU"):
        Machine(("x",), {"a": ()})
    with pytest.raises(CsdfError, match="speed is 0 or less"):
        Machine(("x",), {}, (Fraction(0),))
    with pytest.raises(CsdfError, match="'a' is to run on two machines"):
        Platform((Machine(("x",), {"a": ("x",)}), Machine(("y",), {"a": ("y",)})))
    with pytest.raises(CsdfError, match="'a' has a spread of 2"):
        Platform(spread={"a": Fraction(2)})
