"""Asks agents what they do and when, while a run goes on, and writes it all to one file.

Every question is a round trip by which clocks are compared (`launcher.core.clocks`), and every
answer empties an agent's buffer. The first few follow each other; then each agent is asked a few
times a second, when the launcher is awake anyway, and once more before it is stopped.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launcher.core.blueprint import Blueprint
from launcher.core.clocks import RoundTrip, estimate
from launcher.errors import BadInputError, RunFailedError
from launcher.run.chrome_trace import Happened, NodeTrace, chrome_trace
from launcher.whole_files import unwritten, write_whole
from nodes.protocol.messages import TRACE_EVENT, Control, GetTrace, Start, Stop, Traced, TraceKind

AT_ONCE = 8
"""Questions that follow each other at first."""

EVERY_S = 0.25

MOST_EVENTS = 1_000_000
"""Of one agent; the rest of a longer run is counted and left out."""

_EVENT = struct.Struct(TRACE_EVENT)
_KINDS = {int(kind): kind for kind in TraceKind}


@dataclass
class _Asked:
    """What is known of one agent."""

    sent_s: float = 0.0
    number: int = 0
    first: int = 0
    is_waiting: bool = False
    trips: list[RoundTrip] = field(default_factory=list)
    events: list[Happened] = field(default_factory=list)
    dropped: int = 0


def check_trace_file(path: Path | None) -> None:
    """Raise `BadInputError` if a trace could not be written there."""
    if path is None:
        return
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        raise BadInputError(f"--trace {path}: it must be a file in a folder that exists")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInputError(f"--trace {path}: it must be a file that you may write")


class Tracer:
    """Questions and answers of one run; begins with an epoch's `begin`."""

    def __init__(self) -> None:
        self._asked: dict[str, _Asked] = {}

    def before(self, node: str, message: Control) -> GetTrace | None:
        """What to ask a node before it gets `message`: from the start of an epoch to its stop,
        which also those get that were never started."""
        if isinstance(message, Start):
            return self.begin(node)
        return self.ask(node) if isinstance(message, Stop) and node in self._asked else None

    def begin(self, node: str) -> GetTrace:
        """The first question of an epoch: records from before it have other numbers."""
        number = self._asked[node].number if node in self._asked else 0
        self._asked[node] = _Asked(number=number, first=number + 1)
        return self.ask(node)

    def ask(self, node: str) -> GetTrace:
        """A question to a node, which is to be sent now."""
        asked = self._asked[node]
        asked.number += 1
        asked.is_waiting, asked.sent_s = True, time.monotonic()
        return GetTrace(asked.number)

    def due(self, now_s: float) -> list[str]:
        """The nodes that are to be asked again."""
        return [
            node
            for node, asked in self._asked.items()
            if not asked.is_waiting
            and (len(asked.trips) < AT_ONCE or now_s >= asked.sent_s + EVERY_S)
        ]

    def heard(self, node: str, answer: Traced) -> None:
        """Take an answer, also one that nobody waits for any more: it has events."""
        asked = self._asked.get(node)
        if asked is None or answer.number < asked.first:
            return
        if asked.is_waiting and answer.number == asked.number:
            asked.is_waiting = False
            asked.trips.append(RoundTrip(asked.sent_s, answer.now_s, time.monotonic()))
        if answer.number == asked.first:
            return
        usable = len(answer.events) - len(answer.events) % _EVENT.size
        asked.dropped += answer.dropped
        for began_s, took_s, frame, number, kind in _EVENT.iter_unpack(answer.events[:usable]):
            if len(asked.events) < MOST_EVENTS and kind in _KINDS:
                asked.events.append(Happened(_KINDS[kind], number, frame, began_s, took_s))
            else:
                asked.dropped += 1

    @property
    def nodes(self) -> Mapping[str, NodeTrace]:
        """The records of every node that answered."""
        return {
            node: NodeTrace(estimate(asked.trips), tuple(asked.events), asked.dropped)
            for node, asked in self._asked.items()
            if asked.trips
        }

    def write(self, path: Path, blueprint: Blueprint) -> None:
        """One file, as Perfetto and Chrome read it; raises `RunFailedError` if it cannot be.

        It is of the last epoch, which is `blueprint`'s: nodes that were lost before are left out.
        """
        nodes = {node: of for node, of in self.nodes.items() if node in blueprint.deployments}
        try:
            write_whole(path, json.dumps(chrome_trace(blueprint, nodes)))
        except OSError as error:
            raise RunFailedError(f"--trace {path}: {unwritten(error)}") from error
