"""Feasible first: how every genetic search treats assignments that exceed the devices' memory.

One rule decides between two assignments (Deb's feasibility rule):

1. one that fits the memory limits is better than one that does not;
2. of two that do not fit, the one with the smaller excess in bytes is better;
3. of two that fit, the objectives decide.

DEAP's algorithms compare fitnesses, which follow the rule in `ga.individuals.FeasibleFirst`. The
rule for the scores of annealing and descent, where smaller is better, is `feasible_first` here.
Sorting by (excess, value), as the strategies of `partition` do, is the same rule.

Source: K. Deb, "An efficient constraint handling method for genetic algorithms", Computer Methods
in Applied Mechanics and Engineering, 2000.
"""

from __future__ import annotations

import numpy as np

from partition.pricing.traffic import Floats

INFEASIBLE = 1e4
"""Above every score of an assignment that fits: scores are weighted sums of logarithms."""


def feasible_first(scores: Floats, excess: Floats) -> Floats:
    """Return scores [individuals] that follow the rule in the module's docstring.

    `excess` [individuals] is what exceeds the limits, as a share of all memory that they allow. The
    logarithm keeps the steps of annealing comparable near the limits and far from them.

    >>> feasible_first(np.array([3.0, 1.0, 2.0]), np.array([0.0, 0.5, 0.1])).argsort()
    array([0, 2, 1])
    """
    return np.where(excess > 0, INFEASIBLE + 10 * np.log1p(10 * excess), scores)
