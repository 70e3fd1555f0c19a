"""Chooses the results that a sink gets, and what of their predictions.

A filter is applied before a result waits for its sink, in the order of the frames, so that a sink
that is lost for a while does not change what it gets.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from launcher.config.ends.sink import FrameResult, Predictions, SinkConfig
from launcher.tasks.predictions import (
    ClassMap,
    FoundObject,
    FoundObjects,
    ImageClasses,
    ScoredClass,
)


class ResultFilter:
    """Applies the keys `labels`, `score`, `empty` and `on_change` of one sink."""

    def __init__(self, keys: SinkConfig) -> None:
        self._labels = frozenset(map(str, keys.labels))
        self._score = keys.score
        self._keeps_empty = keys.empty
        self._is_on_change = keys.on_change
        self._last: Hashable = None

    @classmethod
    def of(cls, keys: SinkConfig) -> ResultFilter | None:
        """Return the filter of a sink; None if it gets every result as it is."""
        is_asked = keys.labels or keys.score is not None or not keys.empty or keys.on_change
        return cls(keys) if is_asked else None

    def __call__(self, result: FrameResult) -> FrameResult | None:
        """Return what the sink gets of a result; None if it gets none of it."""
        found = self._kept(result.predictions)
        if not self._keeps_empty and _is_empty(found):
            return None
        if self._is_on_change:
            content = _content(found, result)
            if content == self._last:
                return None
            self._last = content
        return result if found is result.predictions else replace(result, predictions=found)

    def _kept(self, found: Predictions | None) -> Predictions | None:
        if not self._labels and self._score is None:
            return found
        match found:
            case FoundObjects():
                return replace(found, objects=tuple(filter(self._is_wanted, found.objects)))
            case ImageClasses():
                return replace(found, classes=tuple(filter(self._is_wanted, found.classes)))
            case _:
                return found

    def _is_wanted(self, one: FoundObject | ScoredClass) -> bool:
        if self._score is not None and one.score < self._score:
            return False
        return not self._labels or one.name in self._labels or str(one.number) in self._labels


def _is_empty(found: Predictions | None) -> bool:
    match found:
        case FoundObjects(objects=()) | ImageClasses(classes=()):
            return True
        case _:
            return False


def _content(found: Predictions | None, result: FrameResult) -> Hashable:
    """Return what must differ for a result to be a change: the classes, and how many of each.

    Places and scores differ from frame to frame although nothing has happened.
    """
    match found:
        case FoundObjects(objects=objects):
            return tuple(sorted(Counter(one.number for one in objects).items()))
        case ImageClasses(classes=classes):
            return tuple(one.number for one in classes[:1])
        case ClassMap(classes=classes):
            return tuple(np.unique(classes).tolist())
        case None:
            digest = hashlib.sha256()
            for name, array in result.outputs.items():
                digest.update(f"{name} {array.shape} ".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
            return digest.digest()
        case _:
            return json.dumps(found.as_json(), sort_keys=True, default=str)
