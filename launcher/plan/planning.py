"""Makes plans for a cluster: reads the model, describes the problem, and searches.

A plan may also be made from a saved assignment. Strategies have the parameters that `cluster.yaml`
gives them in its section `ga`, and a profile's choice takes the place of a search.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType

from cnn.errors import CnnError
from cnn.merge import merge
from cnn.model import Model, read
from cnn.network import Network
from ga.strategies import STRATEGIES, find_strategy
from launcher.config.cluster import GaConfig, NodeConfig, PaperTuning, VerticalTuning
from launcher.config.load import Cluster
from launcher.config.mistakes import suggestion
from launcher.config.units import AUTO_BATCH
from launcher.errors import BadInputError, LacksRoomError
from launcher.plan.files import SavedPlan, check_assignment, check_made_for
from launcher.plan.machines import THIS_MACHINE, machine_of, shared_machines
from launcher.plan.prediction import foreseen
from launcher.profile.choice import Decided, made_for
from launcher.profile.file import ProfileFile
from launcher.profile.use import profile_of, profiled, with_own_watts
from launcher.progress import ProgressDisplay
from launcher.run.access import exposed, opened
from launcher.run.runtime import Node, RunOptions, RunResult
from nodes.core.engines import BUILT_IN_MEMORY
from nodes.protocol.messages import EngineMemory
from partition.devices import Device, slower
from partition.engine_overhead import EngineOverhead
from partition.errors import DoesNotFitError, PartitionError
from partition.measured.profiles import Profile, measured_part, with_profile
from partition.plan import Plan
from partition.planner import make_plan, plan_solution, with_measured_phases
from partition.pricing.compute_time import slowed
from partition.strategies.base import Problem, SearchProgress, Strategy, divided_seconds
from partition.wire import COSTS, LOSSLESS_DEVIATION, LOSSY, WireChoice, encoding_of

USUAL_LINK_BYTES_PER_S = 125e6
"""The rate of a network interface if none is given: Gigabit Ethernet."""

GOODPUT = 0.94
"""The fraction of an interface's rate that carries tensors; headers of TCP and Ethernet take the
rest."""

_CPUS = Path("/sys/devices/system/cpu")

GPU_THREADS = 16
"""As how many threads of a CPU a GPU is estimated to compute until it is measured. An NVIDIA H200
computed ResNet50 in the time of 25 to 30 (decision 064); small boards have smaller GPUs."""


def read_model(cluster: Cluster) -> Model:
    """Read the model that the cluster names, or merge all of them (`cnn.merge`).

    Raises `BadInputError`, with the line, if one cannot be used.
    """
    models = []
    for wanted in cluster.models:
        config = wanted.config
        try:
            found = read(
                wanted.path,
                input_shapes=config.input_shape,
                seed=config.fill_seed,
                outputs=config.outputs,
                inputs=config.inputs,
                state=config.state,
            )
        except CnnError as error:
            raise cluster.error(wanted.location, str(error)) from error
        models.append(found.with_name(wanted.name))
    try:
        return merge(models)
    except CnnError as error:
        raise cluster.error(("model",), str(error)) from error


def planned_model(cluster: Cluster, model: Model) -> Model:
    """Return the model in the cluster's batches, of which plans are made; of single frames if
    their number is to be chosen.

    Raises `BadInputError`, which names the layer, if it cannot compute several frames at once.
    """
    batch = cluster.config.batch
    try:
        return model if batch == AUTO_BATCH else model.in_batches(batch)
    except CnnError as error:
        raise cluster.error(("batch",), str(error)) from error


def nodes_of(cluster: Cluster) -> tuple[Node, ...]:
    """Return the nodes for the runtime, with the launching machine's keys if a node needs them.

    Raises `BadInputError` if keys are missing or cannot be used.
    """
    nodes = cluster.config.nodes
    access = opened(
        cluster.access,
        {
            node.name: exposed(cluster.access, node.address, node.data_address)
            for node in nodes
            if node.address is not None
        },
    )
    return tuple(
        Node(
            node.name,
            node.address,
            node.threads,
            node.cpus,
            access,
            node.choice,
            node.meter,
            node.slots,
            node.data_address,
        )
        for node in nodes
    )


def run_options(cluster: Cluster) -> RunOptions:
    """Return the run options of a cluster, without `replan`, which recovery needs beside them."""
    run, usual = cluster.config.run, RunOptions()
    wait_s = usual.start_wait_s if run.start_wait_s is None else run.start_wait_s
    return RunOptions(run, cluster.config.recovery, start_wait_s=wait_s)


def devices_of(cluster: Cluster, nodes: Collection[str] | None = None) -> tuple[Device, ...]:
    """Return the nodes called `nodes`, or all that do not stand by, for the cost model.

    Those on this machine share its cores, those on another one its link.
    """
    wanted = [
        node
        for node in cluster.config.nodes
        if (not node.standby if nodes is None else node.name in nodes)
    ]
    return _devices(wanted, cluster.config.launcher_link, cluster.engine_memory)


def _devices(
    nodes: list[NodeConfig], launcher_link: float | None, memory: Mapping[str, EngineMemory]
) -> tuple[Device, ...]:
    here = [node for node in nodes if machine_of(node) == THIS_MACHINE]
    cores = _shared_cores(here) if here else 1
    shared = shared_machines(nodes)
    devices = []
    for node in nodes:
        declared = memory.get(node.name) or BUILT_IN_MEMORY.get(node.engine, EngineMemory())
        usual = Device(node.name, wire_is_free=node.has_accelerator)
        local, machine = node in here, machine_of(node)
        factor = max(1.0, usual.macs_per_s / (node.macs_per_s or usual.macs_per_s))
        devices.append(
            replace(
                slower(usual, factor),
                memory_bytes=node.memory,
                macs_per_s=node.macs_per_s or usual.macs_per_s * _threads(node),
                link_bytes_per_s=(node.link or USUAL_LINK_BYTES_PER_S) * GOODPUT,
                launcher_bytes_per_s=(
                    None if local or launcher_link is None else launcher_link * GOODPUT
                ),
                host=THIS_MACHINE if local else machine if machine in shared else None,
                host_cores=cores if local else shared.get(machine, 1),
                cache_bytes=node.cache,
                cache_spill=node.cache_spill,
                busy_w=node.busy_w,
                idle_w=node.idle_w,
                engine_overhead=EngineOverhead(**asdict(declared)),
            )
        )
    return tuple(devices)


def _threads(node: NodeConfig) -> int:
    """Return as how many threads of a CPU a node without a speed is estimated to compute."""
    is_gpu = node.device.partition(":")[0] == "gpu"
    return max(node.threads, GPU_THREADS) if is_gpu else node.threads


def wire_of(cluster: Cluster) -> WireChoice:
    """Return how tensors between the cluster's nodes may be encoded.

    Raises `BadInputError` if that changes results and the user has not said by how much.
    """
    config = cluster.config
    of_node = {node.name: node.wire for node in config.nodes if node.wire is not None}
    if config.verify and config.tolerance is None:
        for location, wire in (
            (("wire",), config.wire),
            *((("nodes", i, "wire"), node.wire) for i, node in enumerate(config.nodes)),
        ):
            if wire is not None and wire in LOSSY:
                usual = COSTS[encoding_of(wire)].deviation
                raise cluster.error(
                    location,
                    f"{wire} changes results: give the largest relative difference that you "
                    f"allow, such as `tolerance: {usual:g}`, or write lossless",
                )
    tolerance = LOSSLESS_DEVIATION if config.tolerance is None else config.tolerance
    return WireChoice(config.wire, of_node, tolerance)


def check_strategy(cluster: Cluster, *, is_option: bool = False) -> None:
    """Raise `BadInputError`, which lists all strategies, if the cluster names an unknown one.

    `is_option` says that the name is that of `--strategy`, and not what the file has.
    """
    wanted = cluster.config.strategy
    if wanted not in STRATEGIES:
        known = sorted(STRATEGIES)
        what = f"unknown strategy {wanted!r}; known are {', '.join(known)}"
        what += suggestion(wanted, known)
        if is_option:
            raise BadInputError(f"--strategy: {what}")
        raise cluster.error(("strategy",), what)


def pinned_layers(cluster: Cluster, network: Network) -> dict[str, str]:
    """Return layer → node for all pins; an exact name takes precedence over a glob.

    Raises `BadInputError` for a pattern that no layer matches, and for a layer that two patterns
    pin to different nodes.
    """
    pins: dict[str, tuple[str, str]] = {}
    for pattern, node in cluster.config.pins.items():
        names = [layer.name for layer in network.layers]
        exact = pattern in network.layer
        found = [pattern] if exact else fnmatch.filter(names, pattern)
        if not found:
            raise cluster.error(
                ("pins", pattern),
                f"no layer of {network.name} is called {pattern!r} or matches it"
                + suggestion(pattern, names),
            )
        for layer in found:
            earlier, other = pins.get(layer, (node, pattern))
            if earlier != node and not exact and other not in network.layer:
                raise cluster.error(
                    ("pins", pattern),
                    f"pins layer {layer!r} to {node!r}, but {other!r} pins it to {earlier!r}; "
                    "make the two patterns disjoint",
                )
            if exact or other not in network.layer:
                pins[layer] = (node, pattern)
    return {layer: node for layer, (node, _) in pins.items()}


def _check_pins_to(nodes: Collection[str], pins: Mapping[str, str]) -> None:
    lost = {layer: node for layer, node in pins.items() if node not in nodes}
    if lost:
        layer, node = next(iter(lost.items()))
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        raise BadInputError(
            f"layer {layer!r}{more} is pinned to node {node!r}, which is lost; without the pin "
            "another node could compute it"
        )


def problem_of(
    cluster: Cluster,
    model: Model,
    profile: Profile | None,
    progress: ProgressDisplay | None = None,
    nodes: Collection[str] | None = None,
    slower: Mapping[str, float] = MappingProxyType({}),
) -> Problem:
    """Return the partitioning problem of the cluster; raises `BadInputError`.

    Times are those of `profile`, or else estimates; those of a node in `slower` are multiplied by
    its factor. The devices are the nodes called `nodes`, or all that do not stand by.
    """
    config = cluster.config
    stage = f"searching ({config.strategy})"

    def show(search: SearchProgress) -> None:
        if progress is not None:
            progress.update(stage, search.done, search.total, search.best)

    devices, layer_s = profiled(cluster, model.network, devices_of(cluster, nodes), profile)
    devices, layer_s = slowed(devices, layer_s, slower)
    pins = pinned_layers(cluster, model.network)
    if nodes is not None:
        _check_pins_to(nodes, pins)
    try:
        return Problem(
            model.network,
            devices,
            pins,
            config.seed,
            show,
            slack_frames=config.slack_frames,
            objective=config.objective,
            within=config.within,
            model=model,
            layer_s=layer_s,
            copies={} if profile is None or slower else profile.copies(),
            wire=wire_of(cluster),
            layer_w={} if profile is None else profile.layer_w(with_own_watts(cluster)),
        )
    except PartitionError as error:
        raise _no_plan(cluster.source.name, error) from error


def _no_plan(where: str, error: PartitionError) -> BadInputError:
    kind = LacksRoomError if isinstance(error, DoesNotFitError) else BadInputError
    return kind(f"{where}: {error}")


def strategy_for(
    cluster: Cluster, file: ProfileFile | None, problem: Problem, name: str
) -> Strategy:
    """Return the strategy called `name` with the cluster's parameters.

    If the profile `file` has a choice for exactly this problem, return that choice instead. Raises
    `PartitionError` if there is no such name.
    """
    choice = None if file is None else file.choice
    if choice is not None and choice.made_for == choice_digest(cluster, problem, name):
        return Decided(choice)
    return configured(cluster.config.ga, name)


def configured(ga: GaConfig, name: str) -> Strategy:
    """Return the strategy called `name` with the parameters in `ga`.

    Raises `PartitionError` if there is no such name.
    """
    tuning: dict[str, VerticalTuning | PaperTuning | None] = {
        "vertical": ga.vertical,
        "vertical-paper": ga.vertical_paper,
        "auto": ga.vertical,
    }
    found = tuning.get(name)
    if found is None:
        return find_strategy(name)
    from ga.sweep.spaces import Tuned, tuned_auto  # noqa: PLC0415 - slow to import

    if name == "auto":
        return tuned_auto(found.given(), found.budget)
    return Tuned(name, found.given(), found.budget)


def choice_digest(cluster: Cluster, problem: Problem, name: str) -> str:
    """Return a digest of all that a choice by measurements depends on, for strategy `name`."""
    settings = cluster.config.ga.model_dump(exclude_none=True)
    return made_for(problem, name, devices_of(cluster), settings)


def search_plan(
    cluster: Cluster,
    model: Model,
    file: ProfileFile | None,
    progress: ProgressDisplay,
    nodes: Collection[str] | None = None,
    slower: Mapping[str, float] = MappingProxyType({}),
) -> Plan:
    """Search for a plan by the cluster's strategy (see `check_strategy`).

    Times are those of the profile `file`, or else estimates; `nodes` and `slower` as in
    `problem_of`. Raises `BadInputError`.
    """
    profile = profile_of(file, model.network.batch)
    problem = problem_of(cluster, model, profile, progress, nodes, slower)
    name = cluster.config.strategy
    try:
        solution = strategy_for(cluster, file, problem, name).solve(problem)
        plan = plan_solution(problem, solution, model_digest=model.digest, strategy=name)
        if profile is None or slower:  # a profile's times of phases do not include slowdowns
            return plan
        progress.say(measured_part(plan, profile))
        return with_profile(plan, profile)
    except PartitionError as error:
        raise _no_plan(cluster.source.name, error) from error


def saved_plan(cluster: Cluster, model: Model, saved: SavedPlan, profile: Profile | None) -> Plan:
    """Make a plan from a saved and perhaps edited assignment.

    The assigned layers are those that the saved rewrites make from the model's. Times are those of
    the profile, or else estimates. Raises `BadInputError`.
    """
    nodes = [node.name for node in cluster.config.nodes if not node.standby]
    check_made_for(saved, model.network.name, model.digest, nodes)
    try:
        network = model.rewritten(saved.rewrites).network
    except CnnError as error:
        raise BadInputError(f"{saved.path}, rewrites: {error}") from error
    check_assignment(saved, network, nodes)
    explanation = saved.explanation
    if saved.edited:
        explanation = f"edited by hand in {saved.path.name}; before: {explanation}"
    devices, layer_s = profiled(cluster, model.network, devices_of(cluster), profile)
    if layer_s is not None and saved.rewrites:
        layer_s = divided_seconds(model.network, layer_s, network)
    try:
        plan = make_plan(
            network,
            model.digest,
            devices,
            saved.assignment,
            strategy=saved.strategy,
            explanation=explanation,
            slack_frames=cluster.config.slack_frames,
            rewrites=saved.rewrites,
            optimal=None if saved.edited else saved.optimal,
            gap=None if saved.edited else saved.gap,
            layer_s=layer_s,
            wire=wire_of(cluster),
            layer_w={} if profile is None else profile.layer_w(with_own_watts(cluster)),
        )
        return plan if profile is None else with_profile(plan, profile)
    except PartitionError as error:
        raise BadInputError(f"{saved.path}: {error}") from error


def foreseen_on(cluster: Cluster, plan: Plan, profile: Profile | None) -> Plan:
    """Return `plan` with the period and latency of a simulated run on the cluster (`foreseen`)."""
    config = cluster.config
    cpus = {node.name: node.cpus for node in config.nodes}
    return foreseen(plan, config.run.order, THIS_MACHINE, cpus, profile)


def with_warmup(plan: Plan, result: RunResult) -> Plan:
    """Return `plan` with the times that the agents measured while they warmed up.

    If a time is missing, `plan` is returned unchanged: the run ended while nothing was deployed,
    because a node was lost after the last result had arrived.
    """
    seconds: dict[str, float] = {}
    for device, times in result.warmup_s.items():
        phases = sorted(
            (phase for phase in plan.phases if phase.device == device),
            key=lambda phase: phase.index,
        )
        seconds |= {phase.name: time for phase, time in zip(phases, times, strict=True)}
    if any(phase.name not in seconds for phase in plan.phases):
        return plan
    return with_measured_phases(plan, seconds)


def summary(network: Network, filled_seed: int | None) -> str:
    """Describe a network in one line."""
    weights = sum(tensor.bytes for tensor in network.weights.values())
    macs = sum(layer.macs for layer in network.layers)
    text = (
        f"{network.name}: {len(network.layers)} layers, {weights / 1e6:.1f} MB of weights, "
        f"{macs / 1e9:.2f} G multiply-accumulates per frame"
    )
    if filled_seed is not None:
        text += f"; the file has no weights, they were drawn with seed {filled_seed}"
    return text


def _shared_cores(nodes: list[NodeConfig]) -> int:
    """Return how many of these devices can compute at once on this machine's physical cores."""
    allowed = os.sched_getaffinity(0)
    bound: set[int] = set()
    for node in nodes:
        bound |= set(node.cpus) or allowed
    cores = {_core(cpu) for cpu in bound & allowed or allowed}
    return max(1, len(cores) // max(node.threads for node in nodes))


def _core(cpu: int) -> object:
    """Return what identifies a CPU's physical core; the CPU itself where that is unknown."""
    topology = _CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    try:
        return topology.read_text("ascii").strip()
    except OSError:
        return cpu
