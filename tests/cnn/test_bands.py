"""Layers computed in bands of rows compute what they compute as a whole."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import cnn
from benchmarks.agreement import agreements, random_frame, random_partition, relative_error
from cnn.rewrites import Bands
from tests.cnn.image_stacks import image_stacks
from tests.cnn.models import run, save

EVERYWHERE = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
EXACT = 1e-5


def outputs(built: cnn.Model, frame: dict[str, np.ndarray], directory: Path) -> list[np.ndarray]:
    """What the model's layers compute, all in one subnet."""
    network = built.network
    subnet = built.cut(network.layer, network.inputs, network.outputs, directory)
    return run(subnet.graph, frame)


def random_rows(height: int, bands: int, seed: int) -> tuple[int, ...]:
    """Any heights of so many bands (or of as many as there are rows)."""
    edges = sorted(random.Random(seed).sample(range(1, height), min(bands, height) - 1))
    return tuple(np.diff([0, *edges, height]).tolist())


def passages(network: cnn.Network) -> list[int]:
    """Positions between layers that only one tensor crosses, and the two ends."""
    found = []
    for position in range(len(network.layers) + 1):
        before = {x for layer in network.layers[:position] for x in layer.outputs}
        before |= set(network.inputs)
        after = {x for layer in network.layers[position:] for x in layer.inputs}
        if len(before & (after | set(network.outputs))) == 1:
            found.append(position)
    return found


def check(proto: onnx.ModelProto, bands: int, seed: int, directory: Path) -> None:
    """Some stretch of the network in some bands."""
    whole = cnn.read(save(proto, directory))
    first, last = sorted(random.Random(seed).sample(passages(whole.network), 2))
    layers = whole.network.layers[first:last]
    height = whole.network.tensors[layers[-1].outputs[0]].shape[2]
    assume(height > 1)
    rewrite = Bands(tuple(layer.name for layer in layers), random_rows(height, bands, seed))
    banded = whole.rewritten([rewrite])
    frame = random_frame(whole.network, seed)
    expected = outputs(whole, frame, directory / "whole")
    found = outputs(banded, frame, directory / "banded")
    assert relative_error(found[0], expected[0]) <= EXACT
    partition = random_partition(banded.network, 3, seed)
    assert agreements(banded, [partition], frame)[0].outputs <= EXACT
    extra = sum(x.macs for x in banded.network.layers) - sum(x.macs for x in whole.network.layers)
    assert extra == whole.fused(rewrite.layers).bands(rewrite.rows).halo_macs


@given(proto=image_stacks(), bands=st.integers(2, 5), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, **EVERYWHERE)
def test_any_layers_in_any_bands(
    proto: onnx.ModelProto, bands: int, seed: int, tmp_path: Path
) -> None:
    check(proto, bands, seed, tmp_path)
