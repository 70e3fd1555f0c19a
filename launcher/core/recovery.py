"""From one epoch to the next: the nodes that are left, their messages, and the time that it took.

An epoch ends because a node is lost, or nodes do not get along, and then a plan has to be found
first, or because there is a better plan (`launcher.core.improving`), which takes its place at once.

Where no node is left, or there is no plan for those that are, the run waits for others to come back
(`launcher.core.waiting`). An epoch without a new result is *fruitless*. After some of these in a
row nodes are not hurried any more, so that a frame that ends every agent, and agents that are
started again and again, do not keep the run going round for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from launcher.core.blueprint import Blueprint
from launcher.core.events import Action, Halt, Halted, Notice, PlanRequest, Send
from launcher.core.returns import Returns
from launcher.core.run_state import RunLife, RunState, RunStep
from launcher.core.session import Session, SessionState
from launcher.core.speeds import Factors, filled
from launcher.core.waiting import Waiting, duration
from launcher.core.watch import Limits
from launcher.errors import LauncherError, RunFailedError
from nodes.protocol.messages import Stop

HOLDS_A_DEPLOYMENT = (
    SessionState.DEPLOYING,
    SessionState.READY,
    SessionState.RUNNING,
    SessionState.FAILED,
)

Loss = tuple[Session, LauncherError]
"""A node that is lost, and the sentence about it."""

Cause = Literal["loss", "dispute", "return", "slow"]
"""Why an epoch ended: nodes were lost, one accused another and none was lost, nodes came back, or
are not as fast as the plan takes them for."""

FRUITLESS_S = 30.0
"""The longest time until a node is greeted while the run waits, after many fruitless epochs."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """A change of epochs that the run got over.

    It was about `nodes`, for `reasons` (one sentence each). `seconds` passed from noticing the
    first loss, or from giving the epoch up, until all nodes streamed again, with frame `frame`
    first; `replayed` frames from there on were sent a second time. For `waited_s` of these seconds
    too few nodes were there.
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
    """A better plan, the nodes that are the cause of it, and why, for people."""

    blueprint: Blueprint
    cause: Cause
    nodes: tuple[str, ...]
    why: str


@dataclass(slots=True)
class Outage:
    """A change of epochs that the run has not got over yet (`launcher.core.run_state` says how far
    it is). `better` is the plan that it is for, if any; else one is asked for on the nodes `asked`
    and must be there by `plan_due_s`."""

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

    def is_about(self, cause: Cause, nodes: Sequence[str], reasons: Sequence[str]) -> None:
        """Take note of what has happened; the loss of a node is the graver cause."""
        if self.cause not in (cause, "loss"):
            self.cause, self.nodes, self.reasons = cause, [], []
        if self.cause == cause:
            self.nodes += nodes
        self.reasons += [reason for reason in dict.fromkeys(reasons) if reason not in self.reasons]


