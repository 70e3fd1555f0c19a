"""Makes a plan from an assignment: converts, schedules, proves, predicts, and refuses what fails.

The result of every strategy goes through `make_plan`. It refuses a plan that does not fit a
device's memory or is not proved free of deadlock, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from cnn.rewrite.rewrites import Rewrite
from csdf.conversion.from_network import Dataflow, convert
from csdf.conversion.proof import prove
from csdf.conversion.skew import Pipeline, retime
from csdf.errors import CsdfError
from partition.devices import Device
from partition.errors import DoesNotFitError, PartitionError
from partition.plan import (
    LayerCosts,
    MemoryPrediction,
    Plan,
    PlannedChannel,
    PlannedPhase,
    dealing_of,
)
from partition.prediction.encoding import encoded_channels
from partition.prediction.fitting import fit, step_times
from partition.prediction.foreseen import foreseen
from partition.prediction.memory import predict_memory
from partition.prediction.timing import (
    latency_s,
    loads,
    period_s,
    phase_seconds,
    wire_bytes,
    with_profile,
)
from partition.pricing.compute_time import layer_seconds
from partition.pricing.layer_power import LayerWatts, phase_w
from partition.pricing.memory_budget import START_UP_BYTES
from partition.pricing.traffic import SLACK_FRAMES
from partition.strategies.base import Problem, Solution, Strategy, divided_seconds
from partition.wire import RAW, WirePolicy


def make_plan(
    network: Network,
    model_digest: str,
    devices: Sequence[Device],
    assignment: Mapping[str, str],
    *,
    strategy: str,
    explanation: str,
    slack_frames: int = SLACK_FRAMES,
    rewrites: tuple[Rewrite, ...] = (),
    optimal: bool | None = None,
    gap: float | None = None,
    layer_s: NDArray[np.float64] | None = None,
    wire: WirePolicy = RAW,
    layer_w: LayerWatts = MappingProxyType({}),
) -> Plan:
    """Return the plan that follows from `assignment` (layer name → device name).

    `network` is the network whose layers are assigned: the result of applying `rewrites` to the
    model's. Measured seconds of its layers, `layer_s` [layers, devices], replace estimates. `wire`
    says how tensors between devices may be encoded. `layer_w` are measured watts of layers.

    Channels get the least capacities that keep the period with the given slack
    (`partition.prediction.fitting`). If that does not fit the devices' memory, they get those
    without slack, and the explanation says so. Raises `DoesNotFitError` if the plan still does not
    fit, and `PartitionError` if the assignment is not one of this network to these devices or if
    the plan cannot be proved free of deadlock.

    >>> from cnn.network import Layer, Tensor
    >>> frame, result = Tensor("x", (1, 8), "float32"), Tensor("y", (1, 8), "float32")
    >>> layer = Layer("l", "Relu", ("x",), ("y",), (), 0)
    >>> network = Network("net", (layer,), {"x": frame, "y": result}, {}, ("x",), ("y",))
    >>> plan = make_plan(network, "", [Device("a")], {"l": "a"}, strategy="", explanation="")
    >>> [(phase.device, phase.layers) for phase in plan.phases]
    [('a', ('l',))]
    """
    _check_devices(devices, assignment)
    try:
        dealing = dealing_of(rewrites)
        dataflow = convert(network, assignment, dealing)
        pipeline = retime(dataflow, slack_frames=slack_frames)
        phases = _planned_phases(dataflow, pipeline, phase_seconds(dataflow, devices, layer_s))
        phases = _with_watts(phases, network, devices, layer_s, layer_w)
        channels = _planned_channels(dataflow, pipeline)
        channels = encoded_channels(wire, network, devices, phases, channels, dealing)
        encoded = {
            flow.name: channel.most_wire_bytes
            for flow, channel in zip(dataflow.flows, channels, strict=True)
            if channel.encoding != "raw"
        }
        period = period_s(devices, phases, channels, dealing)
        load = loads(devices, phases, channels, dealing)
        times = step_times(dataflow, devices, phases, load, period, encoded)
        pipeline = fit(dataflow, devices, pipeline, times, period, slack_frames)
        memory = predict_memory(dataflow, pipeline, devices, encoded)
        if slack_frames and _overfull(devices, memory):
            tight = retime(dataflow, slack_frames=0)
            pipeline = fit(dataflow, devices, tight, times, period, 0)
            memory = predict_memory(dataflow, pipeline, devices, encoded)
            explanation += (
                "; channels have no room to spare, because memory is tight, so the period holds "
                "only if phases take no longer than predicted"
            )
        _refuse_overfull(devices, memory)
        proof = prove(dataflow, pipeline)
    except CsdfError as error:
        raise PartitionError(f"no plan for network {network.name!r}: {error}") from error
    channels = tuple(
        replace(
            channel,
            capacity_frames=pipeline.capacity_frames[flow.name],
            unsent_frames=pipeline.unsent_frames.get(flow.name, 0),
        )
        for flow, channel in zip(dataflow.flows, channels, strict=True)
    )
    return Plan(
        network=network.name,
        model_digest=model_digest,
        strategy=strategy,
        explanation=explanation,
        devices=tuple(devices),
        assignment={layer.name: assignment[layer.name] for layer in network.layers},
        phases=phases,
        channels=channels,
        memory=memory,
        period_s=period,
        latency_s=latency_s(phases, channels, period, dealing),
        bytes_per_frame=wire_bytes(channels, dealing) // network.batch,
        proof=proof.sentence,
        rewrites=rewrites,
        optimal=optimal,
        gap=gap,
        batch=network.batch,
        layers=_layer_costs(network, devices, layer_s),
    )


def _layer_costs(
    network: Network, devices: Sequence[Device], layer_s: NDArray[np.float64] | None
) -> dict[str, LayerCosts]:
    seconds = layer_seconds(network, devices) if layer_s is None else layer_s
    found: dict[str, LayerCosts] = {}
    counted: set[str] = set()
    for layer, own in zip(network.layers, seconds.tolist(), strict=True):
        weights = set(layer.weights) - counted
        counted |= weights
        size = sum(network.weights[weight].bytes for weight in weights)
        found[layer.name] = LayerCosts(tuple(own), size)
    return found


def plan_solution(problem: Problem, solution: Solution, strategy: str) -> Plan:
    """Return the plan of a strategy's solution by closed forms, as searches price it; see
    `make_plan` and `foreseen_plan`."""
    return make_plan(
        solution.network or problem.network,
        "" if problem.model is None else problem.model.digest,
        problem.devices,
        solution.assignment,
        strategy=strategy,
        explanation=solution.explanation,
        slack_frames=problem.slack_frames,
        rewrites=solution.rewrites,
        optimal=solution.optimal,
        gap=solution.gap,
        layer_s=_layer_seconds(problem, solution),
        wire=problem.wire,
        layer_w=problem.layer_w,
    )


def foreseen_plan(problem: Problem, solution: Solution, strategy: str) -> Plan:
    """Return the plan of a strategy's solution, with its run foreseen (`as_run`)."""
    return as_run(problem, plan_solution(problem, solution, strategy))


