"""Inspects an ONNX file before an engine reads it, without the `onnx` package.

An engine opens whatever file a model names. So an agent first examines every message of a model by
the table in `nodes.executors.onnx.schema`: files with weights must be plain files next to the
model, and operators must be ONNX's own or those of ONNX Runtime's that `CONTRIB_OPERATORS` lists. A
model that ONNX Runtime's optimiser has written may contain further domains of ONNX Runtime's own.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from nodes.executors.base import ExecutorError
from nodes.executors.onnx.protobuf import text_field
from nodes.executors.onnx.schema import (
    NODE,
    TENSOR,
    NodeField,
    NotAllowedError,
    external_entries,
    graph_name,
    walk,
)
from nodes.protocol.fields import printable

CONTRIB_DOMAIN = "com.microsoft"

CONTRIB_OPERATORS = frozenset(
    (
        *("Attention", "BiasGelu", "DequantizeLinear", "DynamicQuantizeLSTM"),
        *("DynamicQuantizeMatMul", "EmbedLayerNormalization", "FastGelu", "FusedConv", "FusedGemm"),
        *("FusedMatMul", "Gelu", "MatMulIntegerToFloat", "MatMulNBits", "MultiHeadAttention"),
        *("QAttention", "QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat"),
        *("QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul"),
        *("QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "QuantizeLinear", "QuickGelu"),
        *("RotaryEmbedding", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
        "TransposeMatMul",
    )
)
"""The operators of ONNX Runtime's own that a subnet may contain.

ONNX Runtime's quantiser and optimiser write them into networks. `cnn.operators.contrib` has their
shapes, and a test keeps both lists equal. Each computes tensors from tensors. An operator that runs
a graph or a compiled program, reads a file or loads a library must never be listed here.
"""

ML_DOMAIN = "ai.onnx.ml"

ML_OPERATORS = frozenset(
    (
        *("ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "LabelEncoder"),
        *("LinearClassifier", "LinearRegressor", "Normalizer", "OneHotEncoder", "SVMClassifier"),
        *("SVMRegressor", "Scaler", "TreeEnsemble", "TreeEnsembleClassifier"),
        "TreeEnsembleRegressor",
    )
)
"""The operators of ONNX's classical machine learning that a subnet may contain. The same test keeps
them equal to those of `cnn.operators.contrib`."""

_ENGINES_OWN = {CONTRIB_DOMAIN: CONTRIB_OPERATORS, ML_DOMAIN: ML_OPERATORS}
"""The operators, by domain, that only ONNX Runtime has among the engines."""

_STANDARD_DOMAINS = frozenset({"", "ai.onnx"})
_OPTIMISED_DOMAINS = frozenset({CONTRIB_DOMAIN, "com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Further domains that ONNX Runtime's optimiser uses for the CPU."""

_COMPILED = frozenset({"EPContext"})
"""Operators that contain a compiled program, which an engine would run unexamined."""

_PLACE = re.compile(r"[0-9]{1,18}")
_PREPACKED = re.compile(r"prepacked_[0-9]{1,9}")
"""The key under which ONNX Runtime's optimiser records where a kernel's packed weights are."""

_DIGEST_LENGTH = 64
_HASH_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """The facts that an agent needs about an ONNX file."""

    path: Path
    name: str
    """The graph's name, or the file's if it has none."""
    external: tuple[Path, ...]
    """The files with its weights, sorted."""
    digest: str
    """SHA-256 (hex) of the file and its weight files."""
    contrib_layer: str = ""
    """The first layer with an operator that only ONNX Runtime has; "" if there is none."""

    @property
    def size_bytes(self) -> int:
        """The bytes of the file and its weight files."""
        return sum(path.stat().st_size for path in (self.path, *self.external))


def inspect(path: Path) -> OnnxFile:
    """Examine an ONNX file as a launcher sends it, and hash it with its weight files.

    A weight file whose name is a SHA-256 is not read, because the blob store has checked it. Raises
    ExecutorError if the file is missing or not ONNX, if it names a weight file that is missing, too
    short or not a plain file next to it, or if it has what no launcher sends: operators that are
    neither ONNX's own nor in `CONTRIB_OPERATORS`, functions, compiled programs, external weights of
    a body.
    """
    content = _mapped(path)
    name, weights, contrib_layer = _examine(content, path, is_optimised=False)
    hashed = sha256(content)
    for file in weights:
        if not _is_digest(file.name):
            hashed.update(_hash_file(file))
    return OnnxFile(path, name, weights, hashed.hexdigest(), contrib_layer)


