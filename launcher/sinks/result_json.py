"""Defines the JSON of a result, which is the same for every kind of sink.

```json
{"index": 7, "name": "gate.jpg", "taken_s": 1760000000.25, "media_s": 0.28, "predictions": {…}}
```

`taken_s` is Unix time, and `media_s` the time from the beginning of the video. `name` and `media_s`
are left out where a frame has none. Without a task, `outputs` replaces `predictions`:
`{"NAME": {"shape": […], "dtype": "float32", "data": […]}}` with the values in C order. If the
outputs have more than `MOST_VALUES` values in all, or values that are not numbers, `data` is left
out. NaN and infinity, which JSON does not have, become null.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from launcher.config.ends.sink import FrameResult, ResultRefusedError
from launcher.errors import reason
from nodes.protocol.payload import Array

MOST_VALUES = 1000
"""Values of a result's outputs that are written out."""


def result_as_json(result: FrameResult) -> dict[str, Any]:
    """Return a frame's result as values of JSON; all numbers are finite."""
    data: dict[str, Any] = {"index": result.index}
    if result.name:
        data["name"] = result.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    data["taken_s"] = _finite(result.taken_s)
    if result.media_s is not None:
        data["media_s"] = _finite(result.media_s)
    if result.predictions is not None:
        return data | {"predictions": result.predictions.as_json()}
    in_full = sum(array.size for array in result.outputs.values()) <= MOST_VALUES
    data["outputs"] = {name: _tensor(array, in_full) for name, array in result.outputs.items()}
    return data


def result_text(result: FrameResult) -> bytes:
    """Return the JSON of a result as ASCII on one line.

    Raises `ResultRefusedError` if the predictions are not values of JSON.
    """
    try:
        text = json.dumps(result_as_json(result), allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError) as error:
        raise ResultRefusedError(
            f"frame {result.index}: its predictions cannot be written as JSON: {reason(error)}"
        ) from error
    return text.encode("ascii")


def _tensor(array: Array, in_full: bool) -> dict[str, Any]:
    data: dict[str, Any] = {"shape": list(array.shape), "dtype": array.dtype.name}
    if in_full and array.dtype.kind in "biuf":
        data["data"] = _values(array.reshape(-1))
    return data


def _values(array: Array) -> list[Any]:
    """The values of a vector, each with the digits that its own precision has."""
    if array.dtype.kind != "f":
        found: list[Any] = array.tolist()
        return found
    return [_finite(float(value)) for value in array.astype(np.str_)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
