"""Calculate which input rows a layer needs for some of its output rows: integers only, no ONNX.

A convolution or a pooling slides a window over the rows of its input. With stride s, `above` rows
of padding, and a window that spans e = (k − 1) · dilation + 1 rows, output row o reads the input
rows [o · s − above, o · s − above + e); rows below 0 and from the height on are padding. A band [a,
b) of output rows therefore reads [a · s − above, (b − 1) · s − above + e), more than its share of
the input: the excess is the **halo**. Through several layers the halo grows, from the last to the
first (Zhao, Barijough and Gerstlauer, "DeepThings", 2018, on fused tile partitioning).

A band at the border has the same padding there as the whole tensor. Inside it has none, because the
rows of its neighbours take its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True, slots=True, order=True)
class Rows:
    """The rows from `start` up to, but not including, `stop`; at least one.

    >>> Rows(0, 5).intersection(Rows(3, 9)), Rows(0, 5).hull(Rows(7, 9))
    (Rows(start=3, stop=5), Rows(start=0, stop=9))
    """

    start: int
    stop: int

    def __post_init__(self) -> None:
        if self.start >= self.stop:
            raise ValueError(f"no rows in {self}")

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.stop - self.start

    def hull(self, other: Rows | None) -> Rows:
        """Return the fewest adjacent rows that contain both; `self` if `other` is None."""
        if other is None:
            return self
        return Rows(min(self.start, other.start), max(self.stop, other.stop))

    def shifted(self, down: int) -> Rows:
        """Return the same number of rows, `down` rows further down."""
        return Rows(self.start + down, self.stop + down)

    def intersection(self, other: Rows) -> Rows | None:
        """Return the rows that are in both, None if there are none."""
        start, stop = max(self.start, other.start), min(self.stop, other.stop)
        return Rows(start, stop) if start < stop else None

    def __str__(self) -> str:
        return f"{self.start}:{self.stop}"


def bands_of(counts: Sequence[int]) -> tuple[Rows, ...]:
    """Return bands of `counts` rows each, one below the other, from row 0.

    >>> bands_of([2, 3])
    (Rows(start=0, stop=2), Rows(start=2, stop=5))
    """
    return tuple(Rows(start, stop) for start, stop in pairwise(accumulate(counts, initial=0)))


@dataclass(frozen=True, slots=True)
class ReceptiveField:
    """The input `rows` that a band of output rows reads, with padding `above` and `below`.

    `made` are the output rows that result: those requested, and more where whole blocks are made at
    once or where a window would see nothing but padding.
    """

    made: Rows
    rows: Rows
    above: int = 0
    below: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """A window of `extent` rows that slides by `stride`, with `above` and `below` rows of padding.

    `height` is the number of input rows, `outputs` that of output rows. In ceiling mode the last
    window may extend beyond the padding below; the padding is then left as it is, because engines
    treat this case differently.

    >>> window = Window(extent=3, stride=1, above=1, below=1, height=8, outputs=8)
    >>> window.receptive_field(Rows(0, 4)).rows
    Rows(start=0, stop=5)
    """

    extent: int
    stride: int
    above: int
    below: int
    height: int
    outputs: int

    def receptive_field(self, rows: Rows) -> ReceptiveField:
        """Return what output `rows` read; everything if all that any window sees is padding."""
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
        """Return `rows`, extended until one of their windows sees the input.

        Returns None if all that any window sees is padding.
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
        """Return the input rows whose blocks cover `rows`, and all output rows that they make."""
        seen = Rows(rows.start // self.size, -(-rows.stop // self.size))
        return ReceptiveField(Rows(seen.start * self.size, seen.stop * self.size), seen)


@dataclass(frozen=True, slots=True)
class Spread:
    """Each input row is spread over `extent` output rows, `stride` apart: a transposed convolution.

    `cut` rows are removed from the top of the result. `height` is the number of input rows.
    """

    extent: int
    stride: int
    cut: int
    height: int

    def receptive_field(self, rows: Rows) -> tuple[Rows, int, int]:
        """Return (input rows, rows to remove above, rows to remove below) that leave just `rows`.

        A negative number of rows to remove below is a number of empty rows to add.
        """
        top, bottom = rows.start + self.cut, rows.stop + self.cut
        first = -(-(top - self.extent + 1) // self.stride)
        first = min(max(min(first, top // self.stride), 0), self.height - 1)
        end = min(max((bottom - 1) // self.stride + 1, first + 1), self.height)
        made_end = (end - 1) * self.stride + self.extent
        return Rows(first, end), top - first * self.stride, made_end - bottom
