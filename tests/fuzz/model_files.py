"""Models with everything that the format has, changed as messages: fields set, dropped, repeated,
grafted from other places and other models; weights planted in other files wherever there is a
tensor. What a reader takes for good is looked through again with the `onnx` package.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from cnn.errors import CnnError
from cnn.reading.functions import inlined
from cnn.reading.source import WHEEL, WHEEL_MODELS, locate
from nodes.executors.base import ExecutorError
from nodes.executors.onnx.file import inspect
from tests.fuzz.mutation import NUMBERS, mutated
from tests.fuzz.opened import leads_out, opened

WEIGHTS = np.arange(108, dtype=np.float32).tobytes()
"""What the files beside a model hold."""

LOCATIONS = (
    *("w.bin", "parts/w.bin", "inside", "./w.bin", "w.bin/", "", ".", "..", "/", "parts"),
    *("../secret", "outside", "up/secret", "circle", "pipe", "/dev/zero", "/etc/passwd"),
    *("*/_ORT_MEM_ADDR_/*", "w\0.bin", "a" * 64, "x" * 300, "~", "\\..\\secret"),
)
TEXTS = (
    *LOCATIONS,
    *("location", "offset", "length", "checksum", "basepath", "prepacked_0", "0", "432", "-8"),
    *("abc", "9" * 30, "f", "F", "v", "ai.onnx", "ai.onnx.ml", "com.microsoft", "Constant", "If"),
    *("Loop", "EPContext", "Identity", "w", "x", "y", "\ud7ff"),
)
_SMALL = ("bvlc_alexnet", "zfnet512", "vgg19", "squeezenet")


def lay_out(folder: Path) -> Path:
    """A model's folder inside `folder`: weights, and links, pipes and folders called alike."""
    place = folder / "models"
    (place / "parts").mkdir(parents=True)
    for path in (place / "w.bin", place / "parts" / "w.bin", folder / "secret"):
        path.write_bytes(WEIGHTS)
    (place / "inside").symlink_to("parts/w.bin")
    (place / "outside").symlink_to("../secret")
    (place / "up").symlink_to("..")
    (place / "circle").symlink_to("circle")
    os.mkfifo(place / "pipe")
    return place


# ------------------------------------------------------------------------- good models


