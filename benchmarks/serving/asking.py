"""Triton's Python clients, many at once, each of which checks that every answer is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

KINDS = ("grpc", "http")
DATATYPE = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32"}


@dataclass
class Asked:
    """What the clients saw; `largest_error` is relative to the largest value of its array."""

    answers: int = 0
    refusals: int = 0
    largest_error: float = 0.0
    wrong: int = 0
    others: list[str] = field(default_factory=list)
    """Errors that are no refusal because of too many requests."""


def inputs(kind: str, frame: Arrays) -> list[Any]:
    """A frame as the clients of this kind take it."""
    module = import_module(f"tritonclient.{kind}")
    found = []
    for name, array in frame.items():
        found.append(module.InferInput(name, list(array.shape), DATATYPE[array.dtype.name]))
        found[-1].set_data_from_numpy(array)
    return found


async def ask_all(
    address: str,
    kind: str,
    model: str,
    frames: Sequence[Arrays],
    wanted: Sequence[Arrays],
    *,
    clients: int,
    each: int,
    asked: Asked | None = None,
) -> Asked:
    """So many clients at once, each with `each` frames in an order of its own.

    A request that is refused because there are too many is sent again.
    """
    asked = asked or Asked()
    waiting = import_module(f"tritonclient.{kind}.aio")
    exception = import_module("tritonclient.utils").InferenceServerException
    full = {"http": "429", "grpc": "StatusCode.RESOURCE_EXHAUSTED"}[kind]

    async def ask(number: int) -> None:
        async with waiting.InferenceServerClient(address) as one:
            left = each
            while left:
                at = (number * 31 + left * 7) % len(frames)
                try:
                    answer = await one.infer(model, inputs(kind, frames[at]))
                except exception as error:
                    if error.status() == full:
                        asked.refusals += 1
                        continue
                    asked.others.append(str(error))
                else:
                    asked.answers += 1
                    error = max(
                        float(np.abs(answer.as_numpy(name) - array).max() / np.abs(array).max())
                        for name, array in wanted[at].items()
                    )
                    asked.largest_error = max(asked.largest_error, error)
                    asked.wrong += error > 1e-4
                left -= 1

    await asyncio.gather(*map(ask, range(clients)))
    return asked
