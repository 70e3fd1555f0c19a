"""A process of Triton's Python clients that sends requests for the model `model` on command.

    python -m benchmarks.serving.client KIND ADDRESS

It reads orders from standard input, a line each: how many requests, and how many at a time (0: one
after the other, by the client that waits for each). It answers each with the seconds that it took.
"""

from __future__ import annotations

import asyncio
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.programs import Program
from benchmarks.serving.clients import inputs

MODEL = "model"


class Client:
    """Starts the process, and gives it orders."""

    def __init__(self, kind: str, port: int) -> None:
        self._program = Program.python("-m", "benchmarks.serving.client", kind, f"127.0.0.1:{port}")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._program.close()

    def order(self, requests: int, in_flight: int) -> float:
        """Seconds for all requests; without any in flight, for one after the other."""
        self._program.tell(f"{requests} {in_flight}")
        return float(self._program.hear())


async def follow(kind: str, address: str) -> None:
    """Follow orders until standard input ends; nothing else runs meanwhile."""
    one = import_module(f"tritonclient.{kind}").InferenceServerClient(address)
    waiting = import_module(f"tritonclient.{kind}.aio").InferenceServerClient(address)
    as_json = {"as_json": True} if kind == "grpc" else {}
    metadata: dict[str, Any] = one.get_model_metadata(MODEL, **as_json)
    random = np.random.default_rng(0)
    frame = {
        tensor["name"]: random.random([int(size) for size in tensor["shape"]], "float32")
        for tensor in metadata["inputs"]
    }
    given = inputs(kind, frame)

    async def stream(left: Any) -> None:
        for _ in left:
            await waiting.infer(MODEL, given)

    for line in sys.stdin:
        requests, in_flight = map(int, line.split())
        began_s, left = time.perf_counter(), iter(range(requests))
        if in_flight:
            await asyncio.gather(*(stream(left) for _ in range(in_flight)))
        else:
            for _ in left:
                one.infer(MODEL, given)
        sys.stdout.write(f"{time.perf_counter() - began_s}\n")
        sys.stdout.flush()
    await waiting.close()


if __name__ == "__main__":
    asyncio.run(follow(*sys.argv[1:]))
