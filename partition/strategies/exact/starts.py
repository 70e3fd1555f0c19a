"""Quick heuristics that give the exact strategy assignments to start from.

A good start lets the solver prune what cannot be better, and is the answer itself if time runs out
before a better one is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from partition.errors import PartitionError
from partition.strategies.base import Problem, Strategy, ignore_progress
from partition.strategies.contiguous.balanced_split import balanced_split
from partition.strategies.contiguous.sequential import Sequential
from partition.strategies.exact.placement import Shape
from partition.strategies.exact.terms import Terms
from partition.strategies.longest_first import longest_first
from partition.strategies.rebalancing import rebalanced


def starts(terms: Terms, shape: Shape, others: Sequence[Strategy]) -> NDArray[np.intp]:
    """Assignments [any number, layers] that respect pins and `shape`; `others` may contribute."""
    problem = terms.problem
    devices = range(len(problem.devices))
    found = [np.full(terms.layers, device, dtype=np.intp) for device in devices]
    if shape.contiguous:
        found.append(_even_runs(terms.own_bytes, len(devices)))
    else:
        work = (problem.costs.layer_s.mean(axis=1) / terms.tick_s).astype(np.int64).tolist()
        found += [_longest_first(problem, work), _longest_first(problem, terms.own_bytes)]
        units = [size // terms.weight_unit for size in terms.own_bytes]
        found.append(rebalanced(units, terms.rooms, found[-1], problem.pinned < 0))
    for strategy in (Sequential(), *others):
        try:
            solution = strategy.solve(replace(problem, on_progress=ignore_progress))
        except PartitionError:  # pins that it cannot respect, say: it is only a start
            continue
        if solution.network is None:
            found.append(problem.numbers(solution.assignment))
    possible = [numbers for numbers in found if is_possible(terms, shape, numbers)]
    return np.array(possible, dtype=np.intp).reshape(len(possible), terms.layers)


def is_possible(terms: Terms, shape: Shape, numbers: NDArray[np.intp]) -> bool:
    """Whether an assignment respects the pins and is of this shape."""
    pinned = terms.problem.pinned
    if (numbers != pinned)[pinned >= 0].any():
        return False
    if shape.siblings and any(len(set(numbers[list(own)])) > 1 for own in terms.siblings):
        return False
    if not shape.contiguous:
        return True
    before: dict[int, set[int]] = {int(device): set() for device in numbers}
    for source, reader in terms.edges:
        if numbers[source] != numbers[reader]:
            before[int(numbers[reader])].add(int(numbers[source]))
    if not terms.are_apart and len(terms.kinds) > 1:
        return all(max(earlier, default=-1) < device for device, earlier in before.items())
    while before:
        first = next((device for device, earlier in before.items() if not earlier), None)
        if first is None:
            return False
        del before[first]
        for earlier in before.values():
            earlier.discard(first)
    return True


def _even_runs(sizes: Sequence[int], runs: int) -> NDArray[np.intp]:
    """Runs of the topological order whose largest sum of `sizes` is least: a number per layer."""
    _, cuts = balanced_split(sizes, runs)
    return np.asarray(np.searchsorted(cuts, np.arange(len(sizes)), side="right"), dtype=np.intp)


def _longest_first(problem: Problem, sizes: Sequence[int]) -> NDArray[np.intp]:
    """The largest layers first, each to the device with the least load for its speed."""
    seconds = problem.costs.layer_s.sum(axis=0)
    slowness = seconds / seconds.min() if seconds.min() > 0 else np.ones(len(seconds))
    each = np.array(sizes, dtype=np.float64)[:, None] * slowness
    (numbers,) = longest_first(np.random.default_rng(0), 1, each, problem.pinned)
    return np.asarray(numbers, dtype=np.intp)
