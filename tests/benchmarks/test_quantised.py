"""A quantised network sends a quarter of the bytes, and its parts compute what the whole does."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.quantised import contiguous, cut_alike, measure, quantised
from cnn import read
from tests.launcher import kinds


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_a_quantised_network_that_is_cut_where_its_floats_are(form: str, tmp_path: Path) -> None:
    source = kinds.write(tmp_path / "floats.onnx")
    floats = contiguous(read(source).network, 3)
    single = measure(source, lambda _: floats, turns=1)
    own = measure(
        quantised(source, form, tmp_path), lambda network: cut_alike(network, floats), turns=1
    )
    assert single.crossing_bytes > 0
    assert 4 * own.crossing_bytes == single.crossing_bytes
    assert own.deviation == 0
