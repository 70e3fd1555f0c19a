"""Measures by how much nodes are slower or faster than their plan assumes.

Agents count the seconds and the firings of each phase (`Stats`). Between two measurements, a node's
seconds per frame divided by the predicted ones are the factor by which it is slower. The median of
the last measurements is used, so that a single disturbed one changes nothing. A node with little
to do under a CPU quota computes for moments without a stop, and would not if it had more to do, so
no node is taken to be faster than its quota allows (`Stats.phase_s`). A plan may already assume
factors (`Blueprint.slower`); measured factors are multiplied by those.

Only the differences between nodes matter: if all are twice as slow as the cost model predicts, no
other assignment of layers is better. Factors are therefore divided by their geometric mean before
they are compared (`largest_change`). `imbalance` says how many times as fast the nodes would be if
the same work were distributed evenly. It is computed from measured stage times, as in
Velasco-Montero et al.'s Dynamic Two-Stage Network Partitioning, in units of a plan.

A node without a part in the plan is not measured; most likely it has none because it is slow. Its
last factor stays valid (`SpeedMemory`), because otherwise the next plan would give back the layers
that were just taken from it. After `REMEMBERED_S` the factor is forgotten, so the node is tried
again.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from launcher.core.blueprint import Blueprint
from nodes.protocol.messages import Deployed, Stats

LOOKS, LEAST_LOOKS = 5, 3
"""The largest and the least number of measurements whose median is taken."""

FIRINGS_EACH = 4
"""The least number of firings of each phase between two measurements."""

REMEMBERED_S = 600.0
"""How long a factor stays valid without another measurement. It equals the longest time between
changes because of speeds, so that trying a slow node again causes no additional changes."""

KEPT_EVERY_S = 600.0
"""How often the times of phases in the stream are kept for later runs, while a plan stays."""

DOUBTED = 2.0
"""The factor between rehearsed and planned times from which a board's figures are doubted: those of
undisturbed boards predict networks better than that."""

DISTURBED = 1.5
"""A node whose phases took longer or shorter than in the rehearsal by this factor was disturbed by
something that the next run need not meet.
"""

Factors = Mapping[str, float]
"""Node → its measured time as a multiple of what the cost model predicts."""


class Speeds:
    """The measured factors of the nodes in one epoch."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._before: dict[str, dict[int, Stats]] = {}
        """The counters of each node at the last measurement of each network."""
        self._looks: dict[str, deque[float]] = {
            node: deque(maxlen=LOOKS) for node in blueprint.phase_s
        }

    def record(self, node: str, stats: Stats | None) -> None:
        """Add a node's counters; ignores those of another epoch or of other phases.

        If networks stream their own frames, those that have fired often enough count.
        """
        if stats is None or stats.epoch != self._blueprint.epoch or node not in self._looks:
            return
        predicted_s = self._blueprint.phase_s[node]
        phases = len(predicted_s)
        if (len(stats.firings), len(stats.busy_s)) != (phases, phases):
            return
        before_of = self._before.setdefault(node, {})
        measured = assumed = 0.0
        for network, own in self._networks(node).items():
            before = before_of.setdefault(network, stats)
            fired = {phase: stats.firings[phase] - before.firings[phase] for phase in own}
            if min(fired.values()) < FIRINGS_EACH:
                continue
            took_s = sum(
                (stats.busy_s[phase] - before.busy_s[phase]) / times
                for phase, times in fired.items()
            )
            alone_s = [stats.phase_s[phase] for phase in own] if stats.phase_s else [0.0]
            measured += max(took_s, sum(alone_s) if all(alone_s) else 0.0)
            assumed += sum(predicted_s[phase] for phase in own)
            before_of[network] = stats
        if assumed > 0:
            self._looks[node].append(measured / assumed)

    def _networks(self, node: str) -> dict[int, list[int]]:
        """Each network's phases on a node."""
        found: dict[int, list[int]] = {}
        for number, phase in enumerate(self._blueprint.deployments[node].phases):
            found.setdefault(phase.network, []).append(number)
        return found

    def _measured(self) -> dict[str, float] | None:
        if any(len(looks) < LEAST_LOOKS for looks in self._looks.values()):
            return None
        found = {node: statistics.median(looks) for node, looks in self._looks.items()}
        return found if found and min(found.values()) > 0 else None

    @property
    def factors(self) -> dict[str, float] | None:
        """Node → factor; None until all are known."""
        measured = self._measured()
        if measured is None:
            return None
        assumed = self._blueprint.slower
        return {node: factor * assumed.get(node, 1.0) for node, factor in measured.items()}

    @property
    def busiest_s(self) -> float | None:
        """Measured seconds per frame of the busiest node; None until all nodes are measured."""
        measured = self._measured()
        if measured is None:
            return None
        return max(sum(self._blueprint.phase_s[node]) * f for node, f in measured.items())

    @property
    def imbalance(self) -> float:
        """How many times as fast the nodes would be if each had its fair share; 1.0 if unknown."""
        factors, busiest_s = self.factors, self.busiest_s
        if factors is None or busiest_s is None:
            return 1.0
        assumed = self._blueprint.slower
        work_s = sum(sum(s) / assumed.get(n, 1.0) for n, s in self._blueprint.phase_s.items())
        return busiest_s * sum(1 / factor for factor in factors.values()) / work_s