def external(name: str, location: str = "w.bin") -> TensorProto:
    """A tensor in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4, 3, 3, 3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "432")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def plain() -> onnx.ModelProto:
    """A convolution with its weight in another file, as launchers send it and as users have it."""
    one = numpy_helper.from_array(np.ones(1, np.float32))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Constant", [], ["k"], value=one),
        helper.make_node("Add", ["c", "k"], ["y"], "add"),
    ]
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6]),
    ]
    graph = helper.make_graph(nodes, "plain", values[:1], values[1:], [external("w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def rich() -> onnx.ModelProto:
    """Functions whose defaults and constants are tensors, attributes by name, bodies, sparse
    tensors, training: each with weights in other files. A donor of parts more than an input."""
    model = plain()
    taken = helper.make_node("Constant", [], ["o"])
    taken.attribute.add(name="value", ref_attr_name="v", type=AttributeProto.TENSOR)
    held = helper.make_node("Constant", [], ["p"], value=external("held"))
    default = AttributeProto(name="v", type=AttributeProto.TENSOR, t=external("default"))
    opset = helper.make_opsetid("", 17)
    model.functions.append(
        helper.make_function(
            "f", "F", ["a"], ["o"], [taken, held], [opset], attribute_protos=[default]
        )
    )
    model.opset_import.add(domain="f", version=1)
    body = helper.make_graph(
        [helper.make_node("Identity", ["b"], ["z"])], "body", [], [], [external("b")]
    )
    model.graph.node.extend(
        [
            helper.make_node("F", ["y"], ["called"], "call", domain="f"),
            helper.make_node("If", ["c"], ["z"], "if", then_branch=body, else_branch=body),
            helper.make_node("Several", [], ["several"], "several"),
        ]
    )
    several = model.graph.node[-1].attribute
    several.add(name="tensors", type=AttributeProto.TENSORS).tensors.append(external("t"))
    several.add(name="graphs", type=AttributeProto.GRAPHS).graphs.append(body)
    sparse = onnx.SparseTensorProto(values=external("values"), indices=external("indices"))
    several.add(name="sparse", type=AttributeProto.SPARSE_TENSOR).sparse_tensor.CopyFrom(sparse)
    model.graph.sparse_initializer.append(sparse)
    model.training_info.add().initialization.CopyFrom(body)
    return model


def branching() -> onnx.ModelProto:
    """A branch of which one side is a loop, as agents take it: what a body holds lies in it."""
    model = plain()
    del model.graph.initializer[:]
    count = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    going = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    turn = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["on"]), helper.make_node("Add", ["y", "one"], ["a"])],
        "turn",
        [count, going],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), onnx.ValueInfoProto(name="a")],
        [one],
    )
    loop = helper.make_node("Loop", ["n", ""], ["z"], "loop", body=turn)
    same = helper.make_node("Identity", ["y"], ["z"])
    sides = [
        helper.make_graph([x], "side", [], [onnx.ValueInfoProto(name="z")]) for x in (loop, same)
    ]
    model.graph.node.append(
        helper.make_node("If", ["b"], ["z"], "if", then_branch=sides[0], else_branch=sides[1])
    )
    return model


@cache
def seeds() -> tuple[bytes, ...]:
    """Models that readers take, and small published ones."""
    published = [locate(WHEEL + name).file for name in _SMALL if name in WHEEL_MODELS]
    found = [path.read_bytes() for path in published if path is not None]
    return (plain().SerializeToString(), branching().SerializeToString(), *found)


@cache
def _donors() -> dict[str, tuple[Message, ...]]:
    """Parts of good models by their kind."""
    found: dict[str, list[Message]] = {}
    for model in (plain(), branching(), rich(), *map(onnx.ModelProto.FromString, seeds())):
        for message in messages(model):
            found.setdefault(message.DESCRIPTOR.name, []).append(message)
    return {kind: tuple(parts[:200]) for kind, parts in found.items()}


# --------------------------------------------------------------------------- changes


def messages(message: Message) -> Iterator[Message]:
    """A message and all inside of it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if isinstance(value, Message) else value:
                yield from messages(inner)


def changed_model(given: Sequence[bytes], random: Random) -> bytes:
    """One of the models with one to four changes to its messages; sometimes to its bytes too."""
    data = random.choice(given)
    if random.random() < 0.1:
        return mutated(given, random)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(rich().SerializeToString() if random.random() < 0.2 else data)
    except DecodeError:
        return mutated(given, random)
    for _ in range(random.randint(1, 4)):
        _change(model, random)
    whole = model.SerializeToString()
    return mutated([whole], random) if random.random() < 0.1 else whole


def _change(model: onnx.ModelProto, random: Random) -> None:
    every = list(messages(model))
    tensors = [message for message in every if isinstance(message, TensorProto)]
    match random.randrange(6):
        case 0 if tensors:
            random.choice(tensors).CopyFrom(external("planted", random.choice(LOCATIONS)))
        case 1:
            entries = [m for m in every if isinstance(m, onnx.StringStringEntryProto)]
            for entry in random.sample(entries, min(2, len(entries))):
                entry.value = random.choice(TEXTS)
        case 2 if tensors:
            tensor = random.choice(tensors)
            tensor.dims[:] = [_number(random) for _ in range(random.randrange(5))]
            tensor.data_type = random.randrange(30)
        case 3 | 4:
            _graft(random.choice(every), random)
        case _:
            _set(random.choice(every), random)


def _number(random: Random) -> int:
    number = random.choice((*NUMBERS, 2, 3, 4))
    return number if number < 2**63 else number - 2**64


