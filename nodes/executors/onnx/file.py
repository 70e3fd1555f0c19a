"""What a node must know of an ONNX file without the `onnx` package: its name and its weight files.

An engine reads whatever file a model names, so an agent looks through every model before its engine
does: whole, by the table of `onnx_schema`. Files with weights lie beside the model, under a plain
name, and are no links. Operators are ONNX's own, and those of ONNX Runtime's that networks may have
(`onnx_operators`); in what its optimiser has written there are more of them.

Operators of ONNX Runtime's own that a node runs though a launcher sends them.

ONNX Runtime's quantizer and optimiser write them into networks (`cnn.operators.contrib` has their
shapes, and a test holds the two lists together). Each computes tensors from tensors. Whatever runs
a graph or a compiled program, reads a file or loads a library is not among them, and has to stay
out.

What an ONNX file may hold where an agent's engine reads it, as a table of onnx.proto3.

An engine follows the name of a file wherever a model has a tensor: in weights, in attributes, in
what functions take for granted. A reader that looks for tensors in the places that it knows misses
those that it does not know. So this one walks through every message by a table that has every field
of the format, and refuses a field that the table does not have. `tests/nodes/executors` holds the
table to the `onnx` package.

A graph inside of a node (the body of an `If`, a `Loop` or a `Scan`) is walked like the model's own,
so whatever holds for that holds for it. Bodies may be nested `MOST_BODIES` deep. Refused altogether
is what no launcher sends: functions, sparse tensors, and training.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from nodes.executors.base import ExecutorError
from nodes.executors.onnx.protobuf import fields, text_field
from nodes.protocol.fields import printable

CONTRIB_DOMAIN = "com.microsoft"

CONTRIB_OPERATORS = frozenset(
    (
        *("Attention", "BiasGelu", "DequantizeLinear", "DynamicQuantizeLSTM"),
        *("DynamicQuantizeMatMul", "EmbedLayerNormalization", "FastGelu", "FusedConv", "FusedGemm"),
        *("FusedMatMul", "Gelu", "MatMulIntegerToFloat", "MultiHeadAttention", "QAttention"),
        *("QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat"),
        *("QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul"),
        *("QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "QuantizeLinear", "QuickGelu"),
        *("RotaryEmbedding", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
        "TransposeMatMul",
    )
)


MODEL, GRAPH, NODE, ATTRIBUTE, TENSOR = (
    "ModelProto", "GraphProto", "NodeProto", "AttributeProto", "TensorProto"
)  # fmt: skip


class NotAllowedError(ExecutorError):
    """Something that no file may hold here; the text completes "it has …"."""


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of a message by number: those that hold no tensor, however deep inside; those that
    are messages of this table; and those that are refused, with what they are called."""

    plain: frozenset[int]
    holding: Mapping[int, str] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)


_TRAINING = "steps of training"
_FUNCTIONS = "functions of its own"
_SPARSE = "sparse tensors"

MESSAGES: Mapping[str, Message] = {
    MODEL: Message(
        frozenset({1, 2, 3, 4, 5, 6, 8, 14, 26}), {7: GRAPH}, {20: _TRAINING, 25: _FUNCTIONS}
    ),
    GRAPH: Message(frozenset({2, 10, 11, 12, 13, 14, 16}), {1: NODE, 5: TENSOR}, {15: _SPARSE}),
    NODE: Message(frozenset({1, 2, 3, 4, 6, 7, 8, 9, 10}), {5: ATTRIBUTE}),
    ATTRIBUTE: Message(
        frozenset({1, 2, 3, 4, 7, 8, 9, 13, 14, 15, 20, 21}),
        {5: TENSOR, 6: GRAPH, 10: TENSOR, 11: GRAPH},
        {22: _SPARSE, 23: _SPARSE},
    ),
    TENSOR: Message(frozenset({*range(1, 15), 16})),
}

MOST_BODIES = 16
"""How deep bodies may be nested: far more than any network has, and far less than would exhaust the
stack of whoever reads them."""

# Field numbers that are looked at.
_MODEL_GRAPH, _GRAPH_NAME = 7, 2
_TENSOR_EXTERNAL, _TENSOR_LOCATION = 13, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
NODE_NAME, NODE_OPERATOR, NODE_DOMAIN, NODE_OUTPUT = 3, 4, 7, 2

_OUTSIDE = 1
"""`TensorProto.data_location`: in another file."""


