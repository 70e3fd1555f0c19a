"""Checkpoints of an evolution: a file from which it continues as if it had never stopped.

DEAP's users pickle the population, the archive, the logbook and the random state after some
generations (https://deap.readthedocs.io, "Checkpointing"). Here they are written to an .npz file
without pickle, which is replaced as a whole. The file names its search, and other searches refuse
it.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ga import individuals
from partition.errors import PartitionError
from partition.strategies.base import Problem


@dataclass(frozen=True, slots=True)
class EvolutionState:
    """An evolution in a checkpoint: priced individuals, records of generations, and arrays."""

    population: list[Any]
    records: tuple[dict[str, float], ...]
    arrays: Mapping[str, NDArray[np.float64]]

    @property
    def generation(self) -> int:
        """The generations that are done."""
        return int(self.records[-1]["generation"]) if self.records else 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The file of a checkpoint, and what identifies its search, as JSON-like data.

    `every` is the number of generations between two checkpoints.
    """

    path: Path
    search: Mapping[str, Any]
    every: int = 10

    def write(
        self,
        rng: np.random.Generator,
        population: Sequence[Any],
        records: Sequence[Mapping[str, float]],
        **arrays: NDArray[np.float64],
    ) -> None:
        """Save priced individuals, the logbook, `arrays` and both random generators."""
        words = {
            "search": self.search,
            "records": list(records),
            "numpy": rng.bit_generator.state,
            "random": random.getstate(),
        }
        part = self.path.with_name(self.path.name + ".part")
        with part.open("wb") as file:
            np.savez(
                file,
                genes=individuals.genes_of(population),
                fitness=np.array([each.fitness.wvalues for each in population]),
                words=np.array(json.dumps(words)),
                **{f"also {name}": array for name, array in arrays.items()},  # type: ignore[arg-type]
            )
        os.replace(part, self.path)

    def read(self, rng: np.random.Generator, kind: type[Any]) -> EvolutionState | None:
        """Return what was saved, and set both random generators; None if there is no file.

        Raises `PartitionError` if the file is not a checkpoint, or is one of another search, or
        if its folder is missing.
        """
        if not self.path.parent.is_dir():
            raise PartitionError(f"{self.path}: there is no folder for the checkpoint; make it")
        if not self.path.exists():
            return None
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                genes, fitness = kept["genes"], kept["fitness"]
                words = json.loads(str(kept["words"]))
                arrays = {
                    name.removeprefix("also "): kept[name]
                    for name in kept.files
                    if name.startswith("also ")
                }
            search, records = words["search"], words["records"]
            states = words["numpy"], words["random"]
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise PartitionError(
                f"{self.path}: is not a checkpoint of an evolution ({error}); remove it"
            ) from None
        if search != json.loads(json.dumps(self.search)):
            raise PartitionError(
                f"{self.path}: is a checkpoint of another search ({json.dumps(search)}); name "
                "another file, or remove it"
            )
        found = individuals.population_of(kind, genes.astype(np.int16))
        for individual, values in zip(found, fitness.tolist(), strict=True):
            individual.fitness.wvalues = tuple(values)
        rng.bit_generator.state = states[0]
        version, internal, gauss = states[1]
        random.setstate((version, tuple(internal), gauss))
        return EvolutionState(found, tuple(records), arrays)


def search_of(
    problem: Problem, sizes: NDArray[np.float64], pinned: NDArray[np.integer], **about: Any
) -> dict[str, Any]:
    """Return what identifies a search: `about`, the seed, and a digest of layers or genes."""
    digest = hashlib.sha256(sizes.tobytes() + pinned.astype(np.int64).tobytes())
    own = {"seed": problem.seed, "devices": len(problem.devices)}
    return {**about, **own, "layers": digest.hexdigest()[:16]}
