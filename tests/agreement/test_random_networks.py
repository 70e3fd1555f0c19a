"""Any small network, dealt out to devices in any way, computes what the whole network computes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cnn
from tests.agreement.comparison import LIMIT, agreements, random_frame, random_partition
from tests.networks import save, small_models

EVERYWHERE = {
    "deadline": None,
    "database": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}


def check(proto: onnx.ModelProto, devices: int, seed: int, directory: Path) -> None:
    model = cnn.read(save(proto, directory))
    partition = random_partition(model.network, devices, seed)
    (found,) = agreements(model, [partition], random_frame(model.network, seed))
    assert found.crossing <= LIMIT


@given(proto=small_models(), devices=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12, **EVERYWHERE)
def test_a_partition_computes_what_the_network_computes(
    proto: onnx.ModelProto, devices: int, seed: int, tmp_path: Path
) -> None:
    check(proto, devices, seed, tmp_path)


@pytest.mark.slow
@given(
    proto=small_models(max_steps=30),
    devices=st.integers(2, 8),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, **EVERYWHERE)
def test_larger_networks_too(
    proto: onnx.ModelProto, devices: int, seed: int, tmp_path: Path
) -> None:
    check(proto, devices, seed, tmp_path)
