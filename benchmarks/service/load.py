"""Clients of a service that ask all the time, and note when, how long, and by which version."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.serving.asking import inputs

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Answer:
    """One request: when it was sent, how long it took, and which version answered."""

    sent_s: float
    took_s: float
    version: int


@dataclass
class Load:
    """What the clients saw."""

    answers: list[Answer] = field(default_factory=list)
    wrong: int = 0
    """Answers that are not those of the version that they name."""
    errors: list[str] = field(default_factory=list)

    def between(self, begin_s: float, end_s: float) -> list[Answer]:
        """The answers to what was sent then."""
        return [answer for answer in self.answers if begin_s <= answer.sent_s < end_s]


def quantile_s(answers: Sequence[Answer], share: float) -> float:
    """The time within which this share of requests was answered."""
    return float(np.quantile([answer.took_s for answer in answers], share))


class Clients:
    """Clients of both kinds; enter it to begin, leave it to end."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        model: str,
        frames: Sequence[Array],
        wanted: Mapping[int, Sequence[Array]],
        *,
        each: int = 4,
        pause_s: float = 0.0,
    ) -> None:
        """`wanted` has the results of the frames by version; `each` clients of each kind."""
        self.load = Load()
        self._addresses = addresses
        self._model = model
        self._frames = frames
        self._wanted = wanted
        self._each = each
        self._pause_s = pause_s
        self._is_over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Clients:
        self._tasks = [
            asyncio.create_task(self._ask(kind, number))
            for kind in self._addresses
            for number in range(self._each)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over.set()
        await asyncio.gather(*self._tasks)

    async def _ask(self, kind: str, number: int) -> None:
        module = import_module(f"tritonclient.{kind}.aio")
        exception = import_module("tritonclient.utils").InferenceServerException
        async with module.InferenceServerClient(self._addresses[kind]) as client:
            at = number
            while not self._is_over.is_set():
                at = (at + 7) % len(self._frames)
                given = inputs(kind, {"image": self._frames[at]})
                sent_s = time.monotonic()
                try:
                    answer = await client.infer(self._model, given)
                except exception as error:
                    self.load.errors.append(str(error))
                    await asyncio.sleep(0.01)
                    continue
                took_s = time.monotonic() - sent_s
                self._note(kind, answer, at, sent_s, took_s)
                if self._pause_s:
                    await asyncio.sleep(self._pause_s)

    def _note(self, kind: str, answer: Any, at: int, sent_s: float, took_s: float) -> None:
        head = answer.get_response()
        version = int(head["model_version"] if kind == "http" else head.model_version)
        self.load.answers.append(Answer(sent_s, took_s, version))
        found = answer.as_numpy("probabilities")
        self.load.wrong += not np.allclose(found, self._wanted[version][at], rtol=1e-3, atol=1e-5)
