"""Algorithm 1 of Villarrubia et al. (2025) against trying everything, and their refinement."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from partition.strategies.balancing import balanced_split, refined

LEVELS = [1] * 15


def heaviest(sizes: Sequence[int], cuts: Sequence[int]) -> int:
    ends = [0, *cuts, len(sizes)]
    return max(sum(sizes[a:b]) for a, b in itertools.pairwise(ends))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(1, 5))
def test_no_split_has_a_lighter_heaviest_run(sizes: list[int], runs: int) -> None:
    bound, cuts = balanced_split(sizes, runs)
    every = itertools.combinations_with_replacement(range(len(sizes) + 1), runs - 1)
    assert bound == heaviest(sizes, cuts) == min(heaviest(sizes, cuts) for cuts in every)
    assert len(cuts) < runs
    assert cuts == sorted(set(cuts))


def test_the_small_first_layer_joins_the_second() -> None:
    assert balanced_split([1, 100, 100, 100, 100], 4) == (101, [2, 3, 4])


def test_a_run_that_is_too_large_gives_its_last_level_to_the_next() -> None:
    # Device 0 has room for four levels, the others for six.
    room = [4, 6, 6]
    cuts, moves, steps = refined([5, 10], LEVELS, lambda run, a, b: max(b - a - room[run], 0))
    assert (cuts, moves, steps) == ([4, 10], 1, 1)


def test_if_the_last_is_too_large_then_cuts_move_the_other_way() -> None:
    room = [6, 6, 4]
    cuts, moves, _ = refined([5, 10], LEVELS, lambda run, a, b: max(b - a - room[run], 0))
    assert (cuts, moves) == ([5, 11], 1)


def test_what_one_gives_away_is_passed_on() -> None:
    room = [3, 5, 7]
    cuts, moves, steps = refined([5, 10], LEVELS, lambda run, a, b: max(b - a - room[run], 0))
    assert (cuts, moves, steps) == ([3, 8], 4, 2)


def level_by_level(
    cuts: Sequence[int], sizes: Sequence[int], room: Sequence[int]
) -> tuple[list[int], int]:
    """The refinement as the paper describes it first: one level, and one report, at a time."""
    ends, reports = [0, *cuts, len(sizes)], 0

    def full(run: int) -> bool:
        return sum(sizes[ends[run] : ends[run + 1]]) > room[run]

    for run in range(len(ends) - 2):
        while ends[run + 1] > ends[run] and full(run):
            ends[run + 1] -= 1
            reports += 1
    for run in range(len(ends) - 2, 0, -1):
        while ends[run] < ends[run + 1] and full(run):
            ends[run] += 1
            reports += 1
    return ends[1:-1], reports


@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=12),
    st.lists(st.integers(0, 30), min_size=2, max_size=4),
)
def test_several_levels_at_a_time_end_where_single_ones_do(
    sizes: list[int], room: list[int]
) -> None:
    _, cuts = balanced_split(sizes, len(room))
    moved, moves, steps = refined(
        cuts, sizes, lambda run, a, b: max(sum(sizes[a:b]) - room[run], 0)
    )
    assert (moved, moves) == level_by_level(cuts, sizes, room)
    assert steps <= 2 * len(room)


@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=8),
    st.lists(st.integers(0, 30), min_size=2, max_size=4),
)
def test_cuts_stay_in_order_whatever_devices_report(sizes: list[int], room: list[int]) -> None:
    _, cuts = balanced_split(sizes, len(room))
    moved, moves, _ = refined(cuts, sizes, lambda run, a, b: max(sum(sizes[a:b]) - room[run], 0))
    assert len(moved) == len(cuts)
    assert [0, *moved, len(sizes)] == sorted([0, *moved, len(sizes)])
    if all(sum(sizes[a:b]) <= r for r, (a, b) in zip(
        room, itertools.pairwise([0, *cuts, len(sizes)]), strict=False)):  # fmt: skip
        assert (moved, moves) == (cuts, 0)
