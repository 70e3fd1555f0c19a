"""Tables 4, 5 and 6 of Villarrubia et al. (2025), as the benchmark prints them."""

from __future__ import annotations

import numpy as np
import pytest

import cnn
from benchmarks.papers.rows import COMPUTED
from benchmarks.papers.segmentation import MIB, MODELS, at_8_bits, pipeline, synthetic
from benchmarks.papers.segments import PUBLISHED, segments_of
from cnn.network import Network
from partition.strategies.contiguous.segm import layer_depths

ALWAYS = {"DenseNet121", "InceptionV3", "ResNet50", "Xception"}
"""One network of each kind; `make further` tries all."""

KERAS = [name for name in PUBLISHED["table_5"] if (MODELS / f"{name}.onnx").exists()]


def agrees(filters: int) -> bool:
    """Whether sizes are those of Tables 4 and 6, and the split is 2-1-1-1."""
    found = synthetic(filters)
    assert found["profiled"] == found["balanced"]
    assert found["balanced"].layers == (2, 1, 1, 1)
    tables = (("table_4", "count"), ("table_6", "balanced"))
    return all(segments_of(filters, table, by).kind == COMPUTED for table, by in tables)


def test_five_convolutions_of_482_filters_are_split_two_one_one_one() -> None:
    found = synthetic(482)
    assert max(found["balanced"].device_mib) < max(found["count"].device_mib) / 1.9
    assert agrees(482)


def test_the_second_layer_of_the_last_segment_stays_with_the_host_from_602_filters_on() -> None:
    found = synthetic(602)
    assert found["count"].host_mib == found["count"].device_mib[3]
    assert found["balanced"].host_mib == 0
    assert agrees(602)


@pytest.mark.slow
@pytest.mark.further
@pytest.mark.parametrize("filters", sorted(set(PUBLISHED["table_4"]) - {482, 602}))
def test_sizes_are_those_of_tables_4_and_6(filters: int) -> None:
    assert agrees(filters)


def optimum_by_depth(network: Network, devices: int) -> int:
    """The least heaviest segment of any cut by depth into at most `devices`, in bytes of weights:
    a dynamic program over all cuts, for comparison with the binary search."""
    depths = layer_depths(network)
    sizes = np.zeros(depths.max() + 1, dtype=np.int64)
    for layer, depth in zip(network.layers, depths, strict=True):
        sizes[depth] += network.weight_bytes((layer.name,))
    before = np.concatenate([[0], np.cumsum(sizes)])
    best = before.copy()
    for _ in range(devices - 1):
        best = np.array(
            [np.maximum(best[: end + 1], before[end] - before[: end + 1]).min()
             for end in range(len(before))]
        )  # fmt: skip
    return int(best[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.further) for name in KERAS],
)
def test_no_keras_network_needs_host_memory_and_its_cut_is_optimal(name: str) -> None:
    devices, _, _, alone_ms, _ = PUBLISHED["table_5"][name]
    network = at_8_bits(cnn.read(str(MODELS / f"{name}.onnx")).network)
    found = pipeline(network, devices, alone_ms)
    heaviest = max(found.balanced)
    assert heaviest == optimum_by_depth(network, devices) / MIB <= 8.0
    assert found.balanced_host == 0
    assert max(found.count) >= heaviest
    assert found.balanced_speedup == pytest.approx(alone_ms / PUBLISHED["table_7"][name], rel=0.25)
