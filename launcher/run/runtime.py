"""Defines the inputs and outputs of a run: nodes, subnets, frames, options, progress, figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from launcher.config.access import Access
from launcher.config.run import RecoveryConfig, RunConfig
from launcher.core.events import PlanRequest, Rehearsed
from launcher.core.recovery import Recovery
from launcher.core.roll import Absence, Question, Roll
from launcher.core.watch import START_WAIT_S
from launcher.run.background import IsWanted
from launcher.run.consent import Consent
from launcher.view.frame_trace import FrameTrace
from launcher.view.observation import Observation
from nodes.core.engines import AUTO
from nodes.protocol.addresses import slot_address
from nodes.protocol.messages import EngineChoice, Stats, Welcome
from nodes.protocol.payload import Array
from partition.plan import Plan

Frame = Mapping[str, Array]
"""One frame: network input name → array of that input's shape and dtype."""


ANY_ENGINE = EngineChoice()
"""The choice of a node that leaves engine and device to its agent."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster; without an `address` the launcher starts its agent on this machine."""

    name: str
    address: str | None = None
    cpus: tuple[int, ...] = ()
    access: Access = field(default_factory=Access)
    engine: EngineChoice = ANY_ENGINE
    meter: str = AUTO
    """The meter of the energy of an agent that the launcher starts."""
    slots: int = 1
    """How many slots are at its address."""
    data: str | None = None
    """The address of its data port (that of slot 1), if the user gives it."""

    @property
    def doors(self) -> dict[str, str]:
        """The addresses of its data ports, by those of its control ports, as far as they are
        given."""
        if self.data is None:
            return {}
        ports = (slot_address(self.data, slot) for slot in range(1, self.slots + 1))
        return dict(zip(self.addresses, ports, strict=True))

    @property
    def addresses(self) -> tuple[str, ...]:
        """The control addresses of its slots."""
        if self.address is None:
            return ()
        return tuple(slot_address(self.address, slot) for slot in range(1, self.slots + 1))


@dataclass(frozen=True, slots=True)
class SubnetFiles:
    """A phase's subnet on disk: files named by the SHA-256 of their content."""

    graph: Path
    weights: Path | None


OnResult = Callable[[int, Mapping[str, Array]], None]
"""Called once per frame that was not dropped, in frame order: (frame, output name → array). The
arrays may be kept, but not written to. The run stands still during the call; if that takes longer
than `lease_s`, agents end the session."""


class Frames(Protocol):
    """A sequence of frames; any of them may be read at any time, and repeatedly."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Frame: ...


class PushedFrames(Protocol):
    """The frames of one network, which streams by itself, while a program pushes them.

    They are numbered from 0, and a batch counts as one. The thread that runs the stream calls all
    of this.
    """

    @property
    def inputs(self) -> tuple[str, ...]:
        """The network's inputs in the plan, which are the keys of its frames; they matter only
        together with other networks."""
        ...

    @property
    def descriptor(self) -> int | None:
        """A file descriptor that is readable once `seen` has something new; None if all frames are
        available when the stream begins.
        """
        ...

    @property
    def count(self) -> int:
        """The most frames that may come; `ENDLESS` if that is not known."""
        ...

    @property
    def deadline_s(self) -> float | None:
        """When `seen` will have something new without another push, on the monotonic clock."""
        ...

    def hold(self, frames: int) -> None:
        """Note that the channels of the epoch that begins hold `frames` frames at a time."""
        ...

    def seen(self) -> tuple[int, bool]:
        """How many frames have been pushed, and whether no more come; `descriptor` is read.

        Raises `RunFailedError` if the run is to be aborted at once.
        """
        ...

    def claim(self, index: int) -> bool:
        """Whether this frame is to be computed, just before it is sent for the first time."""
        ...

    def __getitem__(self, index: int) -> Frame:
        """A frame that was claimed, whose arrays are in C order and as the network takes them."""
        ...

    def traces(self, index: int) -> Sequence[FrameTrace]:
        """The traces of this frame, whose result is not taken yet."""
        ...

    def took(self, index: int, outputs: Mapping[str, Array]) -> None:
        """Take a frame's result, as `OnResult` says."""
        ...


@dataclass(frozen=True, slots=True)
class CutPlan:
    """A plan and its subnets by phase; `gain` is how many times as fast it is predicted to be as
    the plan that it was to beat, and `note` says how it differs from that."""

    plan: Plan
    subnets: Mapping[str, SubnetFiles]
    gain: float = 1.0
    note: str = ""


Learn = Callable[[Plan, Rehearsed], None]
"""Learns from the nodes' measurements in the rehearsal of a plan."""

Replan = Callable[[PlanRequest, Plan | None, IsWanted], CutPlan]
"""Searches for the plan that a request describes; the second argument is the plan to beat, if any.

It runs in another thread while the run continues, and can call the third argument to find out
whether the plan is still wanted. Raises `LauncherError` if there is no such plan.
"""


