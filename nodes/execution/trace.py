"""Records an agent's firings and the tensors that it sends and receives, for traces.

Recording begins with a launcher's first request and ends with its session. Each event is packed
into a bounded buffer. A request for all events empties it; one for the events of some frames leaves
it as it is. Where it is full, the oldest events make room and are counted. Times are seconds of
this machine's steady clock, which the launcher relates to its own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.protocol.messages import TRACE_EVENT, TRACE_EVENTS, TensorHeader, Traced, TraceKind

_EVENT = struct.Struct(TRACE_EVENT)
_FIELDS = np.dtype(
    [("began_s", "<f8"), ("took_s", "<f8"), ("frame", "<i8"), ("number", "<u4"), ("kind", "u1")]
)
"""`TRACE_EVENT` as NumPy reads it."""


class Recorder:
    """The buffer. `is_on` is True from a session's first request to its end."""

    def __init__(self, most_events: int = TRACE_EVENTS) -> None:
        self.is_on = False
        self._most_bytes = most_events * _EVENT.size
        self._buffer = bytearray()
        self._dropped = 0

    def note(self, kind: TraceKind, number: int, frame: int, began_s: float, took_s: float) -> None:
        """Record an event; `number` is the index of its phase or channel."""
        if len(self._buffer) >= self._most_bytes:
            oldest = max(1, self._most_bytes // _EVENT.size // 2)
            del self._buffer[: oldest * _EVENT.size]
            self._dropped += oldest
        self._buffer += _EVENT.pack(began_s, took_s, frame, number, kind)

    def note_event(self, event: ev.Event, now_s: float) -> None:
        """Record an event that the core receives at `now_s`, if it is a firing or a tensor."""
        if isinstance(event, ev.FiringEnded):
            self.note(TraceKind.FIRED, event.phase, event.frame, event.began_s, event.busy_s)
        elif isinstance(event, ev.DataReceived) and isinstance(event.message, TensorHeader):
            self.note(TraceKind.CAME, event.message.channel, event.message.frame, now_s, 0.0)

    def note_sent(self, action: act.SendData, began_s: float, now_s: float) -> None:
        """Record that a tensor was passed to its socket, if `action` sends one."""
        if isinstance(action.message, TensorHeader):
            header = action.message
            self.note(TraceKind.SENT, header.channel, header.frame, began_s, now_s - began_s)

    def answer(self, number: int, now_s: float, frames: Sequence[int] = ()) -> Traced:
        """Return all events since the last answer, and record from now on; or, with `frames`, those
        of these frames that are still there, and keep them."""
        self.is_on = True
        if frames:
            events = np.frombuffer(bytes(self._buffer), _FIELDS)
            wanted = events[np.isin(events["frame"], frames)]
            return Traced(number, now_s, wanted.tobytes(), 0)
        answer = Traced(number, now_s, bytes(self._buffer), self._dropped)
        self._buffer.clear()
        self._dropped = 0
        return answer

    def end(self) -> None:
        """Stop recording and forget all events, because the session has ended."""
        self.is_on = False
        self._buffer = bytearray()
        self._dropped = 0