def as_run(problem: Problem, plan: Plan) -> Plan:
    """Return `plan` with the times that its run is foreseen to have.

    Phases whose subnets were measured have the measured times. The period and the latency are those
    of a simulated run if the problem says how plans are run (`Problem.run`).
    """
    if problem.profile is not None:
        plan = with_profile(plan, problem.profile)
    return plan if problem.run is None else foreseen(plan, problem.run, problem.profile)


@dataclass(frozen=True)
class Planned:
    """A plan, and the solution of a problem that it was made from."""

    problem: Problem
    solution: Solution
    plan: Plan

    @property
    def network(self) -> Network:
        """The network whose layers are assigned."""
        return self.solution.network or self.problem.network


def find_plan(problem: Problem, strategy: Strategy) -> Planned:
    """Search for a plan by a strategy.

    Raises `PartitionError` if the strategy finds none, or if its solution does not fit.
    """
    solution = strategy.solve(problem)
    return Planned(problem, solution, foreseen_plan(problem, solution, strategy.name))


def _layer_seconds(problem: Problem, solution: Solution) -> NDArray[np.float64] | None:
    """Return the measured seconds of the assigned layers; None if there are none."""
    if problem.layer_s is None or solution.network is None:
        return problem.layer_s
    return divided_seconds(problem.network, problem.layer_s, solution.network)


def _check_devices(devices: Sequence[Device], assignment: Mapping[str, str]) -> None:
    known = [device.name for device in devices]
    for layer, device in assignment.items():
        if device not in known:
            raise PartitionError(
                f"layer {layer!r} is assigned to {device!r}, which is not among the devices "
                f"{', '.join(known)}; correct the assignment or make a new plan for these devices"
            )


