"""The search over runs: annealing towards many periods at once, and NSGA-II between its rounds.

**The exchange.** The fullest device can hold less where the period may be longer. Chains of
annealing lie side by side, and each has a period that it may take, its *allowance*: a multiple of
the shortest period found so far. A chain minimises the fullest device's memory, and every per cent
of the period beyond its allowance costs `STEEPNESS` per cent of memory (the ε-constraint method,
which also finds the points of a front that no weighted sum reaches). So the chains together find a
front.

**Rounds.** After each round, NSGA-II (`ga.nsga`) recombines the best states of all chains over the
period, the fullest device's memory and the bytes sent. Then every chain starts again from a state
that is good by its own allowance, whichever chain found it.

Memory is what devices hold in addition to the idle engine, relative to their limits if they have
any. The floor that starting an engine sets does not count, because all small plans are equal on it.
For the objective `paper` it is Eq. 2 of Tang and Stefanov (2021) instead.

Source of the method: V. Chankong, Y. Haimes, "Multiobjective Decision Making", 1983.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ga import local_search, nsga
from ga.objectives import feasible_first, smooth_maximum
from ga.operators import Population
from partition.devices import Device
from partition.pricing.cost import CostModel, Costs
from partition.pricing.memory_budget import allowed_bytes, engines_bytes, room_bytes
from partition.pricing.paper_equations import beta_bytes
from partition.pricing.traffic import Floats

STEEPNESS = 10.0
"""The cost of exceeding the allowance. The mean over devices counts as well as the maximum, so that
relieving one of several busy devices pays.
"""

_TINY = np.finfo(float).tiny

TIME, TRAFFIC = 0.03, 0.01
"""The per cent of memory that a per cent of the period, or of the bytes sent, is worth within the
allowance.
"""

HEAT = 0.1
"""The temperature of the first round; later rounds begin cooler."""

HURRY = 0.97
"""The allowance of the chains that look for the shortest period, relative to the shortest found."""


@dataclass(frozen=True, slots=True)
class RunEffort:
    """The effort of the search: `rounds` of annealing with `chains` chains, and NSGA-II between.

    A chain takes `work` / (rounds × chains × tensors × (devices + 3)) steps in a round, but no more
    than `steps_per_tensor` for each tensor, since small networks have few states, and at least
    `least_steps`. The first round begins at temperature `heat`. `exact` candidates become plans.
    """

    chains: int = 240
    rounds: int = 6
    work: float = 240e6
    least_steps: int = 30
    steps_per_tensor: float = 12
    nsga: nsga.Parameters = field(default_factory=lambda: nsga.Parameters(64, 6))
    exact: int = 64
    heat: float = HEAT

    def steps(self, tensors: int, devices: int) -> int:
        """Return the steps of a round."""
        most = self.work / (self.rounds * self.chains * tensors * (devices + 3))
        return max(self.least_steps, int(min(most, self.steps_per_tensor * tensors)))


def allowances(within: float) -> Floats:
    """Return the allowances of chains, as multiples of the shortest period: ascending.

    Half of them lie within the tolerance, most of these near its end.

    >>> allowances(0.1).round(2).tolist()
    [0.97, 1.02, 1.04, 1.06, 1.08, 1.09, 1.1, 1.1, 1.16, 1.32, 1.65, 2.97]
    """
    inside = [1 + within * part for part in (0.2, 0.4, 0.6, 0.8, 0.9, 0.96, 1.0)]
    outside = [(1 + within) * factor for factor in (1.05, 1.2, 1.5, 2.7)]
    return np.array([HURRY, *inside, *outside])


@dataclass(frozen=True, slots=True)
class Points:
    """The figures that the search compares.

    `busy_s` [individuals, devices] are the busy seconds of devices, `memory` [individuals] is a
    smooth maximum; `fitness` [individuals, 4] is as for `ga.nsga.evolve`.
    """

    excess: Floats
    busy_s: Floats
    memory: Floats
    fitness: Floats


class Prices:
    """Prices populations by a cost model; by Eq. 2 if `beta` [genes] are the bytes of its terms."""

    def __init__(
        self, model: CostModel, devices: tuple[Device, ...], beta: Floats | None = None
    ) -> None:
        self._model = model
        self._beta = beta
        self._room = room_bytes(devices)
        self._allowed = allowed_bytes(devices)
        self._subnet_bytes = np.array([device.engine_overhead.subnet_bytes for device in devices])
        one = engines_bytes(devices, np.ones(len(devices)))
        self._idle = np.zeros_like(one) if self._allowed == 0 else one
        self._floor = model.network.ends_bytes

    def held(self, population: Population, costs: Costs) -> Floats:
        """Return what devices hold relative to their room: [individuals, devices]."""
        if self._beta is not None:
            return np.asarray(beta_bytes(self._beta, population, len(self._room)) / self._room)
        held = costs.tensor_bytes + self._subnet_bytes * costs.phases + self._idle
        return np.asarray(held / self._room)

    def points(self, population: Population) -> Points:
        """Price a population."""
        costs = self._model.evaluate(population)
        held = self.held(population, costs)
        fitness = [costs.overrun_bytes, costs.period_s, held.max(axis=1), costs.wire_bytes]
        return Points(
            costs.overrun_bytes / max(self._allowed, 1.0),
            costs.busy_s,
            smooth_maximum(held, axis=1),
            np.column_stack(fitness),
        )

    def scores(self, points: Points, allowed_s: Floats) -> Floats:
        """Return scores for periods `allowed_s`, which broadcast with [individuals]; smaller is
        better."""
        late = np.log(np.maximum(points.fitness[:, 1], _TINY) / allowed_s)
        busy = np.log(np.maximum(points.busy_s, _TINY) / allowed_s[..., None])
        score = (
            np.log(points.memory)
            + STEEPNESS * (np.maximum(late, 0.0) + np.maximum(busy, 0.0).mean(axis=1))
            + TIME * late
            + TRAFFIC * np.log(points.fitness[:, 3] + self._floor)
        )
        return feasible_first(score, np.broadcast_to(points.excess, score.shape))


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """The states [states, genes] of a search, in the order of their memory for each allowance, and
    NSGA-II's record of each generation."""

    states: Population
    generations: tuple[Mapping[str, float], ...]


