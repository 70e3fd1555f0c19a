"""Rewrites upon rewrites: slices of bands, bands of slices, in any order, compute the same."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cnn
from tests.agreement.comparison import agreements, random_frame, random_partition, relative_error
from tests.cnn.image_stacks import image_stacks
from tests.cnn.test_bands import EVERYWHERE, EXACT, outputs
from tests.rewriting import random_rewrite


def check(proto: onnx.ModelProto, seed: int, count: int, directory: Path) -> None:
    (directory / "model.onnx").write_bytes(proto.SerializeToString())
    whole = cnn.read(directory / "model.onnx")
    dice = random.Random(seed)
    model, rewrites = whole, []
    for _ in range(count):
        rewrite = random_rewrite(model, dice)
        if rewrite is not None:
            rewrites.append(rewrite)
            model = model.rewritten([rewrite])
    frame = random_frame(whole.network, seed)
    expected = outputs(whole, frame, directory / "whole")
    found = outputs(model, frame, directory / "rewritten")
    assert relative_error(found[0], expected[0]) <= EXACT
    partition = random_partition(model.network, 3, seed)
    assert agreements(model, [partition], frame)[0].outputs <= EXACT
    assert whole.rewritten(rewrites).network == model.network


@given(proto=image_stacks(max_steps=4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=3, **EVERYWHERE)
def test_three_rewrites(proto: onnx.ModelProto, seed: int, tmp_path: Path) -> None:
    check(proto, seed, 3, tmp_path)


@pytest.mark.slow
@given(proto=image_stacks(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, **EVERYWHERE)
def test_eight_rewrites(proto: onnx.ModelProto, seed: int, tmp_path: Path) -> None:
    check(proto, seed, 8, tmp_path)
