"""Tables 4, 5 and 6 of Villarrubia et al. (2025), as the benchmark prints them."""

from __future__ import annotations

import pytest

from benchmarks.papers.segmentation import TABLE_4, TABLES_5_AND_7, keras, synthetic


def test_five_convolutions_of_482_filters_are_split_two_one_one_one() -> None:
    row = synthetic(482)
    assert row.layers == (2, 1, 1, 1)
    assert row.balanced == row.profiled
    assert max(row.balanced) < max(row.count) / 1.9
    assert row.agrees


def test_the_second_layer_of_the_last_segment_stays_with_the_host_from_602_filters_on() -> None:
    row = synthetic(602)
    assert row.count_host == row.count[3]
    assert row.balanced_host == 0
    assert row.agrees


@pytest.mark.slow
@pytest.mark.parametrize("filters", sorted(set(TABLE_4) - {482, 602}))
def test_sizes_are_those_of_tables_4_and_6(filters: int) -> None:
    assert synthetic(filters).agrees


@pytest.mark.slow
@pytest.mark.parametrize("network", TABLES_5_AND_7)
def test_no_keras_network_needs_host_memory_and_its_cut_is_optimal(network: str) -> None:
    row = keras(network)
    assert row.balanced == row.optimum <= 8.0
    assert row.overrun == 0
    assert row.count >= row.balanced
    assert row.speedup == pytest.approx(row.paper_speedup, rel=0.25)
