"""Decides, while frames stream, whether a better plan is worth a pause.

A plan that is better is searched for in the background, and takes the place of the one that streams
by a change of epochs like a recovery's: all nodes pause for some seconds, frames under way are sent
again. That pays only if enough frames are left, so three things must hold (hysteresis):

- the new plan is predicted to be `LEAST_GAIN` times as fast, both under the same cost model;
- what it saves for the frames that are left, at the pace that is measured, is `WORTH` times what
  the last changes took;
- what was found not to be worth it is not asked for again until something else has changed.

One occasion is a node that came back (`rebalance`): `auto` does the above, `ask` waits
for the user's consent, which then replaces the second condition, and `never` leaves the node idle.
In each case it is among the nodes of the next plan that a loss forces.

The other occasion is nodes that are not as fast as the plan takes them for (`adapt`): they
run hot, another program wants their processor, or the cost model was wrong from the start. Agents
are asked for their counters every `LOOK_EVERY_S`, and if some node's speed (`launcher.core.speeds`)
has changed, beside the others', by more than `LEAST_GAIN` since it was last considered, and a fair
share for each would be that much faster, a plan for the measured speeds is searched. Changes are at
least `SETTLE_S` apart, and each doubles that. One that did not relieve the busiest node shows that
predictions are worth less here than they seem: from then on, twice the gain is asked for. So noise,
or a cost model that is wrong, leads to a few changes and not to swinging.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from launcher.core.blueprint import Blueprint
from launcher.core.events import Action, Notice, PlanReply, PlanRequest, Send, Unplannable
from launcher.core.recovery import Cause, Change, Recoverer
from launcher.core.session import Session, SessionState
from launcher.core.speeds import Factors, SpeedMemory, Speeds, factors_for, largest_change
from launcher.core.watch import Limits, is_past
from nodes.protocol.messages import GetStats

LEAST_GAIN = 1.15
"""How many times as fast a plan must be to take the place of the one that streams."""

WORTH = 2.0
"""A plan must save this many times the pause that the change takes."""

LOOK_EVERY_S = 2.0
"""How often the pace and the nodes' speeds are looked at."""

SETTLE_S, LONGEST_S = 15.0, 600.0
"""From the beginning of an epoch to its first change because of speeds; each change doubles it, up
to the latter."""

PACE_RESULTS = 32
"""How many of the last results count for the pace."""


@dataclass(frozen=True, slots=True)
class PendingSearch:
    """A search under way: its cause, and whether the user has consented to a change."""

    epoch: int
    cause: Cause
    nodes: tuple[str, ...]
    consented: bool = False
    busiest_s: float | None = None


class ResultPace:
    """How fast results come, from the times at which the last ones were taken."""

    def __init__(self) -> None:
        self._taken: deque[tuple[float, int]] = deque(maxlen=PACE_RESULTS)

    def begin(self) -> None:
        """Another plan streams: what was before does not count."""
        self._taken.clear()

    def record(self, frames: int, now_s: float) -> None:
        """`frames` results in all are taken."""
        if not self._taken or frames > self._taken[-1][1]:
            self._taken.append((now_s, frames))

    @property
    def period_s(self) -> float | None:
        """Seconds per frame; None until it is known."""
        if len(self._taken) < 3:
            return None
        (began_s, first), (ended_s, last) = self._taken[1], self._taken[-1]
        return (ended_s - began_s) / max(1, last - first)


