"""Subnets on disk: every phase of a plan cut once, and not again while it stays the same.

A folder of subnets has an `index.json` that says which files belong to which cut. A cut is named
by a digest of the model, its rewrites, the phase's layers and the order of its tensors; whatever
else of a plan changes, its files stay good. Their content is checked against their names before
they are used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from cnn.reading.regular_files import open_regular
from cnn.rewrite.rewrites import Rewrite, to_data
from launcher.errors import BadInputError
from launcher.files import read_json, write_whole
from launcher.run.runtime import SubnetFiles
from partition.plan import Plan, PlannedPhase

_INDEX = "index.json"
_CHUNK_BYTES = 1 << 20
_DIGEST = re.compile("[0-9a-f]{64}")


class Cut(Protocol):
    """The part of `cnn.subnet.Subnet` that is needed here."""

    @property
    def graph(self) -> Path:
        """The ONNX model."""
        ...

    @property
    def weights(self) -> Path | None:
        """Its weights, if it has any."""
        ...


class Cutter(Protocol):
    """The part of `cnn.model.Model` that is needed here."""

    @property
    def digest(self) -> str:
        """Changes with the model, and not with its rewrites."""
        ...

    def rewritten(self, rewrites: Sequence[Rewrite]) -> Cutter:
        """The model with `rewrites` carried out."""
        ...

    def cut(
        self,
        phase_layers: tuple[str, ...],
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        directory: Path,
    ) -> Cut:
        """Write the subnet of some layers into `directory`."""
        ...


def cut_subnets(
    model: Cutter, plan: Plan, folder: Path, on_phase: Callable[[int, int], None]
) -> dict[str, SubnetFiles]:
    """Phase name → its files in `folder`, cut now or found there from an earlier time.

    `model` is the one that the plan's rewrites are of.
    `on_phase` hears (phases done, phases in all). Subnets of an earlier time that no phase of this
    plan needs are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = _read_index(folder)
    rewritten = cache(lambda: model.rewritten(plan.rewrites) if plan.rewrites else model)
    subnets: dict[str, SubnetFiles] = {}
    index: dict[str, list[str]] = {}
    for done, phase in enumerate(plan.phases):
        on_phase(done, len(plan.phases))
        key = _key(model.digest, plan.rewrites, phase)
        files = _found(folder, known.get(key, ()))
        if files is None:
            cut = rewritten().cut(phase.layers, phase.inputs, phase.outputs, folder)
            files = SubnetFiles(cut.graph, cut.weights)
        subnets[phase.name] = files
        index[key] = [path.name for path in (files.graph, files.weights) if path is not None]
    on_phase(len(plan.phases), len(plan.phases))
    write_whole(folder / _INDEX, json.dumps(index, indent=1) + "\n")
    needed = {name for names in index.values() for name in names}
    for name in {name for names in known.values() for name in names} - needed:
        (folder / name).unlink(missing_ok=True)
    return subnets


def _key(model_digest: str, rewrites: Sequence[Rewrite], phase: PlannedPhase) -> str:
    carried_out = [to_data(rewrite) for rewrite in rewrites]
    parts = [model_digest, carried_out, sorted(phase.layers), phase.inputs, phase.outputs]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _read_index(folder: Path) -> Mapping[str, tuple[str, ...]]:
    """What was cut before; nothing where the index is missing or damaged: it is only a cache."""
    try:
        _, data = read_json(folder / _INDEX)
        return {key: tuple(names) for key, names in data.items() if all(map(_is_ours, names))}
    except (BadInputError, AttributeError, TypeError):
        return {}


def _is_ours(name: object) -> bool:
    """Whether a file may be called so: by the SHA-256 of its content, so that no name that stands
    in an index leads anywhere else."""
    return isinstance(name, str) and _DIGEST.fullmatch(name) is not None


def _found(folder: Path, names: tuple[str, ...]) -> SubnetFiles | None:
    paths = [folder / name for name in names]
    if not 1 <= len(paths) <= 2 or not all(map(_is_whole, paths)):
        return None
    return SubnetFiles(paths[0], paths[1] if len(paths) == 2 else None)


def _is_whole(path: Path) -> bool:
    """Whether a regular file, and no link, is there and its SHA-256 is its name."""
    digest = hashlib.sha256()
    try:
        with open_regular(path, may_be_link=False) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError:
        return False
    return digest.hexdigest() == path.name
