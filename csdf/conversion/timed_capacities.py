"""Find the least capacities with which a pipeline keeps its period, given how long its steps take.

`csdf.conversion.skew` gives a flow span + 1 frames, which suffices for any times of the phases if
the wire takes no time. With the times known, less may suffice, and a slow wire may need more.

Consider the static order in which every device fires each of its phases once per period T, phase φ
for frame k − σ(φ) (`csdf.conversion.dataflow_graphs.device_graph` with skews). With s(φ) the start
of φ for frame 0, frame k starts at s(φ) + k T, and a schedule of period T must satisfy

    s(ψ) ≥ s(φ) + d(φ) + x(f)                    for a flow f from φ to ψ
    s(ψ) ≥ s(φ) + d(φ) + (σ(ψ) − σ(φ)) T         if ψ follows φ on its device
    s(ψ) ≥ s(φ) + d(φ) + (σ(ψ) − σ(φ) − 1) T     if φ is the last phase there and ψ the first

where d(φ) is the time of φ and x(f) that of a tensor on its way. A capacity of c frames adds s(φ) ≥
s(ψ) + d(ψ) + y(f) − c T, because φ claims a place for frame k when frame k − c has been read and
its place has returned, which takes y(f). Such constraints have a solution if and only if no cycle
of them has a positive sum. So the least capacity of a flow, given all other constraints, is

    c = ⌈(L(φ, ψ) + d(ψ) + y(f)) / T⌉

where L(φ, ψ) is the longest path from φ to ψ, but at least the span, since the static order starts
with that many frames in the flow.

The producer of a flow may have p places itself, and the consumer the other q = c − p
(`Pipeline.unsent_frames`). A frame then takes a place of the producer until it has arrived, and one
of the consumer when it is sent, which delays it by x(f) more. As the wire sends whatever has a
place, the constraints are

    s(φ) ≥ s(φ) + d(φ) + x(f) − p T
    s(ψ) ≥ s(χ) + d(χ) + y(f) + x(f) − q T       for readers ψ and χ of the flow
    s(φ) ≥ s(ψ) + d(ψ) + y(f) + x(f) − (p + q) T

of which the first gives the least p, the second the least q, and the third more places of the
consumer, where frames wait for the skew.

Flows are treated in the order of their bytes, the
largest first, and each adds its constraint to those of the others. Later constraints only lengthen
paths, so in the end no capacity can be lowered alone: the result is minimal, though not always of
the smallest sum (`csdf.buffers.capacities` finds that, in seconds instead of milliseconds).

Times vary, and agents do not follow the static order. So flows between devices may have a margin:
their places come back that many periods before they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from csdf.conversion.from_network import HOST, SINK, SOURCE, Dataflow, Flow
from csdf.conversion.skew import Pipeline, span

_ROUNDING = 1e-9
"""The share of a period by which sums of seconds may be off."""

Paths = NDArray[np.float64]


@dataclass(frozen=True)
class StepTimes:
    """The seconds of a pipeline's steps, by phase name or flow name; 0 where there is no entry.

    `firing_s` is the time of a phase on its device, `transit_s` that of a tensor on its way to the
    device that reads it, `credit_s` that of a freed place on its way back.
    """

    firing_s: Mapping[str, float]
    transit_s: Mapping[str, float]
    credit_s: Mapping[str, float]


def with_least_capacities(
    dataflow: Dataflow,
    pipeline: Pipeline,
    times: StepTimes,
    period_s: float,
    margin: float,
    roomy: Collection[str] = (),
) -> Pipeline | None:
    """Return `pipeline` with the least capacities that keep `period_s`.

    Flows from and to the host keep the capacities that `pipeline` has, and those in `roomy` (names)
    keep them at least. Producers have their own places where they have some in `pipeline`.

    Where frames are dealt out to copies of the network, `period_s` is the average over a cycle.
    Returns None if no capacities keep the period in the static order of `pipeline`, because of the
    time on the wire.

    >>> from cnn.network import Layer, Network, Tensor
    >>> from csdf import convert, retime
    >>> tensors = {name: Tensor(name, (1, 8), "float32") for name in "xab"}
    >>> layers = [Layer(made, "Relu", (read,), (made,)) for read, made in ("xa", "ab")]
    >>> network = Network("chain", tuple(layers), tensors, {}, ("x",), ("b",))
    >>> dataflow = convert(network, {"a": "d1", "b": "d2"})
    >>> times = StepTimes({"d1/0": 0.4, "d2/0": 0.5}, {}, {})
    >>> for period_s in (1.0, 0.5):
    ...     found = with_least_capacities(dataflow, retime(dataflow), times, period_s, margin=0.0)
    ...     print(found.capacity_frames["a → d2"])
    1
    2
    """
    capacities = dict(pipeline.capacity_frames)
    unsent = dict(pipeline.unsent_frames)
    for copy in dict.fromkeys(dataflow.dealing):
        own_s = period_s * len(dataflow.dealing) / dataflow.dealing.count(copy)
        own = _Copy(dataflow, pipeline, times, own_s, copy) if own_s > 0 else None
        found = own.least(margin, roomy) if own is not None else None
        if found is None:
            return None
        for name, places in found.items():
            capacities[name] = places.all
            if places.unsent:
                unsent[name] = places.unsent
    held = sum(capacities[flow.name] * flow.tensor.bytes for flow in dataflow.flows)
    return replace(pipeline, capacity_frames=capacities, buffer_bytes=held, unsent_frames=unsent)


@dataclass(frozen=True, slots=True)
class _Places:
    """The frames that a flow holds at the consumer, and at the producer if that has own places."""

    consumer: int
    unsent: int = 0

    @property
    def all(self) -> int:
        return self.consumer + self.unsent


class _Copy:
    """The constraints of one copy of the network, as longest paths [phases, phases] in seconds."""

    def __init__(
        self,
        dataflow: Dataflow,
        pipeline: Pipeline,
        times: StepTimes,
        period_s: float,
        copy: int,
    ) -> None:
        flows = [flow for flow in dataflow.flows if dataflow.copy_of[flow.tensor.name] == copy]
        ends = {name for flow in flows for name in (flow.source, *flow.targets)}
        self._period_s = period_s
        self._pipeline = pipeline
        self._times = times
        self._flows = flows
        own_names = [name for name in (SOURCE, *dataflow.phase, SINK) if name in ends]
        self._number = {name: i for i, name in enumerate(own_names)}
        self._paths: Paths = np.full((len(self._number),) * 2, -np.inf)
        np.fill_diagonal(self._paths, 0.0)
        for own in dataflow.devices.values():
            if own[0].name in self._number:
                self._add_order([phase.name for phase in own])
        for flow in flows:
            transit_s = times.transit_s.get(flow.name, 0.0)
            for target in flow.targets:
                self._add(flow.source, target, self._firing_s(flow.source) + transit_s)

    def least(self, margin: float, roomy: Collection[str]) -> dict[str, _Places] | None:
        """Return the least capacities by flow name, or None if the period cannot be kept."""
        for through in range(len(self._paths)):
            self._extend(self._paths[:, through], self._paths[through])
        given = {
            flow.name: self._given(flow)
            for flow in self._flows
            if HOST in (flow.source_device, flow.target_device)
        }
        for flow in self._flows:
            if flow.name in given:
                self._bound(flow, given[flow.name])
        if self._paths.diagonal().max(initial=0.0) > _ROUNDING * self._period_s:
            return None
        found: dict[str, _Places] = {}
        for flow in sorted(self._flows, key=lambda flow: -flow.tensor.bytes):
            if flow.name not in given:
                places = self._least_of(flow, 0.0 if flow.is_local else margin)
                if flow.name in roomy:
                    places = max(places, self._given(flow), key=lambda places: places.all)
                found[flow.name] = places
                self._bound(flow, found[flow.name])
        return found

    def _given(self, flow: Flow) -> _Places:
        unsent = self._pipeline.unsent_frames.get(flow.name, 0)
        return _Places(self._pipeline.capacity_frames[flow.name] - unsent, unsent)

    def _least_of(self, flow: Flow, margin: float) -> _Places:
        given = self._given(flow)
        readers = [(self._number[target], back_s) for target, back_s in self._returns(flow)]
        source = self._number[flow.source]
        longest_s = max(float(self._paths[source, reader]) + back_s for reader, back_s in readers)
        least = max(span(flow, self._pipeline.skew), self._frames(longest_s, margin))
        if not given.unsent:
            return _Places(max(1, least))
        made_s = self._firing_s(flow.source) + self._times.transit_s.get(flow.name, 0.0)
        unsent = max(1, self._frames(made_s, margin))
        read_s = max(
            float(self._paths[first, last]) + back_s
            for last, back_s in readers
            for first, _ in readers
        )
        return _Places(max(1, least - unsent, self._frames(read_s, margin)), unsent)

    def _frames(self, taken_s: float, margin: float) -> int:
        """Return how many frames have places that are taken for `taken_s`."""
        return math.ceil(taken_s / self._period_s + margin - _ROUNDING)

    def _bound(self, flow: Flow, places: _Places) -> None:
        """Add the constraints of a capacity."""
        source = self._number[flow.source]
        for target, back_s in self._returns(flow):
            reader = self._number[target]
            waited_s = back_s - places.all * self._period_s
            self._extend(self._paths[:, reader] + waited_s, self._paths[source])
            if places.unsent:
                for first in flow.targets:
                    waited_s = back_s - places.consumer * self._period_s
                    self._extend(
                        self._paths[:, reader] + waited_s, self._paths[self._number[first]]
                    )
        if places.unsent:
            made_s = self._firing_s(flow.source) + self._times.transit_s.get(flow.name, 0.0)
            waited_s = made_s - places.unsent * self._period_s
            self._extend(self._paths[:, source] + waited_s, self._paths[source])

    def _returns(self, flow: Flow) -> Iterator[tuple[str, float]]:
        """Yield each target with the seconds from its start to when its place is free for another
        frame: at the producer, or where that has own places, filled at the consumer."""
        back_s = self._times.credit_s.get(flow.name, 0.0)
        if flow.name in self._pipeline.unsent_frames:
            back_s += self._times.transit_s.get(flow.name, 0.0)
        for target in flow.targets:
            yield target, self._firing_s(target) + back_s

    def _extend(self, to: Paths, onwards: Paths) -> None:
        """Add the paths that consist of one of `to` and one of `onwards`."""
        np.maximum(self._paths, to[:, None] + onwards[None, :], out=self._paths)

    def _add_order(self, phases: Sequence[str]) -> None:
        """Add the static order of a device's phases."""
        skew = self._pipeline.skew
        for before, after in zip(phases, [*phases[1:], phases[0]], strict=True):
            periods = skew[after] - skew[before] - (after == phases[0])
            self._add(before, after, self._firing_s(before) + periods * self._period_s)

    def _add(self, before: str, after: str, seconds: float) -> None:
        place = self._number[before], self._number[after]
        self._paths[place] = max(self._paths[place], seconds)

    def _firing_s(self, phase: str) -> float:
        return self._times.firing_s.get(phase, 0.0)
