"""A process of Triton's Python clients that sends requests on command.

It reads orders from standard input, a line each: how many requests, and how many at a time (0: one
after the other, by the client that waits for each). It answers each with the seconds that it took.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.serving.asking import inputs


class Client:
    """Starts the process, and gives it orders."""

    def __init__(self, kind: str, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.serving.client", kind, f"127.0.0.1:{port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def order(self, requests: int, in_flight: int) -> float:
        """Seconds for all requests; without any in flight, for one after the other."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{requests} {in_flight}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def main(kind: str, address: str) -> None:
    """Follow orders until standard input ends."""
    blocking = import_module(f"tritonclient.{kind}")
    one = blocking.InferenceServerClient(address)
    (model,) = _listed(one.get_model_repository_index(**_as_json(kind)))
    metadata = one.get_model_metadata(model, **_as_json(kind))
    random = np.random.default_rng(0)
    frame = {
        tensor["name"]: random.random([int(size) for size in tensor["shape"]], "float32")
        for tensor in metadata["inputs"]
    }
    given = inputs(kind, frame)
    loop = asyncio.new_event_loop()
    waiting = loop.run_until_complete(_connected(kind, address))

    async def stream(requests: int, in_flight: int) -> None:
        left = iter(range(requests))

        async def ask() -> None:
            for _ in left:
                await waiting.infer(model, given)

        await asyncio.gather(*(ask() for _ in range(in_flight)))

    for line in sys.stdin:
        requests, in_flight = map(int, line.split())
        began_s = time.perf_counter()
        if in_flight:
            loop.run_until_complete(stream(requests, in_flight))
        else:
            for _ in range(requests):
                one.infer(model, given)
        sys.stdout.write(f"{time.perf_counter() - began_s}\n")
        sys.stdout.flush()
    loop.run_until_complete(waiting.close())


async def _connected(kind: str, address: str) -> Any:
    return import_module(f"tritonclient.{kind}.aio").InferenceServerClient(address)


def _as_json(kind: str) -> dict[str, Any]:
    return {"as_json": True} if kind == "grpc" else {}


def _listed(index: Any) -> list[str]:
    return [model["name"] for model in (index if isinstance(index, list) else index["models"])]


if __name__ == "__main__":
    main(*sys.argv[1:])
