"""Names and describes what TVM has compiled: the key of a cache entry, its files, its tensors.

Nothing here imports TVM. An entry has a shared library, a file with the weights, and a description
of the tensors. The weights are not part of the library, so that an agent can map them.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nodes.executors.base import ExecutorError, LoadOptions, TensorSpec
from nodes.executors.preparing.entries import entry_key
from nodes.protocol.messages import OptionOffer
from nodes.protocol.payload import Array

LIBRARY = "subnet.so"
WEIGHTS = "weights"
_DESCRIPTION = "tensors.json"

ALIGNMENT_BYTES = 64
"""Compiled code loads whole vectors and crashes on tensors that are aligned to less."""

_FORMAT = 1
"""A number to increase whenever `nodes.executors.tvm.build` would write something else."""

TUNING = OptionOffer("tuning_s", least=0, most=7 * 24 * 3600)
"""For how many seconds each subnet is tuned."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant of the compiled subnet and where it begins in the file of weights."""

    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class CompiledTensors:
    """The tensors of a compiled subnet. Its function takes the inputs, then the weights."""

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    weights: tuple[Weight, ...]

    def write(self, folder: Path) -> None:
        """Write the description into an entry."""
        (folder / _DESCRIPTION).write_text(json.dumps(asdict(self)), "utf-8")

    @staticmethod
    def read(folder: Path) -> CompiledTensors:
        """Read the description of an entry; raises OSError or ValueError if it has none."""
        try:
            content = json.loads((folder / _DESCRIPTION).read_text("utf-8"))
            return CompiledTensors(
                _specs(content["inputs"]),
                _specs(content["outputs"]),
                tuple(
                    Weight(each["dtype"], tuple(each["shape"]), each["offset_bytes"])
                    for each in content["weights"]
                ),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a description of tensors: {error}") from error


def _specs(content: Mapping[str, Mapping[str, Any]]) -> dict[str, TensorSpec]:
    return {name: TensorSpec(each["dtype"], tuple(each["shape"])) for name, each in content.items()}


def lay_out(arrays: Sequence[Array]) -> tuple[Weight, ...]:
    """Return a place for each array in one file, aligned as compiled code needs it."""
    weights = []
    offset = 0
    for array in arrays:
        weights.append(Weight(str(array.dtype), array.shape, offset))
        offset += -(-array.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return tuple(weights)


def aligned_array(spec: TensorSpec) -> Array:
    """Return an uninitialised array that begins where compiled code needs it."""
    block = np.empty(spec.size_bytes + ALIGNMENT_BYTES, np.uint8)
    skipped = -block.ctypes.data % ALIGNMENT_BYTES
    flat = block[skipped : skipped + spec.size_bytes]
    array: Array = flat.view(spec.dtype).reshape(spec.shape)
    return array


def tuning_s(options: LoadOptions) -> float:
    """Return for how many seconds each subnet is tuned; 0 without the engine option `tuning_s`."""
    return float(options.option(TUNING, "0"))


def library_key(digest: str, version: str, cpu: str, options: LoadOptions) -> str:
    """Return a library's cache key, from everything that its content depends on.

    `digest` is the subnet's SHA-256 in hex, `cpu` identifies the kind of CPU. Code that is tuned
    depends on the time and on the number of threads.
    """
    seconds = tuning_s(options)
    tuned = (seconds, options.threads) if seconds else ()
    return entry_key("tvm", digest, _FORMAT, version, cpu, tuned)


def check_owner(entry: Path) -> None:
    """Raise ExecutorError unless only this user can have written the entry's library.

    A library is code, and a process runs what it loads. The CRC-32 of an entry finds damage, but
    anyone can compute one.
    """
    for path in (entry.parent, entry, entry / LIBRARY):
        status = path.lstat()
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if status.st_uid != os.geteuid() or others_write or stat.S_ISLNK(status.st_mode):
            raise ExecutorError(
                f"{path} is not loaded, because other users of this machine can write there and a "
                "compiled library is code: give the node a separate cache directory, or run "
                f"`chmod go-w {path}`"
            )
