"""Any small network, dealt out to devices in any way, computes what the whole network computes."""

from __future__ import annotations

from pathlib import Path

import onnx
from hypothesis import given
from hypothesis import strategies as st

import cnn
from tests.agreement.comparison import LIMIT, agreements, random_frame, random_partition
from tests.effort import examples
from tests.networks import save, small_models


def check(proto: onnx.ModelProto, devices: int, seed: int, directory: Path) -> None:
    model = cnn.read(save(proto, directory))
    partition = random_partition(model.network, devices, seed)
    (found,) = agreements(model, [partition], random_frame(model.network, seed))
    assert found.crossing <= LIMIT


@examples(50)
@given(
    proto=small_models(max_steps=30),
    devices=st.integers(1, 8),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_partition_computes_what_the_network_computes(
    proto: onnx.ModelProto, devices: int, seed: int, tmp_path: Path
) -> None:
    check(proto, devices, seed, tmp_path)
