"""Choose when each phase fires within the pipeline, and the capacities that its flows then need.

In one period every device fires each of its phases once, phase φ for the frame that entered σ(φ)
periods ago: σ is its **skew**. A flow from φ to ψ on another device needs σ(ψ) ≥ σ(φ) + 1, since
all devices run their periods at the same time. On one device σ(ψ) ≥ σ(φ) is enough, since it fires
its phases in a topological order. Then no device waits for another within a period, and the period
is the work of the busiest device or link, however long the pipeline is.

A tensor of a flow is claimed in period k + σ(φ) and given back in period k + max σ(ψ), so the flow
holds span + 1 frames, with span = max over its targets of σ(ψ) − σ(φ). Between neighbouring phases
on two devices these are 2 frames, which is the **buffer rule** of Tang & Stefanov (2021, §4.3):
channel c_ij has space for at least U_ij + V_ij tokens. On one device phases do not overlap, and a
span of 0 needs 1 frame.

The skews minimise Σ bytes × span over all flows. This is a linear program whose constraint matrix
is one of differences and therefore totally unimodular, so its optimum is integral. It is the dual
of a minimum-cost flow (Leiserson & Saxe, "Retiming synchronous circuitry", Algorithmica, 1991,
solve the same problem for registers). The optima form a lattice. The least of them is taken, which
has the smallest latency and does not depend on the solver: an arc that carries dual flow is tight
in every optimum, so the least optimum is the longest path over all arcs and the tight ones
reversed. The solver computes in floating point; so its dual flow is rounded and checked in
integers, which proves the optimum.

In a CSDF graph, skews are initial tokens: see `device_graph`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from csdf.conversion.from_network import HOST, SINK, SOURCE, Dataflow, Flow, longest_wait
from csdf.errors import CsdfError


@dataclass(frozen=True)
class Pipeline:
    """Skews and capacities of a dataflow.

    `skew` has the skew in periods of every phase, `SOURCE` (0) and `SINK`. `capacity_frames` has
    the capacity of every flow by name, and `buffer_bytes` is the sum of all capacities.

    Frames of the flows in `unsent_frames` are held at one end or the other: this part of the flow's
    capacity is places of the producer, from the start of the firing that makes a frame until it has
    left, and the others of the consumer, from when it is sent. A frame of every other flow has a
    place at either end from the start of that firing.
    """

    skew: Mapping[str, int]
    capacity_frames: Mapping[str, int]
    buffer_bytes: int
    unsent_frames: Mapping[str, int] = field(default_factory=dict)


class SkewLink(NamedTuple):
    """A flow as a constraint on skews: its targets are at least `distance` after its source."""

    source: str
    targets: Sequence[str]
    distance: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Arc:
    """σ(target) ≥ σ(source) + distance; waiting costs `cost` per period."""

    source: int
    target: int
    distance: int
    cost: int


def retime(dataflow: Dataflow, *, slack_frames: int = 1) -> Pipeline:
    """Return the skews that hold the fewest bytes in flows, and the capacities that they need.

    A flow's capacity is span + 1 frames, and `slack_frames` more if it crosses devices. These cover
    the time on the wire, of the tensor one way and of the freed place the other way. With 0 the
    period is reached only if the wire takes no time. If frames are dealt out to copies, the host's
    flows of a copy also have room for all of its frames that lie between two frames of a slower
    copy, so that no copy waits for another's turn.

    >>> from cnn.network import Layer, Network, Tensor
    >>> from csdf import convert
    >>> tensors = {name: Tensor(name, (1, 8), "float32") for name in "xab"}
    >>> layers = [Layer(made, "Relu", (read,), (made,)) for read, made in ("xa", "ab")]
    >>> network = Network("chain", tuple(layers), tensors, {}, ("x",), ("b",))
    >>> pipeline = retime(convert(network, {"a": "d1", "b": "d2"}), slack_frames=0)
    >>> pipeline.skew
    {'@source': 0, 'd1/0': 1, 'd2/0': 2, '@sink': 3}
    >>> pipeline.capacity_frames["a → d2"]
    2
    """
    if slack_frames < 0:
        raise CsdfError(f"slack_frames must be 0 or more, not {slack_frames}")
    links = [
        SkewLink(flow.source, flow.targets, int(not flow.is_local), flow.tensor.bytes)
        for flow in dataflow.flows
    ]
    skew, _ = least_skews([phase.name for phase in dataflow.phases], links)
    waiting = {
        copy: longest_wait(dataflow.dealing, copy) - 1 for copy in dict.fromkeys(dataflow.dealing)
    }
    capacities = {
        flow.name: span(flow, skew)
        + 1
        + (0 if flow.is_local else slack_frames)
        + (waiting[dataflow.copy_of[flow.tensor.name]] if _is_hosts(flow) else 0)
        for flow in dataflow.flows
    }
    held = sum(capacities[flow.name] * flow.tensor.bytes for flow in dataflow.flows)
    return Pipeline(skew, capacities, held)


def _is_hosts(flow: Flow) -> bool:
    return HOST in (flow.source_device, flow.target_device)


def span(flow: Flow, skew: Mapping[str, int]) -> int:
    """Return the periods from the firing that makes a tensor of `flow` to the last reader's."""
    return max(skew[target] for target in flow.targets) - skew[flow.source]


