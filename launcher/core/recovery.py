"""Leads a run from one epoch to the next, when nodes are lost or a better plan has been found.

An epoch ends for one of two reasons. If a node is lost, or nodes accuse each other, another plan is
searched for. If a better plan has been found already (`launcher.core.improving`), it is deployed at
once. If no node is left, or no plan exists for those that are left, the run waits for others to
return (`launcher.core.waiting`).

Before the first frame, missing nodes lead the same way, without an epoch to halt: once every other
node has answered the greeting, or is late, a plan for those that answered is requested.

An epoch is *fruitless* unless every network that was offered frames has a new result. After several
fruitless epochs in a row, lost nodes are greeted ever later while the run waits. Otherwise a frame
that crashes every agent, and agents that are restarted each time, would keep the run in an endless
loop.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from launcher.core.blueprint import Blueprint
from launcher.core.events import Action, End, Halt, Halted, Notice, PlanRequest, Send
from launcher.core.returns import Returns
from launcher.core.run_state import RunLife, RunState, RunStep
from launcher.core.session import Session, SessionState, Step
from launcher.core.speeds import Factors, factors_for
from launcher.core.waiting import Waiting
from launcher.core.watch import Limits
from launcher.errors import BadInputError, LauncherError, RunFailedError
from launcher.quantities import duration
from nodes.core.pauses import pause_s
from nodes.protocol.messages import Stop, Welcome

HOLDS_A_DEPLOYMENT = (
    SessionState.DEPLOYING,
    SessionState.READY,
    SessionState.RUNNING,
    SessionState.FAILED,
)

Loss = tuple[Session, LauncherError]
"""A lost node's session, and the error for the user."""

Cause = Literal["loss", "dispute", "return", "slow", "rehearsal", "search"]
"""Why an epoch ended: nodes were lost; one node accused another and none was lost; nodes came back;
nodes are slower or faster than the plan assumes, in the stream or already in the rehearsal; or a
search while frames streamed has found a better plan.
"""

MOST_KEPT = 1000
"""How many completed changes of epochs are kept, because a stream may last for months."""

