"""Whose thread it is that makes a call."""

from __future__ import annotations

import os
from queue import SimpleQueue
from threading import Thread

import pytest

from nodes.errand import Errand


def test_it_is_made_where_the_errand_was_made_and_not_where_it_is_asked_for() -> None:
    """By the CPUs: threads inherit them as they inherit control groups."""
    mine = os.sched_getaffinity(0)
    seen: SimpleQueue[set[int]] = SimpleQueue()
    errand = Errand(lambda: seen.put(os.sched_getaffinity(0)))

    def elsewhere() -> None:
        os.sched_setaffinity(0, {min(mine)})
        errand.run()
        seen.put(os.sched_getaffinity(0))

    thread = Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen.get_nowait() == mine
    assert seen.get_nowait() == {min(mine)}


def test_what_it_raises_is_raised_where_it_is_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        Errand(lambda: 1 // 0).run()