def least_skews(
    phases: Sequence[str], links: Sequence[SkewLink]
) -> tuple[dict[str, int], list[list[tuple[int, int]]]]:
    """Return the skews that hold the fewest bytes, and what proves that none hold fewer.

    The proof has, by link and target, a share s ≥ 0 of its bytes and an amount z ≥ 0. For every
    phase but `SOURCE`, Σ (s − z) over what it reads is at least Σ (s − z) over what it makes, and Σ
    z × distance is what the skews hold: a solution of the dual program.
    """
    names = [SOURCE, *phases, SINK]
    variables, arcs = _arcs(links, {name: i for i, name in enumerate(names)})
    least, amounts = _least_optimum(variables, arcs)
    dual, place = [], len(phases) + 1
    for link in links:
        if len(link.targets) == 1:
            own = [(link.size_bytes, amounts[place])]
            place += 1
        else:
            end = place + 2 * len(link.targets)
            straight = amounts[end]  # from the source to the last target, by way of the first
            pairs = zip(amounts[place + 1 : end : 2], amounts[place:end:2], strict=True)
            own = [
                (s + straight * (not i), z + straight * (not i)) for i, (s, z) in enumerate(pairs)
            ]
            place = end + 1
        dual.append(own)
    return dict(zip(names, least, strict=False)), dual


def _arcs(links: Sequence[SkewLink], number: Mapping[str, int]) -> tuple[int, list[_Arc]]:
    """Return the number of variables, and the constraints between them.

    For a link with several targets, a variable stands for the skew of the last of them.
    """
    variables = len(number)
    arcs = [_Arc(number[SOURCE], i, 0, 0) for i in range(1, variables)]
    for name, targets, distance, size_bytes in links:
        source = number[name]
        if len(targets) == 1:
            arcs.append(_Arc(source, number[targets[0]], distance, size_bytes))
            continue
        for target in targets:
            arcs.append(_Arc(source, number[target], distance, 0))
            arcs.append(_Arc(number[target], variables, 0, 0))
        arcs.append(_Arc(source, variables, distance, size_bytes))
        variables += 1
    return variables, arcs


def _least_optimum(variables: int, arcs: list[_Arc]) -> tuple[list[int], list[int]]:
    """Return the least optimum, and the dual flow of every arc."""
    from scipy.optimize import linprog  # noqa: PLC0415 (slow to import; few commands need it)
    from scipy.sparse import csr_array  # noqa: PLC0415

    unit = int(np.gcd.reduce([arc.cost for arc in arcs])) or 1
    cost = np.zeros(variables)
    for arc in arcs:
        cost[arc.target] += arc.cost // unit
        cost[arc.source] -= arc.cost // unit
    rows = np.repeat(np.arange(len(arcs)), 2)
    columns = np.array([end for arc in arcs for end in (arc.source, arc.target)])
    signs = np.tile([1.0, -1.0], len(arcs))
    matrix = csr_array((signs, (rows, columns)), shape=(len(arcs), variables))
    distances = np.array([float(arc.distance) for arc in arcs])
    # σ(SOURCE) = 0; the arcs from it keep every other skew at 0 or more.
    bounds = [(0.0, 0.0)] + [(None, None)] * (variables - 1)
    solution = linprog(cost, A_ub=matrix, b_ub=-distances, bounds=bounds, method="highs-ds")
    if solution.status != 0:
        raise CsdfError(f"the linear program for the skews failed: {solution.message}")
    flow = [round(amount) for amount in -solution.ineqlin.marginals]
    tight = [arc for arc, amount in zip(arcs, flow, strict=True) if amount > 0]
    least = _longest_paths(variables, arcs, tight)
    if not _proves(flow, arcs, least, unit):
        raise CsdfError("the linear program for the skews gave no exact optimum; please report it")
    return least, [amount * unit for amount in flow]


def _proves(flow: list[int], arcs: list[_Arc], skew: list[int], unit: int) -> bool:
    """Return whether the dual flow proves, in integers, that no other skews cost less."""
    excess = [0] * len(skew)
    gap = 0
    for arc, amount in zip(arcs, flow, strict=True):
        excess[arc.target] += amount - arc.cost // unit
        excess[arc.source] -= amount - arc.cost // unit
        gap += arc.cost // unit * (skew[arc.target] - skew[arc.source]) - amount * arc.distance
    return min(flow) >= 0 and gap == 0 and not any(excess[1:])


def _longest_paths(variables: int, arcs: list[_Arc], tight: list[_Arc]) -> list[int]:
    """Return the least σ ≥ 0 that satisfies all arcs, those in `tight` with equality."""
    leaving: list[list[tuple[int, int]]] = [[] for _ in range(variables)]
    for arc in arcs:
        leaving[arc.source].append((arc.target, arc.distance))
    for arc in tight:
        leaving[arc.target].append((arc.source, -arc.distance))
    skew = [0] * variables
    waiting = list(range(variables))
    queued = [True] * variables
    while waiting:
        later: list[int] = []
        for node in waiting:
            queued[node] = False
            for target, distance in leaving[node]:
                if skew[target] < skew[node] + distance:
                    skew[target] = skew[node] + distance
                    if not queued[target]:
                        queued[target] = True
                        later.append(target)
        waiting = later
    return skew