def walk(
    message: memoryview, kind: str = MODEL, bodies: int = 0
) -> Iterator[tuple[str, memoryview, int]]:
    """Every message of the table inside of `message`, itself first: what it is, its bytes, and in
    how many bodies it lies.

    Each is valid until the next is asked for. Raises NotAllowedError for what the table refuses or
    does not have, ValueError or IndexError where the file is malformed.
    """
    if bodies > MOST_BODIES:
        raise NotAllowedError(f"more than {MOST_BODIES} graphs one inside of the other")
    yield kind, message, bodies
    known = MESSAGES[kind]
    for number, value in fields(message):
        if (refused := known.refused.get(number)) is not None:
            raise NotAllowedError(refused)
        inner = known.holding.get(number)
        if isinstance(value, memoryview):
            with value:
                if inner is not None:
                    yield from walk(value, inner, bodies + (kind == ATTRIBUTE and inner == GRAPH))
        elif inner is not None:
            raise ValueError(f"field {number} of {kind} is no message")
        if inner is None and number not in known.plain:
            raise NotAllowedError(
                f"the field {number} of {kind}, which this version does not know; install a newer "
                "one of csdf-edge on this node"
            )


def graph_name(model: memoryview) -> str | None:
    """The name of a model's graph, "" if it has none; None if there is no graph."""
    name = None
    for number, value in fields(model):
        if number == _MODEL_GRAPH and isinstance(value, memoryview):
            with value:
                name = text_field(value, _GRAPH_NAME) or name or ""
        elif isinstance(value, memoryview):
            value.release()
    return name


def external_entries(tensor: memoryview) -> list[tuple[str, str]] | None:
    """What a tensor says of the file that holds its content; None if nothing."""
    entries = []
    is_outside = False
    for number, value in fields(tensor):
        if number == _TENSOR_LOCATION:
            is_outside = value == _OUTSIDE
        if not isinstance(value, memoryview):
            continue
        with value:
            if number == _TENSOR_EXTERNAL:
                key, text = text_field(value, _ENTRY_KEY), text_field(value, _ENTRY_VALUE)
                entries.append((key or "", text or ""))
    return entries if entries or is_outside else None


