"""How a run stands: its nodes, its epoch, its results, and the questions that follow from these.

What is done about it is decided in `launcher.core.supervisor`.
"""

from __future__ import annotations

from collections.abc import Iterable

from launcher.core import sentences
from launcher.core.blame import Disputes
from launcher.core.blueprint import Blueprint
from launcher.core.improving import Improver
from launcher.core.lateness import PatientClock
from launcher.core.recovery import Recoverer, Recovery
from launcher.core.returns import Returns
from launcher.core.rollout import Rollout
from launcher.core.session import Contact, Session, State
from launcher.core.watch import Limits, Watch
from launcher.errors import LauncherError
from nodes.core.messages import Control, Deployed, Failed, Hello, Progress, Stopped


class Standing:
    """See the module's docstring."""

    def __init__(
        self,
        blueprint: Blueprint,
        contacts: Iterable[Contact],
        frames: int,
        hello: Hello,
        limits: Limits,
    ) -> None:
        self.blueprint = blueprint
        self.frames = frames
        self.taken = 0
        self.sessions = {
            contact.name: Session(contact.name, contact.address, contact.started_by_us)
            for contact in contacts
        }
        self.ended = False
        self._hello = hello
        self._limits = limits
        self._watch = Watch(self.sessions, limits, frames)
        self._rollout = Rollout(blueprint, self.sessions, limits, renews=False)
        self._returns = Returns(self.sessions, self._hello)
        self._recoverer = Recoverer(blueprint.epoch, self.sessions, limits, self._returns)
        self._improver = Improver(self.sessions, limits, self._recoverer)
        self._disputes = Disputes()
        self._clock = PatientClock()
        self._has_streamed = False
        self._away_s = self._away_until_s = 0.0
        self._stalls, self._stalled_at = 0, -1

    @property
    def recoveries(self) -> list[Recovery]:
        """The changes of epochs that it got over so far."""
        return self._recoverer.done

    @property
    def deadline_s(self) -> float | None:
        """When the next `Tick` is due at the latest; None if none is."""
        due_s = self._clock.due_s
        return None if self.ended or due_s is None else self._clock.at_s(due_s)

    @property
    def _due_s(self) -> float | None:
        watchers = (self._watch, self._recoverer, self._returns, self._improver)
        due = [watcher.deadline_s for watcher in watchers]
        return min((at_s for at_s in due if at_s is not None), default=None)

    @property
    def _members(self) -> list[Session]:
        """Those that have a part in the epoch and are not lost."""
        return [session for session in self._rollout.members if session.is_there]

    def _needs(self, session: Session) -> bool:
        """Whether it has a part in the epoch, or may get one in the next."""
        is_there = session.state is not State.CONNECTING
        return session in self._rollout.members or (self._recoverer.is_planning and is_there)

    @property
    def _may_recover(self) -> bool:
        return self._limits.recovery_s is not None and self._has_streamed

    @property
    def _is_over(self) -> bool:
        """Whether every result is taken."""
        return self.taken == self.frames

    def _is_stale(self, message: Control) -> bool:
        match message:
            case Failed(epoch=0):  # it was no deployment that failed
                return False
            case Progress() | Deployed() | Stopped() | Failed():
                return self._recoverer.is_planning or message.epoch != self.blueprint.epoch
            case _:
                return False

    def _how_lost(self, session: Session, how: str, state: State | None = None) -> LauncherError:
        """The sentence that tells of it."""
        state = state or session.state
        return sentences.lost(session, state, how, self._progress(state))

    def _progress(self, state: State) -> str:
        if self._has_streamed or state in (State.RUNNING, State.STOPPING, State.STOPPED):
            return f", after {self.taken} of {self.frames} results"
        return ""
