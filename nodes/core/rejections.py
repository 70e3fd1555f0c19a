"""How often a log tells that somebody was turned away: a flood of them must not fill a disk.

The first of a kind is told at once. Those that follow are counted, and told together when the pause
is over. It begins with a second and doubles while they keep coming, to a minute, so that somebody
who knocks seldom but steadily does not fill a disk either. One that comes after a pause in which
none came is told at once; a second's pause follows again only after a whole minute without any.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0

KINDS = 64
"""Kinds that are kept apart at most; whatever is beyond counts as one."""

LONGEST_TEXT = 500
"""Characters of a reason that are told: others chose its words."""


@dataclass(slots=True)
class _Pause:
    until_s: float
    seconds: float
    untold: int = 0
    last: str = ""

    def begin(self, now_s: float) -> None:
        """The next one, longer than this."""
        self.seconds = min(2 * self.seconds, LONGEST_PAUSE_S)
        self.until_s, self.untold = now_s + self.seconds, 0


class Rejections:
    """Those of one agent; `deadline_s` is when `due` has something to tell, None if never."""

    def __init__(self) -> None:
        self._pauses: dict[str, _Pause] = {}

    @property
    def deadline_s(self) -> float | None:
        """When the first pause ends in which something came."""
        if not self._pauses:
            return None
        waiting = (pause.until_s for pause in self._pauses.values() if pause.untold)
        return min(waiting, default=None)

    def note(self, what: str, why: str, now_s: float) -> str | None:
        """Somebody was turned away: the line to tell now, if any."""
        kind = what if what in self._pauses or len(self._pauses) < KINDS else ""
        pause = self._pauses.get(kind)
        line = f"{what}: {why}"[:LONGEST_TEXT]
        if pause is None or (now_s >= pause.until_s + LONGEST_PAUSE_S and not pause.untold):
            self._pauses[kind] = _Pause(now_s + SHORTEST_PAUSE_S, SHORTEST_PAUSE_S)
            return line
        if pause.untold or now_s < pause.until_s:
            pause.untold += 1
            pause.last = line
            return None
        pause.begin(now_s)
        return line

    def due(self, now_s: float) -> list[str]:
        """The lines to tell now of what came in pauses that are over."""
        told = []
        for pause in self._pauses.values():
            if not pause.untold or now_s < pause.until_s:
                continue
            more = f" (the last of {pause.untold} in {pause.seconds:g} s)"
            told.append(pause.last + (more if pause.untold > 1 else ""))
            pause.begin(now_s)
        return told
