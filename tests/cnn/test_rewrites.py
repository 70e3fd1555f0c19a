"""A rewrite is a value that survives being written down."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnn.errors import ModelError
from cnn.rewrite.rewrites import Bands, Channels, Copies, Rewrite, Slices, from_data, to_data

EXAMPLES: list[Rewrite] = [Slices("conv", (3, 2)), Bands(("a", "b"), (5, 5, 4)), Copies((3, 1))]


@pytest.mark.parametrize("rewrite", EXAMPLES)
def test_json_and_back(rewrite: Rewrite) -> None:
    assert from_data(json.loads(json.dumps(to_data(rewrite)))) == rewrite


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"slices": "conv"},
        {"slices": "conv", "channels": []},
        {"slices": "conv", "channels": [2, 0]},
        {"slices": "conv", "channels": [True, 1]},
        {"slices": 3, "channels": [1]},
        {"bands": [], "rows": [1]},
        {"bands": [1], "rows": [1]},
        {"copies": 2},
        {"copies": [1.5]},
        {"copies": [2], "more": 1},
    ],
)
def test_anything_but_a_rewrite_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ModelError):
        from_data(data)


@given(
    groups=st.integers(1, 40),
    size=st.integers(1, 8),
    shares=st.lists(st.integers(1, 100), min_size=1, max_size=12),
)
def test_channels_are_divided_in_proportion_and_legally(
    groups: int, size: int, shares: list[int]
) -> None:
    channels = Channels(groups * size, size)
    parts = channels.divide([float(share) for share in shares])
    assert len(parts) == len(shares)
    assert sum(parts) == channels.count
    assert channels.allow([part for part in parts if part])
    if len(shares) <= groups:
        ideal = [groups * share / sum(shares) for share in shares]
        assert all(abs(part / size - x) < 1 for part, x in zip(parts, ideal, strict=True))


@pytest.mark.parametrize(
    ("parts", "legal"),
    [
        ((4, 8), True),
        ((2, 2, 8), True),
        ((1, 3, 5, 3), False),
        ((8, 1, 3), True),
        ((6, 6), False),
        ((4, 4), False),
    ],
)
def test_a_slice_is_whole_groups_or_lies_within_one(parts: tuple[int, ...], legal: bool) -> None:
    assert Channels(12, 4).allow(parts) == legal
