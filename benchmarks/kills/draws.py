"""Draws whom to strike next, and how."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SERVER, STREAM, AGENTS = "server", "stream", ("left", "middle", "right")

HUNTED = ("child of the server", "grandchild of an agent")
"""Processes that live for a moment, such as those that prepare a subnet."""


@dataclass(frozen=True)
class Target:
    """A process to strike, and for how long to stop it; None to kill it."""

    kind: str
    """What is struck, for people: `server`, `agent`, `slot of an agent`, …"""
    stop_s: float | None
    weight: float


TARGETS = (
    Target("server", None, 4.0),
    Target("server", 1.5, 1.0),
    Target("server", 20.0, 2.0),  # longer than the watchdog allows
    Target("agent", None, 3.0),
    Target("agent", 2.0, 1.0),
    Target("slot of an agent", None, 4.0),
    Target("slot of an agent", 0.5, 1.0),
    Target("slot of an agent", 4.0, 1.0),
    Target("slot of an agent", 9.0, 1.0),
    Target(HUNTED[0], None, 4.0),
    Target(HUNTED[1], None, 4.0),
    Target("stream", None, 3.0),
    Target("stream", 3.0, 1.0),
)


def draw_target(chance: random.Random) -> Target:
    """Draw what to do next."""
    return chance.choices(TARGETS, [target.weight for target in TARGETS])[0]


def candidates(kind: str, members: Mapping[str, Sequence[int]]) -> list[int]:
    """Return the processes that are of a kind; `members` are those that run, by role."""
    names = {
        "server": (SERVER,),
        "agent": AGENTS,
        "slot of an agent": tuple(f"{name} child" for name in AGENTS),
        HUNTED[0]: (f"{SERVER} child", f"{SERVER} grandchild"),
        HUNTED[1]: tuple(f"{name} grandchild" for name in AGENTS),
        "stream": (STREAM,),
    }[kind]
    return [pid for name in names for pid in members.get(name, ())]
