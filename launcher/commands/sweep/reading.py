"""Reads what `ga sweep` is to tune: networks, nodes and pins."""

from __future__ import annotations

from ga.sweep.spaces import SPACES
from ga.sweep.storage import shown, storage_url
from ga.sweep.study import Case, Sweep
from launcher.commands.options import SweepOptions
from launcher.commands.problems import load_cluster_for
from launcher.config.units import AUTO_BATCH
from launcher.errors import BadInputError
from launcher.plan.planner import read_planner
from launcher.progress import ProgressDisplay

STORAGE = "ga-sweep.db"
"""The default storage, in the folder of `cluster.yaml`."""


def read_sweep(options: SweepOptions, progress: ProgressDisplay) -> Sweep:
    """Read the networks that a sweep searches, and return it.

    Raises `BadInputError`, or `PartitionError` for an invalid name of a storage.
    """
    url = storage_url(options.storage or str(options.cluster.parent / STORAGE))
    shown(url)
    if options.front and options.strategy == "vertical-paper":
        raise BadInputError(
            "--front: vertical-paper minimises Eq. 1 alone; leave out --front, or choose "
            f"--strategy {next(iter(SPACES))}"
        )
    cases, names = [], []
    models: list[str | None] = [None] if options.model is None else [*options.model]
    for name in models:
        cluster = load_cluster_for(name, options.cluster)
        if cluster.config.batch == AUTO_BATCH:
            raise cluster.error(
                ("batch",), "auto is not for a search of parameters; write a number"
            )
        planner = read_planner(cluster.changed(objective=options.objective), progress)
        cases.append(Case(planner.problem(), planner.planned.digest))
        names.append(planner.planned.network.name)
    objective = "period and memory" if options.front else options.objective
    return Sweep(
        SPACES[options.strategy],
        tuple(cases),
        url,
        options.study or f"{' and '.join(names)}, {options.strategy}, {objective}",
        options.repeats,
        options.budget,
        options.front,
    )
