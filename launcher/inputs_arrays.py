"""Arrays in .npy and .npz files as a network's input: one frame each, or a stack of frames."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cnn.network import Tensor
from launcher.errors import BadInputError
from launcher.runtime import Array

SUFFIXES = (".npy", ".npz")


def open_arrays(path: Path, inputs: tuple[Tensor, ...]) -> Mapping[str, Array]:
    """Network input name → its frames, of shape (frames, *input shape).

    An .npy file is for a network of one input, an .npz file holds one array per input name. An
    array is one frame of the input's shape, with or without a batch axis of 1, or a stack of
    frames. A large .npy file is mapped, not read. Raises `BadInputError` naming the file.
    """
    arrays = _load(path)
    if "" in arrays:
        if len(inputs) != 1:
            names = ", ".join(tensor.name for tensor in inputs)
            raise BadInputError(
                f"{path}: the model has {len(inputs)} inputs ({names}); "
                "give an .npz file with an array for each, or random"
            )
        arrays = {inputs[0].name: arrays[""]}
    for tensor in inputs:
        if tensor.name not in arrays:
            raise BadInputError(
                f"{path}: holds no array {tensor.name!r}, which is an input of the model; "
                f"it has {', '.join(sorted(arrays)) or 'none'}"
            )
    stacks = {tensor.name: _stack(path, arrays[tensor.name], tensor) for tensor in inputs}
    lengths = {name: len(stack) for name, stack in stacks.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise BadInputError(f"{path}: its arrays hold different numbers of frames ({shown})")
    return stacks


def _load(path: Path) -> Mapping[str, Array]:
    """The arrays of a file by name; an .npy file's only array has the name ''."""
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded as archive:
                return {name: archive[name] for name in archive.files}
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = (
            "it holds Python objects"
            if "Python objects" in str(error) or "allow_pickle" in str(error)
            else str(error)
        )
        raise BadInputError(f"{path}: cannot be read as a NumPy file: {reason}") from None
    raise BadInputError(f"{path}: cannot be read as a NumPy file")


def _stack(path: Path, array: Array, tensor: Tensor) -> Array:
    wanted = np.dtype(tensor.dtype)
    of = f"the model's input {tensor.name!r}"
    if not np.can_cast(array.dtype, wanted, casting="same_kind"):
        raise BadInputError(f"{path}: holds {array.dtype}, but {of} is {tensor.dtype}")
    shape = tensor.shape
    if array.shape == shape:
        return array[np.newaxis]
    if array.ndim == len(shape) + 1 and array.shape[1:] == shape and len(array):
        return array
    if shape and shape[0] == 1:
        if array.shape == shape[1:]:
            return array[np.newaxis, np.newaxis]
        if array.shape[1:] == shape[1:] and len(array):
            return array[:, np.newaxis]
    raise BadInputError(
        f"{path}: has the shape {list(array.shape)}, but {of} has {list(shape)} "
        "(a stack of frames has one more axis in front)"
    )
