"""Proves that a dataflow cannot deadlock, before anything is deployed.

**Theorem.** Let every phase be an actor that fires once per frame, with its flows as channels and
their capacities as reverse channels (the phase graph). If that graph is live, then under any
scheduling in which (1) a phase claims all its inputs and all the space for its outputs at once, or
nothing, (2) a device runs at most one phase at a time and each ends, and (3) no device stays idle
while one of its phases could claim what it needs, every frame is completed.

*Proof.* In a dataflow graph each channel has one producer and one consumer, so a phase that can
fire stays able to until it does: nobody else takes its tokens or its space. Running another
phase first on the same device therefore only delays it, by a finite time by (2). If frames remained
and nothing ran, then by (3) no phase could fire; but which firings are possible at all does not
depend on their order, and the live graph always has one. ∎

This covers the work-conserving order of the agents, in which a device runs the oldest frame's
ready phase. For phases whose graph is acyclic, capacities of one frame suffice for (1)–(3); the
proof does not assume that but executes the graph. Two static orders are proved besides, as CSDF
graphs with one actor per device that fires its phases in turn: frame by frame, and **retimed**, in
which a channel starts with as many frames as the skews of its ends differ by, and which therefore
reaches the period of the busiest device.

**Bounded**: every channel has a capacity, so no execution holds more than their sum.

State that a phase keeps from frame to frame is a channel from the phase to itself that starts with
one frame (`csdf.conversion.dataflow_graphs`), so it is part of each of these graphs. It makes the
firings of its phase depend on each other, one after the other, which they are anyway on one device.
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
    """What was proved of a dataflow: it is consistent, live in every order that the agents use, and
    bounded. Counts leave out the host's two phases; `bytes_bound` is what all flows, and the state
    of phases, may ever hold.
    """

    devices: int
    phases: int
    flows: int
    bytes_bound: int

    @property
    def sentence(self) -> str:
        """For people."""
        return (
            f"Consistent: every phase ({self.phases} on {_counted(self.devices, 'device')}) fires "
            "once per frame. Live: one iteration completes from the initial state, with the "
            "capacities as bounds, for phases in any work-conserving order, in the pipelined "
            f"static order and frame by frame. Bounded: {_counted(self.flows, 'flow')} never hold "
            f"more than {self.bytes_bound / 1e6:.3g} MB."
        )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def prove(dataflow: Dataflow, pipeline: Pipeline) -> Proof:
    """Proves `dataflow` consistent, live and bounded with the skews and capacities of `pipeline`.

    Raises `NotProvedError`, with the reason: a flow without a capacity, a skew that breaks the
    order of two phases, or a deadlock with its diagnosis.
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
        raise NotProvedError(f"not executable {order}: some phases fire not once per frame")
    if deadlock is not None:
        raise NotProvedError(f"not executable {order}: {deadlock}")
