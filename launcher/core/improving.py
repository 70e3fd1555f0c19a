"""Decides, while frames stream, whether to search for a better plan and to change to it.

A better plan is searched for in the background, and its subnets are brought to the nodes while
frames stream on (`launcher.core.preloading`). Changing to it ends the epoch as a recovery does: all
nodes pause while they open their parts, and frames in flight are sent again. This pays only if
enough frames are left, so three conditions must hold (hysteresis):

- The new plan is predicted to be `LEAST_GAIN` times as fast, both under the same cost model.
- At the measured pace, it saves on the remaining frames `WORTH` times as long as changes take.
- A change that was found not to be worth it is not considered again until something else has
  changed.

One occasion is a lost node's return (`rebalance`). `auto` proceeds as above. `ask` waits for the
user's consent, which replaces the second condition. `never` leaves the node idle. In each case the
node is available to the next plan that a loss requires.

The other occasion is that nodes are slower or faster than the plan assumes (`adapt`): a processor
is throttled or shared with another program, or the cost model was wrong from the start. Agents are
asked for their counters every `LOOK_EVERY_S`. A plan for the measured speeds is searched for if
some node's speed relative to the others (`launcher.core.speeds`) has changed by more than
`LEAST_GAIN` since it was last considered, and if an even distribution would be that much faster.
Changes are at least `SETTLE_S` apart, and each doubles that time. If a change did not relieve the
busiest node, predictions are worth less here than they seem, so twice the gain is required from
then on; and if that node alone takes longer for a frame than frames took before, the earlier plan
is deployed again. Noise, or a wrong cost model, therefore leads to a few changes and not to
oscillation.

Two more occasions come once per run. In the rehearsal, before the first frame, nodes measure the
times of their phases. If these differ unevenly from the plan, a search of about a second finds a
plan for the measured times, and the change is made while frames are held back (`correction`). If
the first plan was made in a hurry, the user's strategy continues to search while frames stream
(`Limits.searches_on`).
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from launcher.core.blueprint import Blueprint
from launcher.core.events import Action, Effort, Notice, PlanReply, PlanRequest, Send, Unplannable
from launcher.core.recovery import Cause, Change, Recoverer, newcomers
from launcher.core.session import Session, SessionState
from launcher.core.speeds import Factors, SpeedMemory, Speeds, factors_for, largest_change
from launcher.core.watch import Limits, is_past
from nodes.core.pauses import pause_s
from nodes.protocol.messages import GetStats

LEAST_GAIN = 1.15
"""How many times as fast a plan must be to replace the one that streams."""

WORTH = 2.0
"""How many times the duration of a change a plan must save."""

LOOK_EVERY_S = 2.0
"""The time between two measurements of the pace and of the nodes' speeds."""

SETTLE_S, LONGEST_S = 15.0, 600.0
"""The least time from the beginning of an epoch to a change because of speeds. Each change doubles
it, up to the latter."""

CORRECTED_GAIN = 1.05
"""How many times as fast a plan must be to replace the first one before the first frame."""

MOST_CORRECTIONS = 2
"""How often a run may change its plan before the first frame."""

SLOWER = "is slower than planned", "are slower than planned"

PACE_RESULTS = 32
"""From how many of the last results the pace is computed."""


@dataclass(frozen=True, slots=True)
class PendingSearch:
    """A running search for the plan of `epoch`, because of `nodes`.

    `consented` says that the user has agreed to a change. `busiest_s` is the measured time per
    frame of the busiest node when the search began; None if it is unknown. `factor` is what the
    node took in the rehearsal, as a multiple of what was planned. `goes_back` says that nothing is
    searched: the plan before the last change is wanted again.
    """

    cause: Cause
    nodes: tuple[str, ...]
    consented: bool = False
    busiest_s: float | None = None
    factor: float = 1.0
    epoch: int = 0
    goes_back: bool = False


class ResultPace:
    """Measures the period of results from the times at which the last ones were taken."""

    def __init__(self) -> None:
        self._taken: deque[tuple[float, int]] = deque(maxlen=PACE_RESULTS)

    def begin(self) -> None:
        """Forget all results, because another plan streams."""
        self._taken.clear()

    def record(self, frames: int, now_s: float) -> None:
        """Note that `frames` results in all have been taken."""
        if not self._taken or frames > self._taken[-1][1]:
            self._taken.append((now_s, frames))

    @property
    def period_s(self) -> float | None:
        """Seconds per frame; None until three results were taken."""
        if len(self._taken) < 3:
            return None
        (began_s, first), (ended_s, last) = self._taken[1], self._taken[-1]
        return (ended_s - began_s) / max(1, last - first)


