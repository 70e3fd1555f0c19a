"""Measures how much launcher and agents grow while `launch serve` answers for a long time.

Clients of HTTP, of gRPC and of gRPC's streams ask without a pause. The resident memory of each
process is read every few seconds; what counts is the median of the last tenth over the median of
the second tenth, since the first fills caches.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.processes import rss_bytes
from benchmarks.report import Figure, report
from benchmarks.serving.asking import inputs
from benchmarks.serving.server import DIGITS, WAIT_S, Serving

SAMPLES = 100
RECONNECT_EVERY = 500
"""Requests after which a client connects anew."""

AT_MOST_PERCENT = 1.0


def measure(minutes: float) -> dict[str, Any]:
    """The growth of each process in percent, and how many requests were answered."""
    serving = Serving()
    image = {"image": np.load(DIGITS / "test_images.npy")[0][None]}
    is_over = threading.Event()
    answered = [0] * 3
    asking = (_unary("http"), _unary("grpc"), _streamed)
    threads = ThreadPoolExecutor(len(asking))
    running = [
        threads.submit(_repeated, ask, serving, image, is_over, answered, number)
        for number, ask in enumerate(asking)
    ]
    processes = {"launcher": serving.process.pid}
    processes |= {f"agent {n}": pid for n, pid in enumerate(serving.agents())}
    samples: dict[str, list[int]] = {name: [] for name in processes}
    began_s = time.monotonic()
    for number in range(SAMPLES):
        is_over.wait(began_s + 60 * minutes * (number + 1) / SAMPLES - time.monotonic())
        for name, pid in processes.items():
            samples[name].append(rss_bytes(pid))
    is_over.set()
    for one in running:
        one.result()
    serving.end()
    return report(
        "serving-memory",
        "Memory of launch serve",
        [
            Figure("requests answered", sum(answered), at_least=1),
            *(_growth(name, found) for name, found in samples.items()),
        ],
        settings={"minutes": minutes},
        data={"resident_mb": {n: [round(b / 1e6, 2) for b in s] for n, s in samples.items()}},
    )


def _growth(name: str, samples: list[int]) -> Figure:
    tenth = len(samples) // 10
    before = statistics.median(samples[tenth : 2 * tenth])
    after = statistics.median(samples[-tenth:])
    percent = 100 * (after / before - 1)
    note = f"{before / 1e6:.1f} → {after / 1e6:.1f} MB"
    return Figure(f"growth, {name}", round(percent, 2), "%", at_most=AT_MOST_PERCENT, note=note)


Ask = Callable[[Serving, dict[str, Any], int], None]


def _repeated(
    ask: Ask,
    serving: Serving,
    image: dict[str, Any],
    is_over: threading.Event,
    answered: list[int],
    number: int,
) -> None:
    while not is_over.is_set():
        ask(serving, image, RECONNECT_EVERY)
        answered[number] += RECONNECT_EVERY


def _unary(kind: str) -> Ask:
    def ask(serving: Serving, image: dict[str, Any], requests: int) -> None:
        module = import_module(f"tritonclient.{kind}")
        given = inputs(kind, image)
        with module.InferenceServerClient(getattr(serving, kind)) as client:
            for number in range(requests):
                client.infer("digits", given, request_id=str(number))

    return ask


def _streamed(serving: Serving, image: dict[str, Any], requests: int) -> None:
    module = import_module("tritonclient.grpc")
    given = inputs("grpc", image)
    places = threading.Semaphore(4)
    errors: list[Exception] = []

    def took(result: object, error: Exception | None) -> None:
        if result is None and error is not None:
            errors.append(error)
        places.release()

    with module.InferenceServerClient(serving.grpc) as client:
        client.start_stream(took)
        for _ in range(requests):
            assert places.acquire(timeout=WAIT_S)
            client.async_stream_infer("digits", given)
        for _ in range(4):
            assert places.acquire(timeout=WAIT_S)
        client.stop_stream()
    if errors:
        raise errors[0]
