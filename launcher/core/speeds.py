"""Measures how fast nodes are, relative to what their plan assumes.

Agents count the seconds and the firings of each phase (`Stats`). Between two looks, a node's
seconds per frame over the predicted ones are the factor by which it is slower; the median of the
last looks counts, so that one disturbed look changes nothing. A plan may already assume factors
(`Blueprint.slower`); what is measured then multiplies with those.

Only the differences between nodes matter: where all are twice as slow as the cost model believes,
no layer is better off elsewhere. So factors are compared after division by their geometric mean
(`differs`), and `imbalance` says how many times as fast the nodes would be if the same work were
shared out evenly: Velasco-Montero et al.'s measured stage times, in units of a plan.

A node without a part in the plan, most likely because it is slow, is not measured. What was found
before holds for it (`Memory`): otherwise the next plan would give it back what was just taken from
it. After `REMEMBERED_S` it is as if it had never been measured, and has another chance.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping

from launcher.core.blueprint import Blueprint
from nodes.protocol.messages import Stats

LOOKS, LEAST_LOOKS = 5, 3
"""How many measurements the median is taken over at most, and at least."""

FIRINGS_EACH = 4
"""How often each phase must have fired between two measurements."""

REMEMBERED_S = 600.0
"""How long a factor holds that is not measured again: as long as the longest time between changes
because of speeds, so that a node that stays slow costs no more changes for being tried again."""

Factors = Mapping[str, float]
"""Node → how many times as long as the cost model predicts it takes."""


class Speeds:
    """The factors of the nodes of one epoch."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._before: dict[str, Stats] = {}
        self._looks: dict[str, deque[float]] = {
            node: deque(maxlen=LOOKS) for node in blueprint.phase_s
        }

    def saw(self, node: str, stats: Stats | None) -> None:
        """Take a node's counters; those of another epoch, or of other phases, are left out."""
        if stats is None or stats.epoch != self._blueprint.epoch or node not in self._looks:
            return
        phases = len(self._blueprint.phase_s[node])
        if (len(stats.firings), len(stats.busy_s)) != (phases, phases):
            return
        before = self._before.setdefault(node, stats)
        fired = [now - then for now, then in zip(stats.firings, before.firings, strict=True)]
        predicted_s = sum(self._blueprint.phase_s[node])
        if not fired or min(fired) < FIRINGS_EACH or predicted_s <= 0:
            return
        busy = zip(stats.busy_s, before.busy_s, fired, strict=True)
        measured_s = sum((now - then) / times for now, then, times in busy)
        self._looks[node].append(measured_s / predicted_s)
        self._before[node] = stats

    def _measured(self) -> dict[str, float] | None:
        if any(len(looks) < LEAST_LOOKS for looks in self._looks.values()):
            return None
        found = {node: statistics.median(looks) for node, looks in self._looks.items()}
        return found if found and min(found.values()) > 0 else None

    @property
    def factors(self) -> dict[str, float] | None:
        """All nodes' factors; None while one is not known."""
        measured = self._measured()
        if measured is None:
            return None
        assumed = self._blueprint.slower
        return {node: factor * assumed.get(node, 1.0) for node, factor in measured.items()}

    @property
    def busiest_s(self) -> float | None:
        """Measured seconds per frame of the node with most to do; None while one is not known."""
        measured = self._measured()
        if measured is None:
            return None
        return max(sum(self._blueprint.phase_s[node]) * f for node, f in measured.items())

    @property
    def imbalance(self) -> float:
        """How many times as fast the nodes would be if each had its fair share; 1 if unknown."""
        factors, busiest_s = self.factors, self.busiest_s
        if factors is None or busiest_s is None:
            return 1.0
        assumed = self._blueprint.slower
        work_s = sum(sum(s) / assumed.get(n, 1.0) for n, s in self._blueprint.phase_s.items())
        return busiest_s * sum(1 / factor for factor in factors.values()) / work_s


class Memory:
    """The factors of the nodes of a run, from one epoch to the next."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def add(self, factors: Factors, now_s: float) -> Factors:
        """All that is known at `now_s`, at which `factors` were measured."""
        self._last |= {node: (factor, now_s) for node, factor in factors.items()}
        self._last = {
            node: (factor, at_s)
            for node, (factor, at_s) in self._last.items()
            if now_s < at_s + REMEMBERED_S
        }
        return {node: factor for node, (factor, _) in self._last.items()}


def differs(factors: Factors, others: Factors) -> float:
    """By how many times the factor of a node that both have differs most, beside the rest's (1: not
    at all). Without `others`, all of these are 1."""
    nodes = [node for node in factors if node in others] if others else list(factors)
    logs = [math.log(factors[node] / others.get(node, 1.0)) for node in nodes] or [0.0]
    mean = statistics.fmean(logs)
    return math.exp(max(abs(log - mean) for log in logs))


def filled(factors: Factors, nodes: tuple[str, ...]) -> dict[str, float]:
    """The factors of these nodes; those that are not known are like the median of the others."""
    usual = statistics.median(factors.values()) if factors else 1.0
    return {node: factors.get(node, usual) for node in nodes} if factors else {}
