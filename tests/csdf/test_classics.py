"""Classic graphs have the published figures."""

from __future__ import annotations

from csdf.buffers.capacities import CapacitySearch
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.throughput import throughput
from tests.csdf.graphs import graph


def sample_rate_converter() -> Graph:
    """CD to DAT; Bhattacharyya, Murthy, Lee, "Synthesis of embedded software from SDF", 1999."""
    return graph(
        dict.fromkeys("abcdef", (1,)),
        ("a", "b", (1,), (1,)),
        ("b", "c", (2,), (3,)),
        ("c", "d", (2,), (7,)),
        ("d", "e", (8,), (7,)),
        ("e", "f", (5,), (1,)),
    )


def test_sample_rate_converter() -> None:
    found = sample_rate_converter()
    assert list(repetition_vector(found).values()) == [147, 147, 98, 28, 32, 160]
    assert throughput(found).period == 160


def test_h263_decoder() -> None:
    """Stuijk, Geilen, Basten, "Exploring trade-offs in buffer requirements", DAC 2006."""
    found = graph(
        {"vld": (26018,), "iq": (559,), "idct": (486,), "mc": (10958,)},
        ("vld", "iq", (594,), (1,)),
        ("iq", "idct", (1,), (1,)),
        ("idct", "mc", (1,), (594,)),
    )
    assert repetition_vector(found) == {"vld": 1, "iq": 594, "idct": 594, "mc": 1}
    assert throughput(found).period == 332046
    assert {step.actor for step in throughput(found).critical} == {"iq"}


def test_three_actors_round_a_cycle() -> None:
    """The example of Bodin, Munier-Kordon, Dupont de Dinechin, DAC 2016, unbounded."""
    found = graph(
        {"A": (3, 1), "B": (2, 1, 2), "C": (1,)},
        ("A", "B", (3, 5), (1, 1, 4)),
        ("B", "C", (6, 2, 1), (6,)),
        ("C", "A", (2,), (1, 3), 4),
    )
    assert repetition_vector(found) == {"A": 3, "B": 4, "C": 6}
    assert throughput(found).period == throughput(found, "state space").period == 23


def test_buffers_and_throughput_of_the_first_example() -> None:
    """The running example of Stuijk, Geilen, Basten, DAC 2006, and its whole Pareto front."""
    found = graph(
        {"a": (1,), "b": (2,), "c": (2,)},
        ("a", "b", (2,), (3,)),
        ("b", "c", (1,), (2,)),
    )
    points = CapacitySearch(found).front().points
    assert [(point.size, point.period) for point in points] == [(6, 7), (8, 6), (9, 5), (10, 4)]
    assert points[0].capacities == {"c1": 4, "c2": 2}


def test_the_sample_rate_converter_needs_32_places() -> None:
    """As many as the literature says (Geilen, Basten, Stuijk, DAC 2005)."""
    found = sample_rate_converter()
    assert CapacitySearch(found).smallest_live().point.size == 32
