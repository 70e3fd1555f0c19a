"""Puts rows with tied scores, as detectors give them, in the order of the whole model's result.

A ranking is an output of scores that decrease along the last axis, together with all outputs that
have a row for each score (boxes, classes); or a single output of rows in which one column decreases
(`[1, 300, 6]` of boxes, score and class). Two rows are tied if no gap between neighbouring scores
from one to the other exceeds the allowed error. Rows within a group of ties may be in any order.
They are put in the whole model's order if they are the same rows; all other rows keep their places.

The last group may tie with rows beyond the end of the ranking. If that is requested (`forgive`),
rows of this group that differ are replaced by the whole model's, a quarter of all rows at most.

Outputs count as rankings only in networks with `RANKING_OPERATORS`. Otherwise channels of a feature
map could be taken for tied rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cnn.network import TAIL
from nodes.protocol.payload import Array

RANKING_OPERATORS = frozenset({"TopK", "NonMaxSuppression", TAIL})
"""The operators of networks that rank; a tail usually contains one of the others."""

MOST_FORGIVEN = 0.25
"""The largest share of rows that `forgive` replaces."""

MOST_ROWS = 4096
"""Longer outputs are not searched for ties, because every row is compared with every other."""

_LEAST_SIZE = 1e-3
"""Smaller numbers are compared absolutely (`launcher.results.comparison.tolerance.FLOOR`)."""

_Outputs: TypeAlias = Mapping[str, Array]


def aligned(
    found: _Outputs, wanted: _Outputs, allowed: float, *, forgive: bool = False
) -> _Outputs:
    """Return `found` with tied rows of its rankings in the order of `wanted`.

    `allowed` is the relative error up to which numbers count as equal. With `forgive`, rows at the
    end that tie with rows beyond it are replaced by those of `wanted`.
    """
    if any(found[name].shape != array.shape for name, array in wanted.items()):
        return found
    moved = dict(found)
    done: set[str] = set()
    for scores, names in _rankings(wanted):
        if done.isdisjoint(names):
            done.update(names)
            tables = {name: _Table(found[name], wanted[name], scores.shape) for name in names}
            for batch, own in enumerate(scores):
                _align(own, [table.batch(batch) for table in tables.values()], allowed, forgive)
            moved |= {name: table.rows.reshape(found[name].shape) for name, table in tables.items()}
    return moved


class _Table:
    """The rows of an output: those found, which are reordered in place, and those wanted."""

    def __init__(self, found: Array, wanted: Array, shape: tuple[int, ...]) -> None:
        self.rows = found.reshape(*shape, -1).copy()
        self.wanted = wanted.reshape(*shape, -1)

    def batch(self, number: int) -> tuple[Array, Array]:
        """The rows found and wanted of one batch, as views."""
        return self.rows[number], self.wanted[number]


def _rankings(outputs: _Outputs) -> Iterator[tuple[NDArray[np.float64], tuple[str, ...]]]:
    """Yield for every ranking its scores [batch, rows] and the outputs with a row for each."""
    for array in outputs.values():
        if array.dtype.kind == "f" and array.ndim >= 1 and _fall(array):
            rows = array.astype(np.float64).reshape(-1, array.shape[-1])
            names = tuple(n for n, a in outputs.items() if a.shape[: array.ndim] == array.shape)
            yield rows, names
    for name, array in outputs.items():
        if array.dtype.kind == "f" and array.ndim >= 2:
            for column in range(array.shape[-1]):
                scores = array[..., column]
                if _fall(scores) and len(np.unique(scores)) >= scores.size / 2:
                    yield scores.astype(np.float64).reshape(-1, scores.shape[-1]), (name,)
                    break


def _fall(scores: Array) -> bool:
    if not scores.size or not 2 <= scores.shape[-1] <= MOST_ROWS or not np.isfinite(scores).all():
        return False
    return not (np.diff(scores.astype(np.float64), axis=-1) > 0).any()


def _align(
    scores: NDArray[np.float64], tables: list[tuple[Array, Array]], allowed: float, forgive: bool
) -> None:
    """Reorder the rows of one batch in place; leave them if a group of ties has other rows."""
    is_row = [_matches(found, wanted, allowed) for found, wanted in tables]
    fits = np.logical_and.reduce(is_row)  # [wanted, found]
    tie = allowed * max(float(np.abs(scores).max()), _LEAST_SIZE)
    groups = np.split(np.arange(len(scores)), np.flatnonzero(-np.diff(scores) > tie) + 1)
    order = np.arange(len(scores))
    for group in groups:
        left = list(group)
        without = []
        for place in group:
            row = place if place in left and fits[place, place] else None
            row = next((r for r in left if fits[place, r]), None) if row is None else row
            if row is None:
                without.append(place)
            else:
                order[place] = row
                left.remove(row)
        if without and not (
            forgive and group is groups[-1] and len(without) <= MOST_FORGIVEN * len(scores)
        ):
            return
        order[without] = -1
    for found, wanted in tables:
        found[:] = np.where((order < 0)[:, None], wanted, found[order])


def _matches(found: Array, wanted: Array, allowed: float) -> NDArray[np.bool_]:
    """Whether rows are equal: [wanted rows, found rows]."""
    if found.dtype.kind != "f":
        equal: NDArray[np.bool_] = (wanted[:, None] == found[None]).all(axis=-1)
        return equal
    here, there = found.astype(np.float64), wanted.astype(np.float64)
    scale = max(float(np.max(np.abs(there), initial=0.0)), _LEAST_SIZE)
    near: NDArray[np.bool_] = np.stack(
        [(np.abs(here - row) <= allowed * scale).all(axis=-1) for row in there]
    )
    return near
