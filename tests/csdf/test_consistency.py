"""Repetition vectors, and why some graphs have none."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from csdf.errors import InconsistentGraphError
from csdf.model.consistency import firings, repetition_vector
from csdf.model.graph import Graph
from tests.csdf.graphs import consistent_graphs, graph


@given(consistent_graphs())
def test_it_balances_every_channel_and_is_the_smallest_in_each_component(found: Graph) -> None:
    repetitions = repetition_vector(found)
    for c in found.channels:
        produced = repetitions[c.source] * sum(c.production)
        assert produced == repetitions[c.target] * sum(c.consumption)
    together = networkx.Graph()
    together.add_nodes_from(found.actor)
    together.add_edges_from((c.source, c.target) for c in found.channels)
    for component in networkx.connected_components(together):
        assert math.gcd(*(repetitions[name] for name in component)) == 1


def test_full_cycles_of_phases_are_counted() -> None:
    found = graph({"A": (1, 1), "B": (1, 1, 1)}, ("A", "B", (3, 5), (1, 1, 4)))
    repetitions = repetition_vector(found)
    assert repetitions == {"A": 3, "B": 4}
    assert firings(found, repetitions) == 3 * 2 + 4 * 3


def test_nothing_and_something_alone() -> None:
    assert repetition_vector(graph({})) == {}
    assert repetition_vector(graph({"A": (1,), "B": (1, 1)})) == {"A": 1, "B": 1}


def test_a_self_channel_that_grows_is_named() -> None:
    with pytest.raises(
        InconsistentGraphError,
        match="actor 'A' puts 3 tokens into its self-channel 'c1' but takes 2",
    ) as caught:
        repetition_vector(graph({"A": (1, 1)}, ("A", "A", (1, 2), (1, 1))))
    assert caught.value.channels == ("c1",)


def test_two_channels_that_clash_are_named_with_their_rates() -> None:
    with pytest.raises(InconsistentGraphError) as caught:
        repetition_vector(
            graph({"A": (1,), "B": (1,)}, ("A", "B", (4,), (6,)), ("A", "B", (1,), (1,)))
        )
    assert caught.value.channels == ("c2", "c1")
    assert str(caught.value) == (
        "the graph is inconsistent: the rates of two channels contradict each other: "
        "'c2' needs 1 cycle of 'A' for 1 of 'B'; 'c1' needs 3 cycles of 'A' for 2 of 'B'. They "
        "agree if, for example, cycles of 'A' and 'B' put 2 tokens into 'c2' and take 3 out, "
        "instead of 1 and 1"
    )


@pytest.mark.parametrize(
    ("rates", "change"),
    [
        (((3,), (3,)), "a cycle of 'A' puts 2 instead of 3 tokens into 'c2'"),
        (((4,), (5,)), "a cycle of 'B' takes 6 instead of 5 tokens out of 'c2'"),
    ],
)
def test_a_change_is_proposed_that_makes_them_agree(
    rates: tuple[tuple[int, ...], tuple[int, ...]], change: str
) -> None:
    with pytest.raises(InconsistentGraphError, match=f"They agree if, for example, {change}$"):
        repetition_vector(graph({"A": (1,), "B": (1,)}, ("A", "B", (4,), (6,)), ("A", "B", *rates)))


def test_a_long_loop_is_described_in_a_few_words() -> None:
    names = [f"a{i}" for i in range(1000)]
    ring = [(names[i - 1], name, (1 + (i == 0),), (1,)) for i, name in enumerate(names)]
    with pytest.raises(
        InconsistentGraphError, match=r"a loop of 1000 channels .*; … 992 more"
    ) as it:
        repetition_vector(graph(dict.fromkeys(names, (1,)), *ring))
    assert len(str(it.value)) < 800


@given(consistent_graphs(max_channels=8), st.data())
def test_whatever_is_named_does_contradict_itself(found: Graph, data: st.DataObject) -> None:
    """Double one rate: either the graph stays consistent, or the named channels close a loop
    round which the rates do not multiply to one."""
    if not found.channels:
        return
    index = data.draw(st.integers(0, len(found.channels) - 1))
    changed = list(found.channels)
    old = changed[index]
    changed[index] = type(old)(
        old.name, old.source, old.target, tuple(2 * r for r in old.production), old.consumption
    )
    try:
        repetition_vector(Graph("changed", found.actors, tuple(changed)))
    except InconsistentGraphError as error:
        named = [next(c for c in changed if c.name == name) for name in error.channels]
        product, at = Fraction(1), named[0].source
        for c in named:
            ratio = Fraction(sum(c.production), sum(c.consumption))
            assert at in (c.source, c.target)
            product *= ratio if at == c.source else 1 / ratio
            at = c.target if at == c.source else c.source
        assert at == named[0].source
        assert product != 1


def test_rates_of_a_billion_along_a_long_chain() -> None:
    names = [f"a{i}" for i in range(300)]
    channels = [(s, t, (10**9 + 7,), (10**9 + 9,)) for s, t in pairwise(names)]
    repetitions = repetition_vector(graph(dict.fromkeys(names, (1,)), *channels))
    assert repetitions["a0"] == (10**9 + 9) ** 299
