"""The objectives of the search `vertical`, and the preference by which it chooses a compromise.

**The front** is over three objectives, all to be minimised: the period, the heaviest device's
memory, and the bytes sent per frame. Memory is the largest weights of a device relative to its
share of all devices' memory; for the objective `memory` it is the largest β of Eq. 2 (Tang &
Stefanov, 2021) relative to that share, and so for the objective `paper`.

**The choice** among the front is a `Preference`: a weighted sum of logarithms of costs. A weight
is thus an exchange rate: with time at 1 and memory at 0.35, one per cent of time is worth nearly
three per cent of memory. Time is a geometric mean of the period and of the busiest device's layers,
so that the work is spread fairly even where a link, or cores that devices share, sets the period.
Work that is small compared with a firing is not worth spreading. The preferences of `HELD` count
activations and channels as well as weights.

**The score** of annealing and descent replaces maxima over devices by a smooth maximum. The plain
maximum has plateaus: relieving the second busiest device would not change it.

**Memory limits** are a constraint and follow Deb's feasibility rule in every genetic search:

1. an assignment that fits the limits is better than one that does not;
2. of two that do not fit, the one with the smaller excess in bytes is better;
3. of two that fit, the objectives decide.

`feasible_first` applies the rule to scores, `ga.individuals.FeasibleFirst` to DEAP's fitnesses. The
strategies of `partition` sort by (excess, value), which is the same rule.

Source: K. Deb, "An efficient constraint handling method for genetic algorithms", Computer Methods
in Applied Mechanics and Engineering, 2000.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from partition.objective import Objective
from partition.pricing.cost import CostModel, Costs
from partition.pricing.memory_budget import allowed_bytes, fair_memory
from partition.pricing.paper_equations import beta_bytes
from partition.pricing.traffic import Floats
from partition.strategies.base import Problem

INFEASIBLE = 1e4
"""A number above every score of an assignment that fits; scores are weighted sums of logarithms."""


def feasible_first(scores: Floats, excess: Floats) -> Floats:
    """Return scores [individuals] that follow Deb's rule; smaller is better.

    `excess` [individuals] is what exceeds the limits, as a share of all memory that they allow. The
    logarithm keeps the steps of annealing comparable near the limits and far from them.

    >>> feasible_first(np.array([3.0, 1.0, 2.0]), np.array([0.0, 0.5, 0.1])).argsort()
    array([0, 2, 1])
    """
    return np.where(excess > 0, INFEASIBLE + 10 * np.log1p(10 * excess), scores)


EXPONENT = 48.0
"""With ten devices, a single device at the maximum counts 0.95 of it. With 24, where it counts
0.91, half of the searches for ResNet50 on ten devices ended with one device 5 % busier than the
others."""


def smooth_maximum(values: Floats, axis: int, exponent: float = EXPONENT) -> Floats:
    """Return the generalised mean of non-negative `values` along `axis`: at most their largest.

    It is close to the maximum, and it falls if any value does, so a search can follow it where
    several devices are equally busy.

    >>> smooth_maximum(np.array([[1.0, 1.0], [1.0, 0.5]]), axis=1).round(3)
    array([1.   , 0.986])
    """
    largest = np.maximum(values.max(axis=axis, keepdims=True), np.finfo(float).tiny)
    mean = ((values / largest) ** exponent).mean(axis=axis, keepdims=True)
    return np.asarray((largest * mean ** (1 / exponent)).squeeze(axis))


WORK = 0.9
"""The weight of the busiest device's layers, relative to the period's, in the default compromise.
"""

NEGLIGIBLE = 0.01
"""The part of all weights and the largest activation below which weights need not be balanced."""


@dataclass(frozen=True, slots=True)
class Preference:
    """Exchange rates between costs; a weight of 0 leaves a cost out.

    `work` is the weight of the busiest device's layers in their mean with the period. `memory` is
    for weights (or Eq. 2), `held` for weights, activations and channels.
    """

    time: float = 1.0
    memory: float = 0.35
    held: float = 0.0
    traffic: float = 0.03
    phases: float = 0.0
    latency: float = 0.0
    energy: float = 0.0
    work: float = WORK


_PAPER = Preference(memory=1.0)

PREFERENCES: Mapping[Objective, Preference] = MappingProxyType(
    {
        "both": Preference(),
        "paper": _PAPER,
        "period": Preference(),
        "memory": Preference(time=0.01, memory=1.0, traffic=0.002),
        "latency": Preference(time=0.05, memory=0.02, traffic=0.01, latency=1.0),
        "energy": Preference(time=0.05, memory=0.02, traffic=0.01, energy=1.0),
    }
)
"""The compromise for each objective of a problem."""

BY_EQ2: frozenset[Objective] = frozenset({"memory", "paper"})
"""The objectives for which memory is Eq. 2 and not weights."""

_MOSTLY_TIME = Preference(memory=0.02, held=0.08, traffic=0.01, work=0.5)

HELD: Mapping[Objective, Preference] = MappingProxyType(
    {
        **PREFERENCES,
        "both": _MOSTLY_TIME,
        "period": _MOSTLY_TIME,
        "memory": Preference(time=0.01, memory=0.0, held=1.0, traffic=0.002),
    }
)
"""The same, with all the memory that devices hold in place of weights or Eq. 2. One per cent of the
period is worth ten of memory, so that several pipelines share the frames where one is much
slower."""

FASTEST = Preference(memory=0.0, traffic=0.0, work=0.0)
"""The period alone: the end of the front that no compromise reaches."""


@dataclass(frozen=True, slots=True)
class Priced:
    """The costs of a population.

    `fitness` [individuals, 4] are bytes beyond memory limits, period, memory and bytes sent.
    `memory` [individuals, devices] are weights, or Eq. 2, relative to each device's fair share.
    """

    costs: Costs
    fitness: Floats
    memory: Floats


def negligible_bytes(network: Network) -> float:
    """Return the bytes of weights below which weights need not be balanced.

    They are the part `NEGLIGIBLE` of all weights plus the largest activation.
    """
    activation = max(network.layer_activation_bytes)
    return NEGLIGIBLE * (sum(tensor.bytes for tensor in network.weights.values()) + activation)


class Objectives:
    """Prices assignments of units (genes or layers): costs, objectives and scores.

    `beta` [units] is each unit's term of Eq. 2, in bytes.
    """

    def __init__(self, problem: Problem, model: CostModel, beta: Floats) -> None:
        network = problem.network
        self._fair = fair_memory(problem.devices)
        self._model = model
        self._beta = beta if problem.objective in BY_EQ2 else None
        self._negligible = negligible_bytes(network)
        self._floor = network.ends_bytes
        self._firing_s = max(device.firing_s + device.run_s for device in problem.devices)
        self._allowed = allowed_bytes(problem.devices)

    def price(self, population: NDArray[np.integer]) -> Priced:
        """Return the costs and fitness values of `population` [individuals, units]."""
        costs = self._model.evaluate(population)
        if self._beta is None:
            memory = costs.weight_bytes / self._fair + self._negligible
        else:
            memory = beta_bytes(self._beta, population, len(self._fair)) / self._fair
        values = [costs.overrun_bytes, costs.period_s, memory.max(axis=1), costs.wire_bytes]
        return Priced(costs, np.column_stack(values), memory)

    def score(self, priced: Priced, preference: Preference, *, smooth: bool) -> Floats:
        """Return scores [individuals], smaller is better; `smooth` for the search, not for the
        choice."""
        costs = priced.costs
        busiest = _smooth if smooth else _largest
        period = costs.period_s
        if smooth:
            period = period * _smooth(costs.busy_s) / np.maximum(_largest(costs.busy_s), _TINY)
        work = preference.work * _log(busiest(costs.compute_s) + self._firing_s)
        total = preference.time * ((1 - preference.work) * _log(period) + work)
        total = total + preference.memory * _log(busiest(priced.memory))
        total = total + preference.traffic * _log(costs.wire_bytes + self._floor)
        for weight, cost in (
            (preference.held, busiest(costs.tensor_bytes / self._fair) + self._negligible),
            (preference.phases, costs.phases.sum(axis=1)),
            (preference.latency, costs.latency_s),
            (preference.energy, costs.energy_j),
        ):
            if weight:
                total = total + weight * _log(cost)
        return feasible_first(total, costs.overrun_bytes / max(self._allowed, 1.0))


_TINY = np.finfo(float).tiny


def _log(values: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(values, _TINY)))


def _largest(values: Floats) -> Floats:
    return np.asarray(values.max(axis=1))


def _smooth(values: Floats) -> Floats:
    return smooth_maximum(values, axis=1)