class Improver:
    """Asks for better plans for the run whose epochs `recoverer` counts."""

    def __init__(
        self, sessions: Mapping[str, Session], limits: Limits, recoverer: Recoverer
    ) -> None:
        self.pace = ResultPace()
        self._sessions = sessions
        self._limits = limits
        self._recoverer = recoverer
        self._pending: PendingSearch | None = None
        self._considered: frozenset[str] = frozenset()
        self._look_at_s: float | None = None
        self._speeds: Speeds | None = None
        self._memory = SpeedMemory()
        self._considered_speeds: Factors = {}
        self._least_gain = LEAST_GAIN
        self._adapted = 0
        self._not_before_s = 0.0
        self._to_beat_s: float | None = None
        self._streaming: int | None = None
        self._adapted_epoch: int | None = None

    @property
    def deadline_s(self) -> float | None:
        """When `due` must be called next."""
        return self._look_at_s

    def begin_epoch(self, blueprint: Blueprint, now_s: float) -> None:
        """All nodes stream, anew or for the first time."""
        self._pending, self._streaming = None, blueprint.epoch
        self._speeds = Speeds(blueprint) if self._adapts else None
        self._not_before_s = now_s + min(LONGEST_S, SETTLE_S * 2**self._adapted)
        if blueprint.epoch != self._adapted_epoch:
            self._to_beat_s = None
        self._considered_speeds = {**self._considered_speeds, **blueprint.slower}
        self.pace.begin()
        self._look_at_s = now_s

    def cancel(self) -> None:
        """The epoch is given up: a plan that is being searched is not wanted any more."""
        self._pending = self._look_at_s = None

    # ------------------------------------------------------------ nodes that are back

    def node_returned(self, session: Session, members: list[Session], now_s: float) -> list[Action]:
        """A node that was lost was welcomed again."""
        name = repr(session.node)
        self._considered -= {session.node}
        if session in members or not self._limits.recovery.enabled:
            return []
        if self._recoverer.life.is_down:
            return [Notice(f"node {name} is back")]
        if self._limits.recovery.rebalance == "auto":
            if self._look_at_s is None:
                self._look_at_s = now_s
            return [Notice(f"node {name} is back; looking whether to use it")]
        if self._limits.recovery.rebalance == "ask" and self._limits.consent:
            return [Notice(f"node {name} is back and stands by; to use it: {self._limits.consent}")]
        return [Notice(f"node {name} is back and stands by, in case that another one is lost")]

    def consent(self, members: list[Session]) -> list[Action]:
        """The user wants nodes that are back to be used."""
        back = self._back(members)
        if not back:
            return [Notice("no node is back that could be used")]
        if self._recoverer.life.is_down:
            return []  # it is among the nodes of the plan that is searched
        if any(session.state is not SessionState.RUNNING for session in members):
            return []  # the last result is taken, or another plan about to be searched
        return self._search("return", back, members, 1.0, consented=True)

    def _back(self, members: list[Session]) -> tuple[str, ...]:
        return tuple(
            session.node
            for session in self._sessions.values()
            if session.was_lost and session.state is SessionState.IDLE and session not in members
        )

    # ------------------------------------------------------------ asking

    def due(self, members: list[Session], now_s: float) -> list[Action]:
        """Ask for a plan if there is a reason."""
        if not is_past(self._look_at_s, now_s) or self._recoverer.life.is_down:
            return []
        self._look_at_s = None
        if self.pace.period_s is None:
            self._look_at_s = now_s + LOOK_EVERY_S
            return []
        back = self._back(members)
        if self._limits.recovery.rebalance == "auto" and set(back) - self._considered:
            return self._search("return", back, members, LEAST_GAIN)
        return self._check_speeds(members, now_s)

    @property
    def _adapts(self) -> bool:
        return self._limits.recovery.adapt and self._limits.recovery.enabled

    def _check_speeds(self, members: list[Session], now_s: float) -> list[Action]:
        """Ask for a plan if the measured speeds call for one, and for the next counters."""
        if self._speeds is None or any(s.state is not SessionState.RUNNING for s in members):
            return []
        self._look_at_s = now_s + LOOK_EVERY_S
        for session in members:
            self._speeds.record(session.node, session.stats)
        questions: list[Action] = [Send(session.node, GetStats()) for session in members]
        factors, busiest_s = self._speeds.factors, self._speeds.busiest_s
        if factors is None or busiest_s is None or now_s < self._not_before_s:
            return questions
        self._recoverer.slower = self._memory.add(factors, now_s)
        if self._to_beat_s is not None and busiest_s >= self._to_beat_s:
            self._least_gain = 2 * self._least_gain - 1
        self._to_beat_s = None
        least = self._least_gain
        if self._pending or self._speeds.imbalance < least:
            return questions
        considered = self._considered_speeds
        if largest_change(factors, considered) < (LEAST_GAIN if considered else least):
            return questions
        self._considered_speeds = factors
        mean = statistics.geometric_mean(factors.values())
        slow = tuple(n for n, f in factors.items() if f > mean) or tuple(factors)
        return questions + self._search("slow", slow, members, least)

    def _search(
        self,
        cause: Cause,
        nodes: tuple[str, ...],
        members: list[Session],
        least_gain: float,
        *,
        consented: bool = False,
    ) -> list[Action]:
        epoch = self._recoverer.next_epoch()
        busiest_s = None if self._speeds is None else self._speeds.busiest_s
        self._pending = PendingSearch(epoch, cause, nodes, consented, busiest_s)
        wanted = {session.node for session in members}
        if cause == "return" or self._limits.recovery.rebalance == "auto":
            self._considered = frozenset(self._back(members))
            wanted |= self._considered
        among = tuple(node for node in self._sessions if node in wanted)
        slower = factors_for(self._recoverer.slower, among)
        return [PlanRequest(epoch, among, self._streaming, least_gain, slower)]

    # ------------------------------------------------------------ answers

    def planned(self, reply: PlanReply, members: list[Session], left: int) -> Change | list[Action]:
        """A plan was found with `left` frames to go: return the change to it, or notices."""
        asked, epoch = self._pending, reply.blueprint.epoch
        if asked is None or asked.epoch != epoch:
            return []
        self._pending = None
        parts = [self._sessions[node] for node in reply.blueprint.deployments]
        if any(session.state is SessionState.FAILED for session in parts):
            return []
        if any(s.state is not SessionState.IDLE for s in parts if s not in members):
            return self._search_again(asked, members)
        saved_s = self._saved_s(reply.gain, left)
        if not asked.consented and saved_s < WORTH * self._pause_s:
            return self._not_worth(
                asked, f"it would save {saved_s:.1f} s of the rest, and a change takes some seconds"
            )
        names = ", ".join(asked.nodes)
        reason = (
            f"{names} is back" if asked.cause == "return" else f"{names} is slower than planned"
        )
        why = f"changing to a plan that is {reply.gain:.2f} times as fast: {reason}"
        if asked.cause == "slow":
            self._adapted += 1
            self._adapted_epoch = epoch
            if asked.busiest_s is not None:  # a quarter of what is hoped for, at least
                self._to_beat_s = asked.busiest_s / (1 + (reply.gain - 1) / 4)
        return Change(reply.blueprint, asked.cause, asked.nodes, why)

    def _search_again(self, asked: PendingSearch, members: list[Session]) -> list[Action]:
        """A node that stood by and was to be used is gone meanwhile: ask for a plan without it."""
        self._considered_speeds = {}
        back = self._back(members)
        if asked.cause == "slow" or not back:
            return []
        least_gain = 1.0 if asked.consented else LEAST_GAIN
        return self._search("return", back, members, least_gain, consented=asked.consented)

    def unplannable(self, answer: Unplannable) -> list[Action]:
        """There is no plan as good as was asked for."""
        asked = self._pending
        if asked is None or asked.epoch != answer.epoch:
            return []
        self._pending = None
        return self._not_worth(asked, answer.reason)

    def _not_worth(self, asked: PendingSearch, reason: str) -> list[Action]:
        if asked.cause == "slow":
            slow = f"{', '.join(asked.nodes)} is slower than planned"
            return [Notice(f"{slow}, and nothing is changed: {reason}")]
        return [Notice(f"{', '.join(asked.nodes)} stands by: {reason}")]

    def _saved_s(self, gain: float, left: int) -> float:
        """Seconds saved on the remaining frames at this pace; no plan outruns the source."""
        period_s = self.pace.period_s or 0.0
        return left * max(0.0, period_s - max(period_s / gain, self._limits.source_period_s))

    @property
    def _pause_s(self) -> float:
        longest = max((past.seconds for past in self._recoverer.done), default=None)
        return self._limits.recovery.recovery_s if longest is None else longest