class Improver:
    """Requests better plans and decides on changes; `recoverer` counts the run's epochs."""

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
        self._before: tuple[Blueprint, float] | None = None
        """What streamed until the last change because of speeds, and its seconds per frame."""
        self._streaming: Blueprint | None = None
        self._corrections = 0
        self._searches_on = limits.searches_on
        self._adapted_epoch: int | None = None

    @property
    def deadline_s(self) -> float | None:
        """When `due` must be called next."""
        return self._look_at_s

    def begin_epoch(self, blueprint: Blueprint, now_s: float) -> None:
        """Note that all nodes stream by `blueprint`."""
        self._pending, self._streaming = None, blueprint
        self._speeds = Speeds(blueprint) if self._adapts else None
        self._not_before_s = now_s + pause_s(self._adapted + 1, SETTLE_S, LONGEST_S)
        if blueprint.epoch != self._adapted_epoch:
            self._to_beat_s = self._before = None
        self._considered_speeds = {**self._considered_speeds, **blueprint.slower}
        self.pace.begin()
        self._look_at_s = now_s

    def cancel(self) -> None:
        """Forget the running search, because the epoch is abandoned."""
        self._pending = self._look_at_s = None

    def keep_plan(self, change: Change, reason: str, now_s: float) -> list[Action]:
        """Notify the user that a change was abandoned, and wait for other occasions."""
        self._look_at_s = now_s + LOOK_EVERY_S
        return [Notice(f"{change.why}, but the plan is kept: {reason}", "warning")]

    def look_again(self, now_s: float) -> None:
        """Search for a better plan soon, because the one that was found cannot be carried out."""
        self._look_at_s, self._considered, self._considered_speeds = now_s, frozenset(), {}

    # ------------------------------------------------------------ the rehearsal, the first search

    def correction(
        self, blueprint: Blueprint, members: list[Session], left: int, loading_s: float
    ) -> list[Action]:
        """Request a plan for the times of the rehearsal, before the first frame.

        Request none if a plan as even as the present one was meant to be would not save, on the
        `left` frames, the time of loading it.
        """
        found = {s.node: sum(s.deployed.phase_s) for s in members if s.deployed is not None}
        planned = {node: sum(seconds) for node, seconds in blueprint.phase_s.items()}
        usable = all(found.get(node) and planned[node] for node in planned)
        if not self._adapts or not usable or self._corrections == MOST_CORRECTIONS:
            return []
        factors = {node: found[node] / planned[node] for node in planned}
        busiest_s, fair_s = blueprint.busiest_s(found), blueprint.fair_s(factors)
        sharing = frozenset().union(*(nodes for nodes, _ in blueprint.sharing))
        if not self._idle <= sharing:
            fair_s /= max(1.0, min(factors.values()))  # they may be as fast as was assumed
        accepted = blueprint.busiest_s(planned) / blueprint.fair_s(dict.fromkeys(planned, 1.0))
        gain = busiest_s / (fair_s * accepted)
        if gain < CORRECTED_GAIN or left * (busiest_s - busiest_s / gain) < loading_s:
            return []
        self._corrections += 1
        usual = statistics.median(factors.values())
        slow = max(factors, key=lambda node: factors[node] / usual)
        asked = PendingSearch("rehearsal", (slow,), factor=factors[slow])
        return self._request(asked, members, self._idle, CORRECTED_GAIN, effort="quick")

    def _search_on(self, members: list[Session]) -> list[Action]:
        """Request the plan of the user's strategy; this happens once per run."""
        self._searches_on = False
        asked = PendingSearch("search", tuple(session.node for session in members))
        return [
            Notice("searching for a better plan while frames stream"),
            *self._request(asked, members, self._idle, effort="whole"),
        ]

    @property
    def _idle(self) -> frozenset[str]:
        return frozenset(n for n, s in self._sessions.items() if s.state is SessionState.IDLE)

    # ------------------------------------------------------------ nodes that return

    def node_returned(self, session: Session, members: list[Session], now_s: float) -> list[Action]:
        """Decide whether to use a lost node that has returned; notify the user."""
        name = f"node {session.node!r} {'has joined' if session.was_absent else 'is back'}"
        self._considered -= {session.node}
        if session in members or not self._limits.recovery.enabled:
            return []
        if self._recoverer.life.is_down:
            return [Notice(name)]
        if self._limits.recovery.rebalance == "auto":
            if self._look_at_s is None:
                self._look_at_s = now_s
            return [Notice(f"{name}; checking whether a plan with it is worth it")]
        if self._limits.recovery.rebalance == "ask" and self._limits.consent:
            return [Notice(f"{name} and stands by; to use it: {self._limits.consent}")]
        return [Notice(f"{name} and stands by, in case another node is lost")]

    def consent(self, members: list[Session]) -> list[Action]:
        """Search for a plan that uses the returned nodes, because the user agrees to a change."""
        back = self._back(members)
        if not back:
            return [Notice("no node has returned that could be used")]
        if self._recoverer.life.is_down:
            return []  # the plan that is searched for may use it
        if any(session.state is not SessionState.RUNNING for session in members):
            return []  # the last result is taken, or another search is about to begin
        return self._search("return", back, members, 1.0, consented=True)

    def _back(self, members: list[Session]) -> tuple[str, ...]:
        return tuple(
            session.node
            for session in self._sessions.values()
            if session.was_lost and session.state is SessionState.IDLE and session not in members
        )

    # ------------------------------------------------------------ requests

    def due(self, members: list[Session], now_s: float) -> list[Action]:
        """Request a plan if there is a reason, and the nodes' counters if they are due."""
        if not is_past(self._look_at_s, now_s) or self._recoverer.life.is_down:
            return []
        self._look_at_s = None
        if self.pace.period_s is None:
            self._look_at_s = now_s + LOOK_EVERY_S
            return []
        if self._searches_on:
            return self._search_on(members)
        back = self._back(members)
        if self._limits.recovery.rebalance == "auto" and set(back) - self._considered:
            return self._search("return", back, members, LEAST_GAIN)
        return self._check_speeds(members, now_s)

    @property
    def _adapts(self) -> bool:
        return self._limits.recovery.adapt and self._limits.recovery.enabled

    def _check_speeds(self, members: list[Session], now_s: float) -> list[Action]:
        """Request a plan if the measured speeds call for one, and the next counters."""
        if self._speeds is None or any(s.state is not SessionState.RUNNING for s in members):
            return []
        self._look_at_s = now_s + LOOK_EVERY_S
        for session in members:
            self._speeds.record(session.node, session.stats)
        questions: list[Action] = [Send(session.node, GetStats()) for session in members]
        factors, busiest_s = self._speeds.factors, self._speeds.busiest_s
        if factors is None or busiest_s is None:
            return questions
        if self._before is not None and busiest_s > self._before[1]:
            return questions + self._go_back(self._before[0], members)
        if now_s < self._not_before_s:
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

    def _go_back(self, before: Blueprint, members: list[Session]) -> list[Action]:
        """Request the plan of an earlier epoch, because the change from it made frames slower."""
        self._before, self._considered_speeds = None, {}
        self._least_gain = 2 * self._least_gain - 1
        asked = PendingSearch("slow", tuple(before.deployments), goes_back=True)
        return self._request(asked, members, self._idle, slower=before.slower, again=before.epoch)

    def _search(
        self,
        cause: Cause,
        nodes: tuple[str, ...],
        members: list[Session],
        least_gain: float,
        *,
        consented: bool = False,
    ) -> list[Action]:
        busiest_s = None if self._speeds is None else self._speeds.busiest_s
        others: frozenset[str] = frozenset()
        if cause == "return" or self._limits.recovery.rebalance == "auto":
            others = self._considered = frozenset(self._back(members))
        asked = PendingSearch(cause, nodes, consented, busiest_s)
        return self._request(asked, members, others, least_gain, self._recoverer.slower)

    def _request(
        self,
        asked: PendingSearch,
        members: list[Session],
        others: frozenset[str],
        least_gain: float = 1.0,
        slower: Factors = MappingProxyType({}),
        effort: Effort = "bounded",
        again: int | None = None,
    ) -> list[Action]:
        """Request a plan for members and other nodes."""
        among = {n: s for n, s in self._sessions.items() if s in members or n in others}
        epoch, nodes = self._recoverer.next_epoch(), tuple(among)
        self._pending = replace(asked, epoch=epoch)
        factors, came = factors_for(slower, nodes), newcomers(among.values())
        streaming = None if self._streaming is None else self._streaming.epoch
        period_s = self.pace.period_s if asked.cause == "slow" else None
        given = epoch, nodes, streaming, least_gain, period_s, again, factors, came, effort
        return [PlanRequest(*given)]

    # ------------------------------------------------------------ answers

    def planned(self, reply: PlanReply, members: list[Session], left: int) -> Change | list[Action]:
        """Decide on a plan that was found, with `left` frames to go.

        Returns the change to it, or notices on why there is none.
        """
        asked, epoch = self._pending, reply.blueprint.epoch
        if asked is None or asked.epoch != epoch:
            return []
        self._pending = None
        parts = [self._sessions[node] for node in reply.blueprint.deployments]
        if any(session.state is SessionState.FAILED for session in parts):
            return []
        if any(s.state is not SessionState.IDLE for s in parts if s not in members):
            return self._search_again(asked, members)
        if asked.cause == "rehearsal":
            self._searches_on |= self._limits.corrects_in_a_hurry
            took = f"takes {asked.factor:.3g} times as long as planned, as its rehearsal shows"
            why = f"{asked.nodes[0]} {took}"
            return Change(reply.blueprint, asked.cause, asked.nodes, f"{why}; {reply.note}")
        if asked.cause == "search":
            return self._found(reply, asked, left)
        if asked.goes_back:
            self._adapted += 1
            why = "changing back to the plan before, because the last change made frames slower"
            return Change(reply.blueprint, asked.cause, asked.nodes, why)
        saved_s = self._saved_s(reply.gain, left)
        if not asked.consented and saved_s < WORTH * self._pause_s:
            return self._not_worth(
                asked,
                f"a better plan would save {saved_s:.1f} s on the remaining frames, and changing "
                "to it takes some seconds",
            )
        is_new = all(self._sessions[node].was_absent for node in asked.nodes)
        back = ("has joined", "have joined") if is_new else ("is back", "are back")
        reason = _subject(asked.nodes, *(back if asked.cause == "return" else SLOWER))
        why = f"changing to a plan that is {reply.gain:.2f} times as fast: {reason}"
        if asked.cause == "slow":
            self._adapted += 1
            self._adapted_epoch = epoch
            if self._streaming is not None and self.pace.period_s is not None:
                self._before = self._streaming, self.pace.period_s
            if asked.busiest_s is not None:  # at least a quarter of the predicted gain
                self._to_beat_s = asked.busiest_s / (1 + (reply.gain - 1) / 4)
        return Change(reply.blueprint, asked.cause, asked.nodes, why)

    def _found(self, reply: PlanReply, asked: PendingSearch, left: int) -> Change | list[Action]:
        """Change to the plan that the user's strategy has found if enough frames are left."""
        if left * (self.pace.period_s or 0.0) < WORTH * self._pause_s:
            text = "a better plan was found, but too few frames are left to change to it"
            return [Notice(f"{text}; the next run begins with it")]
        why = f"changing to the plan that the search has found: {reply.note}"
        return Change(reply.blueprint, asked.cause, asked.nodes, why)

    def _search_again(self, asked: PendingSearch, members: list[Session]) -> list[Action]:
        """Request a plan without a node that stood by, was to be used and is lost meanwhile."""
        self._considered_speeds = {}
        back = self._back(members)
        if asked.cause != "return" or not back:
            return []
        least_gain = 1.0 if asked.consented else LEAST_GAIN
        return self._search("return", back, members, least_gain, consented=asked.consented)

    def unplannable(self, answer: Unplannable) -> list[Action]:
        """Notify the user that no plan is as good as was requested."""
        asked = self._pending
        if asked is None or asked.epoch != answer.epoch:
            return []
        self._pending = None
        if asked.cause == "search":
            return [Notice("the search has found no better plan")]
        return [] if asked.cause == "rehearsal" else self._not_worth(asked, answer.reason)

    def _not_worth(self, asked: PendingSearch, reason: str) -> list[Action]:
        if asked.cause == "slow":
            return [Notice(f"{_subject(asked.nodes, *SLOWER)}, and the plan is kept: {reason}")]
        return [Notice(f"{_subject(asked.nodes, 'stands by', 'stand by')}: {reason}")]

    def _saved_s(self, gain: float, left: int) -> float:
        """Seconds saved on the remaining frames; no plan can be faster than the source."""
        period_s = self.pace.period_s or 0.0
        return left * max(0.0, period_s - max(period_s / gain, self._limits.source_period_s))

    @property
    def _pause_s(self) -> float:
        longest = max((past.seconds for past in self._recoverer.done), default=None)
        return self._limits.recovery.recovery_s if longest is None else longest


def _subject(nodes: Sequence[str], of_one: str, of_several: str) -> str:
    """Return the names of nodes with the predicate that agrees with their number."""
    return f"{', '.join(nodes)} {of_one if len(nodes) == 1 else of_several}"