class Recoverer:
    """Gets a run that began with `epoch` over its losses; `outage` is there while it is at it."""

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
        self.done: list[Recovery] = []
        self.slower: Factors = {}
        """What is known of the nodes' speeds, for the next plan."""
        self._epoch = epoch
        self._sessions = sessions
        self._limits = limits
        self._returns = returns
        self._waiting = Waiting(limits.recovery.wait_s)
        self._hopeless = ""
        """Why the run cannot go on for now."""
        self._furthest = -1
        self._fruitless = 0

    @property
    def left(self) -> list[Session]:
        """Those that the run can go on with."""
        return [session for session in self._sessions.values() if session.is_open]

    @property
    def first(self) -> int:
        """The frame with which the epoch that streams began."""
        return self.done[-1].frame if self.done else 0

    @property
    def deadline_s(self) -> float | None:
        """When the plan that was asked for is overdue, or something about waiting is due."""
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
    ) -> list[Action] | LauncherError:
        """End `epoch` on all nodes that are left, because of these losses or of a `dispute` (who
        is in it, and the sentence about it), and ask for a plan once it is halted; how the
        run ends if there is nothing to wait for."""
        outage = self.outage = self.outage or Outage(now_s, "loss" if losses else "dispute")
        if dispute is not None:
            outage.is_about("dispute", dispute[0], [dispute[1]])
        if losses:
            nodes = [session.node for session, _ in losses]
            outage.is_about("loss", nodes, [str(error) for _, error in losses])
        if self.life.state is RunState.ROLLOUT:
            self._fruitless += 1
        outage.better = None
        actions = self._stop(epoch)
        if not self.life.is_down:
            self.life.step(RunStep.GIVE_UP)
            return [*actions, Halt()]
        if self.life.state is RunState.HALTING:
            return actions
        further = self._go_on(outage, now_s)
        return further if isinstance(further, LauncherError) else actions + further

    def change(self, change: Change, epoch: int, now_s: float) -> list[Action]:
        """End `epoch` for a better plan."""
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
            session.renew()
        return actions

    def halted(self, event: Halted, frames: int, now_s: float) -> list[Action] | LauncherError:
        """The stream was halted, with the first frame of the next epoch at hand: go on with it, if
        it is one of the run's `frames`. How the run ends if no node is left for it."""
        if self.outage is None:
            return []
        self.outage.frame, self.outage.replayed = event.first, event.replayed
        if event.first == frames:
            self.life.step(RunStep.FINISH)
        if event.first > self._furthest:
            self._furthest, self._fruitless = event.first, 0
            self._waiting.restore()
        else:
            self._fruitless += 1
        return self._go_on(self.outage, now_s)

    def _go_on(self, outage: Outage, now_s: float) -> list[Action] | LauncherError:
        if self.life.state is RunState.COMPLETE:
            return [Notice(f"{outage.reasons[-1]}; every result had arrived before")]
        if outage.better is not None:
            return []
        if not self.left:
            return self._wait("no node is left", "any node", now_s)
        if self.life.state is RunState.WAITING:  # even more nodes were too few
            return []
        return self._replan(outage, now_s)

    def better(self) -> Blueprint | None:
        """The plan that takes the place of the one that was halted, if that was given up for it:
        asked once."""
        if self.outage is None or self.life.state is not RunState.HALTING:
            return None
        better, self.outage.better = self.outage.better, None
        if better is not None:
            self.life.step(RunStep.ROLL_OUT)
        return better

    def next_epoch(self) -> int:
        """A number for another plan; what was asked for before is not wanted any more."""
        self._epoch += 1
        return self._epoch

    def _replan(self, outage: Outage, now_s: float) -> list[Action]:
        self._end_waiting(outage, now_s)
        self.life.step(RunStep.PLAN)
        self.next_epoch()
        outage.plan_due_s = now_s + self._limits.run.deploy_timeout_s
        nodes = outage.asked = tuple(session.node for session in self.left)
        notice = f"{outage.reasons[-1]}; going on with {', '.join(nodes)}"
        return [Notice(notice), PlanRequest(self._epoch, nodes, slower=filled(self.slower, nodes))]

    # ------------------------------------------------------------ waiting

    def _wait(self, why: str, whom: str, now_s: float) -> list[Action] | LauncherError:
        """Wait for nodes to come back, if any may; how the run ends if not."""
        self._hopeless = why
        expected_s = self._returns.expected_s()
        if expected_s is None or not self._waiting.is_possible:
            return self._hopeless_error(now_s)
        was_waiting = self.life.state is RunState.WAITING
        self.life.step(RunStep.WAIT)
        self._waiting.begin(whom, expected_s, now_s)
        within_s = min(FRUITLESS_S, 2.0 ** (self._fruitless - 1)) if self._fruitless else 0.0
        self._returns.hurry(within_s, now_s)
        if was_waiting or self.outage is None:
            return []
        left_s = self._waiting.left_s(now_s)
        waits = f"waiting {duration(left_s)} at most for {whom} to come back"
        return [Notice(f"{self.outage.reasons[-1]}; {why}; {waits}")]

    def _end_waiting(self, outage: Outage, now_s: float) -> None:
        before_s = self._waiting.waited_s
        self._waiting.end(now_s)
        outage.waited_s += self._waiting.waited_s - before_s
        self._returns.take_time()

    def came_back(self, now_s: float) -> None:
        """A node that was lost is there again."""
        self._waiting.came_back(now_s, is_last=self._returns.is_complete)

    def nobody_comes(self, now_s: float) -> LauncherError | None:
        """How the run ends if it waits and there is nobody left to wait for."""
        if self.life.state is not RunState.WAITING or self._returns.expected_s() is not None:
            return None
        return self._hopeless_error(now_s)

    def due(self, now_s: float) -> list[Action] | LauncherError:
        """Follow the passing of time: a plan is overdue, nodes are back, patience is over."""
        if self.outage is None:
            return []
        if self._waiting.has_regrouped(now_s) and self.left:
            return self._replan(self.outage, now_s)
        if self._waiting.is_over(now_s):
            return self._hopeless_error(now_s)
        if self.life.state is RunState.PLANNING and now_s >= self.outage.plan_due_s:
            waited_s = self._limits.run.deploy_timeout_s
            self._hopeless = _cannot(f"no plan was found in {waited_s:g} s")
            return self._hopeless_error(now_s)
        return list(self._waiting.reports(now_s))

    def planned(self, epoch: int, nodes: Iterable[str], now_s: float) -> list[Action] | None:
        """A plan on these nodes is there: None if it is the one to roll out, or what to do
        instead: nothing if another was asked for since, or to ask again if a node that it needs
        is gone."""
        if self.outage is None or not self._awaits(epoch):
            return []
        if any(self._sessions[node].state is not SessionState.IDLE for node in nodes):
            return self._replan(self.outage, now_s)
        self.life.step(RunStep.ROLL_OUT)
        return None

    def unplannable(
        self, epoch: int, reason: str, now_s: float
    ) -> list[Action] | LauncherError | None:
        """There is no plan on these nodes; None if another was asked for since."""
        if self.outage is None or not self._awaits(epoch):
            return None
        if set(self.outage.asked) != {session.node for session in self.left}:
            return self._replan(self.outage, now_s)
        return self._wait(_cannot(reason), "other nodes", now_s)

    def _awaits(self, epoch: int) -> bool:
        """Whether the answer for this epoch is the one that is awaited."""
        return self.life.state is RunState.PLANNING and epoch == self._epoch

    def over(self, now_s: float) -> list[Action]:
        """All nodes stream: report the recovery that this ends, if any."""
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
                past.waited_s,
            )
        )
        again = f"; {past.replayed} were under way and are sent again" if past.replayed else ""
        return [
            Notice(f"streaming again after {passed_s:.1f} s, from frame {past.frame} on{again}")
        ]

    def _hopeless_error(self, now_s: float) -> LauncherError:
        """The error of a run that cannot go on: all losses, and how long it waited."""
        outage = self.outage
        past = [] if outage is None else outage.reasons
        self._waiting.end(now_s)
        waited_s = self._waiting.waited_s
        none = f", and none came back in {duration(waited_s)}" if waited_s else ""
        if self.left:
            none = f"; no other node came back in {duration(waited_s)}" if waited_s else ""
            return RunFailedError(f"{'; '.join(past)}; {self._hopeless}{none}")
        losses = [recovery for recovery in self.done if recovery.cause == "loss"]
        *before, last = [*(r for recovery in losses for r in recovery.reasons), *past]
        earlier = f" Before: {'; '.join(before)}" if before else ""
        return RunFailedError(f"{last}; {self._hopeless}{none}.{earlier}")


def _cannot(reason: str) -> str:
    return f"the other nodes cannot go on: {reason}"
