"""The input rows that a band needs, compared with those that each output row needs by itself."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cnn.operators.receptive_field import Blocks, ReceptiveField, Rows, Spread, Window, bands_of


@st.composite
def windows(draw: st.DrawFn) -> Window:
    extent, stride = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    above, below = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    height = draw(st.integers(1, 12))
    room = height + above + below - extent
    assume(room >= 0)
    return Window(extent, stride, above, below, height, room // stride + 1)


def band(draw: st.DrawFn, height: int) -> Rows:
    start = draw(st.integers(0, height - 1))
    return Rows(start, draw(st.integers(start + 1, height)))


def seen_by(window: Window, row: int) -> set[int]:
    """Return the input rows, without padding, that one output row reads."""
    first = row * window.stride - window.above
    return {x for x in range(first, first + window.extent) if 0 <= x < window.height}


@given(window=windows(), data=st.data())
def test_a_band_gets_every_row_that_its_windows_see(window: Window, data: st.DataObject) -> None:
    rows = band(data.draw, window.outputs)
    seen = window.receptive_field(rows)
    assert seen.made.hull(rows) == seen.made
    for row in range(seen.made.start, seen.made.stop):
        assert seen_by(window, row) <= set(range(seen.rows.start, seen.rows.stop))


@given(window=windows(), data=st.data())
def test_a_band_alone_slides_over_the_same_places(window: Window, data: st.DataObject) -> None:
    """The band's own first window begins, and its last one ends, where the whole's do."""
    seen = window.receptive_field(band(data.draw, window.outputs))
    size = seen.above + seen.rows.count + seen.below
    assert (size - window.extent) // window.stride + 1 == seen.made.count
    first = seen.made.start * window.stride - window.above
    assert seen.rows.start - seen.above == first


@given(window=windows(), data=st.data())
def test_a_band_is_not_given_rows_that_nobody_sees(window: Window, data: st.DataObject) -> None:
    rows = band(data.draw, window.outputs)
    every = [seen_by(window, row) for row in range(window.outputs)]
    assume(every[rows.start] and every[rows.stop - 1])
    seen = window.receptive_field(rows)
    assert seen.made == rows
    rows_seen = set().union(*every[rows.start : rows.stop])
    assert seen.rows == Rows(min(rows_seen), max(rows_seen) + 1)


@given(window=windows(), data=st.data())
def test_padding_is_at_borders_only(window: Window, data: st.DataObject) -> None:
    seen = window.receptive_field(band(data.draw, window.outputs))
    assert seen.above == 0 or seen.rows.start == 0
    assert seen.below == 0 or seen.rows.stop == window.height
    assert seen.above <= window.above
    assert seen.below <= window.below


def test_a_three_row_window_has_a_halo_of_one_row_on_each_side() -> None:
    window = Window(extent=3, stride=1, above=1, below=1, height=12, outputs=12)
    assert window.receptive_field(Rows(0, 4)) == ReceptiveField(Rows(0, 4), Rows(0, 5), above=1)
    assert window.receptive_field(Rows(4, 8)) == ReceptiveField(Rows(4, 8), Rows(3, 9))
    assert window.receptive_field(Rows(8, 12)) == ReceptiveField(Rows(8, 12), Rows(7, 12), below=1)


def test_windows_that_do_not_overlap_have_no_halo() -> None:
    window = Window(extent=2, stride=2, above=0, below=0, height=12, outputs=6)
    assert [window.receptive_field(rows).rows for rows in bands_of([2, 4])] == [
        Rows(0, 4),
        Rows(4, 12),
    ]


def test_what_hangs_over_is_left_to_the_ceiling_mode() -> None:
    """Seven rows by two, rounded up: the last window hangs over a border without padding."""
    window = Window(extent=2, stride=2, above=0, below=0, height=7, outputs=4)
    assert window.receptive_field(Rows(2, 4)) == ReceptiveField(Rows(2, 4), Rows(4, 7))


def test_a_row_of_padding_only_is_made_together_with_the_nearest_other() -> None:
    window = Window(extent=1, stride=1, above=2, below=2, height=3, outputs=7)
    assert window.receptive_field(Rows(0, 1)) == ReceptiveField(Rows(0, 3), Rows(0, 1), above=2)
    assert window.receptive_field(Rows(6, 7)) == ReceptiveField(Rows(4, 7), Rows(2, 3), below=2)


def test_where_all_is_padding_all_is_made() -> None:
    window = Window(extent=1, stride=3, above=1, below=1, height=1, outputs=1)
    assert window.receptive_field(Rows(0, 1)) == ReceptiveField(
        Rows(0, 1), Rows(0, 1), above=1, below=1
    )


@given(size=st.integers(1, 4), height=st.integers(1, 6), data=st.data())
def test_blocks_are_made_whole(size: int, height: int, data: st.DataObject) -> None:
    rows = band(data.draw, size * height)
    seen = Blocks(size).receptive_field(rows)
    assert seen.made == Rows(seen.rows.start * size, seen.rows.stop * size)
    assert seen.made.hull(rows) == seen.made
    assert seen.made.count < rows.count + 2 * size


@given(
    extent=st.integers(1, 5),
    stride=st.integers(1, 4),
    height=st.integers(1, 6),
    data=st.data(),
)
def test_a_spread_gets_every_row_that_reaches_the_band(
    extent: int, stride: int, height: int, data: st.DataObject
) -> None:
    whole = (height - 1) * stride + extent
    cut = data.draw(st.integers(0, min(2, whole - 1)))
    rows = band(data.draw, whole - cut)
    source, above, below = Spread(extent, stride, cut, height).receptive_field(rows)
    reaching = {
        row
        for row in range(height)
        if any(rows.start <= row * stride + x - cut < rows.stop for x in range(extent))
    }
    assert reaching <= set(range(source.start, source.stop))
    assert (source.count - 1) * stride + extent - above - below == rows.count
    assert source.start * stride + above == rows.start + cut


def test_no_rows_are_not_a_band() -> None:
    with pytest.raises(ValueError, match="no rows"):
        Rows(3, 3)
    assert Rows(0, 3).intersection(Rows(3, 5)) is None
