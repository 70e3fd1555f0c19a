"""Measures layers, whole networks and phases on agents, by running one plan after the other.

Every agent runs its phases a few times before a plan starts and reports the seconds of each
(`nodes.execution.rehearsal`); most measurements are these reports.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import numpy as np

from cnn.model import Model
from cnn.network import Tensor
from cnn.rewrite.rewrites import original_name
from launcher.config.run import RunConfig
from launcher.core.roll import Question, Roll
from launcher.plan.subnet_files import cut_subnets
from launcher.progress import ProgressDisplay
from launcher.run.feed import Feed
from launcher.run.frame_list import listed
from launcher.run.parts import Part
from launcher.run.runtime import (
    Frame,
    Node,
    Runner,
    RunOptions,
    RunResult,
    Update,
)
from nodes.protocol.messages import HOST, Stats
from nodes.protocol.payload import Array
from partition.devices import Device
from partition.errors import DoesNotFitError
from partition.measured.layer_phases import one_by_one, pieces, useful_layers
from partition.measured.profiles import LEAST_S, Batch, NodeProfile, SubnetTime, subnet_time
from partition.plan import Plan
from partition.planner import make_plan

FEWEST_FRAMES, MOST_FRAMES, BATCH_S = 8, 256, 0.3
"""The larger batch of a copy has as many frames as take about `BATCH_S`, within these bounds."""

BLOCKS = 3
"""How often the additional frames of the larger batch are measured."""

MOST_PIECE_BYTES = 2**30
"""The most bytes of weights and tensors of layers that are measured together."""

IDLE_S = 2.0
"""For how long the power of idle nodes is measured."""


def bench_options(run: RunConfig, connect_timeout_s: float = 0.0) -> RunOptions:
    """Return options for many runs: agents are kept from run to run, and frames are pipelined.

    Agents have at least `connect_timeout_s` to answer.
    """
    timeout_s = max(run.connect_timeout_s, connect_timeout_s)
    changed = {"connect_timeout_s": timeout_s, "order": "pipelined"}
    return RunOptions(run.model_copy(update=changed), keep_agents=True)


class Zeros(Sequence[Frame]):
    """`count` frames of zeros for all inputs of a plan; times do not depend on the values."""

    def __init__(self, plan: Plan, count: int) -> None:
        tensors = (c.tensor for c in plan.channels if c.source_device == HOST)
        copied = len(set(plan.dealing)) > 1
        self._frame: Mapping[str, Array] = {
            original_name(tensor.name) if copied else tensor.name: _zeros(tensor)
            for tensor in tensors
        }
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: object) -> Frame:  # type: ignore[override]
        return self._frame


def _zeros(tensor: Tensor) -> Array:
    return np.zeros(tensor.shape, tensor.dtype)


@dataclass
class Bench:
    """Runs plans on `nodes`, with their subnets in `folder`."""

    runner: Runner
    nodes: tuple[Node, ...]
    folder: Path
    options: RunOptions
    progress: ProgressDisplay

    def call_roll(self, wanted: Mapping[str, Question]) -> Roll:
        """Greet the agents, and ask for the figures of the boards in `wanted`.

        Raises `LauncherError` if one of them does not answer.
        """
        timeout_s = self.options.run.connect_timeout_s
        roll = self.runner.call_roll(self.nodes, timeout_s, timeout_s, wanted)
        for error in roll.absent.values():
            raise error
        return roll

    def run(
        self, plan: Plan, model: Model, frames: int, stage: str, warm: bool = True
    ) -> RunResult:
        """Run `frames` frames of zeros; with `warm`, progress of warming up is shown as `stage`."""
        subnets = cut_subnets(model, plan, self.folder, lambda *_: None)

        def show(update: Update) -> None:
            if warm and update.stage == "loading":
                self.progress.update(stage, update.done, update.total)

        zeros = listed(Zeros(plan, frames), _ignore)
        return self.runner(plan, self.nodes, subnets, zeros, show, self.options)

    def layers(self, model: Model, device: Device, wanted: Sequence[str]) -> NodeProfile:
        """Measure layers on one node, one by one."""
        useful = set(useful_layers(model.network)) & set(wanted)
        seconds = {name: 0.0 for name in wanted if name not in useful}
        room = MOST_PIECE_BYTES
        if device.memory_bytes is not None:
            room = min(room, device.memory_bytes // 2)
        message_s: list[float] = []
        byte_s: list[float] = []
        for piece in pieces(model.network, sorted(useful), room):
            plan = one_by_one(model.network, model.digest, device, piece)
            stage = f"measuring layers on {device.name}"
            result = self.run(plan, model, 1, stage)
            names = (phase.layers[0] for phase in plan.phases)
            seconds |= dict(zip(names, result.warmup_s[device.name], strict=True))
            message_s += filter(None, [result.message_s.get(device.name)])
            byte_s += filter(None, [result.byte_s.get(device.name)])
        return NodeProfile(seconds, (), _median(message_s), _median(byte_s))

    def copy(
        self, model: Model, device: Device, frame_s: float
    ) -> tuple[tuple[Batch, ...], tuple[SubnetTime, ...], Stats | None]:
        """Measure the whole network on one node: two batches of frames, its time as a subnet, and
        the agent's statistics.

        Frames follow each other as in `partition.strategies.batch_split`; `frame_s` is the
        expected time of a frame. Returns nothing if the node has no room for the network.
        """
        try:
            plan = whole_copy(model, device)
        except DoesNotFitError:
            return (), (), None
        few, many = batch_sizes(frame_s)
        frames = few + BLOCKS * (many - few)
        result = self.run(plan, model, frames, f"measuring a copy on {device.name}")
        batches = two_batches(result.sent_s[0], result.received_s, few, many)
        times = zip(plan.phases, result.warmup_s[device.name], strict=True)
        whole = tuple(subnet_time(plan, phase, seconds) for phase, seconds in times)
        return batches, whole, result.stats.get(device.name)

    def phases(self, model: Model, plan: Plan, stage: str) -> dict[str, tuple[SubnetTime, ...]]:
        """Measure the phases of a plan as the engine fuses them, by device, on all at once."""
        result = self.run(plan, model, max(2, len(plan.dealing)), stage)
        found = {}
        for device, times in result.warmup_s.items():
            own = sorted((p for p in plan.phases if p.device == device), key=lambda p: p.index)
            found[device] = tuple(
                subnet_time(plan, phase, time_s) for phase, time_s in zip(own, times, strict=True)
            )
        return found

    def wait_between_frames(self, plan: Plan, model: Model) -> RunResult:
        """Run two frames of zeros, the second one `IDLE_S` after the result of the first."""
        subnets = cut_subnets(model, plan, self.folder, lambda *_: None)
        part = Part(model, is_alone=True)
        frame = {name: _zeros(tensor) for name, tensor in part.inputs.items()}
        feed = Feed(part, count=2)

        def push_last() -> None:
            feed.submit(frame)
            feed.end()

        timer = Timer(IDLE_S, push_last)
        feed.submit(frame).add_done_callback(lambda _: timer.start())
        self.progress.say("measuring the power of the idle nodes")
        try:
            return self.runner(plan, self.nodes, subnets, (feed,), lambda _: None, self.options)
        finally:
            timer.cancel()
            if timer.is_alive():
                timer.join()
            feed.close()


def whole_copy(model: Model, device: Device) -> Plan:
    """Return the plan that computes the whole network on one device.

    Raises `DoesNotFitError` if the device has no room for it.
    """
    return make_plan(
        model.network,
        model.digest,
        (device,),
        {layer.name: device.name for layer in model.network.layers},
        strategy="whole",
        explanation="to measure a copy",
    )


def batch_sizes(frame_s: float) -> tuple[int, int]:
    """Return the sizes of the two batches for frames of `frame_s`; the smaller is a quarter."""
    many = int(min(max(BATCH_S / max(frame_s, LEAST_S), FEWEST_FRAMES), MOST_FRAMES))
    return many // 4, many


def two_batches(
    began_s: float, received_s: Sequence[float], few: int, many: int
) -> tuple[Batch, Batch]:
    """Return the seconds of batches of `few` and `many` frames, from one stream.

    The stream began at `began_s`, and its results came at `received_s`. The first `few` results are
    the smaller batch; the larger one adds the median of `BLOCKS` blocks of the following ones,
    because other programs disturb a machine from time to time.
    """
    first_s = received_s[few - 1] - began_s
    more = many - few
    starts = [few - 1 + more * block for block in range(BLOCKS)]
    further_s = statistics.median(received_s[at + more] - received_s[at] for at in starts)
    return (few, first_s), (many, first_s + further_s)


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else 0.0


def _ignore(number: int, outputs: Mapping[str, Array]) -> None:
    """Ignore the results, which are those of zeros."""
