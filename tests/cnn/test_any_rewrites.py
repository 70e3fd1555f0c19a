"""Rewrites upon rewrites: slices of bands, bands of slices, in any order, compute the same."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
from hypothesis import given
from hypothesis import strategies as st

import cnn
from tests.agreement.comparison import agreements, random_frame, random_partition, relative_error
from tests.cnn.image_stacks import image_stacks
from tests.cnn.test_bands import EXACT, outputs
from tests.effort import examples
from tests.rewriting import random_rewrite


@examples(30)
@given(proto=image_stacks(), count=st.integers(2, 8), seed=st.integers(0, 2**32 - 1))
def test_rewrites_upon_rewrites_compute_the_same(
    proto: onnx.ModelProto, count: int, seed: int, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    whole = cnn.read(tmp_path / "model.onnx")
    dice = random.Random(seed)
    model, rewrites = whole, []
    for _ in range(count):
        rewrite = random_rewrite(model, dice)
        if rewrite is not None:
            rewrites.append(rewrite)
            model = model.rewritten([rewrite])
    frame = random_frame(whole.network, seed)
    expected = outputs(whole, frame, tmp_path / "whole")
    found = outputs(model, frame, tmp_path / "rewritten")
    assert relative_error(found[0], expected[0]) <= EXACT
    partition = random_partition(model.network, 3, seed)
    assert agreements(model, [partition], frame)[0].outputs <= EXACT
    assert whole.rewritten(rewrites).network == model.network
