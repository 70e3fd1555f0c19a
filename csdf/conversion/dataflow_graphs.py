"""Make the CSDF graphs of a dataflow, in which a token is an element of a tensor.

The **device graph** is the paper's (Tang & Stefanov, 2021, §4.3 and Figure 2): one actor a_i per
device that fires its phases in turn, and one channel c_ij per flow (per target phase, if a flow has
several). The production sequence U_ij has the number of elements of the tensor in the phase that
makes it and 0 in the others; the consumption sequence V_ij has it in the phase that reads it. For
example, U_12 = [187200] and V_12 = [187200, 0]. In the **phase graph** every phase is a separate
actor, so the order in which a device fires its phases is open: what holds for this graph holds for
every order that the devices may choose at run time.

The host is two actors, `SOURCE` and `SINK`, because it feeds and collects independently. They have
one phase each, or one per frame of a cycle in which frames are dealt out to copies.

State that a phase keeps from frame to frame is a channel from its actor to itself with one frame of
initial tokens. Its capacity is two frames, since the last frame is read while the next is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from csdf.conversion.from_network import SINK, SOURCE, STATE_FRAMES, Dataflow, Flow, Phase
from csdf.model.graph import Actor, Channel, Graph


def channel_names(flow: Flow) -> dict[str, str]:
    """Return the name of the CSDF channel that carries `flow` to each of its target phases."""
    if len(flow.targets) == 1:
        return {flow.targets[0]: flow.name}
    return {target: f"{flow.name} ({target})" for target in flow.targets}


def device_graph(
    dataflow: Dataflow,
    *,
    times: Mapping[str, Fraction] | None = None,
    capacity_frames: Mapping[str, int] | None = None,
    skew: Mapping[str, int] | None = None,
) -> Graph:
    """Return the graph of one actor per device, its phases by index (Figure 2 of the paper).

    The channels' `production` is the paper's U_ij, their `consumption` its V_ij. `times` has each
    phase's execution time (in any unit; 0 if absent), `capacity_frames` each flow's capacity by
    name (unbounded if absent). With `skew`, the graph is retimed: a phase's firing in period n is
    for frame n − skew, so a channel starts with the frames by which its target lags.

    >>> from cnn.network import Layer, Network, Tensor
    >>> from csdf import convert
    >>> tensors = {name: Tensor(name, (1, 8), "float32") for name in "xabc"}
    >>> layers = [Layer(made, "Relu", (read,), (made,)) for read, made in ("xa", "ab", "bc")]
    >>> network = Network("chain", tuple(layers), tensors, {}, ("x",), ("c",))
    >>> dataflow = convert(network, {"a": "d1", "b": "d2", "c": "d1"})
    >>> for c in device_graph(dataflow).channels:
    ...     if {c.source, c.target} == {"d1", "d2"}:
    ...         print(c.name, c.production, c.consumption)
    a → d2 (8, 0) (8,)
    b → d1 (8,) (0, 8)
    """
    return _graph(
        f"{dataflow.network.name} by device",
        dataflow,
        dataflow.devices,
        times,
        capacity_frames,
        skew,
    )


def phase_graph(
    dataflow: Dataflow,
    *,
    times: Mapping[str, Fraction] | None = None,
    capacity_frames: Mapping[str, int] | None = None,
) -> Graph:
    """Return the graph of one actor per phase; the arguments are as in `device_graph`.

    >>> from cnn.network import Layer, Network, Tensor
    >>> from csdf import convert
    >>> tensors = {name: Tensor(name, (1, 8), "float32") for name in "xab"}
    >>> layers = [Layer(made, "Relu", (read,), (made,)) for read, made in ("xa", "ab")]
    >>> network = Network("chain", tuple(layers), tensors, {}, ("x",), ("b",))
    >>> dataflow = convert(network, {"a": "d1", "b": "d2"})
    >>> [actor.name for actor in phase_graph(dataflow).actors]
    ['d1/0', 'd2/0', '@source', '@sink']
    """
    alone = {phase.name: (phase,) for phase in dataflow.phases}
    return _graph(
        f"{dataflow.network.name} by phase", dataflow, alone, times, capacity_frames, None
    )


def _graph(
    name: str,
    dataflow: Dataflow,
    firing: Mapping[str, Sequence[Phase]],
    times: Mapping[str, Fraction] | None,
    capacity_frames: Mapping[str, int] | None,
    skew: Mapping[str, int] | None,
) -> Graph:
    """Return the graph of the host and of actors that fire phases in turn."""
    actors = [
        Actor(actor, tuple(_time(times, phase.name) for phase in phases), concurrency=1)
        for actor, phases in firing.items()
    ]
    place = {
        phase.name: (actor, number, len(phases) - number - 1)
        for actor, phases in firing.items()
        for number, phase in enumerate(phases)
    }
    actor_of = {SOURCE: SOURCE, SINK: SINK} | {phase: own[0] for phase, own in place.items()}

    def rates(phase: str, flow: Flow) -> tuple[int, ...]:
        if phase in (SOURCE, SINK):
            return _host_rates(dataflow, flow)
        _, before, after = place[phase]
        return (0,) * before + (flow.tensor.elements,) + (0,) * after

    channels = [
        Channel(
            channel,
            actor_of[flow.source],
            actor_of[target],
            rates(flow.source, flow),
            rates(target, flow),
            0 if skew is None else (skew[target] - skew[flow.source]) * flow.tensor.elements,
            _capacity(capacity_frames, flow),
            _token_bytes(flow),
        )
        for flow in dataflow.flows
        for target, channel in channel_names(flow).items()
    ]
    for phase in dataflow.phases:
        channels += _state(dataflow, phase, *place[phase.name])
    return Graph(name, (*actors, *_host(dataflow, times)), tuple(channels))


def _state(
    dataflow: Dataflow, phase: Phase, actor: str, before: int, after: int
) -> Iterator[Channel]:
    """Yield the channels of a phase's state; `actor` has phases `before` and `after` this one."""
    for name, _ in phase.state:
        tensor = dataflow.network.tensors[name]
        rates = (0,) * before + (tensor.elements,) + (0,) * after
        yield Channel(
            f"{name} ({phase.name})",
            actor,
            actor,
            rates,
            rates,
            tensor.elements,
            STATE_FRAMES * tensor.elements,
            tensor.bytes // tensor.elements,
        )


def _host(dataflow: Dataflow, times: Mapping[str, Fraction] | None) -> list[Actor]:
    cycle = len(dataflow.dealing)
    return [Actor(name, (_time(times, name),) * cycle, concurrency=1) for name in (SOURCE, SINK)]


def _host_rates(dataflow: Dataflow, flow: Flow) -> tuple[int, ...]:
    """Return what the source produces of a flow, or the sink consumes, per frame of a cycle."""
    copy = dataflow.copy_of[flow.tensor.name]
    return tuple(flow.tensor.elements if dealt == copy else 0 for dealt in dataflow.dealing)


def _time(times: Mapping[str, Fraction] | None, phase: str) -> Fraction:
    return Fraction(0) if times is None else times.get(phase, Fraction(0))


def _capacity(frames: Mapping[str, int] | None, flow: Flow) -> int | None:
    return None if frames is None else frames[flow.name] * flow.tensor.elements


def _token_bytes(flow: Flow) -> int:
    return flow.tensor.bytes // flow.tensor.elements
