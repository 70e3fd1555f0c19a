"""Makes a partitioning problem (a model, devices, pins) from the options of a command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cnn.errors import CnnError
from cnn.model import Model, read
from ga.strategies import STRATEGIES
from launcher.config.load import Cluster, load_cluster, suggestion
from launcher.config.units import parse_bytes, parse_link
from launcher.errors import BadInputError
from launcher.plan.planning import problem_of, read_model
from launcher.profile.file import ProfileFile
from launcher.profile.use import profile_file, profile_of
from partition.devices import Device
from partition.errors import PartitionError
from partition.objective import Objective
from partition.strategies.base import Problem

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """Command-line options that describe equal devices; None stands for the default."""

    memory: str | None = None
    link: str | None = None
    cache: str | None = None

    def devices(self, count: int) -> tuple[Device, ...]:
        """Return `count` equal devices, each on a machine of its own; raises `BadInputError`."""
        usual = Device("usual")
        link = _parsed("--link", parse_link, self.link)
        return tuple(
            Device(
                f"device{number}",
                memory_bytes=_parsed("--memory", parse_bytes, self.memory),
                cache_bytes=_parsed("--cache", parse_bytes, self.cache),
                link_bytes_per_s=usual.link_bytes_per_s if link is None else link,
            )
            for number in range(1, count + 1)
        )

    @property
    def are_given(self) -> bool:
        """Whether the user has given any of these options."""
        return any(value is not None for value in (self.memory, self.link, self.cache))


def load_cluster_for(model: str | None, path: Path) -> Cluster:
    """Load a cluster, with `model` (relative to the current folder), if given, for its own."""
    cluster = load_cluster(path)
    if model is None:
        return cluster
    given = str(Path(model).absolute()) if Path(model).exists() else model
    another: dict[str, object] = {"path": given, "name": None, "outputs": (), "inputs": {}}
    changed = cluster.config.models[0].model_copy(update=another)
    return cluster.changed(model=changed)


def cluster_problem(
    cluster: Cluster, objective: Objective, seed: int
) -> tuple[Model, ProfileFile | None, Problem]:
    """Read the model and the profile of a cluster, and return both with its problem.

    Raises `BadInputError`.
    """
    model = read_model(cluster)
    file = profile_file(cluster, model)
    asked = cluster.changed(objective=objective, seed=seed)
    return model, file, problem_of(asked, model, profile_of(file))


def check_strategy_option(option: str, name: str) -> None:
    """Raise `BadInputError` if there is no strategy of this name."""
    if name not in STRATEGIES:
        close = suggestion(name, STRATEGIES) or f"; known are {', '.join(STRATEGIES)}"
        raise BadInputError(f"{option}: there is no strategy {name!r}{close}")


def read_network(model: str) -> Model:
    """Read the model of a path or name; raises `BadInputError`."""
    try:
        return read(model)
    except CnnError as error:
        raise BadInputError(str(error)) from error


def equal_problem(
    model: Model, count: int, options: DeviceOptions, objective: Objective, seed: int
) -> Problem:
    """Return the problem of a model on `count` equal devices; raises `BadInputError`."""
    try:
        return Problem(
            model.network, options.devices(count), {}, seed, objective=objective, model=model
        )
    except PartitionError as error:
        raise BadInputError(str(error)) from error


def _parsed(option: str, parse: Callable[[object], Value], text: str | None) -> Value | None:
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise BadInputError(f"{option} {error}") from None