REMOTE_S = 3.0
"""How long agents that run already may take to answer."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run: the user's sections `run` and `recovery`, and what belongs to this run.

    `replan` searches for another plan while the run continues; without it, or if `recovery` is not
    enabled, the loss of a node ends the run. Agents that the run starts keep subnets in `cache`;
    with `keep_agents` they are not ended after the run. `trace` is the file for a trace of all
    agents (`launcher.run.tracing`). A source with its own pace needs `source_period_s` for each
    frame, at least. `state` is the network's state before the first frame, by tensor name; zeros if
    it is not given. With `check_phases`, a phase has failed if its outputs contain NaN or infinity
    and its inputs do not. `consent` is asked if recovery is to ask the user. The times of all
    frames are kept if the run is `timed`, and take memory for each. `absent` says why nodes were
    found absent just before. If too few nodes answer, the run waits for others for `start_wait_s`
    before its first frame. Other threads view the run by `observation`. If it `follows` frames,
    those with a `FrameTrace` get the times of their firings.
    """

    run: RunConfig = field(default_factory=RunConfig)
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    replan: Replan | None = None
    learn: Learn | None = None
    searches_on: bool = False
    corrects_in_a_hurry: bool = False
    cache: Path | None = None
    keep_agents: bool = False
    trace: Path | None = None
    source_period_s: float = 0.0
    state: Frame | None = None
    consent: Consent | None = None
    timed: bool = True
    check_phases: bool = False
    absent: Mapping[str, str] = field(default_factory=dict)
    start_wait_s: float = START_WAIT_S
    observation: Observation | None = None
    follows: bool = False

    @property
    def recovers(self) -> bool:
        """Whether the run continues without a node that is lost."""
        return self.recovery.enabled and self.replan is not None


@dataclass(frozen=True, slots=True)
class Update:
    """The progress of a run: `done` of `total` in `stage`, with the remark `text`.

    Without a stage, `text` is a message: that a node was lost, say, whose `level` is `info` or
    `warning`, about these `nodes`. The stages, in order, are
    `connecting` (which counts nodes), `uploading` (bytes; left out if every node has its subnets),
    `loading` (phases) and `streaming` (frames); from `uploading` on they are repeated after a loss.
    While too few nodes are present, `waiting for …` counts seconds; it has no total if the run
    waits without a limit.
    """

    stage: str
    done: int
    total: int | None
    text: str = ""
    level: str = "info"
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunResult:
    """The measurements of a run.

    `sent_s` and `received_s` have one entry per frame that was streamed, in order: seconds from
    the call of `run` until its inputs were sent (for the last time), and until all its outputs had
    arrived. They are empty unless the run is `timed`. The
    mappings have one entry per node that has a phase.
    """

    sent_s: tuple[float, ...]
    received_s: tuple[float, ...]
    stats: Mapping[str, Stats]
    idle_rss_bytes: Mapping[str, int]
    warmup_s: Mapping[str, tuple[float, ...]]
    first_result_s: float
    """Seconds from the call of `run` to the first result."""
    message_s: Mapping[str, float] = field(default_factory=dict)
    byte_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds that a message and a byte cost each node, see `nodes.protocol.messages.Deployed`."""
    welcome: Mapping[str, Welcome] = field(default_factory=dict)
    """Each agent's description of itself."""
    engines: Mapping[str, EngineChoice] = field(default_factory=dict)
    """The engine with which each node computed."""
    recoveries: tuple[Recovery, ...] = ()
    """The completed changes of epochs, in order."""
    absences: tuple[Absence, ...] = ()
    """The nodes without which the run began."""
    sent_bytes: int = 0
    """The bytes of the frames that the launcher sent to nodes."""
    replanned: Plan | None = None
    """The plan with which the run ended, if it is not the first one. The figures of nodes (`stats`,
    `warmup_s`, `message_s`, `byte_s`) and `sent_bytes` count from the last recovery on."""


OnUpdate = Callable[[Update], None]
"""Called for progress and messages."""


class Runner(Protocol):
    """Runs plans on nodes, and greets their agents; tests and benchmarks have implementations other
    than `launcher.run.runner.AgentRunner`."""

    def __call__(
        self,
        plan: Plan,
        nodes: tuple[Node, ...],
        subnets: Mapping[str, SubnetFiles],
        networks: Sequence[PushedFrames],
        on_update: OnUpdate,
        options: RunOptions,
    ) -> RunResult:
        """Run `plan` until the frames of all networks have ended; raises `LauncherError`.

        No process is left behind, whatever happens.
        """
        ...

    def call_roll(
        self,
        nodes: tuple[Node, ...],
        timeout_s: float,
        remote_s: float = REMOTE_S,
        wanted: Mapping[str, Question] = MappingProxyType({}),
        show: Callable[[int, int], None] = lambda *_: None,
    ) -> Roll:
        """Greet the agents, before a plan is made for them, for at most `timeout_s`.

        Agents that run already have `remote_s`, if that is less. Agents in `wanted` are also asked
        for what their boards have measured; `show` is called with how many have reported it, and
        with the number of all.
        """
        ...
