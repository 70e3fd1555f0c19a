"""Tensors between nodes, encoded and decoded: what is kept, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nodes.execution import encoding as codec
from nodes.execution.encoding import UndecodableError, check_available, decode, encode
from nodes.protocol.encodings import ENCODINGS, FEWEST_IN_GROUP, groups, is_length, most_bytes
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import ChannelSpec, Deployment

LOSSLESS = pytest.param(
    "lossless",
    marks=pytest.mark.skipif(not codec.HAS_ZSTANDARD, reason="zstandard is not installed"),
)
EACH = ["raw", LOSSLESS, "fp16", "bf16", "int8"]
each_encoding = pytest.mark.parametrize("encoding", EACH)

ANY_FLOATS = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9),
    elements=st.floats(width=32, allow_subnormal=True),
)
"""NaN, infinities, zeros of both signs and denormals among them; scalars and empty tensors too."""


def channel(encoding: str, shape: tuple[int, ...]) -> ChannelSpec:
    return ChannelSpec(1, "t", "float32", shape, "a", 0, "b", (0,), 2, encoding=encoding)


def there_and_back(array: np.ndarray, encoding: str) -> np.ndarray:
    return decode(encode(array, encoding), channel(encoding, array.shape))


def relu_like(shape: tuple[int, ...]) -> np.ndarray:
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return np.maximum(values, 0)


@each_encoding
@given(array=ANY_FLOATS)
def test_a_tensor_has_its_shape_and_its_nan_and_infinities_afterwards(encoding, array) -> None:
    found = there_and_back(array, encoding)
    assert (found.dtype, found.shape) == (np.float32, array.shape)
    assert (np.isnan(found) == np.isnan(array)).all()
    assert (np.isposinf(found) == np.isposinf(array)).all()
    assert (np.isneginf(found) == np.isneginf(array)).all()


@each_encoding
@given(array=ANY_FLOATS)
def test_a_payload_is_as_long_as_its_channel_allows(encoding, array) -> None:
    payload = encode(array, encoding)
    assert is_length(encoding, array.shape, payload.nbytes)
    assert payload.nbytes <= most_bytes(encoding, array.shape)


@pytest.mark.parametrize("encoding", ["raw", LOSSLESS])
@given(array=ANY_FLOATS)
def test_nothing_is_lost_by_what_is_called_lossless(encoding, array) -> None:
    assert there_and_back(array, encoding).tobytes() == array.tobytes()


@given(array=ANY_FLOATS)
def test_fp16_rounds_to_nearest_and_saturates(array) -> None:
    finite = array[np.isfinite(array)]
    found = there_and_back(finite, "fp16")
    inside = np.clip(finite, -65504, 65504)
    assert found.tobytes() == inside.astype(np.float16).astype(np.float32).tobytes()


@given(array=ANY_FLOATS)
def test_bf16_rounds_to_nearest_and_to_even(array) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    found = there_and_back(array, "bf16")
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = array.astype(ml_dtypes.bfloat16).astype(np.float32)
    overflown = np.isinf(wanted) & np.isfinite(array)
    largest = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    wanted = np.where(overflown, np.copysign(largest, wanted), wanted).astype(np.float32)
    assert np.array_equal(found, wanted, equal_nan=True)


@given(array=ANY_FLOATS)
def test_int8_is_off_by_half_a_step_of_its_group_at_most(array) -> None:
    found = there_and_back(array, "int8").astype(np.float64).reshape(groups(array.shape))
    wanted = array.astype(np.float64).reshape(found.shape)
    for group in range(found.shape[1]):
        own, right = found[:, group], wanted[:, group]
        finite = right[np.isfinite(right)]
        if finite.size:
            step = (finite.max() - finite.min()) / 252
            rounding = 4 * 2.0**-23 * np.abs(finite).max()
            # A denormal step is itself rounded to a multiple of the least denormal.
            denormal = 252 * float(np.finfo(np.float32).smallest_subnormal)
            off = np.abs(own[np.isfinite(right)] - finite)
            assert off.max() <= step / 2 + rounding + denormal


def test_int8_keeps_zero_where_a_relu_has_made_it() -> None:
    array = relu_like((1, 8, 6, 6))
    assert ((there_and_back(array, "int8") == 0) >= (array == 0)).all()


def test_channels_of_few_values_share_a_scale() -> None:
    assert groups((1, 1000)) == (1, 1, 1000)
    assert groups((2, 5, FEWEST_IN_GROUP // 2)) == (2, 5, FEWEST_IN_GROUP // 2)
    assert most_bytes("int8", (1, 1000)) == 1008


@pytest.mark.parametrize(("encoding", "most"), [("fp16", 0.5), ("bf16", 0.5), ("int8", 0.26)])
def test_activations_get_shorter(encoding: str, most: float) -> None:
    array = relu_like((1, 64, 28, 28))
    assert encode(array, encoding).nbytes <= most * array.nbytes


@pytest.mark.skipif(not codec.HAS_ZSTANDARD, reason="zstandard is not installed")
class TestLossless:
    def test_activations_get_shorter(self) -> None:
        array = relu_like((1, 64, 28, 28))
        assert encode(array, "lossless").nbytes <= 0.5 * array.nbytes

    def test_what_cannot_be_compressed_is_sent_as_it_is(self) -> None:
        noise = np.random.default_rng(0).integers(1, 1 << 32, 4096, np.uint32).view(np.float32)
        assert encode(noise, "lossless").nbytes == noise.nbytes

    def test_a_frame_that_declares_another_size_is_refused_before_it_is_decompressed(self) -> None:
        zstandard = pytest.importorskip("zstandard")
        bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
        spec = channel("lossless", (1 << 16,))
        payload = b"\xff" * (1 << 13) + bomb + bytes(3 << 16)
        with pytest.raises(UndecodableError, match="its declared size is not"):
            decode(payload, spec)

    @given(junk=st.binary(max_size=300), cut=st.integers(0, 300))
    def test_junk_is_decoded_or_refused_with_its_sender(self, junk, cut) -> None:
        array = relu_like((1, 4, 16))
        good = encode(array, "lossless").tobytes()
        payload = good[:cut] + junk + good[cut + len(junk) :]
        try:
            found = decode(payload, channel("lossless", array.shape))
            node = "a"
        except UndecodableError as error:
            found, node = array, error.node
        assert (found.shape, node) == (array.shape, "a")


@pytest.mark.parametrize("encoding", ["fp16", "bf16", "int8"])
@given(data=st.data())
def test_any_bytes_of_the_right_length_are_a_tensor(encoding, data) -> None:
    shape = data.draw(hnp.array_shapes(max_dims=4, max_side=6))
    size = most_bytes(encoding, shape)
    payload = data.draw(st.binary(min_size=size, max_size=size))
    assert decode(payload, channel(encoding, shape)).shape == shape


@each_encoding
@given(
    bits=hnp.arrays(
        np.uint32,
        hnp.array_shapes(max_dims=4, max_side=6),
        elements=st.integers(0, 2**32 - 1) | st.sampled_from([0x7F80_0001, 0xFFBF_FFFF]),
    )
)
def test_any_bits_are_a_tensor_signalling_nans_too(encoding, bits) -> None:
    array = bits.view(np.float32)
    assert (np.isnan(there_and_back(array, encoding)) == np.isnan(array)).all()


@each_encoding
def test_another_length_is_refused_with_its_sender(encoding: str) -> None:
    with pytest.raises(UndecodableError) as caught:
        decode(bytes(4 * math.prod((2, 3)) + 1), channel(encoding, (2, 3)))
    assert caught.value.node == "a"


def test_a_deployment_with_an_encoding_that_is_missing_here_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "AVAILABLE", ("raw", "fp16"))
    spec = replace(channel("lossless", (2,)), source_node="n")
    deployment = Deployment(1, "n", "pipelined", (), (spec,), ())
    with pytest.raises(NodeError, match=r"install csdf-edge\[lossless\]"):
        check_available(deployment)


def test_every_encoding_is_tried_here() -> None:
    tried = {each if isinstance(each, str) else each.values[0] for each in EACH}
    assert tried == set(ENCODINGS)
