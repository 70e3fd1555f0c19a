"""Thinning of cut points, where the dynamic program would have too many.

Its work grows with 2^devices and with the square of the places where the network may be cut. Where
both are too many, places are given up before orders: the network is divided into windows of about
equal time and weights, and only the place of each window is kept where the fewest bytes cross, and
those around pinned layers. With fewer than `FEWEST` windows, all places are kept, and the devices
are used in the user's order (`partition.strategies.contiguous.best_cuts`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partition.pricing.traffic import Floats
from partition.strategies.contiguous.best_cuts import affordable_units
from partition.strategies.contiguous.segments import Segments

FEWEST = 48


def thinned(priced: Segments) -> tuple[Segments, NDArray[np.intp]]:
    """Return the segments between as many places as are affordable, and these places."""
    units = len(priced.weight_bytes) - 1
    most = affordable_units([len(members) for members in priced.kinds])
    if units <= most or most < FEWEST:
        return priced, np.arange(units + 1)
    spent = _share(priced.layer_s[:, 0, :].mean(axis=0)) + _share(priced.weight_bytes[0])
    window = np.minimum(spent / 2 * (most - 1), most - 2).astype(np.intp)
    crossing = priced.received_bytes[:, -1]
    inner = np.arange(1, units)
    order = inner[np.lexsort((crossing[inner], window[inner]))]
    _, first = np.unique(window[order], return_index=True)
    pinned = np.flatnonzero(~np.diagonal(priced.allowed, offset=1, axis1=1, axis2=2).all(axis=0))
    places = np.unique(np.concatenate([[0], order[first], pinned, pinned + 1, [units]]))
    return priced.at(places.tolist()), places


def _share(added_up: Floats) -> Floats:
    """Turn cumulative sums into shares of the whole."""
    return np.asarray(added_up / added_up[-1] if added_up[-1] > 0 else added_up)


def expanded(of_unit: NDArray[np.intp], places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return a device number per unit before thinning, from one per segment between `places`."""
    return np.repeat(of_unit, np.diff(places))
