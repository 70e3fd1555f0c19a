"""Writes the subnet of every phase of a plan, and reuses files of an earlier plan.

The folder of subnets has an `index.json` with the files of every subnet. A subnet's key is a digest
of the model, its rewrites, the phase's layers and the order of its tensors; its files stay valid
while these do. Files are named by their SHA-256, which is checked before they are used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cnn.reading.regular_files import open_regular
from cnn.rewrite.rewrites import Rewrite, to_data
from launcher.errors import BadInputError
from launcher.files import read_json, write_whole
from launcher.run.runtime import SubnetFiles
from partition.plan import Plan, PlannedPhase

if TYPE_CHECKING:
    from cnn.model import Model

_INDEX = "index.json"
_CHUNK_BYTES = 1 << 20
_DIGEST = re.compile("[0-9a-f]{64}")


def cut_subnets(
    model: Model, plan: Plan, folder: Path, on_phase: Callable[[int, int], None]
) -> dict[str, SubnetFiles]:
    """Return the files in `folder` of every phase, by its name; write those that are missing.

    The plan's rewrites are applied to `model`. `on_phase` is called with (phases done, phases in
    all). Files of earlier plans that no phase needs are removed.
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
    """Return the files by key; an index that is missing or damaged counts as empty."""
    try:
        _, data = read_json(folder / _INDEX)
        return {key: tuple(names) for key, names in data.items() if all(map(_is_ours, names))}
    except (BadInputError, AttributeError, TypeError):
        return {}


def _is_ours(name: object) -> bool:
    """Whether a name is a SHA-256, so that no name in an index can lead out of the folder."""
    return isinstance(name, str) and _DIGEST.fullmatch(name) is not None


def _found(folder: Path, names: tuple[str, ...]) -> SubnetFiles | None:
    paths = [folder / name for name in names]
    if not 1 <= len(paths) <= 2 or not all(map(_is_whole, paths)):
        return None
    return SubnetFiles(paths[0], paths[1] if len(paths) == 2 else None)


def _is_whole(path: Path) -> bool:
    """Whether the path is a regular file, not a link, whose name is its SHA-256."""
    digest = hashlib.sha256()
    try:
        with open_regular(path, may_be_link=False) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError:
        return False
    return digest.hexdigest() == path.name
