"""Triton's Python clients, many at once, each of which checks that every answer is its own."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.comparison import TOLERANCE, worst_of
from nodes.core.pauses import pause_s

Arrays = Mapping[str, NDArray[Any]]

KINDS = ("grpc", "http")
DATATYPE = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32"}
FULL = {"http": "429", "grpc": "StatusCode.RESOURCE_EXHAUSTED"}
"""The status of a request that is refused because there are too many."""

ATTEMPT_S = 20.0
"""How long a client waits for an answer before it asks again."""

PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
"""The shortest and the longest pause behind an attempt that failed."""


@dataclass(frozen=True)
class Answer:
    """One request: when the attempt was sent that brought the answer, how long that took, and which
    version answered."""

    sent_s: float
    took_s: float
    version: int


@dataclass
class Asked:
    """What the clients saw."""

    answers: list[Answer] = field(default_factory=list)
    wrong: int = 0
    """Answers that are not those of the version that they name."""
    refusals: int = 0
    """Attempts that were refused because there were too many requests, and made again."""
    errors: Counter[str] = field(default_factory=Counter)
    """What else went wrong, without its numbers."""
    longest_s: float = 0.0
    """The longest time from a request's first attempt to its answer."""

    def between(self, begin_s: float, end_s: float) -> list[Answer]:
        """The answers to what was sent then."""
        return [answer for answer in self.answers if begin_s <= answer.sent_s < end_s]

    def first_after(self, at_s: float) -> float | None:
        """Return when the first answer came to what was sent after `at_s`; None if none came."""
        came_s = (one.sent_s + one.took_s for one in self.answers if one.sent_s > at_s)
        return min(came_s, default=None)


def quantile_s(answers: Sequence[Answer], share: float) -> float:
    """The time within which this share of requests was answered."""
    return float(np.quantile([answer.took_s for answer in answers], share))


def inputs(kind: str, frame: Arrays) -> list[Any]:
    """A frame as the clients of this kind take it."""
    module = import_module(f"tritonclient.{kind}")
    found = []
    for name, array in frame.items():
        found.append(module.InferInput(name, list(array.shape), DATATYPE[array.dtype.name]))
        found[-1].set_data_from_numpy(array)
    return found


class Clients:
    """Clients of one model; enter it to begin, leave it to end.

    What fails is asked again, over another connection, until there is an answer; by clients that
    have `each` requests, only what is refused because there are too many.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, str]],
        model: str,
        frames: Sequence[Arrays],
        wanted: Mapping[int, Sequence[Arrays]],
        *,
        each: int | None = None,
        pause_s: float = 0.0,
        headers: Mapping[str, str] = MappingProxyType({}),
        asked: Asked | None = None,
    ) -> None:
        """`addresses` has the kind of each client, `http` or `grpc`, and whom it asks; `wanted` has
        the results of the frames by version. A client rests for `pause_s` after each answer."""
        self.asked = asked or Asked()
        self._addresses, self._model = addresses, model
        self._frames, self._wanted = frames, wanted
        self._each, self._pause_s, self._headers = each, pause_s, headers
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Clients:
        self._tasks = [
            asyncio.create_task(self._ask(*one, number))
            for number, one in enumerate(self._addresses)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        await self.ended()

    async def ended(self) -> None:
        """Wait until each client has had its requests."""
        await asyncio.gather(*self._tasks)

    async def _ask(self, kind: str, address: str, first: int) -> None:
        module = import_module(f"tritonclient.{kind}.aio")
        client, failures, done = None, 0, 0
        began_s = time.monotonic()
        while not self._is_over and done != self._each:
            client = client or module.InferenceServerClient(address)
            at = (first * 31 + done * 7) % len(self._frames)
            given = inputs(kind, self._frames[at])
            sent_s = time.monotonic()
            try:
                headers = dict(self._headers)  # the client adds some
                asking = client.infer(self._model, given, headers=headers)
                answer = await asyncio.wait_for(asking, ATTEMPT_S)
            except Exception as error:  # noqa: BLE001 - of three libraries
                failures += 1
                if getattr(error, "status", str)() == FULL[kind]:
                    self.asked.refusals += 1
                else:
                    self.asked.errors[_shape(error)] += 1
                    done += self._each is not None
                    await client.close()  # the next attempt makes a new one, as after a crash
                    client = None
                await asyncio.sleep(pause_s(failures, PAUSE_S, LONGEST_PAUSE_S))
                continue
            now_s = time.monotonic()
            self._note(kind, answer, at, sent_s, now_s - sent_s)
            self.asked.longest_s = max(self.asked.longest_s, now_s - began_s)
            await asyncio.sleep(self._pause_s)
            began_s, failures, done = time.monotonic(), 0, done + 1
        if client is not None:
            await client.close()

    def _note(self, kind: str, answer: Any, at: int, sent_s: float, took_s: float) -> None:
        head = answer.get_response()
        version = int(head["model_version"] if kind == "http" else head.model_version)
        self.asked.answers.append(Answer(sent_s, took_s, version))
        wanted = self._wanted[version][at] if version in self._wanted else {}
        pairs = [(answer.as_numpy(name), array) for name, array in wanted.items()]
        self.asked.wrong += not pairs or worst_of(pairs) > TOLERANCE


def _shape(error: Exception) -> str:
    """What went wrong, without its numbers."""
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return "".join(letter for letter in text if not letter.isdigit())[:120]
