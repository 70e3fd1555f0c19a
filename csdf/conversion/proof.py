"""Prove that a dataflow cannot deadlock, before anything is deployed.

**Theorem.** Let every phase be an actor that fires once per frame, with its flows as channels and
their capacities as reverse channels (the phase graph). If that graph is live, then every frame is
completed under any scheduling in which (1) a phase claims all its inputs and all the space for its
outputs at once, or nothing, (2) a device runs at most one phase at a time, and each ends, and (3)
no device stays idle while one of its phases could claim what it needs.

*Proof.* In a dataflow graph each channel has one producer and one consumer, so a phase that can
fire stays able to until it does: no other phase takes its tokens or its space. Running another
phase first on the same device therefore only delays it, by a finite time because of (2). If frames
remained and nothing ran, then by (3) no phase could fire. But which firings are possible does not
depend on their order, and the live graph always has one. ∎

This covers the work-conserving order of the agents, in which a device runs the ready phase of the
oldest frame. Where a producer has its own places (`Pipeline.unsent_frames`), a transfer to the
consumer's places lies between two phases. It takes place as soon as there is one, so phases wait
for one another exactly as with one channel of all these places: the k-th firing of the producer for
the transfer of frame k − p, and that for the reader's firing k − p − q. For phases whose graph is
acyclic, capacities of one frame suffice; the proof does not assume that but executes the graph. Two
static orders are proved as well, as CSDF graphs with one actor per device that fires its phases in
turn: frame by frame, and **retimed**. In the latter, a channel starts with as many frames as the
skews of its ends differ by, and so it reaches the period of the busiest device.

**Bounded**: every channel has a capacity, so no execution holds more than their sum.

Networks that run side by side may have a source and a sink each. Every firing then has fewer
conditions than in the graph that is executed here, so each network's own graph is live if that is,
and the theorem applies to each.

State that a phase keeps from frame to frame is a channel from the phase to itself that starts with
one frame (`csdf.conversion.dataflow_graphs`), so it is part of each of these graphs. It orders the
firings of its phase, which run one after the other on a device anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from csdf.conversion.dataflow_graphs import device_graph, phase_graph
from csdf.conversion.from_network import SINK, SOURCE, Dataflow
from csdf.conversion.skew import Pipeline
from csdf.errors import GraphError, InconsistentGraphError, NotProvedError
from csdf.execution.liveness import check_liveness
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof that a dataflow is consistent, live in every order of the agents, and bounded.

    Counts leave out the host's two phases. `bytes_bound` is the largest size of all flows and of
    the state of phases at any time.
    """

    devices: int
    phases: int
    flows: int
    bytes_bound: int

    @property
    def sentence(self) -> str:
        """The proof in words."""
        return (
            f"Consistent: every phase ({self.phases} on {_counted(self.devices, 'device')}) fires "
            "once per frame. Live: one iteration completes from the initial state, with the "
            "capacities as bounds, for phases in any work-conserving order, in the pipelined "
            f"static order and frame by frame. Bounded: {_counted(self.flows, 'flow')} never hold "
            f"more than {_size(self.bytes_bound)}."
        )


def _size(size: int) -> str:
    if size >= 1_000_000:
        return f"{size / 1e6:.3g} MB"
    return f"{size / 1e3:.3g} kB" if size >= 1000 else f"{size} B"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def prove(dataflow: Dataflow, pipeline: Pipeline) -> Proof:
    """Prove `dataflow` consistent, live and bounded with the skews and capacities of `pipeline`.

    Raises `NotProvedError` with the reason: a flow without a capacity, a skew that violates the
    order of two phases, or a deadlock with its diagnosis.

    >>> from cnn.network import Layer, Network, Tensor
    >>> from csdf import convert, retime
    >>> tensors = {name: Tensor(name, (1, 8), "float32") for name in "xab"}
    >>> layers = [Layer(made, "Relu", (read,), (made,)) for read, made in ("xa", "ab")]
    >>> network = Network("chain", tuple(layers), tensors, {}, ("x",), ("b",))
    >>> dataflow = convert(network, {"a": "d1", "b": "d2"})
    >>> prove(dataflow, retime(dataflow)).bytes_bound
    288
    """
    capacities = pipeline.capacity_frames
    for flow in dataflow.flows:
        if flow.name not in capacities:
            raise NotProvedError(f"flow {flow.name!r} has no capacity, so it is not bounded")
        if capacities[flow.name] < 1:
            raise NotProvedError(
                f"flow {flow.name!r} has a capacity of {capacities[flow.name]} frames; "
                "it needs at least 1"
            )
    skews = pipeline.skew
    for name in (SOURCE, *dataflow.phase, SINK):
        if name not in skews:
            raise NotProvedError(f"phase {name!r} has no skew")
    orders: dict[str, Callable[[], Graph]] = {
        "in any work-conserving order": lambda: phase_graph(dataflow, capacity_frames=capacities),
        "frame by frame": lambda: device_graph(dataflow, capacity_frames=capacities),
        "in the pipelined order": lambda: device_graph(
            dataflow, capacity_frames=capacities, skew=skews
        ),
    }
    for order, graph in orders.items():
        _prove_order(order, graph, dataflow)
    return Proof(
        len(dataflow.devices),
        len(dataflow.phases),
        len(dataflow.flows),
        sum(capacities[flow.name] * flow.tensor.bytes for flow in dataflow.flows)
        + sum(map(dataflow.state_bytes, dataflow.phases)),
    )


def _prove_order(order: str, build: Callable[[], Graph], dataflow: Dataflow) -> None:
    try:
        graph = build()
        repetitions = repetition_vector(graph)
        deadlock = check_liveness(graph)
    except (GraphError, InconsistentGraphError) as error:
        raise NotProvedError(f"not executable {order}: {error}") from error
    firings = {SOURCE: 1, SINK: 1, **dataflow.firings}
    firings |= {name: firings[phases[0].name] for name, phases in dataflow.devices.items()}
    if any(count != firings[actor] for actor, count in repetitions.items()):
        raise NotProvedError(f"not executable {order}: some phases do not fire once per frame")
    if deadlock is not None:
        raise NotProvedError(f"not executable {order}: {deadlock}")
