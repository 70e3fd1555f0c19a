"""Represents sets of frames as ranges: ten million settled frames take as little room as one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import overload


class FrameRanges:
    """A set of frames as disjoint ranges (first, last), in ascending order and with gaps between.

    `add` takes constant time for frames in ascending order, else a search and a move of the later
    ranges.
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._size = 0
        for first, last in ranges:
            self.add(first, last)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, frame: int) -> bool:
        at = bisect_right(self._firsts, frame) - 1
        return at >= 0 and frame <= self._lasts[at]

    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Return the ranges (first, last)."""
        return tuple(zip(self._firsts, self._lasts, strict=True))

    def add(self, first: int, last: int | None = None) -> None:
        """Add a frame, or all frames from `first` to `last`."""
        last = first if last is None else last
        begin = bisect_right(self._firsts, first)
        if begin and self._lasts[begin - 1] >= first - 1:
            begin -= 1
            first = self._firsts[begin]
        end = bisect_right(self._firsts, last + 1)
        if end > begin:
            last = max(last, self._lasts[end - 1])
            self._size -= sum(self._lasts[at] - self._firsts[at] + 1 for at in range(begin, end))
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]
        self._size += last - first + 1

    def between(self, first: int, last: int) -> FrameRanges:
        """Return the frames from `first` to `last` that are in the set."""
        begin = max(0, bisect_right(self._firsts, first) - 1)
        end = bisect_right(self._firsts, last)
        return FrameRanges(
            (max(first, self._firsts[at]), min(last, self._lasts[at]))
            for at in range(begin, end)
            if self._lasts[at] >= first
        )

    def gaps(self, first: int, last: int) -> FrameRanges:
        """Return the frames from `first` to `last` that are not in the set."""
        found = FrameRanges()
        for begin, end in self.between(first, last).ranges():
            if first < begin:
                found.add(first, begin - 1)
            first = end + 1
        if first <= last:
            found.add(first, last)
        return found

    def without(self, other: FrameRanges) -> FrameRanges:
        """Return the frames that are not in `other`."""
        found = FrameRanges()
        for first, last in self.ranges():
            for gap in other.gaps(first, last).ranges():
                found.add(*gap)
        return found

    @property
    def in_a_row(self) -> int:
        """How many frames from 0 on are all in the set."""
        return self._lasts[0] + 1 if self._firsts and self._firsts[0] == 0 else 0


class FrameSequence(Sequence[int]):
    """The frames of ranges in ascending order, without a list of them."""

    def __init__(self, frames: FrameRanges) -> None:
        self._ranges = frames.ranges()
        self._before = [0, *accumulate(last - first + 1 for first, last in self._ranges)]

    def __len__(self) -> int:
        return self._before[-1]

    def __iter__(self) -> Iterator[int]:
        for first, last in self._ranges:
            yield from range(first, last + 1)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...

    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        if not 0 <= index < len(self):
            raise IndexError(index)
        at = bisect_right(self._before, index) - 1
        return self._ranges[at][0] + index - self._before[at]
