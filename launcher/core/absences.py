"""Records the nodes without which a run began: why they were absent, and when they came.

A node is absent if it is lost, for whatever reason, when the first frame streams, or if it has
never answered. One that comes in time for the first frame was not absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from launcher.core.session import AWAY, Session


@dataclass(frozen=True, slots=True)
class Absence:
    """A node that was absent at the start: why, in a sentence, and how many seconds after the
    beginning of the run it came; None if it did not come."""

    node: str
    reason: str
    came_s: float | None = None


class Absences:
    """The absences of one run, whose nodes have these `sessions`."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._began_s = 0.0
        self._found: dict[str, Absence] = {}

    @property
    def all(self) -> tuple[Absence, ...]:
        """All absences, in the order of the nodes."""
        return tuple(self._found[node] for node in self._sessions if node in self._found)

    def begin(self, now_s: float) -> None:
        """Note that the run begins."""
        self._began_s = now_s

    def note(self, session: Session, *, has_streamed: bool) -> None:
        """Note that a node is lost, or that the reason why it is lost is better known."""
        before = self._found.get(session.node)
        if before is not None and before.came_s is not None:
            return
        if not has_streamed or session.was_absent:
            self._found[session.node] = Absence(session.node, session.why_lost)

    def came(self, node: str, now_s: float) -> None:
        """Note that a node has come, or has come back."""
        absence = self._found.get(node)
        if absence is not None and absence.came_s is None:
            self._found[node] = replace(absence, came_s=now_s - self._began_s)

    def note_streaming(self) -> None:
        """Note that the first frame streams: who has come by now was not absent."""
        for node in list(self._found):
            if self._sessions[node].state not in AWAY:
                del self._found[node]
