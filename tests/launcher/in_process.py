"""A runtime without agents: a plan's subnets, run in this process by ONNX Runtime.

It computes what the agents compute, so what the launcher does before and after can be tested where
processes and sockets are beside the point.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort

from launcher.core.roll import Roll
from launcher.run.runtime import (
    Node,
    OnUpdate,
    PushedFrames,
    Runner,
    RunOptions,
    RunResult,
    SubnetFiles,
    Update,
)
from nodes.protocol.messages import Stats
from partition.plan import Plan

RSS_BYTES = 50_000_000

Disturb = Callable[[int, dict[str, np.ndarray]], None]
"""Changes the outputs of a frame: a cluster that computes something else."""


@dataclass
class InProcess:
    """Keeps what it was asked to run."""

    disturb: Disturb = lambda frame, outputs: None
    keep: Callable[[int, dict[str, np.ndarray]], None] = lambda frame, state: None
    """Changes the state behind a frame."""
    nodes: tuple[Node, ...] = ()
    options: RunOptions = field(default_factory=RunOptions)
    plans: list[Plan] = field(default_factory=list)

    @contextmanager
    def runtime(self, nodes: tuple[Node, ...]) -> Iterator[Runner]:
        """A `launcher.run.runner.Runtime`."""
        self.nodes = nodes
        yield self

    def call_roll(self, *_: object, **__: object) -> Roll:
        """Return an empty roll: this runner has no agents."""
        return Roll()

    def __call__(self, *given: Any) -> RunResult:
        """A `launcher.run.runtime.Runner`."""
        return self.run(*given)

    def run(
        self,
        plan: Plan,
        nodes: tuple[Node, ...],
        subnets: Mapping[str, SubnetFiles],
        networks: Sequence[PushedFrames],
        on_update: OnUpdate,
        options: RunOptions,
    ) -> RunResult:
        """Run a plan."""
        (frames,) = networks
        self.options = options
        self.plans.append(plan)
        began_s = time.perf_counter()
        sessions = {name: _session(files) for name, files in subnets.items()}
        wanted = [c.tensor.name for c in plan.channels if c.target_device == "@host"]
        state = {t.name: np.zeros(t.shape, t.dtype) for p in plan.phases for t, _ in p.state}
        state.update(options.state or {})
        sent, received = [], []
        frames.hold(1)
        on_update(Update("streaming", 0, frames.count))
        for index in _pushed(frames):
            if not frames.claim(index):
                continue
            sent.append(time.perf_counter() - began_s)
            tensors = dict(frames[index])
            waiting = list(plan.phases)
            while waiting:
                ready = next(p for p in waiting if tensors.keys() >= set(p.inputs))
                waiting.remove(ready)
                given = {name: tensors[name] for name in ready.inputs}
                given |= {tensor.name: state[tensor.name] for tensor, _ in ready.state}
                results = sessions[ready.name].run(list(ready.outputs), given)
                tensors.update(zip(ready.outputs, results, strict=True))
                state.update({tensor.name: tensors[made] for tensor, made in ready.state})
            self.keep(index, state)
            outputs = {name: tensors[name] for name in wanted}
            self.disturb(index, outputs)
            frames.took(index, outputs)
            received.append(time.perf_counter() - began_s)
            on_update(Update("streaming", index + 1, frames.count))
        used = {phase.device for phase in plan.phases}
        phases = {name: sum(p.device == name for p in plan.phases) for name in used}
        return RunResult(
            sent_s=tuple(sent),
            received_s=tuple(received),
            stats={name: _stats(count, len(sent)) for name, count in phases.items()},
            idle_rss_bytes=dict.fromkeys(used, RSS_BYTES),
            warmup_s={name: (0.001,) * count for name, count in phases.items()},
            first_result_s=received[0],
        )


def _pushed(frames: PushedFrames) -> Iterator[int]:
    """The frames that are pushed, one after the other, until they end."""
    taken, (pushed, is_end) = 0, frames.seen()
    while taken < pushed or not (is_end or taken == frames.count):
        while taken == pushed and not is_end:
            assert frames.descriptor is not None
            due_s = frames.deadline_s
            wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
            select.select([frames.descriptor], [], [], wait_s)
            pushed, is_end = frames.seen()
        if taken < pushed:
            yield taken
            taken += 1


def _session(files: SubnetFiles) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(files.graph), options, providers=["CPUExecutionProvider"])


def _stats(phases: int, frames: int) -> Stats:
    return Stats(
        epoch=1,
        firings=(frames,) * phases,
        busy_s=(0.25,) * phases,
        elapsed_s=float(phases),
        cpu_s=1.0,
        sent_bytes=1000,
        received_bytes=2000,
        rss_bytes=RSS_BYTES,
        rss_peak_bytes=RSS_BYTES + 1,
        anonymous_bytes=RSS_BYTES // 2,
        stale_messages=0,
        bad_messages=0,
    )
