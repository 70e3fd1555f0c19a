"""A smooth maximum over devices, which has a gradient everywhere.

A search that only sees the busiest device stands still on plateaus, because nothing that the second
busiest gains counts. A generalised mean with a large exponent is almost the maximum and falls with
every device.
"""

from __future__ import annotations

import numpy as np

from partition.pricing.traffic import Floats

EXPONENT = 24.0
"""With ten devices, one at the maximum counts 0.91 of it."""


def smooth_maximum(values: Floats, axis: int) -> Floats:
    """Return the generalised mean of non-negative `values` along `axis`: at most their largest."""
    largest = np.maximum(values.max(axis=axis, keepdims=True), np.finfo(float).tiny)
    mean = ((values / largest) ** EXPONENT).mean(axis=axis, keepdims=True)
    return np.asarray((largest * mean ** (1 / EXPONENT)).squeeze(axis))
