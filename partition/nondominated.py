"""The Pareto filter: which of many points no other is better than."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partition.traffic import Floats


def nondominated(points: Floats) -> NDArray[np.intp]:
    """The rows [points, objectives] that no other row betters in one objective without losing in
    another, each once, in lexicographic order."""
    _, rows = np.unique(points, axis=0, return_index=True)
    values = points[rows]
    kept: list[int] = []
    for index, value in enumerate(values):  # whoever betters it comes before it
        if not (values[kept] <= value).all(axis=1).any():
            kept.append(index)
    return np.asarray(rows[kept], dtype=np.intp)
