"""From one epoch to the next: who is left, what they are told, what it took.

An epoch ends because a node is lost, and then a plan has to be found first, or because there is a
better plan (`launcher.core.improving`), which takes its place at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from launcher.core.blueprint import Blueprint
from launcher.core.events import Action, Halt, Halted, Notice, Replan, Send
from launcher.core.session import Session, State
from launcher.core.speeds import Factors, filled
from launcher.core.watch import Limits, is_past
from launcher.errors import LauncherError, RunFailedError
from nodes.core.messages import Stop

HOLDS_A_DEPLOYMENT = (State.DEPLOYING, State.READY, State.RUNNING, State.FAILED)

Loss = tuple[Session, LauncherError]
"""A node that is lost, and the sentence that tells of it."""

Cause = Literal["loss", "return", "slow"]
"""Why an epoch ended: nodes were lost, came back, or are not as fast as the plan takes them for."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """A change of epochs that the run got over.

    It was about `nodes`, for `reasons` (one sentence each). `seconds` passed from noticing the
    first loss, or from giving the epoch up, until all nodes streamed again, with frame `frame`
    first; `replayed` frames from there on were sent a second time.
    """

    nodes: tuple[str, ...]
    reasons: tuple[str, ...]
    seconds: float
    frame: int
    replayed: int
    cause: Cause = "loss"


@dataclass(frozen=True, slots=True)
class Change:
    """A better plan, the nodes that are the cause of it, and why, for people."""

    blueprint: Blueprint
    cause: Cause
    nodes: tuple[str, ...]
    why: str


@dataclass(slots=True)
class Outage:
    """A change that the run has not got over yet: the stream is being halted, then a plan is
    searched until `plan_due_s` unless there is a `better` one, then the nodes turn to it. If it
    `lacks_nothing`, every result has arrived, and no plan is asked for."""

    began_s: float
    cause: Cause = "loss"
    better: Blueprint | None = None
    nodes: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    is_halted: bool = False
    lacks_nothing: bool = False
    is_planned: bool = False
    plan_due_s: float | None = None
    frame: int = 0
    replayed: int = 0


class Recoverer:
    """Gets a run that began with `epoch` over its losses; `outage` is there while it is at it."""

    def __init__(self, epoch: int, sessions: Mapping[str, Session], limits: Limits) -> None:
        self.outage: Outage | None = None
        self.done: list[Recovery] = []
        self.slower: Factors = {}
        """What is known of the nodes' speeds, for the next plan."""
        self._epoch = epoch
        self._sessions = sessions
        self._limits = limits

    @property
    def left(self) -> list[Session]:
        """Those that the run can go on with."""
        return [session for session in self._sessions.values() if session.is_open]

    @property
    def is_planning(self) -> bool:
        """Whether one epoch is given up and the next one not yet planned."""
        return self.outage is not None and not self.outage.is_planned

    @property
    def first(self) -> int:
        """The frame with which the epoch that streams began."""
        return self.done[-1].frame if self.done else 0

    @property
    def deadline_s(self) -> float | None:
        """When the plan that was asked for is overdue; None while none is asked for."""
        return None if self.outage is None else self.outage.plan_due_s

    def give_up(
        self, losses: Sequence[Loss], epoch: int, now_s: float
    ) -> list[Action] | LauncherError:
        """End `epoch` on all nodes that are left, and ask for a plan on them once it is halted; how
        the run ends if none is left."""
        begins = self.outage is None
        outage = self.outage = self.outage or Outage(now_s)
        if outage.cause != "loss":
            outage.cause, outage.nodes, outage.reasons = "loss", [], []
        outage.better = None
        outage.nodes += [session.node for session, _ in losses]
        outage.reasons += [str(error) for _, error in losses]
        outage.is_planned, outage.plan_due_s = False, None
        actions = self._stop(epoch)
        if begins:
            return [*actions, Halt()]
        further = self._go_on(outage, now_s) if outage.is_halted else []
        return further if isinstance(further, LauncherError) else actions + further

    def change(self, change: Change, epoch: int, now_s: float) -> list[Action]:
        """End `epoch` for a better plan."""
        self.outage = Outage(
            now_s, change.cause, change.blueprint, list(change.nodes), [change.why]
        )
        return [Notice(change.why), *self._stop(epoch), Halt()]

    def _stop(self, epoch: int) -> list[Action]:
        actions: list[Action] = []
        for session in self.left:
            if session.state in HOLDS_A_DEPLOYMENT:
                actions.append(Send(session.node, Stop(epoch)))
            session.renew()
        return actions

    def halted(self, event: Halted, frames: int, now_s: float) -> list[Action] | LauncherError:
        """The stream was halted, with the first frame of the next epoch at hand: go on with it, if
        it is one of the run's `frames`. How the run ends if no node is left for it."""
        if self.outage is None:
            return []
        self.outage.frame, self.outage.replayed = event.first, event.replayed
        self.outage.is_halted, self.outage.lacks_nothing = True, event.first == frames
        return self._go_on(self.outage, now_s)

    def _go_on(self, outage: Outage, now_s: float) -> list[Action] | LauncherError:
        if outage.lacks_nothing:
            return [Notice(f"{outage.reasons[-1]}; every result had arrived before")]
        if outage.better is not None:
            return []
        if not self.left:
            return self._none_left(outage)
        return self._replan(outage, now_s)

    def better(self) -> Blueprint | None:
        """The plan that takes the place of the one that was halted, if that was given up for it:
        asked once."""
        if self.outage is None or self.outage.better is None or not self.outage.is_halted:
            return None
        better, self.outage.better = self.outage.better, None
        self.outage.is_planned = True
        return better

    def next_epoch(self) -> int:
        """A number for another plan; what was asked for before is not wanted any more."""
        self._epoch += 1
        return self._epoch

    def _replan(self, outage: Outage, now_s: float) -> list[Action]:
        self.next_epoch()
        outage.plan_due_s = now_s + self._limits.deploy_timeout_s
        nodes = tuple(session.node for session in self.left)
        told = f"{outage.reasons[-1]}; going on with {', '.join(nodes)}"
        return [Notice(told), Replan(self._epoch, nodes, slower=filled(self.slower, nodes))]

    def planned(self, epoch: int, nodes: Iterable[str], now_s: float) -> list[Action] | None:
        """A plan on these nodes is there: None if it is the one to roll out, or what to do
        instead: nothing if another was asked for since, or to ask again if a node that it needs
        is gone."""
        if self.outage is None or self.outage.plan_due_s is None or epoch != self._epoch:
            return []
        if any(self._sessions[node].state is not State.IDLE for node in nodes):
            return self._replan(self.outage, now_s)
        self.outage.is_planned, self.outage.plan_due_s = True, None
        return None

    def unplannable(self, epoch: int, reason: str) -> RunFailedError | None:
        """How the run ends because there is no plan; None if another was asked for since."""
        if self.outage is None or self.outage.plan_due_s is None or epoch != self._epoch:
            return None
        losses = "; ".join(self.outage.reasons)
        return RunFailedError(f"{losses}; the other nodes cannot go on: {reason}")

    def overdue(self, now_s: float) -> RunFailedError | None:
        """How the run ends if the plan that was asked for does not come."""
        if self.outage is None or not is_past(self.outage.plan_due_s, now_s):
            return None
        waited_s = self._limits.deploy_timeout_s
        return self.unplannable(self._epoch, f"no plan was found in {waited_s:g} s")

    def over(self, now_s: float) -> list[Action]:
        """All nodes stream: tell of the recovery that this ends, if any."""
        if self.outage is None:
            return []
        past, self.outage = self.outage, None
        passed_s = now_s - past.began_s
        self.done.append(
            Recovery(
                tuple(past.nodes),
                tuple(past.reasons),
                passed_s,
                past.frame,
                past.replayed,
                past.cause,
            )
        )
        again = f"; {past.replayed} were under way and are sent again" if past.replayed else ""
        return [
            Notice(f"streaming again after {passed_s:.1f} s, from frame {past.frame} on{again}")
        ]

    def _none_left(self, outage: Outage) -> LauncherError:
        losses = [recovery for recovery in self.done if recovery.cause == "loss"]
        past = [reason for recovery in losses for reason in recovery.reasons]
        *before, last = [*past, *outage.reasons]
        told = f"; no node is left. Before: {'; '.join(before)}" if before else ""
        return RunFailedError(f"{last}{told}")
