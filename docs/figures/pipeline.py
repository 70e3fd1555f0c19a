"""The worked example of the figures: five layers on three devices, and when each phase fires.

Everything here comes from the project's own converter and scheduler; only the seconds are made up.
`fire` plays a run with a wire that takes no time, by the agents' own rules: a phase is ready when
all its tensors are there and every channel that it fills has a free place, which it claims when it
starts and its reader gives back when it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cnn.network import Layer, Network, Tensor
from csdf.conversion.from_network import SINK, SOURCE, Dataflow, Flow, convert
from csdf.conversion.skew import Pipeline, retime

READS = {
    "stem": ("image",),
    "left1": ("stem",),
    "left2": ("left1",),
    "right": ("stem",),
    "head": ("left2", "right"),
}
PARTITION = {"stem": "A", "left1": "B", "left2": "B", "right": "C", "head": "A"}
SECONDS = {"stem": 2, "left1": 2, "left2": 2, "right": 3, "head": 2}


def example() -> tuple[Dataflow, Pipeline]:
    """The example's phases and flows, and its skews with the fewest places in each channel."""
    network = Network(
        name="example",
        layers=tuple(Layer(name, "Op", reads, (name,)) for name, reads in READS.items()),
        tensors={name: Tensor(name, (1, 1000), "float32") for name in ("image", *READS)},
        weights={},
        inputs=("image",),
        outputs=("head",),
    )
    dataflow = convert(network, PARTITION)
    return dataflow, retime(dataflow, slack_frames=0)


@dataclass(frozen=True, slots=True)
class Firing:
    """A phase at work on a frame, from `start_s` to `end_s`."""

    phase: str
    device: str
    frame: int
    start_s: int
    end_s: int


def fire(
    dataflow: Dataflow,
    capacity_frames: Mapping[str, int],
    order: Literal["pipelined", "strict"],
    until_s: int,
) -> list[Firing]:
    """All firings that end by `until_s`, second by second."""
    run = _Run(dataflow, dict(capacity_frames), order)
    for now_s in range(until_s):
        run.settle(now_s)
    run.settle(until_s)
    return [firing for firing in run.firings if firing.end_s <= until_s]


@dataclass
class _Run:
    dataflow: Dataflow
    free: dict[str, int]
    order: Literal["pipelined", "strict"]
    firings: list[Firing] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.next = dict.fromkeys((SOURCE, *self.dataflow.phase, SINK), 0)
        self.arrived = {
            (flow.name, target): 0 for flow in self.dataflow.flows for target in flow.targets
        }
        self.read: dict[tuple[str, int], int] = {}
        self.busy: dict[str, Firing] = {}

    def settle(self, now_s: int) -> None:
        """End what ends at `now_s`, then start all that can start."""
        for device, firing in list(self.busy.items()):
            if firing.end_s == now_s:
                del self.busy[device]
                self._end(firing.phase, firing.frame)
        hosts = deque((SOURCE, SINK))
        while hosts:
            phase = hosts.popleft()
            if self._is_ready(phase):
                self._claim(phase)
                self._end(phase, self.next[phase] - 1)
                hosts.append(phase)
        for device, phases in self.dataflow.devices.items():
            names = [phase.name for phase in phases]
            if self.order == "strict":
                names = [min(names, key=lambda name: self.next[name])]
            ready = [name for name in names if device not in self.busy and self._is_ready(name)]
            if ready:
                # Of one frame the later phase, as `nodes.core.actor` chooses.
                phase = min(reversed(ready), key=lambda name: self.next[name])
                lasts = sum(SECONDS[layer] for layer in self.dataflow.phase[phase].layers)
                firing = Firing(phase, device, self.next[phase], now_s, now_s + lasts)
                self._claim(phase)
                self.busy[device] = firing
                self.firings.append(firing)

    def _is_ready(self, phase: str) -> bool:
        return all(
            self.arrived[flow.name, phase] > self.next[phase] for flow in self._into(phase)
        ) and all(self.free[flow.name] > 0 for flow in self._out_of(phase))

    def _claim(self, phase: str) -> None:
        self.next[phase] += 1
        for flow in self._out_of(phase):
            self.free[flow.name] -= 1

    def _end(self, phase: str, frame: int) -> None:
        for flow in self._out_of(phase):
            for target in flow.targets:
                self.arrived[flow.name, target] += 1
        for flow in self._into(phase):
            self.read[flow.name, frame] = self.read.get((flow.name, frame), 0) + 1
            if self.read[flow.name, frame] == len(flow.targets):
                self.free[flow.name] += 1

    def _into(self, phase: str) -> list[Flow]:
        return [flow for flow in self.dataflow.flows if phase in flow.targets]

    def _out_of(self, phase: str) -> list[Flow]:
        return [flow for flow in self.dataflow.flows if flow.source == phase]