class SpeedMemory:
    """Keeps the factors of nodes from one epoch to the next."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def add(self, factors: Factors, now_s: float) -> Factors:
        """Add `factors`, measured at `now_s`; return all factors that are still valid."""
        self._last |= {node: (factor, now_s) for node, factor in factors.items()}
        self._last = {
            node: (factor, at_s)
            for node, (factor, at_s) in self._last.items()
            if now_s < at_s + REMEMBERED_S
        }
        return {node: factor for node, (factor, _) in self._last.items()}


def in_stream(deployed: Deployed, stats: Stats | None) -> Deployed | None:
    """Return a node's measurements in its rehearsal, with the times of its phases in the stream;
    None if these are not known, or if the node was disturbed.
    """
    if stats is None or stats.epoch != deployed.epoch:
        return None
    if len(stats.phase_s) != len(deployed.phase_s) or not all(stats.phase_s):
        return None
    took = sum(stats.phase_s) / max(sum(deployed.phase_s), 1e-12)
    return replace(deployed, phase_s=stats.phase_s) if 1 / DISTURBED < took < DISTURBED else None


def doubted(blueprint: Blueprint, deployed: Mapping[str, Deployed]) -> set[str]:
    """Return the nodes whose rehearsal took `DOUBTED` times as long as planned, or as short."""
    found = set()
    for node, each in deployed.items():
        planned_s, took_s = sum(blueprint.phase_s.get(node, ())), sum(each.phase_s)
        if planned_s and took_s and not 1 / DOUBTED < took_s / planned_s < DOUBTED:
            found.add(node)
    return found


def largest_change(factors: Factors, others: Factors) -> float:
    """Return the largest ratio by which a node's factor differs between `factors` and `others`.

    Ratios are divided by their geometric mean over the nodes that both have; 1.0 means no change.
    Without `others`, all of these are taken to be 1.
    """
    nodes = [node for node in factors if node in others] if others else list(factors)
    logs = [math.log(factors[node] / others.get(node, 1.0)) for node in nodes] or [0.0]
    mean = statistics.fmean(logs)
    return math.exp(max(abs(log - mean) for log in logs))


def factors_for(factors: Factors, nodes: tuple[str, ...]) -> dict[str, float]:
    """Return the factors of `nodes`; an unknown one is the median of those known.

    Empty if none is known.
    """
    usual = statistics.median(factors.values()) if factors else 1.0
    return {node: factors.get(node, usual) for node in nodes} if factors else {}
