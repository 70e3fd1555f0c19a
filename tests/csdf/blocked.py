"""How far a sink gets while a source does not fire, by plain execution without time."""

from __future__ import annotations

from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from tests.csdf.oracle import Untimed

MOST = 40
"""Iterations; who gets there does not wait for the source."""


def distance(found: Graph, source: str, sink: str) -> int | None:
    """Whole iterations of `sink` before the first firing of `source`; None if it never waits."""
    state = Untimed(found)
    per = {a.name: repetition_vector(found)[a.name] * a.phases for a in found.actors}
    while True:
        able = [
            a
            for a in per
            if a != source and not state.lacking(a) and state.fired[a] < MOST * per[a]
        ]
        if not able:
            break
        state.fire(able[0])
    if sink == source:
        return 0
    return state.fired[sink] // per[sink] if state.fired[sink] < MOST * per[sink] else None