def _planned_phases(
    dataflow: Dataflow, pipeline: Pipeline, seconds: Mapping[str, float]
) -> tuple[PlannedPhase, ...]:
    return tuple(
        PlannedPhase(
            name=phase.name,
            device=phase.device,
            index=phase.index,
            layers=phase.layers,
            inputs=phase.inputs,
            outputs=phase.outputs,
            skew=pipeline.skew[phase.name],
            predicted_s=seconds[phase.name],
            copy=dataflow.copy_of[phase.inputs[0]],
            state=tuple((dataflow.network.tensors[fed], made) for fed, made in phase.state),
        )
        for phase in dataflow.phases
    )


def _with_watts(
    phases: tuple[PlannedPhase, ...],
    network: Network,
    devices: Sequence[Device],
    layer_s: NDArray[np.float64] | None,
    layer_w: LayerWatts,
) -> tuple[PlannedPhase, ...]:
    """Return the phases with the watts that were measured of their layers."""
    if not layer_w:
        return phases
    seconds = layer_seconds(network, devices) if layer_s is None else layer_s
    column = {device.name: number for number, device in enumerate(devices)}

    def watts(phase: PlannedPhase) -> float | None:
        number = column[phase.device]
        own_s = [float(seconds[network.place[name], number]) for name in phase.layers]
        layers = [network.layer[name] for name in phase.layers]
        return phase_w(layers, own_s, devices[number], layer_w)

    return tuple(replace(phase, busy_w=watts(phase)) for phase in phases)


def _planned_channels(dataflow: Dataflow, pipeline: Pipeline) -> tuple[PlannedChannel, ...]:
    return tuple(
        PlannedChannel(
            tensor=flow.tensor,
            source=flow.source,
            source_device=flow.source_device,
            target_device=flow.target_device,
            targets=flow.targets,
            capacity_frames=pipeline.capacity_frames[flow.name],
            copy=dataflow.copy_of[flow.tensor.name],
        )
        for flow in dataflow.flows
    )


def _overfull(
    devices: Sequence[Device], memory: Mapping[str, MemoryPrediction]
) -> list[tuple[int, Device, int]]:
    """Return (bytes over the limit, device, limit) of each overfull device, worst first."""
    over = [
        (memory[device.name].total_bytes - device.memory_bytes, device, device.memory_bytes)
        for device in devices
        if device.memory_bytes is not None
    ]
    return sorted((entry for entry in over if entry[0] > 0), key=lambda entry: -entry[0])


def _refuse_overfull(devices: Sequence[Device], memory: Mapping[str, MemoryPrediction]) -> None:
    over = _overfull(devices, memory)
    if not over:
        return
    _, device, limit = over[0]
    need = memory[device.name]
    names = ", ".join(repr(entry[1].name) for entry in over[1:])
    others = f" (too much for {names} as well)" if names else ""
    raise DoesNotFitError(
        f"device {device.name!r} would hold {_megabytes(need.total_bytes)} ({_terms(need)}) and "
        f"may hold only {_megabytes(limit)}, even with the smallest channels{others}; "
        f"{_what_would_help(devices, memory, device)}"
    )


def _terms(need: MemoryPrediction) -> str:
    if need.total_bytes == START_UP_BYTES + need.packing_bytes:
        return (
            f"while it loads: engine {_megabytes(START_UP_BYTES)}, the largest matrix and its "
            f"packed copy {_megabytes(need.packing_bytes)}"
        )
    return (
        f"weights {_megabytes(need.weights_bytes)}, activations "
        f"{_megabytes(need.activations_bytes)}, channels {_megabytes(need.channels_bytes)}, "
        f"engine {_megabytes(need.engine_bytes)}"
    )


def _what_would_help(
    devices: Sequence[Device], memory: Mapping[str, MemoryPrediction], device: Device
) -> str:
    need = memory[device.name]
    empty = max(need.engine_bytes, START_UP_BYTES)
    if device.memory_bytes is not None and empty > device.memory_bytes:
        return f"the engine alone needs more: raise the memory of {device.name!r} or leave it out"
    bound = [device for device in devices if device.memory_bytes is not None]
    unavoidable = sum(
        memory[device.name].weights_bytes + memory[device.name].engine_bytes for device in bound
    )
    if len(bound) < len(devices) or unavoidable < sum(d.memory_bytes or 0 for d in bound):
        return (
            "all devices together have room for the weights: choose strategy 'vertical', pin fewer "
            f"layers, raise the memory of {device.name!r}, or add devices"
        )
    return f"raise the memory of {device.name!r}, or add devices"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
