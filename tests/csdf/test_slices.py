"""Threads that take turns on a CPU: which one has it, for how long, and that no work is lost."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from csdf.errors import CsdfError
from csdf.execution.liveness import check_liveness
from csdf.execution.shared_machine import Machine, Platform
from csdf.execution.simulation import Timeline, simulate
from csdf.model.graph import Graph
from tests.csdf.graphs import consistent_graphs, graph, in_order
from tests.csdf.test_platform import ends, independent
from tests.csdf.test_simulation import plainly
from tests.effort import examples


def machine(cpus: str = "x", rouse: int = 0, **slices: int) -> Platform:
    """Threads that may use every CPU of a machine."""
    times = {name: Fraction(slice_) for name, slice_ in slices.items()}
    return Platform((Machine(tuple(cpus), dict.fromkeys(slices, tuple(cpus)), times, (), rouse),))


def test_a_thread_keeps_the_cpu_until_its_slice_is_used_up() -> None:
    found, on = independent(a=5, b=5)
    # a 0–2, b 2–4, a 4–6, b 6–8, a's last 1, b's last 1
    assert ends(simulate(found, 1, on, platform=machine(a=2, b=2))) == {"a": 9, "b": 10}
    assert ends(simulate(found, 1, on, platform=machine(a=9, b=9))) == {"a": 5, "b": 10}


def test_a_thread_that_has_more_to_do_has_never_given_up_the_cpu() -> None:
    """So what comes after a burst waits for all of it; with equal progress it would not."""
    found, on = independent(a=2, b=2)
    on = {"a": "P", "b": "Q"}
    timeline = simulate(found, 3, on, platform=machine(P=10, Q=10))
    assert [f.actor for f in sorted(timeline.firings, key=lambda f: f.end)] == list("aaabbb")


def test_a_shorter_slice_interrupts() -> None:
    """b wakes up at 3, while a computes, and has the CPU at once if its turns are shorter."""
    found = graph({"w": (3,), "a": (10,), "b": (1,)}, ("w", "b", (1,), (1,)))
    on = {"a": "A", "b": "B"}
    assert ends(simulate(found, 1, on, platform=machine(A=20, B=20)))["b"] == 11
    assert ends(simulate(found, 1, on, platform=machine(A=20, B=1))) == {"w": 3, "a": 11, "b": 4}


def test_shorter_slices_get_no_more_of_the_cpu() -> None:
    found, on = independent(a=300, b=300)
    done = ends(simulate(found, 1, on, platform=machine(a=40, b=1)))
    assert all(560 <= end <= 600 for end in done.values())


def test_a_cpu_that_nobody_used_must_be_roused() -> None:
    found = graph({"a": (2,), "w": (3,), "b": (2,)}, ("a", "w", (1,), (1,)), ("w", "b", (1,), (1,)))
    found_ends = ends(simulate(found, 1, {"a": "A", "b": "B"}, platform=machine(rouse=1, A=9, B=9)))
    assert found_ends == {"a": 3, "w": 6, "b": 9}


def test_an_idle_cpu_takes_over_a_thread_that_waits() -> None:
    found, on = independent(a=2, b=6, c=6)
    # a and c are on x, b on y; c waits for a, and then has x to itself.
    assert ends(simulate(found, 1, on, platform=machine("xy", a=9, b=9, c=9))) == {
        "a": 2,
        "b": 6,
        "c": 8,
    }
    found, on = independent(a=6, b=2, c=6)
    assert ends(simulate(found, 1, on, platform=machine("xy", a=9, b=9, c=9)))["c"] == 8


def busy(timeline: Timeline) -> Fraction:
    return sum(timeline.worked().values(), Fraction(0))


@examples(30)
@given(consistent_graphs(), st.integers(1, 5), st.integers(1, 5))
def test_one_cpu_does_all_work_and_never_idles_with_work_to_do(
    some: Graph, one: int, other: int
) -> None:
    found = in_order(some)
    assume(check_liveness(found) is None)
    on = {name: name for name in found.actor}
    slices = {name: (one, other)[i % 2] for i, name in enumerate(on)}
    timeline = simulate(found, 3, on, platform=machine(**slices))
    assert timeline.end == busy(timeline)
    plain = simulate(found, 3, on)
    assert len(timeline.firings) == len(plain.firings)
    assert timeline.end >= plain.end


@examples(30)
@given(consistent_graphs())
def test_a_cpu_for_each_thread_is_as_good_as_none(some: Graph) -> None:
    found = in_order(some)
    assume(check_liveness(found) is None)
    on = {name: name for name in found.actor}
    own = {name: (name,) for name in on}
    alone = Machine(tuple(on), own, dict.fromkeys(on, Fraction(1)))
    platform = Platform((alone,))
    assert plainly(simulate(found, 3, on, platform=platform)) == plainly(simulate(found, 3, on))


def test_ranks_say_what_goes_first_then_who_came_first() -> None:
    found, _ = independent(a=1, b=1, c=1)
    on = dict.fromkeys("abc", "P")
    ranks = {"a": 2, "b": 1, "c": 1}
    timeline = simulate(found, 2, on, platform=Platform(ranks=ranks))
    assert "".join(firing.actor for firing in timeline.firings) == "bcbcaa"


@pytest.mark.parametrize(
    ("slices", "complaint"),
    [
        ({"P": Fraction(1)}, "each of its processors"),
        ({"P": Fraction(0), "Q": Fraction(1)}, "above 0"),
    ],
)
def test_slices_that_make_no_sense(slices: dict[str, Fraction], complaint: str) -> None:
    with pytest.raises(CsdfError, match=complaint):
        Machine(("x",), {"P": ("x",), "Q": ("x",)}, slices)
