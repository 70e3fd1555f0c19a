"""A rewrite is a value that survives being written down."""

import json

import pytest

from cnn.errors import ModelError
from cnn.rewrites import Bands, Copies, Rewrite, Slices, from_data, to_data

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
def test_what_is_no_rewrite_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ModelError):
        from_data(data)
