"""Makes a partitioning problem (a model, devices, pins) from the options of a command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cnn.errors import CnnError
from cnn.model import Model, read
from ga.strategies import find_strategy
from launcher.commands.options import CompareOptions, SearchOptions
from launcher.config.load import Cluster, load_cluster, validated
from launcher.config.source import ParsedFile
from launcher.config.units import (
    AUTO_BATCH,
    Value,
    parse_batch,
    parse_bytes,
    parse_duration,
    parse_link,
    parse_share,
    parsed_option,
)
from launcher.errors import BadInputError
from launcher.plan.batch_size import BatchChoice
from launcher.plan.planner import Planner, read_planner
from launcher.plan.profile.use import with_profile_option
from launcher.plan.settings import check_strategy, check_strategy_option
from launcher.progress import ProgressDisplay
from partition.devices import Device
from partition.errors import PartitionError
from partition.objective import DEFAULT_OBJECTIVE, WITHIN, WITHIN_PERIOD, Objective
from partition.strategies.base import Problem, Strategy


def equal_devices(options: SearchOptions | CompareOptions, count: int) -> tuple[Device, ...]:
    """Return `count` equal devices, each on a separate machine; raises `BadInputError`."""
    usual = Device("usual")
    link = _parsed("--link", parse_link, options.link)
    return tuple(
        Device(
            name,
            memory_bytes=_parsed("--memory", parse_bytes, options.memory),
            cache_bytes=_parsed("--cache", parse_bytes, options.cache),
            link_bytes_per_s=usual.link_bytes_per_s if link is None else link,
        )
        for name in device_names(count)
    )


def device_names(count: int) -> tuple[str, ...]:
    """Return the names of `count` equal devices."""
    return tuple(f"device{number}" for number in range(1, count + 1))


def load_cluster_for(model: str | None, path: Path) -> Cluster:
    """Load a cluster, with `model` (relative to the current folder), if given, for its own."""
    cluster = load_cluster(path)
    if model is None:
        return cluster
    given = str(Path(model).absolute()) if Path(model).exists() else model
    another: dict[str, object] = {"path": given, "name": None, "outputs": (), "inputs": {}}
    changed = cluster.config.models[0].model_copy(update=another)
    return cluster.changed(model=changed)


@dataclass(frozen=True)
class Search:
    """A problem, and the strategy that is to solve it; of a cluster, or else of equal devices.

    `choice` says how the number of frames in a batch was chosen, if it was.
    """

    model: Model
    problem: Problem
    strategy: Strategy
    planner: Planner | None = None
    choice: BatchChoice | None = None


def read_search(
    options: SearchOptions, progress: ProgressDisplay, objective: Objective | None
) -> Search:
    """Read what a command is to search; raises `BadInputError`.

    Without an `objective`, it is the cluster's or the usual one.
    """
    if (options.devices is None) == (options.cluster is None):
        raise BadInputError("give either --devices N, for equal devices, or --cluster FILE")
    described = (options.memory, options.link, options.cache)
    if options.cluster is not None and any(text is not None for text in described):
        raise BadInputError(
            "--memory, --link and --cache describe --devices; for --cluster, write memory, link "
            "and cache into cluster.yaml"
        )
    if options.profile is not None and options.cluster is None:
        raise BadInputError("--profile needs --cluster: name the cluster whose nodes were measured")
    if options.strategy is not None:
        check_strategy_option("--strategy", options.strategy)
    if options.cluster is None:
        if options.model is None:
            raise BadInputError("MODEL is missing: name the ONNX file to divide")
        objective = objective or DEFAULT_OBJECTIVE
        within = parse_within(options.within, objective)
        batch = _parsed("--batch", parse_batch, options.batch) or 1
        if batch == AUTO_BATCH or options.max_latency is not None:
            option = "--batch auto" if batch == AUTO_BATCH else "--max-latency"
            raise BadInputError(f"{option} needs --cluster: name the cluster that runs the plan")
        progress.say(f"reading {options.model}")
        model = read_network(options.model, batch)
        problem = equal_problem(
            model, options.devices or 1, options, objective, options.seed or 0, within
        )
        return Search(model, problem, find_strategy(options.strategy or "auto"))
    cluster = with_profile_option(load_cluster_for(options.model, options.cluster), options.profile)
    asked = {
        "strategy": options.strategy,
        "objective": objective,
        "seed": options.seed,
        "batch": _parsed("--batch", parse_batch, options.batch),
        "max_latency": _parsed("--max-latency", parse_duration, options.max_latency),
    }
    cluster = cluster.changed(**{key: value for key, value in asked.items() if value is not None})
    if options.within is not None:
        within = parse_within(options.within, cluster.config.objective)
        cluster = cluster.changed(within=within)
    check_strategy(cluster)
    planner = read_planner(cluster, progress)
    choice = None
    if cluster.config.batch == AUTO_BATCH:
        planner, _, choice = planner.with_batch(progress, is_pushed=cluster.config.has_source)
    problem = planner.problem()
    return Search(planner.planned, problem, planner.strategy(problem), planner, choice)


def parse_within(text: str | None, objective: Objective) -> float:
    """Return the share of the option `--within`, or the usual one; raises `BadInputError`."""
    if text is not None and objective not in WITHIN_PERIOD:
        raise BadInputError(
            f"--within has no effect with the objective {objective}; remove it, or choose the "
            "objective both or paper"
        )
    share = _parsed("--within", parse_share, text)
    return WITHIN if share is None else share


def equal_cluster(options: SearchOptions) -> Cluster:
    """Return the cluster of `--devices` equal devices, on which `launch` starts agents itself until
    its nodes have addresses."""
    own = {"memory": options.memory, "link": options.link, "cache": options.cache}
    given = {key: value for key, value in own.items() if value is not None}
    data = {
        "model": options.model,
        "nodes": tuple({"name": name, **given} for name in device_names(options.devices or 1)),
        "seed": options.seed or 0,
        "batch": _parsed("--batch", parse_batch, options.batch) or 1,
    }
    source = ParsedFile("--devices", data, {})
    return Cluster(validated(source), source, Path())


def read_network(model: str, batch: int = 1) -> Model:
    """Read the model of a path or name, in batches of `batch` frames; raises `BadInputError`."""
    try:
        return read(model).in_batches(batch)
    except CnnError as error:
        raise BadInputError(str(error)) from error


def equal_problem(
    model: Model,
    count: int,
    options: SearchOptions | CompareOptions,
    objective: Objective,
    seed: int,
    within: float = WITHIN,
) -> Problem:
    """Return the problem of a model on `count` equal devices; raises `BadInputError`."""
    try:
        return Problem(
            model.network,
            equal_devices(options, count),
            {},
            seed,
            objective=objective,
            within=within,
            model=model,
        )
    except PartitionError as error:
        raise BadInputError(str(error)) from error


def _parsed(option: str, parse: Callable[[object], Value], text: str | None) -> Value | None:
    return None if text is None else parsed_option(option, parse, text)
