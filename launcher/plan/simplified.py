"""Whether a simplified network computes what its file says, before it runs.

A run that is compared with the whole model finds that out by itself: the whole model is the file
as it was. One that is not (`--no-verify`) relies on simplification. So the simplified network,
still in one piece, is first held to the original by plain ONNX Runtime, on random frames of several
sizes and on a black one. What has agreed once is remembered in the user's cache and not compared
again.

The two round differently. A frame differs if the root mean square of the difference, as a share of
the output's own, is more than rounding explains; single values that flip do not make it so. Where
most frames differ, both are run again with nothing fused, because a fused operator (a layer norm,
say) may be less exact than the operators that it stands for. A network is refused if most frames
still differ.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from launcher.errors import BadInputError
from launcher.results.comparison.whole import reference_results
from launcher.run.runtime import Array, Frame

if TYPE_CHECKING:
    from cnn.model import Model
    from cnn.network import Network, Tensor

_FORMAT = 4
"""Raised whenever simplification changes, so that what it makes is compared anew."""

_SCALES = (1.0, 100.0, 0.01, 0.0)
"""Standard deviations of the frames' values."""

_LIMIT, _COARSE_LIMIT = 1e-3, 0.1
"""What a frame may differ by: in float32 and float64, and where anything is of fewer bits."""

_FLOOR = 1e-6
"""Root mean squares below it are taken for 0: an output that a sigmoid keeps at 0, say."""


def check_simplified(
    model: Model, folder: Path, cache: Path, on_done: Callable[[int, int], None]
) -> None:
    """Refuse a model whose simplified network differs from it; a merged one part by part.

    `folder` is for passing files, `cache` keeps what has agreed; `on_done` hears (frames run, of
    all). Raises `BadInputError`, and `RunFailedError` if a network cannot be run.
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
    """The folder in the user's cache that remembers which models agreed."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "csdf-edge-simplified"


def _key(model: Model) -> str:
    facts = (_FORMAT, version("onnx"), model.digest)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _check(model: Model, folder: Path, on_done: Callable[[int], None]) -> None:
    network = model.network
    whole = model.cut(network.layer, network.inputs, network.outputs, folder / "simplified")
    original = model.write_original(folder / "original")
    for is_fused in (True, False):
        pairs = zip(
            _results(whole.graph, network, folder / "of simplified", on_done, is_fused=is_fused),
            _results(
                original,
                network,
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
        f"{network.name}: simplified for partitioning, the network computes something else "
        f"than its file: output {name!r} differs by {error:.1%}; please report this model"
    )


def _results(
    graph: Path,
    network: Network,
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

    for _, outputs in reference_results(
        graph, len(_SCALES), frame, folder, on_done, is_fused=is_fused
    ):
        yield dict(outputs)


def _values(generator: np.random.Generator, tensor: Tensor, scale: float) -> Array:
    """Normal numbers; of integers 0 and 1, and on a black frame only 0."""
    if np.dtype(tensor.dtype).kind == "f":
        return (generator.standard_normal(tensor.shape) * scale).astype(tensor.dtype)
    return generator.integers(0, 2 if scale else 1, tensor.shape).astype(tensor.dtype)


def _difference(found: Array, wanted: Array) -> float:
    """The root mean square of the difference over that of `wanted`, where both are finite."""
    if found.shape != wanted.shape:
        return float("inf")
    one, other = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(one) & np.isfinite(other)
    if not finite.any():
        return 0.0
    difference, size = (float(np.sqrt(np.mean(x[finite] ** 2))) for x in (one - other, other))
    return difference / max(size, _FLOOR)


def _limit(network: Network) -> float:
    """By the narrowest numbers that the network computes with."""
    tensors = (*network.tensors.values(), *network.weights.values())
    narrow = any(x.dtype in ("float16", "int8", "uint8") for x in tensors)
    return _COARSE_LIMIT if narrow else _LIMIT
