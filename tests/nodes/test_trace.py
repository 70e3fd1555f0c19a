"""What an agent notes for a trace: nothing before it is asked, then everything, within bounds."""

from __future__ import annotations

import struct

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.execution.trace import Recorder
from nodes.protocol.codec import decode, encode
from nodes.protocol.messages import (
    CHUNK_BYTES,
    TRACE_EVENT,
    TRACE_EVENTS,
    Credit,
    TensorHeader,
    TraceKind,
)

HEADER = TensorHeader(1, 4, 9, "float32", (2,))


def test_it_tells_of_firings_and_tensors_and_of_nothing_else() -> None:
    recorder = Recorder()
    assert not recorder.is_on
    assert recorder.answer(1, 2.0).events == b""
    assert recorder.is_on
    recorder.note_event(ev.FiringEnded(1, 3, 9, {}, 0.5, 0.4, 10.0), 11.0)
    recorder.note_event(ev.DataReceived(b"link", HEADER, b"12345678", 8), 12.0)
    recorder.note_event(ev.DataReceived(b"link", Credit(1, 4, 1), None, 0), 13.0)
    recorder.note_event(ev.Tick(), 13.0)
    recorder.note_sent(act.SendData("b", HEADER, b""), 14.0, 14.5)
    recorder.note_sent(act.SendData("b", Credit(1, 4, 1)), 14.0, 14.5)
    answer = recorder.answer(2, 15.0)
    assert list(struct.iter_unpack(TRACE_EVENT, answer.events)) == [
        (10.0, 0.5, 9, 3, TraceKind.FIRED),
        (12.0, 0.0, 9, 4, TraceKind.CAME),
        (14.0, 0.5, 9, 4, TraceKind.SENT),
    ]
    assert (answer.number, answer.now_s, answer.dropped) == (2, 15.0, 0)
    assert recorder.answer(3, 16.0).events == b"", "told once"


def test_it_ends_with_the_session_of_whoever_asked() -> None:
    recorder = Recorder(most_events=1)
    recorder.answer(1, 0.0)
    for frame in range(3):
        recorder.note(TraceKind.FIRED, 0, frame, 0.0, 0.0)
    recorder.end()
    assert not recorder.is_on
    answer = recorder.answer(1, 1.0)
    assert (answer.events, answer.dropped) == (b"", 0), "nothing is told to another"


def test_what_does_not_fit_is_counted() -> None:
    recorder = Recorder(most_events=2)
    for frame in range(5):
        recorder.note(TraceKind.FIRED, 0, frame, 0.0, 0.0)
    answer = recorder.answer(1, 0.0)
    assert (len(answer.events), answer.dropped) == (2 * struct.calcsize(TRACE_EVENT), 3)


def test_a_full_buffer_fits_into_a_message() -> None:
    assert TRACE_EVENTS * struct.calcsize(TRACE_EVENT) <= CHUNK_BYTES
    recorder = Recorder()
    for _ in range(TRACE_EVENTS):
        recorder.note(TraceKind.SENT, 1, 1, 1.0, 1.0)
    answer = recorder.answer(1, 1.0)
    assert decode(encode(answer)) == answer


def test_the_events_of_some_frames_may_be_asked_for_again() -> None:
    recorder = Recorder()
    recorder.answer(1, 0.0)
    for frame in range(5):
        recorder.note(TraceKind.FIRED, 2, frame, 10.0 + frame, 0.5)
    for number in (2, 3):
        answer = recorder.answer(number, 20.0, (3, 1, 99))
        assert list(struct.iter_unpack(TRACE_EVENT, answer.events)) == [
            (11.0, 0.5, 1, 2, TraceKind.FIRED),
            (13.0, 0.5, 3, 2, TraceKind.FIRED),
        ]
    assert len(recorder.answer(4, 21.0).events) == 5 * struct.calcsize(TRACE_EVENT)


def test_the_newest_events_stay() -> None:
    recorder = Recorder(most_events=8)
    recorder.answer(1, 0.0)
    for frame in range(100):
        recorder.note(TraceKind.FIRED, 0, frame, 0.0, 0.0)
        answer = recorder.answer(2, 0.0, (frame,))
        assert len(answer.events) == struct.calcsize(TRACE_EVENT)
