"""What an agent did and when, for whoever asked: firings, tensors sent and tensors that came.

Nothing is noted before a launcher asks for the first time. From then on, until its session ends,
each event is packed into a bounded buffer, which every further question empties; what does not fit
is counted. Times are this machine's steady clock, in seconds: how it stands to the launcher's is
for that to find out.
"""

from __future__ import annotations

import struct

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.protocol.messages import TRACE_EVENT, TRACE_EVENTS, TensorHeader, Traced, TraceKind

_EVENT = struct.Struct(TRACE_EVENT)


class Recorder:
    """The buffer. `is_on` is True from a session's first question to its end."""

    def __init__(self, most_events: int = TRACE_EVENTS) -> None:
        self.is_on = False
        self._most_bytes = most_events * _EVENT.size
        self._buffer = bytearray()
        self._dropped = 0

    def note(self, kind: TraceKind, number: int, frame: int, began_s: float, took_s: float) -> None:
        """`number` is a phase's or a channel's."""
        if len(self._buffer) < self._most_bytes:
            self._buffer += _EVENT.pack(began_s, took_s, frame, number, kind)
        else:
            self._dropped += 1

    def happened(self, event: ev.Event, now_s: float) -> None:
        """Note an event that the shell hands to the core at `now_s`, if it is one of those."""
        if isinstance(event, ev.FiringEnded):
            self.note(TraceKind.FIRED, event.phase, event.frame, event.began_s, event.busy_s)
        elif isinstance(event, ev.DataReceived) and isinstance(event.message, TensorHeader):
            self.note(TraceKind.CAME, event.message.channel, event.message.frame, now_s, 0.0)

    def sent(self, action: act.SendData, began_s: float, now_s: float) -> None:
        """Note that a tensor was handed to its socket."""
        if isinstance(action.message, TensorHeader):
            header = action.message
            self.note(TraceKind.SENT, header.channel, header.frame, began_s, now_s - began_s)

    def answer(self, number: int, now_s: float) -> Traced:
        """All that was noted since the last answer; from now on everything is."""
        self.is_on = True
        answer = Traced(number, now_s, bytes(self._buffer), self._dropped)
        self._buffer.clear()
        self._dropped = 0
        return answer

    def end(self) -> None:
        """Whoever asked is gone: forget what was noted, and note nothing more."""
        self.is_on = False
        self._buffer = bytearray()
        self._dropped = 0
