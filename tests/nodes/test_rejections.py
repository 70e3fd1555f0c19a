"""A flood of refused connections leaves a few lines in the log, and none of them goes uncounted."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.core.admission import LONGEST_PAUSE_S, LONGEST_TEXT, MAX_KINDS, Rejections
from nodes.protocol.messages import PROTOCOL, Hello
from tests.nodes.lone_core import STRANGER, LoneCore


def texts(actions: list[act.Action]) -> list[str]:
    return [action.text for action in actions if isinstance(action, act.Log)]


def test_the_first_is_reported_at_once_and_the_others_together() -> None:
    agent = LoneCore()
    assert texts(agent.happens(ev.Rejected("no handshake"))) == [
        "dropped a connection: no handshake"
    ]
    for _ in range(100):
        assert not texts(agent.happens(ev.Rejected("a strange key")))
    assert agent.core.deadline_s == 1.0
    agent.now_s = 1.0
    (line,) = texts(agent.happens(ev.Tick()))
    assert line == "dropped a connection: a strange key (the last of 100 in 1 s)"
    assert agent.core.deadline_s is None, "nothing wakes it up without need"
    assert agent.core.tally.bad_messages == 101


def test_one_kind_does_not_hide_another() -> None:
    agent = LoneCore()
    agent.happens(ev.Rejected("no handshake"))
    assert texts(agent.says(Hello(PROTOCOL + 1, "s", 5.0), STRANGER))


def count(line: str) -> int:
    found = re.search(r"the last of (\d+) in", line)
    return int(found[1]) if found else 1


@given(
    st.lists(st.tuples(st.floats(0.0, 70.0), st.sampled_from(["knock", "key"])), max_size=200),
)
def test_every_one_is_counted_once_and_reported_within_a_minute(
    arrivals: list[tuple[float, str]],
) -> None:
    rejections, told, now_s = Rejections(), 0, 0.0

    def tick(until_s: float) -> int:
        counted = 0
        while (at_s := rejections.deadline_s) is not None and at_s <= until_s:
            counted += sum(count(line) for line in rejections.due(at_s))
        return counted

    for after_s, what in arrivals:
        told += tick(now_s + after_s)
        now_s += after_s
        told += rejections.note(what, "why", now_s) is not None
    assert told + tick(now_s + LONGEST_PAUSE_S) == len(arrivals)


def test_a_flood_of_a_day_leaves_less_than_a_megabyte() -> None:
    rejections, lines, now_s = Rejections(), [], 0.0
    while now_s < 86_400.0:
        line = rejections.note("dropped a connection", "x" * 4000, now_s)
        lines += [line] if line else []
        now_s += 0.9
        lines += rejections.due(now_s)
    assert sum(map(len, lines)) < 1_000_000
    assert max(map(len, lines)) < 2 * LONGEST_TEXT


@settings(max_examples=25)
@given(every_s=st.floats(0.4, 200.0))
def test_whoever_knocks_steadily_is_reported_at_once_and_then_about_once_a_minute(
    every_s: float,
) -> None:
    rejections, lines, now_s = Rejections(), 0, 0.0
    for knock in range(int(7200 / every_s)):
        now_s = knock * every_s
        lines += len(rejections.due(now_s))
        told = rejections.note("dropped a connection", "a strange key", now_s)
        assert told or knock, "the first one is never held back"
        lines += told is not None
    assert lines <= 7200 / LONGEST_PAUSE_S + 8


def test_after_a_quiet_minute_the_next_knock_is_the_first_again() -> None:
    rejections = Rejections()
    assert rejections.note("knock", "1", 0.0)
    assert rejections.note("knock", "2", 1.1)
    assert rejections.note("knock", "3", 2.2) is None, "within two seconds of what was told"
    assert rejections.due(3.1)
    quiet_s = 3.1 + 4.0 + LONGEST_PAUSE_S
    assert rejections.note("knock", "4", quiet_s)
    assert rejections.deadline_s is None
    assert rejections.note("knock", "5", quiet_s + 1.0), "a second later, as at first"


def test_kinds_that_others_invent_are_not_remembered_without_end() -> None:
    rejections = Rejections()
    told = [rejections.note(f"cut off node {i}", "why", 0.0) for i in range(10 * MAX_KINDS)]
    assert sum(line is not None for line in told) == MAX_KINDS + 1
