"""Find a model, read its file, and check what every later step relies on.

A path may be a file, `onnx-wheel:NAME` or `builtin:NAME`. The `onnx` wheel contains nine networks
of the ONNX model zoo without their weights; `builtin:` names a network that this package builds.

`check_structure` checks that names are text, that every operator has an output, that element types
are defined. `normalise` then moves all tensors but the graph's own weights into the model, so no
library that loads it later opens a file that the model names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from cnn.errors import ModelError
from cnn.network import Array
from cnn.operators.supported import check_element_type, describe
from cnn.reading.normal_form import normalise
from cnn.reading.regular_files import open_regular
from cnn.reading.weights import (
    called,
    detach,
    external_contents,
    external_location,
    external_tensors,
    file_of,
    messages,
)

WHEEL = "onnx-wheel:"
BUILTIN = "builtin:"
WHEEL_MODELS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
BUILTIN_MODELS = ("yolov2",)

_TYPE_ATTRIBUTES = frozenset({"to", "dtype"})
"""Attributes that name an element type and have no default."""


def check_structure(proto: onnx.ModelProto, label: str) -> None:
    """Raise `ModelError` if the structure is damaged; drop fields unknown to `onnx`."""
    proto.DiscardUnknownFields()
    if not proto.graph.output:
        raise ModelError(f"{label}: the model has no output; export it again")
    damaged = f"{label}: the file is damaged, export or download it again: "
    for message in messages(proto):
        kind = message.DESCRIPTOR.name.removesuffix("Proto")
        if not all(isinstance(text, str) for text in _texts(message)):
            raise ModelError(f"{damaged}a {kind} has a name that is not text")
        if isinstance(message, onnx.NodeProto):
            if not message.output:
                raise ModelError(f"{damaged}an operator {message.op_type!r} has no output")
            for entry in message.attribute:
                if entry.name in _TYPE_ATTRIBUTES and entry.type == onnx.AttributeProto.INT:
                    what = f"{label}: the attribute {entry.name!r} of {describe(message)}"
                    check_element_type(entry.i, what)
        if isinstance(message, onnx.GraphProto) and (name := _made_twice(message)):
            raise ModelError(f"{damaged}two operators, or one and an input, make {name!r}")
        if isinstance(message, onnx.TypeProto.Tensor) and message.elem_type:
            check_element_type(message.elem_type, f"{label}: a tensor")
        if isinstance(message, onnx.TensorProto):
            name = repr(message.name) if message.name else "without a name"
            check_element_type(message.data_type, f"{label}: the constant {name}")


def _made_twice(graph: onnx.GraphProto) -> str | None:
    made = {value.name for value in (*graph.input, *graph.initializer)}
    for name in (name for node in graph.node for name in node.output if name):
        if name in made:
            return str(name)
        made.add(name)
    return None


def _texts(message: Message) -> Iterator[object]:
    if isinstance(message, onnx.TensorProto):
        yield message.name
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            yield from [value] if isinstance(value, str | bytes) else value


@dataclass(frozen=True, slots=True)
class LocatedModel:
    """A model's origin: `label` names it in messages, `file` is None for a built network."""

    name: str
    label: str
    file: Path | None

    def load(self) -> tuple[onnx.ModelProto, dict[str, Array], bytes]:
        """Return the model without weights, its weights, and a SHA-256 of everything that was read.

        Raises `ModelError` if a file is missing, truncated, not ONNX, or outside the model's
        folder.
        """
        digest = hashlib.sha256()
        if self.file is None:
            from cnn.built_in import build  # noqa: PLC0415 - needed only here

            proto = build()
            digest.update(proto.SerializeToString(deterministic=True))
            return *detach(proto, {}, self.label), digest.digest()
        content = _read(self.file, self.label)
        digest.update(hashlib.sha256(content).digest())
        proto = _parse(content, self.label)
        del content
        external = external_contents(external_tensors(proto), self.file.parent, self.label)
        normalise(proto, external, self.label)
        lean, weights = detach(proto, external, self.label)
        for location, contents in external.items():
            digest.update(location.encode() + b"\0" + contents.digest)
        return lean, weights, digest.digest()


def model_files(path: Path) -> dict[str, Path]:
    """Return an ONNX file and the files that its weights lie in, by their names in its folder.

    Raises `ModelError` if one is missing, truncated, not ONNX, or outside the model's folder.
    """
    proto = _parse(_read(path, str(path)), str(path))
    files = {path.name: path}
    for tensor in external_tensors(proto):
        file = file_of(tensor, path.parent, called(tensor, str(path)))
        files[external_location(tensor)] = file
    return files


def locate(path: str | Path) -> LocatedModel:
    """Return the source for the user's `path`; raise `ModelError` for an unknown short name.

    >>> locate("onnx-wheel:resnet50").name
    'resnet50'
    """
    text = str(path)
    if text.startswith(WHEEL):
        name = text.removeprefix(WHEEL)
        if name not in WHEEL_MODELS:
            raise ModelError(_unknown(text, WHEEL, WHEEL_MODELS))
        light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
        return LocatedModel(name, text, light / f"light_{name}.onnx")
    if text.startswith(BUILTIN):
        name = text.removeprefix(BUILTIN)
        if name not in BUILTIN_MODELS:
            raise ModelError(_unknown(text, BUILTIN, BUILTIN_MODELS))
        return LocatedModel(name, text, None)
    file = Path(path)
    return LocatedModel(file.stem, text, file)


def _unknown(text: str, prefix: str, known: tuple[str, ...]) -> str:
    names = ", ".join(prefix + name for name in known)
    return f"there is no network {text}; the networks are {names}"


def _read(file: Path, label: str) -> bytes:
    try:
        with open_regular(file) as stream:
            return stream.read()
    except FileNotFoundError as error:
        raise ModelError(f"{label}: there is no such file") from error
    except OSError as error:
        raise ModelError(f"{label}: the file cannot be read: {error.strerror}") from error


def _parse(content: bytes, label: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise ModelError(
            f"{label}: this is not an ONNX file, or it is truncated, or only a pointer of Git LFS; "
            "export it or download it again (git lfs pull)"
        ) from error
    if not proto.graph.node or not proto.opset_import:
        raise ModelError(
            f"{label}: this is not an ONNX model, or it is truncated: "
            "it holds no operator or names no operator set"
        )
    check_structure(proto, label)
    return proto