_STANDARD_DOMAINS = frozenset({"", "ai.onnx"})
_WRITTEN_DOMAINS = frozenset({CONTRIB_DOMAIN, "com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Further domains of what ONNX Runtime's optimiser has written for the CPU."""

_COMPILED = frozenset({"EPContext"})
"""Operators that are programs compiled for some engine, which would run them unseen."""

_PLACE = re.compile(r"[0-9]{1,18}")
_PREPACKED = re.compile(r"prepacked_[0-9]{1,9}")
"""Where ONNX Runtime's optimiser notes what a kernel has laid out anew in the same file."""

_DIGEST_LENGTH = 64
_HASH_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """An ONNX file: its graph's name, the files that hold its weights, the digest of all of it, and
    its first layer that has an operator of ONNX Runtime's own ("" if none has)."""

    path: Path
    name: str
    external: tuple[Path, ...]
    digest: str
    contrib_layer: str = ""


def inspect(path: Path) -> OnnxFile:
    """Look through an ONNX file as a launcher sends it, and hash it with its weight files
    (SHA-256, hex).

    A weight file whose name is a SHA-256 is taken at its word: the blob store has checked it.
    Raises ExecutorError if the file is missing or no ONNX, names a weight file that is missing,
    shorter than it says or not simply a file beside it, or has what no launcher sends: operators
    that are neither ONNX's own nor in `onnx_operators`, functions, compiled programs, external
    weights of a body.
    """
    content = _mapped(path)
    name, weights, contrib_layer = _looked_through(content, path, is_written=False)
    hashed = sha256(content)
    for file in weights:
        if not _is_digest(file.name):
            hashed.update(_hash_file(file))
    return OnnxFile(path, name, weights, hashed.hexdigest(), contrib_layer)


def check_written(path: Path) -> None:
    """Look through what ONNX Runtime's optimiser has written, since others may share the folder.

    Raises ExecutorError as `inspect` does.
    """
    _looked_through(_mapped(path), path, is_written=True)


def _mapped(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ExecutorError(f"{path} is empty; send the subnet again")
            # Closed when nothing refers to it: an error's traceback may still do.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ExecutorError(f"{path} cannot be read: {error.strerror}") from error


def _looked_through(
    content: mmap.mmap, path: Path, *, is_written: bool
) -> tuple[str, tuple[Path, ...], str]:
    """The name of the graph, the files with weights, the first layer of ONNX Runtime's own."""
    contrib_layer = ""
    ends: dict[str, int] = {}
    name: str | None = None
    try:
        with memoryview(content) as model:
            called = graph_name(model)
            name = None if called is None else printable(called)
            for kind, message, bodies in walk(model):
                if kind == NODE:
                    found = _check_operator(message, is_written=is_written)
                    contrib_layer = contrib_layer or found
                elif kind == TENSOR and (entries := external_entries(message)) is not None:
                    if bodies and not is_written:
                        raise NotAllowedError(
                            "weights in another file for a graph inside of a node"
                        )
                    location, end = _place(entries, is_written=is_written)
                    ends[location] = max(end, ends.get(location, 0))
    except NotAllowedError as error:
        raise ExecutorError(f"{_called(name, path)} is refused: it has {error}") from None
    except (ValueError, IndexError):  # text that is none, too
        name = None
    if name is None:
        raise ExecutorError(f"{path} is not an ONNX file or is truncated; send the subnet again")
    subject = _called(name, path)
    weights = tuple(_checked(path.parent / file, ends[file], subject) for file in sorted(ends))
    return name or path.name, weights, printable(contrib_layer)


def _called(name: str | None, path: Path) -> str:
    return f"subnet {name} ({path})" if name else str(path)


def _check_operator(node: memoryview, *, is_written: bool) -> str:
    """How messages call a layer that has an operator of ONNX Runtime's own; "" for others."""
    operator, domain = text_field(node, NODE_OPERATOR) or "", text_field(node, NODE_DOMAIN) or ""
    name = text_field(node, NODE_NAME) or text_field(node, NODE_OUTPUT) or ""
    if operator in _COMPILED:
        raise NotAllowedError(
            f"layer {name!r}, whose operator {operator} is a compiled program, which is never run "
            "here"
        )
    if domain in _STANDARD_DOMAINS:
        return ""
    is_contrib = domain == CONTRIB_DOMAIN and operator in CONTRIB_OPERATORS
    if not is_contrib and not (is_written and domain in _WRITTEN_DOMAINS):
        raise NotAllowedError(
            f"layer {name!r} ({operator}) of the domain {domain!r}; only ONNX's own operators and "
            "some of ONNX Runtime's run here"
        )
    return f"{name!r} ({operator})"


def _place(entries: list[tuple[str, str]], *, is_written: bool) -> tuple[str, int]:
    """The file that a tensor's content lies in, and where in it the content ends, if it says so."""
    place: dict[str, str] = {}
    for key, value in entries:
        known = key in ("location", "offset", "length", "checksum")
        if not known and not (is_written and _PREPACKED.fullmatch(key)):
            raise NotAllowedError(f"weights in another file, of which it says {key!r}")
        if key in place:
            raise NotAllowedError(f"weights in another file, of which it says {key!r} twice")
        place[key] = value
    location = place.get("location", "")
    if location in ("", ".", "..") or "/" in location or not location.isprintable():
        raise NotAllowedError(
            f"weights outside its own directory, in {location!r}; they may lie beside it only, "
            "under a plain name"
        )
    offset, length = (place.get(key) or "0" for key in ("offset", "length"))
    if not (_PLACE.fullmatch(offset) and _PLACE.fullmatch(length)):
        raise NotAllowedError(f"weights at no place of a file: offset {offset!r}, {length!r} bytes")
    return location, int(offset) + int(length)


def _checked(path: Path, end: int, subject: str) -> Path:
    """`path` itself if it is a file and no link, and has as many bytes."""
    try:
        status = path.lstat()
    except OSError:  # or the name is too long
        raise ExecutorError(
            f"the weights of {subject} are missing: {path}; send the subnet again"
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise ExecutorError(
            f"{subject} refers to weights outside its own directory: {path} is no file but a link, "
            "a folder or a device"
        )
    if status.st_size < end:
        raise ExecutorError(
            f"the weights of {subject} are truncated: it needs {end} bytes of {path}, which has "
            f"{status.st_size}; send the subnet again"
        )
    return path


def _is_digest(name: str) -> bool:
    return len(name) == _DIGEST_LENGTH and set(name) <= set("0123456789abcdef")


def _hash_file(path: Path) -> bytes:
    hashed = sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK):
                hashed.update(chunk)
    except OSError as error:
        raise ExecutorError(f"{path} cannot be read: {error.strerror}") from error
    return hashed.digest()
