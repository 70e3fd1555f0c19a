"""Write ONNX models to files that are named by the SHA-256 of their content.

All large weights of a model lie in one file next to it, at aligned offsets, so that an engine can
map them into memory instead of reading them. Tensors below 1 KiB stay in the graph, where engines
look for shapes and scales while they load. Weights are written one tensor at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import onnx
from onnx import helper

from cnn.network import Array
from cnn.operators.bodies import every_node
from cnn.operators.standard import STANDARD_DOMAINS, standard_opset
from cnn.operators.versions import least_version
from cnn.reading.weights import INLINE_BYTES, tensor

ALIGNMENT = 64
"""Offsets of tensors in a weights file are multiples of this: a cache line, which suits vector
units.
"""

PAGE = 4096
PAGE_ALIGNED_BYTES = 1 << 20
"""Tensors of at least this size start at a multiple of `PAGE`, the smallest page of any board. On
boards with pages of 16 or 64 KiB, an engine maps a tensor from the page in which it starts: two
neighbours then share a page of the kernel's cache, and no memory is lost.
"""

_CHUNK_BYTES = 1 << 22

UNDERSTOOD_OPSET = 17
"""An operator set that every engine in use knows; files of it or an older one keep theirs."""

_OLDEST_FORMAT = 4
"""The oldest version of the format in which initialisers are not inputs."""


@dataclass(frozen=True, slots=True)
class Subnet:
    """A model on disk: its graph file, and a file of large weights if any. Sizes in bytes."""

    graph: Path
    weights: Path | None
    graph_bytes: int
    weights_bytes: int


def write(
    model: onnx.ModelProto, constants: Iterable[tuple[str, Array]], directory: Path
) -> Subnet:
    """Write `model`, which has no initialisers yet, and `constants` into `directory`.

    The file states the least versions of the format and of ONNX's operator set that its operators
    need, because engines refuse newer ones than they know by their number alone. The same arguments
    yield the same files. Needs no more memory than one tensor in addition to what the caller holds.
    Creates `directory` if it is absent.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _state_least_versions(model)
    places: list[tuple[onnx.TensorProto, int, int]] = []
    with _hashed_file(directory) as weights:
        for name, array in constants:
            if array.nbytes < INLINE_BYTES:
                model.graph.initializer.append(tensor(name, array))
                continue
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            outside = model.graph.initializer.add(name=name, data_type=kind, dims=array.shape)
            places.append((outside, weights.append(array), array.nbytes))
        weights_file = weights.close() if places else None
    location = weights_file.name if weights_file else ""
    for outside, offset, length in places:
        outside.data_location = onnx.TensorProto.EXTERNAL
        entries = {"location": location, "offset": str(offset), "length": str(length)}
        for key, value in entries.items():
            outside.external_data.add(key=key, value=value)
    with _hashed_file(directory) as graph:
        graph.write(model.SerializeToString(deterministic=True))
        graph_file = graph.close()
    return Subnet(
        graph_file, weights_file, graph.size_bytes, weights.size_bytes if weights_file else 0
    )


def _state_least_versions(model: onnx.ModelProto) -> None:
    """Lower the operator set and the version of the format in place, as far as neither matters."""
    version = standard_opset(model.opset_import)
    if version > UNDERSTOOD_OPSET:
        operators = {
            node.op_type for node in every_node(model.graph.node) if node.domain in STANDARD_DOMAINS
        }
        for entry in model.opset_import:
            if entry.domain in STANDARD_DOMAINS:
                entry.version = least_version(operators, version, UNDERSTOOD_OPSET)
    needed = helper.find_min_ir_version_for(list(model.opset_import), ignore_unknown=True)
    model.ir_version = min(model.ir_version, max(needed, _OLDEST_FORMAT))


class _HashedFile:
    """A file that is hashed while it is written, and renamed to its hash when it is closed."""

    def __init__(self, stream: IO[bytes], directory: Path) -> None:
        self._stream = stream
        self._directory = directory
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def write(self, data: bytes | memoryview) -> None:
        self._stream.write(data)
        self._hash.update(data)
        self.size_bytes += len(data)

    def append(self, array: Array) -> int:
        """Write a tensor's bytes at the next aligned offset; return that offset."""
        alignment = PAGE if array.nbytes >= PAGE_ALIGNED_BYTES else ALIGNMENT
        self.write(bytes(-self.size_bytes % alignment))
        offset = self.size_bytes
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        for start in range(0, len(content), _CHUNK_BYTES):
            self.write(content[start : start + _CHUNK_BYTES])
        return offset

    def close(self) -> Path:
        self._stream.close()
        path = self._directory / self._hash.hexdigest()
        os.replace(self._stream.name, path)
        return path


@contextlib.contextmanager
def _hashed_file(directory: Path) -> Iterator[_HashedFile]:
    """Open a temporary file; remove it on exit unless it was closed under its own name."""
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".", delete=False) as stream:
        try:
            yield _HashedFile(stream, directory)
        except OSError as error:  # such as a full disk: report which one
            error.filename = error.filename or str(directory)
            raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(stream.name)


def stated_opset(graph: Path) -> int:
    """Return the operator set of ONNX that a subnet's file states: the least that it needs."""
    imports = onnx.load(graph, load_external_data=False).opset_import
    return max((each.version for each in imports if each.domain in STANDARD_DOMAINS), default=0)
