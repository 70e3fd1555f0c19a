"""How often a log tells that somebody was turned away: a flood of them must not fill a disk.

The first of a kind is told at once. Those that follow are counted, and told together when the pause
is over. It begins with a second and doubles while they keep coming, to a minute; after a pause in
which none came the next one is told at once again.
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
        if pause is not None and (pause.untold or now_s < pause.until_s):
            pause.untold += 1
            pause.last = f"{what}: {why}"[:LONGEST_TEXT]
            return None
        self._pauses[kind] = _Pause(now_s + SHORTEST_PAUSE_S, SHORTEST_PAUSE_S)
        return f"{what}: {why}"[:LONGEST_TEXT]

    def due(self, now_s: float) -> list[str]:
        """The lines to tell now of what came in pauses that are over."""
        told = []
        for pause in self._pauses.values():
            if not pause.untold or now_s < pause.until_s:
                continue
            more = f" (the last of {pause.untold} in {pause.seconds:g} s)"
            told.append(pause.last + (more if pause.untold > 1 else ""))
            longer_s = min(2 * pause.seconds, LONGEST_PAUSE_S)
            pause.until_s, pause.seconds, pause.untold = now_s + longer_s, longer_s, 0
        return told
