"""A bounded queue that makes its user wait, or drops and counts exactly."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.config.run import Overload
from launcher.streaming.overload import OverloadQueue

WAIT_S = 20.0
POLICIES: tuple[Overload, ...] = ("block", "drop-oldest", "drop-newest")

policies = st.sampled_from(POLICIES)
moves = st.lists(st.sampled_from(["put", "take"]), max_size=60)


@given(policies, st.integers(1, 5), moves)
def test_every_item_is_taken_once_in_order_or_dropped_or_waits(
    policy: Overload, places: int, steps: list[str]
) -> None:
    dropped: list[int] = []
    queue: OverloadQueue[int] = OverloadQueue(places, policy, dropped.append)
    accepted: list[int] = []
    taken: list[int] = []
    for number, step in enumerate(steps):
        if step == "take":
            if (item := queue.take(timeout_s=0)) is not None:
                taken.append(item)
        elif queue.put(number, timeout_s=0):
            accepted.append(number)
        else:
            assert policy == "block"
            assert queue.counts.waiting == places
        counts = queue.counts
        assert counts.waiting <= places
        assert (counts.offered, counts.taken) == (len(accepted), len(taken))
        assert counts.dropped == len(dropped)
    queue.close()
    while (item := queue.take()) is not None:
        taken.append(item)
    assert taken == sorted(taken)
    assert dropped == sorted(dropped)
    assert sorted(taken + dropped) == accepted
    assert queue.counts.waiting == 0


@pytest.mark.parametrize(
    ("policy", "left"), [("drop-oldest", [2, 3, 4]), ("drop-newest", [0, 1, 2])]
)
def test_what_is_left_is_the_newest_or_the_oldest_as_the_user_wants(
    policy: Overload, left: list[int]
) -> None:
    queue: OverloadQueue[int] = OverloadQueue(3, policy)
    for number in range(5):
        queue.put(number)
    queue.close()
    assert [queue.take(), queue.take(), queue.take(), queue.take()] == [*left, None]


def test_nothing_is_lost_between_threads_that_wait_for_each_other() -> None:
    queue: OverloadQueue[int] = OverloadQueue(2, "block")
    taken: list[int] = []

    def take_all() -> None:
        while (item := queue.take()) is not None:
            taken.append(item)

    taker = threading.Thread(target=take_all)
    taker.start()
    assert all(queue.put(number) for number in range(2000))
    queue.close()
    taker.join(WAIT_S)
    assert taken == list(range(2000))


def test_a_closed_queue_frees_whoever_waits_for_a_place_or_an_item() -> None:
    full: OverloadQueue[int] = OverloadQueue(1, "block")
    empty: OverloadQueue[int] = OverloadQueue(1, "block")
    assert full.put(0)
    ended: list[object] = []
    threads = [
        threading.Thread(target=lambda: ended.append(full.put(1))),
        threading.Thread(target=lambda: ended.append(empty.take())),
    ]
    for thread in threads:
        thread.start()
    full.close()
    empty.close()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(ended, key=str) == [False, None]
    assert full.take() == 0
    assert full.take() is None


@pytest.mark.parametrize("policy", POLICIES)
def test_a_closed_queue_accepts_nothing_and_counts_nothing(policy: Overload) -> None:
    queue: OverloadQueue[int] = OverloadQueue(1, policy)
    queue.close()
    assert not queue.put(0)
    assert queue.counts.offered == 0


def test_an_abandoned_queue_gives_nothing_more_and_counts_what_it_held_as_waiting() -> None:
    queue: OverloadQueue[int] = OverloadQueue(3, "block")
    queue.put(0)
    queue.put(1)
    queue.abandon()
    assert queue.take() is None
    assert queue.counts.waiting == 2
