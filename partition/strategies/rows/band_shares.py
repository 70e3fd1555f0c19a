"""Shares of rows with which all devices are busy for the same time (water-filling).

A device that is busy for f seconds anyway and would take b seconds for all rows has (P − f) / b of
the rows time for if every frame takes P seconds. The shares sum to one for just one P, the shortest
period: work is poured in like water, which fills the devices up to P, from the least busy one on.
"""

from __future__ import annotations

import numpy as np

from partition.pricing.traffic import Floats


def equal_times(fixed_s: Floats, whole_s: Floats) -> Floats:
    """Return shares [devices] that sum to 1 and end at the same time; 0 for a device busy until
    then.

    >>> equal_times(np.array([0.0, 0.0]), np.array([1.0, 3.0]))
    array([0.75, 0.25])

    `fixed_s` [devices] is what each is busy anyway, `whole_s` [devices], above 0, what it would
    take for everything.
    """
    order = np.argsort(fixed_s, kind="stable")
    rates = np.cumsum(1 / whole_s[order])
    periods = (1 + np.cumsum(fixed_s[order] / whole_s[order])) / rates
    return np.asarray(np.maximum(0.0, (periods.min() - fixed_s) / whole_s))
