"""What a run takes and gives: nodes, subnets, frames and options; progress, results and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from launcher.config.run import RecoveryConfig, RunConfig
from launcher.core.events import PlanRequest
from launcher.core.intake import Pace
from launcher.core.recovery import Recovery
from launcher.plan.background import IsWanted
from launcher.run.access import Access
from nodes.protocol.messages import Stats, Welcome
from partition.plan import Plan

Array: TypeAlias = NDArray[Any]
"""A tensor's values: any shape and dtype."""

Frame = Mapping[str, Array]
"""One frame: network input name → array of that input's shape and dtype."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster; without an `address` the launcher starts its agent on this machine."""

    name: str
    address: str | None = None
    threads: int = 1
    cpus: tuple[int, ...] = ()
    access: Access = field(default_factory=Access)


@dataclass(frozen=True, slots=True)
class SubnetFiles:
    """A phase's subnet on disk: files named by the SHA-256 of their content."""

    graph: Path
    weights: Path | None


class Frames(Protocol):
    """Where frames come from: `len` of them, the i-th at any time and again."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Frame: ...


@dataclass(frozen=True, slots=True)
class CutPlan:
    """A plan and its subnets; `gain` is how many times as fast it is as the one that it was to be
    better than."""

    plan: Plan
    subnets: Mapping[str, SubnetFiles]
    gain: float = 1.0


Replan = Callable[[PlanRequest, Plan | None, IsWanted], CutPlan]
"""Finds the plan that is asked for; the second argument is the one that it must be better than.

It is called in another thread while the run goes on, and may ask there at any time whether the plan
is still wanted. Raises `LauncherError` if there is no such plan."""


OnDrop = Callable[[int], None]
"""Called once for every frame that the source dropped, in frame order."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run: what the user has set in `run` and `recovery`, and what belongs to this run.

    `replan` finds another plan while the run goes on; without it, or if `recovery` is not enabled,
    the loss of a node ends the run. Agents that are started keep subnets in `cache`; with
    `keep_agents` they are left as they are, for another run, like those elsewhere. `trace` is a
    file for what agents did and when (`launcher.run.tracing`). `pace` is the source's own, if it
    has one; `on_drop` is called for the frames that it dropped. `state` is what the network keeps
    before the first frame, by tensor name, where that is not zeros. With `check_phases`, a phase
    that makes NaN or infinity of inputs without any has failed.
    """

    run: RunConfig = field(default_factory=RunConfig)
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    replan: Replan | None = None
    cache: Path | None = None
    keep_agents: bool = False
    trace: Path | None = None
    pace: Pace | None = None
    on_drop: OnDrop | None = None
    state: Frame | None = None
    check_phases: bool = False

    @property
    def recovers(self) -> bool:
        """Whether the run goes on without a node that is lost."""
        return self.recovery.enabled and self.replan is not None


@dataclass(frozen=True, slots=True)
class Update:
    """Progress of a run, for a bar or a line: `done` of `total` in `stage` with a remark,
    `text`; or, without a stage, a message in `text`: a node was lost, frames stream again.

    Stages in order (from `uploading` on once more after a loss), and what they count: `connecting`
    nodes, `uploading` bytes (absent if every node has its subnets), `loading` phases, `streaming`
    frames. While too few nodes are there, `waiting for …` counts seconds.
    """

    stage: str
    done: int
    total: int
    text: str = ""


@dataclass(frozen=True)
class RunResult:
    """What was measured.

    `sent_s` and `received_s` have one entry per frame that was streamed, in order: seconds from
    the call of `run` until all its inputs were on their way, and until all its outputs were here.
    The mappings have one entry per node that has a phase.
    """

    sent_s: tuple[float, ...]
    received_s: tuple[float, ...]
    stats: Mapping[str, Stats]
    idle_rss_bytes: Mapping[str, int]
    warmup_s: Mapping[str, tuple[float, ...]]
    first_result_s: float
    """From the call of `run` to the first result."""
    message_s: Mapping[str, float] = field(default_factory=dict)
    byte_s: Mapping[str, float] = field(default_factory=dict)
    """What messages and bytes cost each node, see `nodes.protocol.messages.Deployed`."""
    welcome: Mapping[str, Welcome] = field(default_factory=dict)
    """What each node's agent said of itself."""
    recoveries: tuple[Recovery, ...] = ()
    """The losses that the run got over, in order."""
    replanned: Plan | None = None
    """The plan that it ended with, if not the one that it began with. Then the figures of nodes
    (`stats`, `warmup_s`, `message_s`, `byte_s`) count from the last recovery on."""


OnResult = Callable[[int, Mapping[str, Array]], None]
"""Called once per frame that was not dropped, in frame order: (frame, output name → array). The
array may be kept, but not written to. While it runs, nothing else does: longer than `lease_s` and
agents give us up."""

OnUpdate = Callable[[Update], None]


class Runner(Protocol):
    """The signature of `run`, for those who stand in for it in tests."""

    def __call__(
        self,
        plan: Plan,
        nodes: tuple[Node, ...],
        subnets: Mapping[str, SubnetFiles],
        frames: Frames,
        on_result: OnResult,
        on_update: OnUpdate,
        options: RunOptions,
    ) -> RunResult:
        """Run `plan`; raises `LauncherError`, and leaves no process behind, whatever happens."""
        ...