def check_optimised(path: Path, weights_in: Path | None = None) -> None:
    """Examine a file that ONNX Runtime's optimiser has written, since others may share the folder.

    Its weights lie next to it, or in the folder `weights_in`. Raises ExecutorError as `inspect`
    does.
    """
    _examine(_mapped(path), path, weights_in, is_optimised=True)


def _mapped(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ExecutorError(f"{path} is empty; send the subnet again")
            # Not closed here: an error's traceback may still refer to it.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ExecutorError(f"{path} cannot be read: {error.strerror}") from error


def _examine(
    content: mmap.mmap, path: Path, weights_in: Path | None = None, *, is_optimised: bool
) -> tuple[str, tuple[Path, ...], str]:
    """Return the graph's name, the files with weights, and `OnnxFile.contrib_layer`."""
    contrib_layer = ""
    ends: dict[str, int] = {}
    name: str | None = None
    try:
        with memoryview(content) as model:
            raw_name = graph_name(model)
            name = None if raw_name is None else printable(raw_name)
            for kind, message, bodies in walk(model):
                if kind == NODE:
                    found = _check_operator(message, is_optimised=is_optimised)
                    contrib_layer = contrib_layer or found
                elif kind == TENSOR and (entries := external_entries(message)) is not None:
                    if bodies and not is_optimised:
                        raise NotAllowedError(
                            "weights in another file that belong to a graph inside an operator"
                        )
                    location, end = _place(entries, is_optimised=is_optimised)
                    ends[location] = max(end, ends.get(location, 0))
    except NotAllowedError as error:
        raise ExecutorError(f"{_subject(name, path)} is refused: it has {error}") from None
    except (ValueError, IndexError):  # a UnicodeDecodeError is a ValueError
        name = None
    if name is None:
        raise ExecutorError(f"{path} is not an ONNX file or is truncated; send the subnet again")
    subject = _subject(name, path)
    folder = weights_in or path.parent
    weights = tuple(_checked(folder / file, ends[file], subject) for file in sorted(ends))
    return name or path.name, weights, printable(contrib_layer)


def _subject(name: str | None, path: Path) -> str:
    return f"subnet {name} ({path})" if name else str(path)


def _check_operator(node: memoryview, *, is_optimised: bool) -> str:
    """Return the layer's name and operator if only ONNX Runtime has this one, else ""."""
    operator = text_field(node, NodeField.OP_TYPE) or ""
    domain = text_field(node, NodeField.DOMAIN) or ""
    name = text_field(node, NodeField.NAME) or text_field(node, NodeField.OUTPUT) or ""
    if operator in _COMPILED:
        raise NotAllowedError(
            f"layer {name!r}, whose operator {operator} is a compiled program, which is never run "
            "here"
        )
    if domain in _STANDARD_DOMAINS:
        return ""
    is_known = operator in _ENGINES_OWN.get(domain, ())
    if not is_known and not (is_optimised and domain in _OPTIMISED_DOMAINS):
        raise NotAllowedError(
            f"layer {name!r} ({operator}) of the domain {domain!r}; only ONNX's own operators and "
            "some of ONNX Runtime's run here"
        )
    return f"{name!r} ({operator})"


def _place(entries: list[tuple[str, str]], *, is_optimised: bool) -> tuple[str, int]:
    """Return the file that holds a tensor's content, and the byte where the content ends.

    Without a stated length this is the byte where it begins.
    """
    place: dict[str, str] = {}
    for key, value in entries:
        known = key in ("location", "offset", "length", "checksum")
        if not known and not (is_optimised and _PREPACKED.fullmatch(key)):
            raise NotAllowedError(f"weights in another file, with the unknown key {key!r}")
        if key in place:
            raise NotAllowedError(f"weights in another file, with the key {key!r} twice")
        place[key] = value
    location = place.get("location", "")
    if location in ("", ".", "..") or "/" in location or not location.isprintable():
        raise NotAllowedError(
            f"weights outside its own directory, in {location!r}; they must be in that directory, "
            "under a plain name"
        )
    offset, length = (place.get(key) or "0" for key in ("offset", "length"))
    if not (_PLACE.fullmatch(offset) and _PLACE.fullmatch(length)):
        raise NotAllowedError(
            f"weights at an impossible place in a file: offset {offset!r}, {length!r} bytes"
        )
    return location, int(offset) + int(length)


def _checked(path: Path, end: int, subject: str) -> Path:
    """Return `path` if it is a file and no link, and has at least `end` bytes."""
    try:
        status = path.lstat()
    except OSError:  # or the name is too long
        raise ExecutorError(
            f"the weights of {subject} are missing: {path}; send the subnet again"
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise ExecutorError(
            f"{subject} refers to weights outside its own directory: {path} is not a file but a "
            "link, a folder or a device"
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
