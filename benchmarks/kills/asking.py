"""Asks a service as a user's program does: what fails is asked again until there is an answer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.serving.asking import inputs
from nodes.core.pauses import pause_s

Array = np.ndarray[Any, Any]

ATTEMPT_S = 20.0
"""How long a client waits for an answer before it asks again."""

PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
"""The pause behind an answer, and the longest one behind an attempt that failed."""


@dataclass
class Asked:
    """What the clients of one model saw."""

    sent_s: list[float] = field(default_factory=list)
    """When the attempt was sent that brought each answer, and when the answer came."""
    answered_s: list[float] = field(default_factory=list)
    wrong: int = 0
    """Answers that are not those of the version that they name."""
    longest_s: float = 0.0
    """The longest time from a request's first attempt to its answer."""
    refusals: Counter[str] = field(default_factory=Counter)
    versions: Counter[int] = field(default_factory=Counter)

    @property
    def answers(self) -> int:
        """How many there were."""
        return len(self.sent_s)

    def first_after(self, at_s: float) -> float | None:
        """Return when the first answer came to what was sent after `at_s`; None if none came."""
        later = np.asarray(self.answered_s)[np.asarray(self.sent_s) > at_s]
        return float(later.min()) if len(later) else None


class Client:
    """One client of one model."""

    def __init__(
        self, kind: str, address: str, model: str, frames: Sequence[Array], asked: Asked
    ) -> None:
        """`kind` is `http` or `grpc`."""
        self._kind, self._address, self._model = kind, address, model
        self._frames, self._asked = frames, asked
        self._module = import_module(f"tritonclient.{kind}.aio")
        self._is_over = False

    def end(self) -> None:
        """Ask no more."""
        self._is_over = True

    async def ask(self, wanted: Mapping[int, Sequence[Array]], first: int) -> None:
        """Ask for one frame after the other until `end`; `wanted` has the answers by version."""
        client, failures = None, 0
        at, begun_s = first, time.monotonic()
        while not self._is_over:
            client = client or self._module.InferenceServerClient(self._address)
            sent_s = time.monotonic()
            asking = client.infer(self._model, inputs(self._kind, {"image": self._frames[at]}))
            try:
                answer = await asyncio.wait_for(asking, ATTEMPT_S)
            except Exception as error:  # noqa: BLE001 - of three libraries; it asks again
                failures += 1
                self._asked.refusals[_shape(error)] += 1
                await client.close()  # a connection of its own for each attempt, as after a crash
                client = None
                await asyncio.sleep(pause_s(failures, PAUSE_S, LONGEST_PAUSE_S))
                continue
            self._take(answer, at, wanted)
            now_s = time.monotonic()
            self._asked.sent_s.append(sent_s)
            self._asked.answered_s.append(now_s)
            self._asked.longest_s = max(self._asked.longest_s, now_s - begun_s)
            await asyncio.sleep(PAUSE_S)
            at, begun_s, failures = (at + 7) % len(self._frames), time.monotonic(), 0
        if client is not None:
            await client.close()

    def _take(self, answer: Any, at: int, wanted: Mapping[int, Sequence[Array]]) -> None:
        head = answer.get_response()
        version = int(head["model_version"] if self._kind == "http" else head.model_version)
        self._asked.versions[version] += 1
        found = answer.as_numpy("probabilities")
        self._asked.wrong += version not in wanted or not np.allclose(
            found, wanted[version][at], rtol=1e-3, atol=1e-5
        )


def _shape(error: Exception) -> str:
    """What went wrong, without its numbers."""
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return "".join(letter for letter in text if not letter.isdigit())[:120]
