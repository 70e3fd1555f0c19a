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

from csdf.event_graph import SAFE, Integers

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
    search = _Search(nodes, source, target, time, delay, at_least)
    while search.improve():
        if search.infeasible:
            return CycleRatio(None, search.best, search.values)
    return CycleRatio(search.ratio, search.best, search.values)


class _Search:
    def __init__(
        self,
        nodes: int,
        source: Indices,
        target: Indices,
        time: Integers,
        delay: Integers,
        at_least: Fraction,
    ) -> None:
        self.nodes = nodes
        self.order = np.argsort(source, kind="stable")
        self.target = target[self.order]
        self.time, self.delay = time[self.order], delay[self.order]
        self.leaving, self.starts = np.unique(source[self.order], return_index=True)
        self.lengths = np.diff(np.append(self.starts, len(self.order)))
        self.policy = np.full(nodes, -1, dtype=np.int64)
        self.best: tuple[int, ...] = ()
        self.infeasible = False
        self.set_ratio(at_least)
        self.values: Integers = np.zeros(nodes, dtype=self.weights.dtype)

    def set_ratio(self, ratio: Fraction) -> None:
        self.ratio = ratio
        numerator, denominator = ratio.numerator, ratio.denominator
        largest = _magnitude(self.time) * denominator + _magnitude(self.delay) * numerator
        time, delay = self.time, self.delay
        if max(largest * (self.nodes + 2), numerator, denominator) >= SAFE:
            time, delay = time.astype(object), delay.astype(object)
        self.weights = time * denominator - delay * numerator

    def improve(self) -> bool:
        """One step of policy iteration; False if nothing can be improved."""
        if not len(self.weights):
            return False
        reached = self.weights + self.values[self.target]
        best = np.maximum.reduceat(reached, self.starts)
        current = self.values[self.leaving]
        rising = (best > current) & (best > 0)
        # Where the policy's own value has fallen below 0, or below what stopping gives, stop.
        falling = (current < 0) & ~rising
        if not (rising.any() or falling.any()):
            return False
        is_best = reached == np.repeat(best, self.lengths)
        places = np.where(is_best, np.arange(len(reached)), len(reached))
        chosen = np.minimum.reduceat(places, self.starts)
        self.policy[self.leaving[rising]] = chosen[rising]
        self.policy[self.leaving[falling]] = -1
        self.close_cycles()
        self.evaluate()
        return True

    def close_cycles(self) -> None:
        """Raises the ratio to that of the best cycle of the policy, and opens all its cycles."""
        ratio = self.ratio
        for cycle in self.cycles():
            edges = self.policy[cycle]
            time, delay = int(self.time[edges].sum()), int(self.delay[edges].sum())
            self.policy[cycle[0]] = -1
            if delay <= 0:
                self.infeasible = True
            if delay <= 0 or Fraction(time, delay) > ratio:
                self.best = tuple(self.order[edges].tolist())
            if self.infeasible:
                return
            ratio = max(ratio, Fraction(time, delay))
        if ratio > self.ratio:
            self.set_ratio(ratio)

    def cycles(self) -> list[Indices]:
        """The cycles of the policy, each as its nodes in order."""
        follow = np.where(self.policy >= 0, self.target[self.policy], np.arange(self.nodes))
        ends, steps = follow, 1
        while steps < self.nodes:
            ends = ends[ends]
            steps *= 2
        found = []
        seen = np.zeros(self.nodes, dtype=bool)
        for start in np.unique(ends[self.policy[ends] >= 0]).tolist():
            cycle, node = [], start
            while not seen[node]:
                seen[node] = True
                cycle.append(node)
                node = int(follow[node])
            if cycle:
                found.append(np.array(cycle))
        return found

    def evaluate(self) -> None:
        """The value of every node: what its policy's walk weighs until it stops."""
        going = self.policy >= 0
        ends = np.where(going, self.target[self.policy], np.arange(self.nodes))
        values = np.where(going, self.weights[self.policy], 0)
        while True:
            further = ends[ends]
            if np.array_equal(further, ends):
                break
            values = values + values[ends]
            ends = further
        self.values = values


def _magnitude(values: Integers) -> int:
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0
