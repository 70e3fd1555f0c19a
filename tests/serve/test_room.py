"""Places for transfers: who waits, who gives way, and that no byte of room is lost or made."""

from __future__ import annotations

import asyncio
import threading
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.serve.errors import Refusal, RequestError
from launcher.serve.room import LARGEST, MOST_WAITING, SLOW, Progress, TransferRoom

LIMIT_BYTES = 1000
LONG_S = 20.0


async def turn() -> None:
    """Let all run that can."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_soon(over.set_result, None)
    await over


async def never(_: Progress) -> None:
    await asyncio.get_running_loop().create_future()


async def at_once(_: Progress) -> str:
    return "done"


def begun(
    room: TransferRoom, size_bytes: int, transfer=never, limit_s: float = LONG_S
) -> asyncio.Task:
    return asyncio.create_task(room.hold(size_bytes, transfer, limit_s))


def test_what_stops_gives_way_and_what_is_fast_does_not() -> None:
    async def run() -> None:
        room = TransferRoom(LIMIT_BYTES, 0.05)
        over = asyncio.Event()

        async def fast(progress: Progress) -> str:
            while not over.is_set():
                progress(SLOW)
                await turn()
            return "fast"

        one, other = begun(room, 500, fast), begun(room, 500)
        await turn()
        assert await begun(room, 500, at_once) == "done"
        with pytest.raises(RequestError) as raised:
            await other
        assert raised.value.refusal is Refusal.FULL
        over.set()
        assert await one == "fast"

    asyncio.run(run())


def test_a_trickle_is_late_as_well() -> None:
    async def run() -> None:
        room = TransferRoom(LIMIT_BYTES, 0.05)

        async def trickle(progress: Progress) -> None:
            while True:
                progress(1)
                for _ in range(100):  # far less than SLOW, however fast this loop turns
                    await turn()

        slow = begun(room, 1000, trickle)
        await turn()
        assert await begun(room, 1000, at_once) == "done"
        with pytest.raises(RequestError):
            await slow

    asyncio.run(run())


def test_the_newest_is_served_though_many_stop_in_the_middle() -> None:
    async def run() -> None:
        room = TransferRoom(LIMIT_BYTES, 0.02)
        stuck = [begun(room, 900) for _ in range(MOST_WAITING * 3)]
        await turn()
        assert await asyncio.wait_for(begun(room, 900, at_once), 1.0) == "done"
        for one in stuck:
            one.cancel()
        ends = await asyncio.gather(*stuck, return_exceptions=True)
        refused = [end for end in ends if isinstance(end, RequestError)]
        assert len(refused) >= MOST_WAITING

    asyncio.run(run())


def test_a_place_that_is_given_back_goes_to_the_one_that_has_waited_longest() -> None:
    async def run() -> None:
        room = TransferRoom(LIMIT_BYTES, LONG_S)
        order: list[int] = []
        leave = asyncio.Event()

        async def first(_: Progress) -> None:
            await leave.wait()

        async def numbered(number: int) -> None:
            async def note(_: Progress) -> None:
                order.append(number)

            await room.hold(1000, note, LONG_S)

        holding = begun(room, 1000, first)
        await turn()
        waiting = [asyncio.create_task(numbered(number)) for number in range(5)]
        await turn()
        leave.set()
        await asyncio.gather(holding, *waiting)
        assert order == [0, 1, 2, 3, 4]

    asyncio.run(run())


def test_who_waits_too_long_is_reported_so_and_leaves_no_trace() -> None:
    async def run() -> None:
        room = TransferRoom(LIMIT_BYTES, LONG_S)
        holding = begun(room, 1000)
        await turn()
        with pytest.raises(asyncio.TimeoutError):
            await begun(room, 1000, at_once, limit_s=0.02)
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        assert await begun(room, 1000, at_once) == "done"

    asyncio.run(run())


def test_there_is_room_for_some_of_the_largest_whose_size_may_change() -> None:
    async def run() -> None:
        largest_bytes = 0
        room = TransferRoom(LIMIT_BYTES, LONG_S, lambda: largest_bytes)
        slow = [begun(room, 900)]
        await turn()
        largest_bytes = 900
        slow += [begun(room, 900) for _ in range(LARGEST - 2)]
        await turn()
        assert await asyncio.wait_for(begun(room, 900, at_once), 1.0) == "done"
        slow.append(begun(room, 900))
        await turn()
        last = begun(room, 900, at_once, limit_s=0.02)
        with pytest.raises(asyncio.TimeoutError):
            await last
        for one in slow:
            one.cancel()

    asyncio.run(run())


def test_what_has_arrived_is_read_one_after_the_other_in_its_place() -> None:
    async def run() -> None:
        room = TransferRoom(LIMIT_BYTES, 0.01)
        go_on, reading = threading.Semaphore(0), []

        def read(found: str) -> str:
            reading.append(found)
            assert go_on.acquire(timeout=LONG_S)
            return found + " and read"

        first, cancelled = (
            asyncio.create_task(room.hold_and_read(500, at_once, LONG_S, read)) for _ in range(2)
        )
        while not reading:
            await turn()
        with pytest.raises(asyncio.TimeoutError):  # neither gives way, though both are late
            await room.hold(500, at_once, 0.1)
        assert reading == ["done"]
        go_on.release()
        assert await first == "done and read"
        while len(reading) < 2:
            await turn()
        cancelled.cancel()
        with pytest.raises(asyncio.TimeoutError):  # its thread has not ended
            await room.hold(1000, at_once, 0.1)
        go_on.release()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert await begun(room, 1000, at_once) == "done"

    asyncio.run(run())


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1500), st.sampled_from(("at once", "never", "fails", "cancelled"))
        ),
        max_size=30,
    )
)
def test_whatever_becomes_of_transfers_all_the_room_is_there_again(
    transfers: list[tuple[int, str]],
) -> None:
    async def fails(_: Progress) -> None:
        raise ValueError

    async def run() -> None:
        room = TransferRoom(LIMIT_BYTES, 0.001)
        ways = {"at once": at_once, "never": never, "fails": fails, "cancelled": never}
        tasks = [(begun(room, size, ways[way], 0.05), way) for size, way in transfers]
        await turn()
        for task, way in tasks:
            if way == "cancelled":
                task.cancel()
        await asyncio.gather(*(task for task, _ in tasks), return_exceptions=True)
        assert await begun(room, LIMIT_BYTES, at_once) == "done"
        assert (room._used_bytes, room._places, room._waiting) == (0, set(), [])

    asyncio.run(run())


def test_those_that_stop_make_room_for_one_another_again_and_again() -> None:
    async def run() -> None:
        room = TransferRoom(LIMIT_BYTES, 0.01)
        stuck = [begun(room, 500) for _ in range(20)]
        ends = asyncio.as_completed(stuck, timeout=LONG_S)
        for end in islice(ends, 18):  # nobody waits for the last two places
            with pytest.raises(RequestError):
                await end
        for one in stuck:
            one.cancel()

    asyncio.run(run())
