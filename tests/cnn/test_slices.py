"""Whatever is sliced, and however, computes what the whole computes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cnn
from benchmarks.agreement import LIMIT, agreements, random_frame, random_partition
from tests.networks import save, small_models
from tests.rewriting import slicings

EVERYWHERE = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}


def check(proto: onnx.ModelProto, data: st.DataObject, seed: int, directory: Path) -> None:
    model = cnn.read(save(proto, directory))
    rewritten = model.rewritten(data.draw(slicings(model)))
    partition = random_partition(rewritten.network, 3, seed)
    (found,) = agreements(rewritten, [partition], random_frame(model.network, seed))
    assert found.crossing <= LIMIT


@given(proto=small_models(), data=st.data(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12, **EVERYWHERE)
def test_slices_compute_what_the_layers_compute(
    proto: onnx.ModelProto, data: st.DataObject, seed: int, tmp_path: Path
) -> None:
    check(proto, data, seed, tmp_path)


@pytest.mark.slow
@given(proto=small_models(max_steps=30), data=st.data(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, **EVERYWHERE)
def test_larger_networks_too(
    proto: onnx.ModelProto, data: st.DataObject, seed: int, tmp_path: Path
) -> None:
    check(proto, data, seed, tmp_path)
