"""Checks that a simplified network computes the same as its file, before it runs.

A run with verification compares its results with the unchanged file anyway; one without
(`--no-verify`) relies on simplification. For the latter, plain ONNX Runtime runs the simplified
network, in one piece, and the original on random frames of several magnitudes and on a black one. A
model that has agreed is recorded in the user's cache and not compared again.

The two round differently. A frame differs if the root mean square of the difference, relative to
that of the output, is more than rounding explains; single deviating values do not suffice. If most
frames differ, both are run again without fusion, because a fused operator (such as a layer norm)
may be less exact than the operators that it replaces. A network is refused if most frames still
differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from launcher.errors import BadInputError
from launcher.files import SIMPLIFIED, user_cache
from launcher.results.whole import reference_results
from launcher.run.runtime import Frame
from nodes.protocol.payload import Array

if TYPE_CHECKING:
    from cnn.model import Model
    from cnn.network import Network, Tensor

_FORMAT = 4
"""Increased whenever simplification changes, so that models are compared again."""

_SCALES = (1.0, 100.0, 0.01, 0.0)
"""Standard deviations of the frames' values."""

_LIMIT, _COARSE_LIMIT = 1e-3, 0.1
"""The largest difference of a frame: in float32 and float64, and where a type has fewer bits."""

_FLOOR = 1e-6
"""Root mean squares below it count as 0, such as those of an output that a sigmoid keeps at 0."""


def check_simplified(
    model: Model, folder: Path, cache: Path, on_done: Callable[[int, int], None]
) -> None:
    """Raise `BadInputError` if a model's simplified network differs from its file.

    A merged model is checked part by part. `folder` is for temporary files, and `cache` records
    the models that agreed; `on_done` is called with (frames run, frames in all). Raises
    `RunFailedError` if a network cannot be run.
    """
    parts = model.parts or (model,)
    total = 2 * len(_SCALES) * len(parts)
    for index, part in enumerate(parts):
        known = cache / _key(part)
        if not known.exists():

            def show(done: int, before: int = index * 2 * len(_SCALES)) -> None:
                on_done(before + done, total)

            _check(part, folder / str(index), show)
            known.parent.mkdir(parents=True, exist_ok=True)
            known.touch()


def default_cache() -> Path:
    """Return the folder in the user's cache that records which models agreed."""
    return user_cache(SIMPLIFIED)


def _key(model: Model) -> str:
    facts = (_FORMAT, version("onnx"), model.digest)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _check(model: Model, folder: Path, on_done: Callable[[int], None]) -> None:
    network = model.network
    whole = model.cut(network.layer, network.inputs, network.outputs, folder / "simplified")
    original = model.write_original(folder / "original")
    for is_fused in (True, False):
        pairs = zip(
            _results(
                whole.graph,
                network,
                network.outputs,
                folder / "of simplified",
                on_done,
                is_fused=is_fused,
            ),
            _results(
                original,
                network,
                (*network.outputs, *model.constant_outputs),
                folder / "of original",
                lambda done: on_done(done + len(_SCALES)),
                is_fused=is_fused,
            ),
            strict=True,
        )
        worst = [
            max((_difference({**model.constant_outputs, **found}[x], wanted[x]), x) for x in wanted)
            for found, wanted in pairs
        ]
        limit = _limit(network)
        differing = [(error, name) for error, name in worst if not error <= limit]
        if len(differing) <= len(_SCALES) // 2:
            return
    error, name = max(differing)
    raise BadInputError(
        f"{network.name}: the network, simplified for partitioning, does not compute the same as "
        f"its file: output {name!r} differs by {error:.1%}; please report this model"
    )


def _results(
    graph: Path,
    network: Network,
    outputs: Sequence[str],
    folder: Path,
    on_done: Callable[[int], None],
    *,
    is_fused: bool,
) -> Iterator[dict[str, Array]]:
    def frame(number: int) -> Frame:
        generator = np.random.default_rng(number)
        return {
            name: _values(generator, network.tensors[name], _SCALES[number])
            for name in (*network.inputs, *network.state)
        }

    for _, found in reference_results(
        graph, outputs, len(_SCALES), frame, folder, on_done, is_fused=is_fused
    ):
        yield dict(found)


def _values(generator: np.random.Generator, tensor: Tensor, scale: float) -> Array:
    """Draw normal numbers, or integers 0 and 1; only 0 for a black frame (`scale` 0)."""
    if np.dtype(tensor.dtype).kind == "f":
        return (generator.standard_normal(tensor.shape) * scale).astype(tensor.dtype)
    return generator.integers(0, 2 if scale else 1, tensor.shape).astype(tensor.dtype)


def _difference(found: Array, wanted: Array) -> float:
    """Return the root mean square of the difference over that of `wanted`, of finite values."""
    if found.shape != wanted.shape:
        return float("inf")
    one, other = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(one) & np.isfinite(other)
    if not finite.any():
        return 0.0
    difference, size = (float(np.sqrt(np.mean(x[finite] ** 2))) for x in (one - other, other))
    return difference / max(size, _FLOOR)


def _limit(network: Network) -> float:
    """Return the largest difference that the network's narrowest type of number explains."""
    tensors = (*network.tensors.values(), *network.weights.values())
    narrow = any(x.dtype in ("float16", "int8", "uint8") for x in tensors)
    return _COARSE_LIMIT if narrow else _LIMIT
