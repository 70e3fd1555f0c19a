"""Whether a better plan is worth a pause: decided while frames stream.

A plan that is better is searched for in the background, and takes the place of the one that streams
by a change of epochs like a recovery's: all nodes pause for some seconds, frames under way are sent
again. That pays only if enough frames are left, so three things must hold (hysteresis):

- the new plan is predicted to be `LEAST_GAIN` times as fast, both under the same cost model;
- what it saves for the frames that are left, at the pace that is measured, is `WORTH` times what
  the last changes took;
- what was found not to be worth it is not asked for again until something else has changed.

The occasion here is a node that came back (`Limits.rebalance`): `auto` does the above, `ask` waits
for the user's consent, which then replaces the second condition, and `never` leaves the node idle.
In each case it is among the nodes of the next plan that a loss forces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from launcher.core.events import Action, Notice, Planned, Replan, Unplannable
from launcher.core.recovery import Cause, Change, Recoverer
from launcher.core.session import Session, State
from launcher.core.watch import Limits, is_past

LEAST_GAIN = 1.15
"""How many times as fast a plan must be to take the place of the one that streams."""

WORTH = 2.0
"""How many times the pause must be saved by it."""

LOOK_AGAIN_S = 1.0
"""How often to look whether the pace is known."""

PACE_RESULTS = 32
"""The last results that tell how fast frames come."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A plan that is being searched: for what, and whether the user wants it in any case."""

    epoch: int
    cause: Cause
    nodes: tuple[str, ...]
    consented: bool = False


class ResultPace:
    """How fast results come, from the times at which the last ones were taken."""

    def __init__(self) -> None:
        self._taken: deque[tuple[float, int]] = deque(maxlen=PACE_RESULTS)

    def begin(self) -> None:
        """Another plan streams: what was before does not count."""
        self._taken.clear()

    def took(self, frames: int, now_s: float) -> None:
        """`frames` results in all are taken."""
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
        self._asked: Asked | None = None
        self._considered: frozenset[str] = frozenset()
        self._look_at_s: float | None = None

    @property
    def deadline_s(self) -> float | None:
        """When there is something to think about next."""
        return self._look_at_s

    def streams(self, now_s: float) -> None:
        """All nodes stream, anew or for the first time."""
        self._asked = None
        self.pace.begin()
        self._look_at_s = now_s

    def is_interrupted(self) -> None:
        """The epoch is given up: a plan that is being searched is not wanted any more."""
        self._asked = self._look_at_s = None

    # ------------------------------------------------------------ nodes that are back

    def is_back(self, session: Session, members: list[Session], now_s: float) -> list[Action]:
        """A node that was lost was welcomed again."""
        name = repr(session.node)
        self._considered -= {session.node}
        if session in members or self._limits.recovery_s is None:
            return []
        if self._limits.rebalance == "auto":
            if self._look_at_s is None and self._recoverer.outage is None:
                self._look_at_s = now_s
            return [Notice(f"node {name} is back; looking whether to use it")]
        if self._limits.rebalance == "ask" and self._limits.consent:
            return [Notice(f"node {name} is back and stands by; to use it: {self._limits.consent}")]
        return [Notice(f"node {name} is back and stands by, in case that another one is lost")]

    def consented(self, members: list[Session]) -> list[Action]:
        """The user wants nodes that are back to be used."""
        back = self._back(members)
        if not back:
            return [Notice("no node is back that could be used")]
        if self._recoverer.outage is not None:
            return []  # it is among the nodes of the plan that is searched
        return self._ask("return", back, members, 1.0, consented=True)

    def _back(self, members: list[Session]) -> tuple[str, ...]:
        return tuple(
            session.node
            for session in self._sessions.values()
            if session.losses and session.state is State.IDLE and session not in members
        )

    # ------------------------------------------------------------ asking

    def due(self, members: list[Session], now_s: float) -> list[Action]:
        """Ask for a plan if there is a reason."""
        if not is_past(self._look_at_s, now_s) or self._recoverer.outage is not None:
            return []
        self._look_at_s = None
        if self.pace.period_s is None:
            self._look_at_s = now_s + LOOK_AGAIN_S
            return []
        back = self._back(members)
        if self._limits.rebalance != "auto" or not set(back) - self._considered:
            return []
        return self._ask("return", back, members, LEAST_GAIN)

    def _ask(
        self,
        cause: Cause,
        nodes: tuple[str, ...],
        members: list[Session],
        least_gain: float,
        *,
        consented: bool = False,
    ) -> list[Action]:
        epoch = self._recoverer.next_epoch()
        self._asked = Asked(epoch, cause, nodes, consented)
        self._considered = frozenset(self._back(members))
        wanted = {session.node for session in members} | self._considered
        return [Replan(epoch, tuple(n for n in self._sessions if n in wanted), least_gain)]

    # ------------------------------------------------------------ answers

    def planned(self, planned: Planned, members: list[Session], left: int) -> Change | list[Action]:
        """A plan was found, with `left` frames to go: the change to it, or what to say instead."""
        asked, epoch = self._asked, planned.blueprint.epoch
        if asked is None or asked.epoch != epoch:
            return []
        self._asked = None
        for node in planned.blueprint.deployments:
            session = self._sessions[node]
            usable = session in members or session.state is State.IDLE
            if not usable or session.state is State.FAILED:
                return []
        saved_s = self._saved_s(planned.gain, left)
        if not asked.consented and saved_s < WORTH * self._pause_s:
            return self._not_worth(
                asked, f"it would save {saved_s:.1f} s of the rest, and a change takes some seconds"
            )
        names = ", ".join(asked.nodes)
        why = f"changing to a plan that is {planned.gain:.2f} times as fast: {names} is back"
        return Change(planned.blueprint, asked.cause, asked.nodes, why)

    def unplannable(self, answer: Unplannable) -> list[Action]:
        """None is as good as was asked for."""
        asked = self._asked
        if asked is None or asked.epoch != answer.epoch:
            return []
        self._asked = None
        return self._not_worth(asked, answer.reason)

    def _not_worth(self, asked: Asked, reason: str) -> list[Action]:
        return [Notice(f"{', '.join(asked.nodes)} stands by: {reason}")]

    def _saved_s(self, gain: float, left: int) -> float:
        """What the frames that are left save at the pace of now."""
        period_s = self.pace.period_s
        return 0.0 if period_s is None else left * period_s * (1 - 1 / gain)

    @property
    def _pause_s(self) -> float:
        longest = max((past.seconds for past in self._recoverer.done), default=None)
        return (self._limits.recovery_s or 0.0) if longest is None else longest
