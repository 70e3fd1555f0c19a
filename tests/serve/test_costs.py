"""What reading a request may cost: memory in proportion to its bytes, whatever they are."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from launcher.serve.errors import RequestError
from launcher.serve.over_grpc import form as grpc_form
from launcher.serve.over_grpc.messages import METHODS, field
from launcher.serve.over_http import form as http_form
from launcher.serve.tensors import DATATYPES, FEW, MESSAGE_BYTES, ServedModel
from launcher.streaming.live_model import TensorInfo

SHAPE = (1, 50, 40)
TENSORS = {dtype: TensorInfo("x", dtype, SHAPE) for dtype in ("float32", "int64", "bool", "uint64")}
FACTOR, FIXED_BYTES = 40, 2_000_000
"""Memory that a request may take: so many times its own bytes, and that."""


@dataclass(frozen=True)
class Many:
    """So many of one value, which Hypothesis shows in a few characters."""

    value: Any
    count: int

    def made(self) -> Any:
        """A text of so many characters, or a list."""
        value = made(self.value)
        return value * self.count if isinstance(value, str | bytes) else [value] * self.count


def made(value: Any) -> Any:
    """A value with all that is in it made."""
    if isinstance(value, Many):
        return value.made()
    if isinstance(value, list):
        return [made(one) for one in value]
    if isinstance(value, dict):
        return {key: made(one) for key, one in value.items()}
    return value


def size(value: Any) -> int:
    """About how many characters of JSON it is."""
    if isinstance(value, Many):
        return size(value.value) * value.count + 2
    if isinstance(value, list | dict):
        return 2 + sum(map(size, value.values() if isinstance(value, dict) else value)) + len(value)
    return 4


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**40), 10**40), st.floats(), st.text(max_size=3),
    st.builds(Many, st.just("x"), st.integers(0, 20_000)),
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.builds(Many, inner, st.integers(1, 5000)),
    ),
    max_leaves=4,
).filter(lambda value: size(value) < 1_000_000)
fields = st.tuples(st.integers(1, 8), st.binary(max_size=12), st.integers(1, 30_000))
"""The number of a field, its content, and how often it stands there."""


def cost(read: Callable[[], object]) -> int:
    """The bytes that reading held at most; it may refuse what it reads."""
    tracemalloc.start()
    try:
        with suppress(RequestError):
            read()
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


def model(dtype: str) -> ServedModel:
    return ServedModel("net", {"x": TENSORS[dtype]}, {"x": TENSORS[dtype]})


@given(data=values, dtype=st.sampled_from(tuple(TENSORS)))
def test_json_of_any_values_costs_no_more_than_its_length_allows(data: Any, dtype: str) -> None:
    one = {"name": "x", "datatype": DATATYPES[dtype], "shape": list(SHAPE), "data": made(data)}
    body = json.dumps({"inputs": [one]}).encode()
    assume(len(body) <= model(dtype).largest_json_bytes)
    peak = cost(lambda: http_form.read_infer(body, None, model(dtype)))
    assert peak <= FACTOR * len(body) + FIXED_BYTES


def encoded(number: int, content: bytes, count: int) -> bytes:
    """A field that stands there so often, within bounds."""
    return b"".join(field(number, [content])) * min(count, 1 + 400_000 // (len(content) + 2))


@given(
    outer=st.lists(fields, max_size=2),
    inner=fields,
    innermost=fields,
    dtype=st.sampled_from(tuple(TENSORS)),
)
def test_a_message_of_any_fields_costs_no_more_than_its_length_allows(
    outer: list[tuple[int, bytes, int]],
    inner: tuple[int, bytes, int],
    innermost: tuple[int, bytes, int],
    dtype: str,
) -> None:
    within = encoded(inner[0], encoded(*innermost), 1 + inner[2] // 1000) + encoded(*inner)
    parts = (encoded(1, b"net", 1), *(encoded(*one) for one in outer), encoded(5, within, 3))
    data = b"".join(parts)[: model(dtype).largest_message_bytes]
    peak = cost(lambda: grpc_form.read_infer(grpc_form.parse_infer(data), model(dtype)))
    assert peak <= FACTOR * len(data) + FIXED_BYTES


@pytest.mark.parametrize("count", [FEW + 1, 2_500_000])
def test_fields_are_counted_before_a_message_is_parsed(count: int) -> None:
    data = b"\n\x03net" + b"\x2a\0" * count
    with pytest.raises(RequestError, match=f"more than {FEW} fields"):
        grpc_form.read_infer(grpc_form.parse_infer(data), model("float32"))


def test_numbers_are_counted_before_they_are_made() -> None:
    request = METHODS["ModelInfer"][0](model_name="net")
    one = request.inputs.add(name="x", datatype="INT64", shape=SHAPE)
    one.contents.int64_contents.extend([1] * 2001)
    with pytest.raises(RequestError, match="'x' has 2001 numbers; the model takes 2000"):
        grpc_form.read_infer(grpc_form.parse_infer(request.SerializeToString()), model("int64"))


def test_beside_tensors_as_bytes_a_message_is_small() -> None:
    raw = field(grpc_form.RAW_INPUTS, [np.zeros(SHAPE, np.int64).tobytes()])
    data = b"".join((*field(3, [b"x" * (MESSAGE_BYTES + 1)]), *raw))
    with pytest.raises(RequestError, match="outside its tensors"):
        grpc_form.read_infer(grpc_form.parse_infer(data), model("int64"))


def test_values_of_json_are_counted_before_they_are_made() -> None:
    body = b'{"inputs": [%s[]]}' % (b"[]," * (model("float32").numbers + FEW))
    with pytest.raises(RequestError, match="more lists, texts and values"):
        http_form.read_infer(body, None, model("float32"))


@pytest.mark.parametrize("value", ["[]", "{}", '{"a":1}', '"a"', "1" + 99 * ",1"])
def test_a_large_network_has_no_more_lists_and_texts_than_its_shapes(value: str) -> None:
    """A list for each number of it would keep the garbage collector busy for seconds."""
    count = 100_000
    large = ServedModel("net", {"x": TensorInfo("x", "float32", (1, 10, count // 10))}, {})
    head = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,10,%d],"data":' % (count // 10)
    body = head + f"[{','.join([value] * count)}]}}]}}".encode()
    with pytest.raises(RequestError, match="more lists, texts and values"):
        http_form.read_infer(body, None, large)
    nested = str([[[1.5] * (count // 10)] * 10]).encode()
    assert http_form.read_infer(head + nested + b"}]}", None, large).inputs["x"].mean() == 1.5


def test_a_message_is_no_larger_than_the_network_needs() -> None:
    """Another network of the server may need more, and names that are repeated are not parsed."""
    data = field(1, [b"n" * 1000] * 1000 + [b"net"])
    with pytest.raises(RequestError, match="more than any request for this model needs"):
        grpc_form.read_infer(grpc_form.parse_infer(b"".join(data)), model("float32"))