def _graft(message: Message, random: Random) -> None:
    """Put a part of a good model into one of the message's places for such a part; what lies in
    other files there mostly lies elsewhere then."""
    places = [f for f in message.DESCRIPTOR.fields if f.message_type is not None]
    places = [f for f in places if f.message_type.name in _donors()]
    if not places:
        return
    place = random.choice(places)
    part: Any = random.choice(_donors()[place.message_type.name])
    target = getattr(message, place.name)
    grafted: Message = target.add() if place.is_repeated else target
    grafted.CopyFrom(part)
    for entry in messages(grafted):
        if isinstance(entry, onnx.StringStringEntryProto) and entry.key == "location":
            entry.value = random.choice(LOCATIONS)


def _set(message: Message, random: Random) -> None:
    """Clear a field, or give one another value."""
    field = random.choice(message.DESCRIPTOR.fields)
    if field.message_type is not None or random.random() < 0.2:
        message.ClearField(field.name)
        return
    value: Any
    if field.type == field.TYPE_STRING:
        value = random.choice(TEXTS)
    elif field.type == field.TYPE_BYTES:
        value = random.randbytes(random.choice((0, 1, 4, 432)))
    elif field.type == field.TYPE_ENUM:
        value = random.choice(list(field.enum_type.values_by_number))
    elif field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        value = random.choice((0.0, 1.0, float("nan"), float("inf")))
    elif field.type == field.TYPE_INT32:
        value = _number(random) % 2**31
    else:
        value = _number(random) % (2**64 if field.type == field.TYPE_UINT64 else 2**63)
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


# --------------------------------------------------------------------------- readers


def _bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.g, *attribute.graphs)


def _is_sentence(error: Exception, path: Path) -> bool:
    """False, if it is one that names the file."""
    assert str(path) in str(error), error
    assert "\n" not in str(error), error
    return False


class ModelReader:
    """Reads a model as an agent does, and as `launch` does."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._folder: Path | None = None

    def _written(self, data: bytes) -> Path:
        if self._folder is None:  # once there are as many targets as there are
            self._folder = lay_out(self._parent)
        path = self._folder / "model.onnx"
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        return path

    def read_by_agent(self, data: bytes) -> bool:
        """What an agent takes names plain files beside it, and has nothing that runs unseen."""
        path = self._written(data)
        try:
            with opened() as paths:
                file = inspect(path)
        except ExecutorError as error:
            return _is_sentence(error, path)
        assert leads_out(paths, path.parent) == []
        assert all(w.parent == path.parent and not w.is_symlink() for w in file.external)
        model = onnx.ModelProto()
        try:
            model.ParseFromString(data)
        except DecodeError:
            return True  # no engine reads it either
        names = {weight.name for weight in file.external}
        for message in messages(model):
            if isinstance(message, TensorProto):
                entries = {entry.key: entry.value for entry in message.external_data}
                assert not entries or entries["location"] in names
                assert entries or message.data_location != TensorProto.EXTERNAL
            elif isinstance(message, onnx.NodeProto):
                assert message.domain in ("", "ai.onnx")
                assert message.op_type != "EPContext"
        assert not model.functions
        for body in _bodies(model.graph):
            assert not any(m.external_data for m in messages(body) if isinstance(m, TensorProto))
        return True

    def read_by_launcher(self, data: bytes) -> bool:
        """What `launch` takes has its weights as the files have them, and no function is left."""
        path = self._written(data)
        try:
            with opened() as paths:
                proto, weights, _ = locate(path).load()
                proto = inlined(proto, str(path))
        except CnnError as error:
            return _is_sentence(error, path)
        assert leads_out(paths, path.parent) == []
        assert not proto.functions
        assert not proto.graph.initializer
        found = (m for m in messages(proto) if isinstance(m, TensorProto))
        assert not any(tensor.data_location == TensorProto.EXTERNAL for tensor in found)
        for array in weights.values():
            assert array.nbytes <= len(data) * 8 + len(WEIGHTS)
            assert len(array.tobytes()) == array.nbytes, "it can be read to its end"
        return True
