"""The maximum cycle ratio of a graph, exactly: max over cycles of Σ time / Σ delay.

Policy iteration in the manner of Howard, in whole numbers throughout. For a ratio λ = T / D, an
edge weighs D × time − T × delay, and a walk may stop anywhere for 0. Every node has a policy: stop,
or one edge to follow. Improving policies edge by edge either raises the value of nodes, or closes a
cycle; a cycle that closes weighs more than 0, so its ratio exceeds λ and becomes the new λ. When
nothing improves, the values are a proof that no cycle exceeds λ, and λ is the ratio of a cycle
found. Policies are evaluated by pointer doubling, so long chains of firings cost little.

Source: J. Cochet-Terrasson et al., "Numerical computation of spectral elements in max-plus
algebra", IFAC 1998, for Howard's algorithm on ratios; A. Dasdan, "Experimental analysis of the
fastest optimum cycle ratio and mean algorithms", ACM TODAES, 2004.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from csdf.model.whole_numbers import SAFE, Integers

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CycleRatio:
    """The largest ratio, and the edges of a cycle that has it.

    `ratio` is None if some cycle has a positive time and no delay (or less), so that no ratio is
    large enough; `cycle` is then that cycle. Without a cycle of positive time `ratio` is 0 and
    `cycle` empty. `potentials`, in units of 1 / `ratio.denominator`, prove the ratio: for every
    edge, potential(source) ≥ weight + potential(target).
    """

    ratio: Fraction | None
    cycle: tuple[int, ...]
    potentials: Integers


def maximum_cycle_ratio(
    nodes: int,
    source: Indices,
    target: Indices,
    time: Integers,
    delay: Integers,
    at_least: Fraction = Fraction(0),
) -> CycleRatio:
    """See the module's docstring. Times must be 0 or more; delays may be negative.

    `at_least` is a ratio that some cycle is known to have; it saves steps, but if no other cycle
    exceeds it, `cycle` is empty.
    """
    return PolicyIteration(nodes, source).run(target, time, delay, at_least)


class PolicyIteration:
    """Searches for one graph after another in which the same nodes have the same number of edges.

    Each starts from the policies with which the one before it ended, so that little is to be done
    where little has changed. `steps` counts improvements of policies, over all searches.
    """

    def __init__(self, nodes: int, source: Indices) -> None:
        """`source` has the node that each edge leaves."""
        order = np.argsort(source, kind="stable")
        self._order = None if np.array_equal(order, np.arange(len(order))) else order
        self._leaving, self._starts = np.unique(source[order], return_index=True)
        self._lengths = np.diff(np.append(self._starts, len(order)))
        self._nodes = nodes
        self._policy = np.full(nodes, -1, dtype=np.int64)
        self.steps = 0

    def run(
        self,
        target: Indices,
        time: Integers,
        delay: Integers,
        at_least: Fraction = Fraction(0),
        enough: Fraction | None = None,
    ) -> CycleRatio:
        """Like `maximum_cycle_ratio`; ends at once where a cycle has a ratio of `enough` or more.

        The ratio is then that of this cycle, which need not be the largest.
        """
        if self._order is not None:
            target, time, delay = target[self._order], time[self._order], delay[self._order]
        self._target = target
        self._time, self._delay = _summable(time, self._nodes), _summable(delay, self._nodes)
        self._infeasible = False
        self._best: dict[int, int] = {}
        self._set_ratio(at_least)
        self._values: Integers = np.zeros(self._nodes, dtype=self._weights.dtype)
        if len(target):
            going = bool((self._policy >= 0).any())
            while not self._ended(enough) and (going or self._improve()):
                self._settle(enough)
                self.steps += 1
                going = False
        return CycleRatio(None if self._infeasible else self._ratio, self._cycle(), self._values)

    def _ended(self, enough: Fraction | None) -> bool:
        found = bool(self._best) and enough is not None and self._ratio >= enough
        return found or self._infeasible

    def _set_ratio(self, ratio: Fraction) -> None:
        self._ratio = ratio
        numerator, denominator = ratio.numerator, ratio.denominator
        largest = _magnitude(self._time) * denominator + _magnitude(self._delay) * numerator
        time, delay = self._time, self._delay
        if max(largest * 4 * (self._nodes + 1), numerator, denominator) >= SAFE:
            time, delay = time.astype(object), delay.astype(object)
        self._weights = time * denominator - delay * numerator

    def _improve(self) -> bool:
        """Better policies, node by node; False if there are none."""
        reached = self._weights + self._values[self._target]
        best = np.maximum.reduceat(reached, self._starts)
        current = self._values[self._leaving]
        rising = (best > current) & (best > 0)
        # Where the policy's own value has fallen below 0, or below what stopping gives, stop.
        falling = (current < 0) & ~rising
        if not (rising.any() or falling.any()):
            return False
        if rising.any():
            edges, groups = self._leave(rising)
            good = reached[edges] == best[rising][groups]
            first = np.flatnonzero(np.diff(groups[good], prepend=-1))
            self._policy[self._leaving[rising]] = edges[good][first]
        self._policy[self._leaving[falling]] = -1
        return True

    def _leave(self, chosen: npt.NDArray[np.bool_]) -> tuple[Indices, Indices]:
        """The edges that leave the chosen nodes, and which of these each leaves."""
        lengths = self._lengths[chosen]
        groups = np.repeat(np.arange(len(lengths)), lengths)
        before = np.cumsum(lengths) - lengths
        return np.arange(len(groups)) + (self._starts[chosen] - before)[groups], groups

    def _settle(self, enough: Fraction | None) -> None:
        """Evaluates the policies, once their cycles have been opened."""
        while (around := self._evaluate()) is not None:
            self._close(around)
            if self._ended(enough):
                return

    def _evaluate(self) -> Indices | None:
        """The value of every node: what its policy's walk weighs until it stops.

        If some walks never stop, returns all nodes on their cycles instead.
        """
        going = self._policy >= 0
        ends = np.where(going, self._target[self._policy], np.arange(self._nodes))
        values = np.where(going, self._weights[self._policy], 0)
        for _ in range(self._nodes.bit_length() + 1):
            if not going[ends].any():
                self._values = values
                return None
            values = values + values[ends]
            ends = ends[ends]
        around = np.zeros(self._nodes, dtype=bool)
        around[ends[going[ends]]] = True
        return np.flatnonzero(around)

    def _close(self, around: Indices) -> None:
        """Raises the ratio to that of the best cycle of the policies, and opens all of them.

        `around` are all nodes on cycles.
        """
        place = np.empty(self._nodes, dtype=np.int64)
        place[around] = np.arange(len(around))
        follow = place[self._target[self._policy[around]]]
        cycle = np.arange(len(around))
        for _ in range(len(around).bit_length()):
            cycle = np.minimum(cycle, cycle[follow])
            follow = follow[follow]
        nodes = around[np.argsort(cycle, kind="stable")]
        edges = self._policy[nodes]
        first, starts = np.unique(np.sort(cycle), return_index=True)
        self._policy[around[first]] = -1
        ends = [*starts[1:].tolist(), len(nodes)]
        times = np.add.reduceat(self._time[edges], starts)
        delays = np.add.reduceat(self._delay[edges], starts)
        good = np.flatnonzero(np.add.reduceat(self._weights[edges], starts) > 0)
        ratio = self._ratio
        for one in [*good[delays[good] <= 0][:1].tolist(), *good.tolist()]:
            time, delay = int(times[one]), int(delays[one])
            self._infeasible = delay <= 0
            if delay <= 0 or Fraction(time, delay) > ratio:
                members = slice(int(starts[one]), ends[one])
                self._best = dict(
                    zip(nodes[members].tolist(), edges[members].tolist(), strict=True)
                )
            if self._infeasible:
                return
            ratio = max(ratio, Fraction(time, delay))
        if ratio > self._ratio:
            self._set_ratio(ratio)

    def _cycle(self) -> tuple[int, ...]:
        """The edges of the best cycle, in order, by the numbers that the caller knows."""
        if not self._best:
            return ()
        node, edges = next(iter(self._best)), []
        for _ in self._best:
            edges.append(self._best[node])
            node = int(self._target[edges[-1]])
        return tuple(edges if self._order is None else self._order[edges].tolist())


def _magnitude(values: Integers) -> int:
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0


def _summable(values: Integers, count: int) -> Integers:
    """In Python's own numbers where a sum of so many would not fit."""
    return values.astype(object) if _magnitude(values) * count >= SAFE else values
