"""The bytes that the FIFOs into a node hold, now and at most."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodes.core.fifo import HeldBytes


def test_a_frame_is_held_until_its_last_reader_has_ended() -> None:
    held = HeldBytes({4: 2, 7: 1})
    held.put(4, 100)
    held.put(7, 10)
    held.read(4, 1)
    assert (held.now_bytes, held.peak_bytes) == (110, 110)
    held.read(4, 0)
    assert (held.now_bytes, held.peak_bytes) == (10, 110)
    held.read(7, 0)
    assert (held.now_bytes, held.peak_bytes) == (0, 110)


@given(st.lists(st.integers(0, 3), max_size=40))
def test_it_is_the_frames_that_some_reader_has_not_ended(choices: list[int]) -> None:
    """0 puts a frame, 1…3 let that reader end with its next one, if there is one."""
    held = HeldBytes({0: 3})
    put, read, most = 0, [0, 0, 0], 0
    for choice in choices:
        if not choice:
            put += 1
            held.put(0, 5)
        elif read[choice - 1] < put:
            read[choice - 1] += 1
            held.read(0, choice - 1)
        most = max(most, put - min(read))
        assert held.now_bytes == 5 * (put - min(read))
        assert held.peak_bytes == 5 * most