FRUITLESS_S = 30.0
"""The longest time until a lost node is greeted while the run waits, after fruitless epochs."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """A completed change of epochs.

    `nodes` are those that caused it, `reasons` has one sentence each. `seconds` passed from the
    first loss that was noticed, or from giving the epoch up, until all nodes streamed again,
    beginning with frame `frame`; `replayed` frames from there on were sent a second time. During
    `waited_s` of these seconds too few nodes were present.
    """

    nodes: tuple[str, ...]
    reasons: tuple[str, ...]
    seconds: float
    frame: int
    replayed: int
    cause: Cause = "loss"
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """A change to a better plan: the nodes that cause it, and the reason as a sentence."""

    blueprint: Blueprint
    cause: Cause
    nodes: tuple[str, ...]
    why: str


@dataclass(slots=True)
class Outage:
    """A change of epochs in progress; `launcher.core.run_state` has its state.

    `better` is the plan to change to, if one has been found already. Otherwise a plan for the nodes
    `asked` is requested and must be found by `plan_due_s`.
    """

    began_s: float
    cause: Cause = "loss"
    better: Blueprint | None = None
    nodes: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    plan_due_s: float = 0.0
    asked: tuple[str, ...] = ()
    frame: int = 0
    replayed: int = 0
    waited_s: float = 0.0
    is_start: bool = False
    """Whether no frame has streamed before; then it is not a recovery, but a longer start."""

    def add(self, cause: Cause, nodes: Sequence[str], reasons: Sequence[str]) -> None:
        """Add a cause; the loss of a node overrides any other."""
        if self.cause not in (cause, "loss"):
            self.cause, self.nodes, self.reasons = cause, [], []
        if self.cause == cause:
            self.nodes += nodes
        self.reasons += [reason for reason in dict.fromkeys(reasons) if reason not in self.reasons]


class Recoverer:
    """Leads a run that began with `epoch` through its changes of epochs, one `outage` at a time."""

    def __init__(
        self,
        epoch: int,
        sessions: Mapping[str, Session],
        limits: Limits,
        returns: Returns,
        life: RunLife,
    ) -> None:
        self.life = life
        self.outage: Outage | None = None
        self.done: deque[Recovery] = deque(maxlen=MOST_KEPT)
        self.completed = 0
        """How many changes of epochs were completed in all."""
        self.slower: Factors = {}
        """The measured speeds of nodes, for the next plan."""
        self._epoch = epoch
        self._sessions = sessions
        self._limits = limits
        self._returns = returns
        self._waiting = Waiting(limits.start_wait_s)
        self._hopeless = ""
        """Why the run cannot continue for now."""
        self._furthest: list[int] = []
        """The first frame without a result of each network, after the last fruitful epoch."""
        self._fruitless = 0

    @property
    def left(self) -> list[Session]:
        """The sessions of the nodes with which the run can continue."""
        return [session for session in self._sessions.values() if session.is_open]

    @property
    def deadline_s(self) -> float | None:
        """When to call `due` next; None if only an event can change anything."""
        if self.life.state is RunState.WAITING:
            return self._waiting.deadline_s
        if self.life.state is RunState.PLANNING and self.outage is not None:
            return self.outage.plan_due_s
        return None

    def give_up(
        self,
        losses: Sequence[Loss],
        epoch: int,
        now_s: float,
        dispute: tuple[Sequence[str], str] | None = None,
    ) -> list[Action]:
        """End `epoch` on all nodes that are left, and request a plan once the stream is halted.

        The cause are `losses`, or a `dispute`: its nodes and the sentence about it.
        """
        outage = self.outage = self.outage or Outage(
            now_s, "loss" if losses else "dispute", is_start=not self.life.has_streamed
        )
        if dispute is not None:
            outage.add("dispute", dispute[0], [dispute[1]])
        if losses:
            nodes = [session.node for session, _ in losses]
            outage.add("loss", nodes, [str(error) for _, error in losses])
        if self.life.state is RunState.ROLLOUT:
            self._fruitless += 1
        outage.better = None
        actions = self._stop(epoch)
        if self.life.state in (RunState.PREPARING, RunState.GATHERING):
            return actions + self._gather(outage, now_s)
        if not self.life.is_down:
            self.life.step(RunStep.GIVE_UP)
            return [*actions, Halt()]
        if self.life.state is RunState.HALTING:
            return actions
        return actions + self._go_on(outage, now_s)

    def _gather(self, outage: Outage, now_s: float) -> list[Action]:
        """Continue once no further node can answer the greeting."""
        if all(s.state is not SessionState.CONNECTING for s in self._sessions.values()):
            return self._go_on(outage, now_s)
        if self.life.state is RunState.PREPARING:
            self.life.step(RunStep.GATHER)
        return []

    def node_answered(self, now_s: float) -> list[Action]:
        """Act on a node's answer to the first greeting, or on its being late."""
        if self.life.state is not RunState.GATHERING or self.outage is None:
            return []
        return self._gather(self.outage, now_s)

    def change(self, change: Change, epoch: int, now_s: float) -> list[Action]:
        """End `epoch` on all nodes to change to a better plan."""
        self.outage = Outage(
            now_s, change.cause, change.blueprint, list(change.nodes), [change.why]
        )
        self.life.step(RunStep.GIVE_UP)
        return [Notice(change.why), *self._stop(epoch), Halt()]

    def _stop(self, epoch: int) -> list[Action]:
        actions: list[Action] = []
        for session in self.left:
            if session.state in HOLDS_A_DEPLOYMENT:
                actions.append(Send(session.node, Stop(epoch)))
            session.step(Step.RENEW)
        return actions

    def halted(self, event: Halted, frames: int, now_s: float) -> list[Action]:
        """Continue after the stream was halted, if any of the run's `frames` is left."""
        if self.outage is None:
            return []
        self.outage.frame, self.outage.replayed = event.first, event.replayed
        if event.first == frames:
            self.life.step(RunStep.FINISH)
        if self._is_fruitful(event):
            self._furthest, self._fruitless = [network.first for network in event.networks], 0
            self._waiting.restore()
        else:
            self._fruitless += 1
        return self._go_on(self.outage, now_s)

    def _is_fruitful(self, event: Halted) -> bool:
        """Whether every network that was offered frames has results that it had not before."""
        before = self._furthest or [-1] * len(event.networks)
        has_more = [n.first > first for n, first in zip(event.networks, before, strict=True)]
        is_idle = [n.first == n.offered for n in event.networks]
        return any(has_more) and all(map(operator.or_, has_more, is_idle))

    def _go_on(self, outage: Outage, now_s: float) -> list[Action]:
        if self.life.state is RunState.COMPLETE:
            return [Notice(f"{outage.reasons[-1]}; every result had arrived before")]
        if outage.better is not None:
            return []
        if not self.left:
            none = "no node can be used" if outage.is_start else "no node is left"
            return self._wait(none, "any node", now_s)
        if self.life.state is RunState.WAITING:  # even more nodes were too few
            return []
        return self._replan(outage, now_s)

    def take_better_plan(self) -> Blueprint | None:
        """Return the better plan for which the epoch was abandoned, if any, and begin to deploy it;
        returns None from then on.
        """
        if self.outage is None or self.life.state is not RunState.HALTING:
            return None
        better, self.outage.better = self.outage.better, None
        if better is not None:
            self.life.step(RunStep.ROLL_OUT)
        return better

    def next_epoch(self) -> int:
        """Return the number of the next plan's epoch; answers to earlier requests are ignored."""
        self._epoch += 1
        return self._epoch

    def _replan(self, outage: Outage, now_s: float) -> list[Action]:
        self._end_waiting(outage, now_s)
        self.life.step(RunStep.PLAN)
        self.next_epoch()
        outage.plan_due_s = now_s + self._limits.run.deploy_timeout_s
        nodes = outage.asked = tuple(session.node for session in self.left)
        names = ", ".join(nodes)
        notice = f"{outage.reasons[-1]}; continuing with {names}"
        return [
            Notice(f"planning for {names}")
            if outage.is_start
            else Notice(notice, "warning", tuple(outage.nodes)),
            PlanRequest(
                self._epoch,
                nodes,
                slower=factors_for(self.slower, nodes),
                newcomers=newcomers(self.left),
            ),
        ]

    # ------------------------------------------------------------ waiting

    def _wait(self, why: str, whom: str, now_s: float) -> list[Action]:
        """Wait for nodes to return, or end the run if none can."""
        self._hopeless = why
        expected_s = self._expected_s
        if expected_s is None or not self._waiting.is_possible:
            return self._end(now_s)
        was_waiting = self.life.state is RunState.WAITING
        self.life.step(RunStep.WAIT)
        come = "to come" if self.outage is not None and self.outage.is_start else "to come back"
        self._waiting.begin(f"{whom} {come}", expected_s, now_s)
        within_s = pause_s(self._fruitless, 1.0, FRUITLESS_S) if self._fruitless else 0.0
        self._returns.hurry(within_s, now_s)
        if was_waiting or self.outage is None:
            return []
        left_s = self._waiting.left_s(now_s)
        within = "without a limit" if left_s == inf else f"{duration(left_s)} at most"
        key = " (run.start_wait_s)" if self.outage.is_start and left_s < inf else ""
        waits = f"waiting {within} for {whom} {come}{key}"
        reason = "" if self.outage.is_start else f"{'; '.join(self.outage.reasons)}; "
        return [Notice(f"{reason}{why}; {waits}", "warning")]

    @property
    def _expected_s(self) -> float | None:
        """The longest time to wait for nodes; None if none of them can come."""
        return self._returns.expected_s(repairs=self._waiting.is_endless)

    def _end_waiting(self, outage: Outage, now_s: float) -> None:
        before_s = self._waiting.waited_s
        self._waiting.end(now_s)
        outage.waited_s += self._waiting.waited_s - before_s
        self._returns.stop_hurrying()

    def node_returned(self, now_s: float) -> None:
        """Note that a lost node has returned."""
        if self.life.state is RunState.WAITING:
            self._waiting.node_returned(now_s, is_last=self._returns.is_complete)

    def end_if_nobody_can_return(self, now_s: float) -> list[Action]:
        """End the run if it waits for nodes and none can return."""
        is_hopeless = self.life.state is RunState.WAITING and self._expected_s is None
        return self._end(now_s) if is_hopeless else []

    def due(self, now_s: float) -> list[Action]:
        """Act on the passing of time: plan for nodes that have returned, or end the run because a
        plan or nodes are overdue."""
        if self.outage is None:
            return []
        if self.life.state is RunState.WAITING:
            if self._waiting.has_regrouped(now_s) and self.left:
                return self._replan(self.outage, now_s)
            if self._waiting.has_expired(now_s):
                return self._end(now_s)
            return list(self._waiting.reports(now_s))
        if self.life.state is RunState.PLANNING and now_s >= self.outage.plan_due_s:
            waited_s = self._limits.run.deploy_timeout_s
            self._hopeless = self._cannot(f"no plan was found in {waited_s:g} s")
            return self._end(now_s)
        return []

    def planned(self, epoch: int, nodes: Iterable[str], now_s: float) -> list[Action] | None:
        """Decide on a plan for `nodes` that was found for `epoch`.

        Returns None if it is to be deployed. Otherwise returns what to do instead: nothing if
        another plan has been requested since, or a new request if a node that it needs is lost.
        """
        if self.outage is None or not self._awaits(epoch):
            return []
        if any(self._sessions[node].state is not SessionState.IDLE for node in nodes):
            return self._replan(self.outage, now_s)
        self.life.step(RunStep.ROLL_OUT)
        return None

    def unplannable(self, epoch: int, reason: str, now_s: float) -> list[Action] | None:
        """Wait for other nodes, because no plan was found for `epoch`.

        Returns None if that request was not this recovery's latest one.
        """
        if self.outage is None or not self._awaits(epoch):
            return None
        if set(self.outage.asked) != {session.node for session in self.left}:
            return self._replan(self.outage, now_s)
        return self._wait(self._cannot(reason), "other nodes", now_s)

    def _awaits(self, epoch: int) -> bool:
        """Whether the latest request was for this epoch and is not answered yet."""
        return self.life.state is RunState.PLANNING and epoch == self._epoch

    def finish(self, now_s: float) -> list[Action]:
        """Record and report the recovery that ends because all nodes stream, if there was one."""
        self._waiting.patience_s = self._limits.recovery.wait_s
        if self.outage is None:
            return []
        past, self.outage = self.outage, None
        if past.is_start:
            return []
        passed_s = now_s - past.began_s
        self.completed += 1
        self.done.append(
            Recovery(
                tuple(past.nodes),
                tuple(past.reasons),
                passed_s,
                past.frame,
                past.replayed,
                past.cause,
                past.waited_s,
            )
        )
        again = f"; {past.replayed} were under way and are sent again" if past.replayed else ""
        what = "frame" if self._limits.batch == 1 else "batch"
        return [
            Notice(f"streaming again after {passed_s:.1f} s, from {what} {past.frame} on{again}")
        ]

    def _end(self, now_s: float) -> list[Action]:
        """End a run that cannot continue; the error names all losses and how long it waited."""
        outage = self.outage
        past = [] if outage is None else outage.reasons
        self._waiting.end(now_s)
        waited_s = self._waiting.waited_s
        if outage is not None and outage.is_start:
            return [End(self._no_start_error(outage, waited_s))]
        none = f", and none came back in {duration(waited_s)}" if waited_s else ""
        if self.left:
            none = f"; no other node came back in {duration(waited_s)}" if waited_s else ""
            return [End(RunFailedError(f"{'; '.join(past)}; {self._hopeless}{none}"))]
        losses = [recovery for recovery in self.done if recovery.cause == "loss"]
        *before, last = [*(r for recovery in losses for r in recovery.reasons), *past]
        earlier = f" Before: {'; '.join(before)}" if before else ""
        return [End(RunFailedError(f"{last}; {self._hopeless}{none}.{earlier}"))]

    def _no_start_error(self, outage: Outage, waited_s: float) -> LauncherError:
        """The error of a run that cannot begin; it is the user's to solve unless agents failed."""
        missing = [session for session in self._sessions.values() if session.why_lost]
        whys = [session.why_lost for session in missing] or outage.reasons
        none = f", and none came in {duration(waited_s)}" if waited_s and missing else ""
        is_users = all(session.was_absent for session in missing)
        kind = BadInputError if is_users else RunFailedError
        return kind(f"{'; '.join(whys)}; {self._hopeless}{none}")

    def _cannot(self, reason: str) -> str:
        is_start = self.outage is not None and self.outage.is_start
        return f"the {'nodes that answer' if is_start else 'other nodes'} cannot continue: {reason}"


def newcomers(sessions: Iterable[Session]) -> dict[str, Welcome]:
    """Return the `Welcome` of each of these nodes that was absent at first."""
    return {s.node: s.welcome for s in sessions if s.was_absent and s.welcome is not None}
