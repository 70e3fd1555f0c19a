"""Lists the cells of a table in the order of measuring, and estimates how long they take."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.table3.turn import Boards, Cell
from partition.objective import DEFAULT_OBJECTIVE

ALONE = "sequential"
"""The strategy by which one board gets the whole network, for what memory is compared with."""

MACS_PER_S = 5e10
"""What a core of a server computes, to guess how long a table takes."""

MACS: Mapping[str, float] = {"resnet50": 4.1e9, "yolov2": 14.8e9, "vgg16": 15.5e9}
"""Multiply-accumulates per frame, about."""

FEWEST_FRAMES = 4
"""Of each replica in a turn: a turn of slow boards is as much longer as that takes."""

FEWEST_RESULTS = 8
"""Of a pipeline in a turn, besides those that fill it."""

GROUP_S = 60.0
GROUP_S_PER_BOARD = 8.0
TURN_S = 8.0
TURN_S_PER_BOARD = 2.0
FILLING_FRAMES = 8
"""Of each board's rate: what filling, draining and rehearsing take."""


def cells_of(
    networks: Iterable[str], counts: Iterable[int], strategies: Sequence[str]
) -> list[Cell]:
    """All of them; strategies are `NAME` or `NAME:OBJECTIVE`. One board is always among them."""
    found = []
    for network in networks:
        found.append(Cell(network, 1, ALONE, DEFAULT_OBJECTIVE))
        for count in counts:
            for strategy in strategies:
                name, _, objective = strategy.partition(":")
                if count > 1:
                    found.append(Cell(network, count, name, objective or DEFAULT_OBJECTIVE))
    return found


def groups_of(missing: Sequence[Cell], seed: int) -> list[list[Cell]]:
    """Turns by network and number of boards, groups and turns in random order.

    No cell has its next turn before all others of its group have had theirs as often.
    """
    dice = random.Random(seed)
    by_boards: dict[tuple[str, int], list[Cell]] = {}
    for cell in missing:
        by_boards.setdefault((cell.network, cell.devices), []).append(cell)
    groups = []
    for turns in by_boards.values():
        rounds: list[Cell] = []
        left = list(turns)
        while left:
            once = list(dict.fromkeys(left))
            for cell in once:
                left.remove(cell)
            dice.shuffle(once)
            rounds += once
        groups.append(rounds)
    dice.shuffle(groups)
    return groups


def guess_s(groups: Sequence[Sequence[Cell]], boards: Boards, seconds: float) -> float:
    """Seconds that all of this takes, about."""
    total = 0.0
    for turns in groups:
        count = turns[0].devices
        frame_s = MACS.get(turns[0].network, 5e9) / (MACS_PER_S * boards.cores(count))
        half_s = max(seconds, FEWEST_FRAMES * frame_s)
        total += GROUP_S + GROUP_S_PER_BOARD * count + half_s
        turn_s = TURN_S + TURN_S_PER_BOARD * count + 2 * half_s + FILLING_FRAMES * frame_s
        total += len(turns) * turn_s
    return total


def results_of(replicas: float, seconds: float, speedup: float, boards: int) -> int:
    """How many results of a pipeline take about `seconds`, where all replicas together make
    `replicas` per second and the plan says how far it is from that."""
    expected = replicas * min(1.0, speedup / boards)
    return max(FEWEST_RESULTS, round(expected * seconds))
