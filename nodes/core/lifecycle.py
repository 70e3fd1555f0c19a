"""The states of a deployment on one agent, from `Deploy` until it is unloaded.

    EMPTY ──Deploy──▶ LOADING ──Loaded──▶ READY ──Start──▶ RUNNING
      ▲                  │ failed, Stop,     │ Stop,          │ failed, Stop,
      │                  │ newer Deploy      │ newer Deploy   │ newer Deploy
      │                  ▼                   ▼                ▼
      └──Unloaded── UNLOADING ◀──────────────┴────────────────┘

The end of the session unloads as well. A `Deploy` of a higher epoch than any before in its session
replaces the deployment, which is unloaded first; its messages are ignored from then on. All
messages of another epoch than the deployment's, including a `Deploy` of a lower one, are ignored
and counted. Links to other nodes stay open after the deployment: if they were closed at `Stop`, a
peer that has not received its own `Stop` yet would take that for a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from nodes.core import events as ev
from nodes.core.actions import Action, CloseAhead, HangUp, LoadPhases, Log, Measure, Restart, Unload
from nodes.core.dataplane import DataPlane
from nodes.core.deployment import DeploymentError
from nodes.core.watchdog import Watchdog, firing_limit_s, unloading_limit_s
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.messages import (
    HOST,
    Attach,
    Control,
    Credit,
    Deployed,
    Deployment,
    Failed,
    Progress,
    Start,
    Stats,
    Stop,
    Stopped,
    TensorHeader,
)

ANSWER_TIMEOUT_S = 5.0
"""How long a node that was dialled may take to grant its first credits."""

MAX_REASON = 8000
"""The most characters of `Failed.reason`; long names of phases or nodes might exceed them."""


class Stage(Enum):
    """The states of a deployment; the value is a clause for error messages."""

    EMPTY = "nothing deployed"
    LOADING = "loading"
    READY = "ready to start"
    RUNNING = "running"
    UNLOADING = "unloading"


@dataclass(slots=True)
class Tally:
    """The number of messages ignored because of their epoch, and of those that broke the protocol.

    A message without a session also counts as stale.
    """

    stale_messages: int = 0
    bad_messages: int = 0


class Lifecycle:
    """The deployment of one agent.

    `to_launcher` returns the action that sends a message to the launcher; nothing if there is no
    session.
    """

    def __init__(self, tally: Tally, to_launcher: Callable[[Control], list[Action]]) -> None:
        self.stage = Stage.EMPTY
        self.plane: DataPlane | None = None
        self.answer_by_s: float | None = None
        self._tally = tally
        self._to_launcher = to_launcher
        self._links: list[str] = []
        self._queued: Deployment | None = None
        self._newest: int | None = None
        self._watchdog = Watchdog()
        self._rehearsed_s: tuple[float, ...] = ()
        self._holds_subnets = False
        self._started_s = 0.0
        self._started_cpu_s = 0.0
        self._started_j: float | None = None
        self._final: Stats | None = None
        self._stop_is_due = False

    @property
    def epoch(self) -> int | None:
        """The epoch of the deployment; None if nothing is deployed."""
        return None if self.plane is None else self.plane.epoch

    def _is(self, epoch: int, stage: Stage) -> bool:
        return epoch == self.epoch and stage is self.stage

    # ------------------------------------------------------------ commands

    def deploy(self, deployment: Deployment) -> list[Action]:
        """Load a deployment, as soon as an earlier one is unloaded."""
        if self._newest is not None and deployment.epoch <= self._newest:
            return self._ignore()
        self._newest = deployment.epoch
        if self.stage is Stage.EMPTY:
            return self._load(deployment)
        self._queued = deployment
        return self._unload()

    def _load(self, deployment: Deployment) -> list[Action]:
        actions = self._hang_up()
        try:
            self.plane = DataPlane(deployment)
        except DeploymentError as error:
            return actions + self._report_failure(deployment.epoch, str(error))
        self.stage = Stage.LOADING
        self._watchdog = Watchdog()  # firings of another deployment may have the same numbers
        self._final = None
        self._rehearsed_s = ()
        self._holds_subnets = False
        return [*actions, LoadPhases(deployment)]

    def start(self, message: Start, now_s: float) -> list[Action]:
        """Dial the peers, attach to them, and begin to fire."""
        if message.epoch != self.epoch or self.plane is None or self.stage is Stage.UNLOADING:
            return self._ignore()
        if self.stage is not Stage.READY:
            raise RemoteProtocolError(f"Start while {self.stage.value}")
        self.stage = Stage.RUNNING
        self._started_s = now_s
        self._links = [peer.name for peer in self.plane.deployment.dial]
        self.answer_by_s = now_s + ANSWER_TIMEOUT_S if self._links else None
        return [Measure("start"), *self.plane.start()]

    def stop(self, message: Stop) -> list[Action]:
        """Unload, then send `Stopped`; at once if the epoch is already gone, or only prepared."""
        if message.epoch == self.epoch:
            self._stop_is_due = True
            return self._unload()
        if self._queued is not None and self._queued.epoch == message.epoch:
            self._queued = None
        stats = self._final
        if stats is None or stats.epoch != message.epoch:
            stats = Stats(message.epoch, (), (), 0.0, 0.0, 0, 0, 0, 0, 0, 0, 0)
        return [CloseAhead(), *self._to_launcher(Stopped(message.epoch, stats))]

    def end(self) -> list[Action]:
        """Unload and close the links to other nodes, because the session is over."""
        self._queued = self._newest = None
        self._stop_is_due = False
        return self._hang_up() + self._unload()

    def _hang_up(self) -> list[Action]:
        """Close the links to the nodes that were dialled."""
        links, self._links = self._links, []
        return [HangUp(node) for node in links]

    def fail(
        self,
        reason: str,
        peer: str = "",
        *,
        is_barred: bool = False,
        firing: tuple[int, int] | None = None,
    ) -> list[Action]:
        """Report that the deployment has failed, because of `peer` if given, and unload it.

        `firing` is the phase and the frame at which it failed, if it was in a firing.
        """
        epoch = 0 if self.epoch is None else self.epoch
        failed = self._report_failure(epoch, reason, peer, is_barred=is_barred)
        return [Log("error", reason, firing), *failed, *self._unload()]

    def _report_failure(
        self, epoch: int, reason: str, peer: str = "", *, is_barred: bool = False
    ) -> list[Action]:
        return self._to_launcher(Failed(epoch, reason[:MAX_REASON], peer, is_barred))

    def _unload(self) -> list[Action]:
        if self.plane is None or self.stage is Stage.UNLOADING:
            return []
        self.stage = Stage.UNLOADING
        self.answer_by_s = None
        return [Measure("stop"), Unload(self.plane.epoch)]

    # ------------------------------------------------------------ data

    def data(self, event: ev.DataReceived) -> list[Action]:
        """Handle a message on a data connection."""
        message, plane = event.message, self.plane
        if not isinstance(message, (TensorHeader, Credit, Attach)):
            raise RemoteProtocolError(f"{type(message).__name__} on a data connection")
        if event.payload is not None and not isinstance(message, TensorHeader):
            raise RemoteProtocolError(f"{type(message).__name__} with a payload")
        if plane is None or message.epoch != plane.epoch or self.stage is Stage.UNLOADING:
            return self._ignore()
        match message:
            case TensorHeader():
                return plane.tensor(event.link, message, event.payload, event.payload_bytes)
            case Credit():
                actions = plane.credit(event.link, message)
                if self.answer_by_s is not None and not plane.unanswered():
                    self.answer_by_s = None
                return actions
            case Attach():
                return plane.attach(event.link, message)

    def link_lost(self, event: ev.LinkLost) -> list[Action]:
        """Fail if the link to a node of a running deployment is lost.

        The host's link does not count: the session notices when the launcher is gone.
        """
        node = self.node_of(event.link)
        if node is None or node == HOST or self.stage is not Stage.RUNNING:
            return []
        reason = f"the data connection with node {node!r} broke: {event.reason}"
        if event.is_barred:
            reason = f"it cannot connect to node {node!r}: {event.reason}"
        return self.fail(reason, node, is_barred=event.is_barred)

    def node_of(self, link: ev.Link) -> str | None:
        """Return the node of the current deployment at the other end of a link, if any."""
        if self.plane is None or self.stage is Stage.UNLOADING:
            return None
        return self.plane.node_of(link)

    def answer_overdue(self) -> list[Action]:
        """Fail because nodes that were dialled have not granted credits in time."""
        if self.plane is None:
            return []
        addresses = {peer.name: peer.data_address for peer in self.plane.deployment.dial}
        unanswered = self.plane.unanswered()
        silent = ", ".join(f"{node!r} at {addresses[node]}" for node in unanswered)
        return self.fail(
            f"node {self.plane.deployment.node!r} gets no answer from node {silent}: is that data "
            "port open to this machine? If other nodes reach it at another address, write that "
            "address into cluster.yaml (`data:` of that node)",
            unanswered[0],
        )

    def _ignore(self) -> list[Action]:
        self._tally.stale_messages += 1
        return []

    # ------------------------------------------------------------ answers of the shell

    def load_progress(self, event: Progress) -> list[Action]:
        """Report to the launcher how far loading is."""
        if not self._is(event.epoch, Stage.LOADING):
            return []
        self._holds_subnets = event.done > 0
        return self._to_launcher(event)

    def loaded(self, event: Deployed) -> list[Action]:
        """Report to the launcher that all phases are loaded."""
        if not self._is(event.epoch, Stage.LOADING):
            return []
        self.stage = Stage.READY
        self._rehearsed_s = event.phase_s
        self._holds_subnets = True
        ready = Log("info", f"epoch {event.epoch} is loaded: {len(event.phase_s)} phases")
        return [ready, *self._to_launcher(event)]

    def load_failed(self, event: ev.LoadFailed) -> list[Action]:
        """Report to the launcher that a phase could not be loaded, and unload the others."""
        return self.fail(event.reason) if self._is(event.epoch, Stage.LOADING) else []

    def firing_ended(self, event: ev.FiringEnded) -> list[Action]:
        """Pass on the end of a firing."""
        if self.plane is None or not self._is(event.epoch, Stage.RUNNING):
            return []
        return self.plane.ended(event)

    def sent(self, event: ev.Sent) -> list[Action]:
        """Fire again, because a payload has left and its memory is free."""
        if self.plane is None or not self._is(event.epoch, Stage.RUNNING):
            return []
        return self.plane.sent(event)

    def firing_failed(self, event: ev.FiringFailed) -> list[Action]:
        """Fail because of a firing; while unloading, only log how the engine was interrupted."""
        if self._is(event.epoch, Stage.UNLOADING):
            return [Log("info", event.reason)]
        if not self._is(event.epoch, Stage.RUNNING):
            return []
        return self.fail(event.reason, event.peer, firing=(event.phase, event.frame))

    # ------------------------------------------------------------ an engine that does not return

    @property
    def check_due_s(self) -> float | None:
        """When to check next whether the engine takes too long; None if it is idle."""
        return self._watchdog.deadline_s(self._under_way)

    @property
    def _under_way(self) -> object:
        if self.plane is None:
            return None
        if self.stage is Stage.UNLOADING:
            return self.stage, self.plane.epoch
        return self.plane.under_way

    def check_engine(self, now_s: float) -> list[Action]:
        """Fail if a firing takes too long; restart the agent if unloading does."""
        spent_s = self._watchdog.check(self._under_way, now_s)
        if self.plane is None:
            return []
        if self.stage is Stage.UNLOADING:
            limit_s = unloading_limit_s(self._rehearsed_s, is_loaded=self._holds_subnets)
            if spent_s < limit_s:
                return []
            reason = f"the engine has not returned for {spent_s:.0f} s: the agent restarts"
            failed = self._report_failure(self.plane.epoch, reason)
            return [Log("error", reason), *failed, Restart(reason)]
        if self.plane.under_way is None:
            return []
        phase, frame = self.plane.under_way
        rehearsed_s = self._rehearsed_s[phase]
        if spent_s < firing_limit_s(rehearsed_s):
            return []
        return self.fail(
            f"phase {self.plane.deployment.phases[phase].name!r} at frame {frame} has not ended "
            f"for {spent_s:.0f} s; it took {rehearsed_s:.3g} s in its rehearsal: the engine hangs",
            firing=(phase, frame),
        )

    def unloaded(self, event: ev.Unloaded) -> list[Action]:
        """Forget the deployment, which is unloaded, and load the queued one if there is one."""
        if not self._is(event.epoch, Stage.UNLOADING):
            raise LocalProtocolError(f"epoch {event.epoch} was unloaded without an Unload")
        self.stage = Stage.EMPTY
        self.plane = None
        actions: list[Action] = []
        if self._stop_is_due and self._final is not None:
            actions += self._to_launcher(Stopped(event.epoch, self._final))
        self._stop_is_due = False
        queued, self._queued = self._queued, None
        return actions if queued is None else actions + self._load(queued)

    def measured(self, event: ev.Measured, now_s: float) -> list[Action]:
        """Handle a measurement of the process, and send `Stats` if that was its purpose."""
        if event.purpose == "start":
            self._started_cpu_s = event.usage.cpu_s
            self._started_j = event.usage.energy_j
            return []
        stats = self.stats(event.usage, now_s)
        if event.purpose == "stop":
            self._final = stats
            return []
        return self._to_launcher(stats)

    def stats(self, usage: ev.Usage, now_s: float) -> Stats:
        """Return the counters of the deployment, with a measurement of the process."""
        plane, before_j = self.plane, self._started_j
        ran = plane is not None and plane.started
        energy_j = None
        if ran and usage.energy_j is not None and before_j is not None:
            energy_j = usage.energy_j - before_j
        return Stats(
            epoch=0 if plane is None else plane.epoch,
            firings=() if plane is None else tuple(plane.firings),
            busy_s=() if plane is None else tuple(plane.busy_s),
            elapsed_s=now_s - self._started_s if ran else 0.0,
            cpu_s=max(0.0, usage.cpu_s - self._started_cpu_s) if ran else 0.0,
            sent_bytes=0 if plane is None else plane.sent_bytes,
            received_bytes=0 if plane is None else plane.received_bytes,
            rss_bytes=usage.rss_bytes,
            rss_peak_bytes=usage.rss_peak_bytes,
            anonymous_bytes=usage.anonymous_bytes,
            stale_messages=self._tally.stale_messages,
            bad_messages=self._tally.bad_messages,
            fifo_peak_bytes=0 if plane is None else plane.fifo_peak_bytes,
            phase_cpu_s=() if plane is None else tuple(plane.phase_cpu_s),
            energy_j=energy_j,
            channel_frames=() if plane is None else plane.channel_frames,
            waited_s=() if plane is None else plane.waited_s,
            phase_s=() if plane is None else plane.phase_s,
        )
