"""The one rule for events that arise while actions are performed."""

from __future__ import annotations

import pytest

from nodes.core.reactor import Reactor


class Counting:
    """Each event n > 0 decides on the actions n and -n; performing n reports the event n - 1."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.story: list[str] = []
        self.fails_at = fails_at
        self.reactor: Reactor[int, int] = Reactor(self.handle, self.perform, lambda: 7.0)

    def handle(self, event: int, now_s: float) -> list[int]:
        assert now_s == 7.0
        self.story.append(f"event {event}")
        return [event, -event] if event else []

    def perform(self, action: int) -> None:
        self.story.append(f"action {action}")
        if action == self.fails_at:
            raise OSError("the disk is full")
        if action > 0:
            self.reactor.take(action - 1)


def test_an_event_that_an_action_makes_is_handled_after_all_actions_before_it() -> None:
    core = Counting()
    core.reactor.take(2)
    assert core.story == [
        "event 2", "action 2", "action -2",
        "event 1", "action 1", "action -1",
        "event 0",
    ]  # fmt: skip


def test_what_waited_is_dropped_when_an_action_fails_and_the_next_event_is_handled() -> None:
    core = Counting(fails_at=-2)
    with pytest.raises(OSError, match="disk"):
        core.reactor.take(2)
    core.story.clear()
    core.reactor.take(0)
    assert core.story == ["event 0"]
