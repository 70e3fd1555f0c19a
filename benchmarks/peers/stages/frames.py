"""The frame that everybody computes, and the results it must give, as files beside the chain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

FRAME, RESULTS = "frame.npz", "results.npz"


def save(folder: Path, frame: Sequence[Array], results: Sequence[Array]) -> None:
    """Both in the order in which they travel."""
    np.savez(folder / FRAME, *frame)
    np.savez(folder / RESULTS, *results)


def read_frame(folder: Path) -> list[Array]:
    """Arrays of the network's inputs."""
    return _arrays(folder / FRAME)


def read_results(folder: Path) -> list[Array]:
    """What the whole network makes of the frame."""
    return _arrays(folder / RESULTS)


def _arrays(path: Path) -> list[Array]:
    with np.load(path) as file:
        return [file[f"arr_{number}"] for number in range(len(file.files))]


def difference(results: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The largest relative difference of any output."""
    return max(
        float(np.abs(result - right).max() / max(float(np.abs(right).max()), 1e-30))
        for result, right in zip(results, wanted, strict=True)
    )
