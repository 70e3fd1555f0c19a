"""Checkpoints of an evolution: a file from which it continues as if it had never stopped.

DEAP's users pickle the population, the archive, the logbook and the random state after some
generations (https://deap.readthedocs.io, "Checkpointing"). Here they are written to an .npz file
without pickle, which is replaced as a whole. The file names its search, and other searches refuse
it.
"""

from __future__ import annotations

import json
import os
import random
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ga import individuals
from partition.errors import PartitionError


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
        elite: Any,
        records: Sequence[Mapping[str, float]],
    ) -> None:
        """Save priced individuals, the best of all, the logbook and both random generators."""
        every = [elite, *population]
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
                genes=individuals.genes_of(every),
                fitness=np.array([each.fitness.wvalues for each in every]),
                words=np.array(json.dumps(words)),
            )
        os.replace(part, self.path)

    def read(
        self, rng: np.random.Generator, kind: type[Any]
    ) -> tuple[list[Any], Any, list[dict[str, float]]] | None:
        """Return the population, the best of all and the records, and set both random generators;
        None if there is no file.

        Raises `PartitionError` if the file is not a checkpoint, or is one of another search.
        """
        if not self.path.exists():
            return None
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                genes, fitness = kept["genes"], kept["fitness"]
                words = json.loads(str(kept["words"]))
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
        return found[1:], found[0], records