def search(
    rng: np.random.Generator,
    seeds: Population,
    prices: Prices,
    move: local_search.Move,
    effort: RunEffort,
    steps: int,
    factors: Floats,
    shortest_s: float,
    pinned: NDArray[np.integer],
    devices: int,
    on_round: Callable[[int, str], None],
) -> FoundRuns:
    """Return what the chains have found from `seeds`, for allowances of `factors` × the shortest
    period: the shortest found, or `shortest_s` if that is shorter."""
    factor = np.repeat(factors, -(-effort.chains // len(factors)))
    pool = np.unique(seeds, axis=0)
    generations: tuple[Mapping[str, float], ...] = ()
    for number in range(effort.rounds):
        points = prices.points(pool)
        best_s = _shortest_s(points, shortest_s)
        allowed_s = factor * best_s
        starts = _starts(prices, points, factors * best_s, len(factor) // len(factors))

        def score(states: Population, allowed_s: Floats = allowed_s) -> Floats:
            return prices.scores(prices.points(states), allowed_s)

        schedule = local_search.CoolingSchedule(
            steps, effort.heat * (1 - number / effort.rounds) ** 1.5 + 0.002, epoch=steps + 1
        )
        refined = local_search.anneal(
            rng,
            pool[starts],
            move,
            score,
            schedule,
            lambda _: None,
        )
        pool = np.unique(np.concatenate([pool, refined]), axis=0)
        if number + 1 < effort.rounds:
            evolved = nsga.evolve(
                rng,
                pool[_front_first(prices.points(pool))[: effort.nsga.individuals]],
                pinned,
                devices,
                lambda population: prices.points(population).fitness,
                effort.nsga,
                lambda _done, _period: None,
                move,
            )
            generations += evolved.generations
            pool = np.unique(np.concatenate([pool, evolved.population]), axis=0)
        pool = pool[_kept(prices, prices.points(pool), factors * best_s, 2 * effort.chains)]
        points = prices.points(pool)
        on_round(number + 1, f"period {_shortest_s(points, shortest_s) * 1e3:.1f} ms")
    return FoundRuns(pool, generations)


def _shortest_s(points: Points, known_s: float) -> float:
    fits = points.fitness[:, 0] <= 0
    periods = points.fitness[fits if fits.any() else slice(None), 1]
    return min(float(periods.min()), known_s)


def _ranks(prices: Prices, points: Points, allowed_s: Floats) -> NDArray[np.intp]:
    """Return the individuals by score for each allowance: [allowances, individuals]."""
    scores = np.stack([prices.scores(points, np.array(each)) for each in allowed_s])
    return scores.argsort(axis=1, kind="stable")


def _starts(prices: Prices, points: Points, allowed_s: Floats, chains: int) -> NDArray[np.intp]:
    """Return an individual for each of `chains` chains per allowance, among its best."""
    ranks = _ranks(prices, points, allowed_s)
    leading = max(1, chains // 3)
    return np.concatenate([rank[np.arange(chains) % min(leading, len(rank))] for rank in ranks])


def _kept(prices: Prices, points: Points, allowed_s: Floats, most: int) -> NDArray[np.intp]:
    """Return the individuals that are among the best for some allowance, best ranks first."""
    ranks = _ranks(prices, points, allowed_s)
    order = ranks.T.ravel()
    _, first = np.unique(order, return_index=True)
    return order[np.sort(first)][:most]


def _front_first(points: Points) -> NDArray[np.intp]:
    """Return all individuals, those on the front of period and memory first."""
    excess, period, memory = points.fitness[:, 0], points.fitness[:, 1], points.fitness[:, 2]
    order = np.lexsort((memory, period, excess))
    least = np.minimum.accumulate(np.concatenate([[np.inf], memory[order][:-1]]))
    on_front = memory[order] < least
    return np.concatenate([order[on_front], order[~on_front]])
