"""Which rows of its input a layer needs for some rows of its output: integers only, no ONNX.

A convolution or a pooling slides a window down its input. With stride s, `above` rows of padding
and a window that spans e = (k − 1) · dilation + 1 rows, output row o looks at the input rows from
o · s − above up to, but not including, o · s − above + e; rows below 0 and from the height on are
padding. So a band [a, b) of output rows looks at [a · s − above, (b − 1) · s − above + e), which is
more than its share of the input: the **halo**. Through several layers the halo grows, from the last
to the first (Zhao, Barijough and Gerstlauer, "DeepThings", 2018, on fused tile partitioning).

Where a band's window hangs over the border it has just as many rows of padding there as the whole
has; inside it has none, because there its neighbours' rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True, slots=True, order=True)
class Rows:
    """The rows from `start` up to, but not including, `stop`; never none."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if self.start >= self.stop:
            raise ValueError(f"no rows in {self}")

    @property
    def count(self) -> int:
        """How many rows these are."""
        return self.stop - self.start

    def hull(self, other: Rows | None) -> Rows:
        """The fewest adjacent rows that hold both; `self` if there is no other."""
        if other is None:
            return self
        return Rows(min(self.start, other.start), max(self.stop, other.stop))

    def shifted(self, down: int) -> Rows:
        """The same number of rows, `down` rows further down."""
        return Rows(self.start + down, self.stop + down)

    def intersection(self, other: Rows) -> Rows | None:
        """The rows that are in both, None if there are none."""
        start, stop = max(self.start, other.start), min(self.stop, other.stop)
        return Rows(start, stop) if start < stop else None

    def __str__(self) -> str:
        return f"{self.start}:{self.stop}"


def bands_of(counts: Sequence[int]) -> tuple[Rows, ...]:
    """Bands of so many rows each, one below the other, from row 0."""
    return tuple(Rows(start, stop) for start, stop in pairwise(accumulate(counts, initial=0)))


@dataclass(frozen=True, slots=True)
class ReceptiveField:
    """What a band of output rows takes: `rows` of the input with `above` and `below` of padding.

    `made` are the output rows that come of it: those asked for, and more where whole blocks are
    made at once or where a window would see nothing but padding.
    """

    made: Rows
    rows: Rows
    above: int = 0
    below: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """A window of `extent` rows that slides down by `stride`, over padding `above` and `below`.

    `height` is the input's number of rows, `outputs` the output's. With a ceiling mode the last
    window may hang over the padding below; the padding is then left as it is, because engines treat
    what hangs over in ways of their own.
    """

    extent: int
    stride: int
    above: int
    below: int
    height: int
    outputs: int

    def receptive_field(self, rows: Rows) -> ReceptiveField:
        """What output `rows` take; all there is if no window at all sees the input."""
        made = self._on_the_input(rows)
        if made is None:
            return ReceptiveField(
                Rows(0, self.outputs), Rows(0, self.height), self.above, self.below
            )
        first = made.start * self.stride - self.above
        end = (made.stop - 1) * self.stride - self.above + self.extent
        seen = Rows(max(first, 0), min(end, self.height))
        below = min(max(end - self.height, 0), self.below)
        return ReceptiveField(made, seen, seen.start - first, below)

    def _on_the_input(self, rows: Rows) -> Rows | None:
        """`rows`, and as many more as it takes for one of their windows to see the input.

        None if all that any window sees is padding.
        """
        first_seeing = max((self.above - self.extent) // self.stride + 1, 0)
        last_seeing = min((self.height - 1 + self.above) // self.stride, self.outputs - 1)
        if first_seeing > last_seeing:
            return None
        nearest = min(max(rows.start, first_seeing), last_seeing)
        return rows.hull(Rows(nearest, nearest + 1))


@dataclass(frozen=True, slots=True)
class Blocks:
    """Each input row makes a block of `size` output rows, as in nearest-neighbour upsampling."""

    size: int

    def receptive_field(self, rows: Rows) -> ReceptiveField:
        """The input rows whose blocks cover `rows`, and all that these make."""
        seen = Rows(rows.start // self.size, -(-rows.stop // self.size))
        return ReceptiveField(Rows(seen.start * self.size, seen.stop * self.size), seen)


@dataclass(frozen=True, slots=True)
class Spread:
    """Each input row is spread over `extent` output rows, `stride` apart: a transposed convolution.

    Of what comes out, `cut` rows are cut off at the top. `height` is the input's number of rows.
    """

    extent: int
    stride: int
    cut: int
    height: int

    def receptive_field(self, rows: Rows) -> tuple[Rows, int, int]:
        """(input rows, rows to cut off above, rows to cut off below) that leave just `rows`.

        A negative number of rows to cut off below is one of empty rows to add.
        """
        top, bottom = rows.start + self.cut, rows.stop + self.cut
        first = -(-(top - self.extent + 1) // self.stride)
        first = min(max(min(first, top // self.stride), 0), self.height - 1)
        end = min(max((bottom - 1) // self.stride + 1, first + 1), self.height)
        made_end = (end - 1) * self.stride + self.extent
        return Rows(first, end), top - first * self.stride, made_end - bottom
