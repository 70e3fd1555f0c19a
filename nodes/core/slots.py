"""Decides when the agents of a node's slots are started and ended, without I/O.

A node with several slots is a parent process, which owns the ports of all slots, and at most one
agent process for each slot. A slot's agent is started when somebody connects to the slot, and ends
by itself once no launcher has needed it for a while. Its connections then wait at the parent.

    ASLEEP ──Called──▶ STARTING ──ready──▶ AWAKE
     ▲ ▲                │    │             │  │
     │ └─ended well─────┼────┼─────────────┘  │
     │                  │    │ too slow       │ silent
     │ pause is over    │    ▼                ▼
     └──── RESTING ◀────┴── KILLED ◀──────────┘
                 crashed

An agent that crashes does not touch the others. After its first crash it may be started again at
once; after each further one that follows within `CALM_S`, the pause doubles. An agent reports that
it is ready, and repeatedly that it is alive, as sd_notify(3) does. One that falls silent is killed.

The agent of slot 1 is started with the node. If it does not become ready, the node has been started
wrongly (its keys, its engine, its cache) and ends with that agent's exit code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from nodes.core.pauses import pause_s

MOST_SLOTS = 8
"""The most slots of a node."""

START_S = 120.0
"""How long an agent may take to become ready; engines for GPUs take seconds."""

CALM_S = 60.0
"""An agent that ran for this time did not crash at its start."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""The pause after the second crash in a row, and the longest one."""

STOP_S = 6.0
"""How long agents may take to end after they were asked to, before they are killed."""

LATE_S = 2.0
"""A later tick shows that this process was stopped, and perhaps the agents as well.

That time does not count.
"""

FAILED = 1
"""The exit code if the first agent was ended by a signal before it was ready."""


class SlotState(Enum):
    """The state of a slot."""

    ASLEEP = "asleep"
    STARTING = "starting"
    AWAKE = "awake"
    KILLED = "killed"
    RESTING = "resting"


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class PortsOpened:
    """The ports are open."""


@dataclass(frozen=True, slots=True)
class Called:
    """A connection waits at a slot whose agent does not run."""

    slot: int


@dataclass(frozen=True, slots=True)
class Said:
    """A slot's agent reports that it is ready, or alive."""

    slot: int
    what: Literal["ready", "alive"]


@dataclass(frozen=True, slots=True)
class AgentEnded:
    """A slot's agent has ended; a negative `code` is minus the signal that ended it."""

    slot: int
    code: int


@dataclass(frozen=True, slots=True)
class KeysChanged:
    """The keys are to be read again."""


@dataclass(frozen=True, slots=True)
class StopWanted:
    """The node is to end; `why` is a clause."""

    why: str


@dataclass(frozen=True, slots=True)
class TimeIsUp:
    """The `deadline_s` of `Slots` has passed."""


Event: TypeAlias = PortsOpened | Called | Said | AgentEnded | KeysChanged | StopWanted | TimeIsUp

# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class StartAgent:
    """Start the agent of a slot; `AgentEnded` answers if that is impossible."""

    slot: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Ask a slot's agent to end or to read its keys again, or kill it."""

    slot: int
    what: Literal["end", "reread", "kill"]


@dataclass(frozen=True, slots=True)
class Ready:
    """The node is ready; said once."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """Write a line to the log."""

    level: Literal["info", "warning"]
    text: str


@dataclass(frozen=True, slots=True)
class NodeEnded:
    """End the process; all agents have ended."""

    code: int
    why: str


Action: TypeAlias = StartAgent | Signal | Ready | LogLine | NodeEnded


@dataclass(slots=True)
class _Slot:
    """One slot and its agent.

    `since_s` is when the agent was started, `heard_s` when its last message arrived; `crashes`
    counts those in a row.
    """

    number: int
    state: SlotState = SlotState.ASLEEP
    since_s: float = 0.0
    heard_s: float = 0.0
    starts: int = 0
    crashes: int = 0
    pause_until_s: float = 0.0
    reread_is_due: bool = False

    @property
    def has_agent(self) -> bool:
        return self.state in (SlotState.STARTING, SlotState.AWAKE, SlotState.KILLED)


class Slots:
    """The slots of a node, numbered from 1; an agent that is silent for `silence_s` is killed."""

    def __init__(self, count: int, silence_s: float) -> None:
        if not 1 <= count <= MOST_SLOTS:
            raise ValueError(f"{count} slots")
        self._slots = {number: _Slot(number) for number in range(1, count + 1)}
        self._silence_s = silence_s
        self.is_ready = False
        """Whether the first agent has become ready."""
        self._stopping: str | None = None
        self._exit_code = 0
        self._stop_by_s: float | None = None

    @property
    def callable(self) -> list[int]:
        """The slots at which connections are to be waited for."""
        if self._stopping is not None:
            return []
        return [slot.number for slot in self._slots.values() if slot.state is SlotState.ASLEEP]

    @property
    def starts(self) -> dict[int, int]:
        """How many agents each slot has had."""
        return {slot.number: slot.starts for slot in self._slots.values()}

    def state(self, slot: int) -> SlotState:
        """Return the state of a slot."""
        return self._slots[slot].state

    @property
    def deadline_s(self) -> float | None:
        """When the next `TimeIsUp` is due, on the clock of `handle`; None if none is."""
        due = [due_s for slot in self._slots.values() if (due_s := self._due_s(slot)) is not None]
        if self._stop_by_s is not None:
            due.append(self._stop_by_s)
        return min(due, default=None)

    def _due_s(self, slot: _Slot) -> float | None:
        match slot.state:
            case SlotState.STARTING:
                return slot.heard_s + START_S
            case SlotState.AWAKE:
                return slot.heard_s + self._silence_s
            case SlotState.RESTING:
                return slot.pause_until_s
            case SlotState.ASLEEP | SlotState.KILLED:
                return None

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Return the actions that follow from an event; `now_s` is a monotonic clock."""
        match event:
            case PortsOpened():
                return self._start(self._slots[1], now_s)
            case Called(number):
                slot = self._slots[number]
                is_due = self._stopping is None and slot.state is SlotState.ASLEEP
                return self._start(slot, now_s) if is_due else []
            case Said(number, what):
                return self._said(self._slots[number], what, now_s)
            case AgentEnded(number, code):
                return self._ended(self._slots[number], code, now_s)
            case KeysChanged():
                return self._reread()
            case StopWanted(why):
                return self._stop(why, 0, now_s)
            case TimeIsUp():
                return self._tick(now_s)

    def _start(self, slot: _Slot, now_s: float) -> list[Action]:
        slot.state = SlotState.STARTING
        slot.since_s = slot.heard_s = now_s
        slot.starts += 1
        slot.reread_is_due = False
        return [StartAgent(slot.number)]

    def _said(self, slot: _Slot, what: str, now_s: float) -> list[Action]:
        slot.heard_s = now_s
        if slot.state is not SlotState.STARTING or what != "ready":
            return []
        slot.state = SlotState.AWAKE
        actions: list[Action] = []
        if slot.reread_is_due:
            slot.reread_is_due = False
            actions.append(Signal(slot.number, "reread"))
        if not self.is_ready and self._stopping is None:
            self.is_ready = True
            actions.append(Ready())
        return actions

    def _ended(self, slot: _Slot, code: int, now_s: float) -> list[Action]:
        was_killed = slot.state is SlotState.KILLED
        slot.state = SlotState.ASLEEP
        if self._stopping is not None:
            return self._exit_if_alone()
        if not self.is_ready:
            return self._stop("its first agent could not start", max(code, 0) or FAILED, now_s)
        if code == 0 and not was_killed:
            slot.crashes = 0
            return [LogLine("info", f"slot {slot.number} sleeps")]
        calm = now_s - slot.since_s >= CALM_S
        slot.crashes = 1 if calm else slot.crashes + 1
        resting_s = 0.0
        if slot.crashes > 1:
            resting_s = pause_s(slot.crashes - 1, FIRST_PAUSE_S, LONGEST_PAUSE_S)
            slot.state, slot.pause_until_s = SlotState.RESTING, now_s + resting_s
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        then = f"in {resting_s:g} s at the earliest" if resting_s else "when somebody connects"
        text = f"the agent of slot {slot.number} ended with {how}; it is started again {then}"
        return [LogLine("warning", text)]

    def _reread(self) -> list[Action]:
        actions: list[Action] = []
        for slot in self._slots.values():
            if slot.state is SlotState.AWAKE:
                actions.append(Signal(slot.number, "reread"))
            slot.reread_is_due = slot.state is SlotState.STARTING  # it may have read them already
        return actions

    def _stop(self, why: str, code: int, now_s: float) -> list[Action]:
        if self._stopping is not None:
            return []
        self._stopping, self._exit_code, self._stop_by_s = why, code, now_s + STOP_S
        running = [slot for slot in self._slots.values() if slot.has_agent]
        return [*(Signal(slot.number, "end") for slot in running), *self._exit_if_alone()]

    def _exit_if_alone(self) -> list[Action]:
        if self._stopping is None or any(slot.has_agent for slot in self._slots.values()):
            return []
        self._stop_by_s = None
        return [NodeEnded(self._exit_code, self._stopping)]

    def _tick(self, now_s: float) -> list[Action]:
        due_s = self.deadline_s
        if due_s is not None and now_s > due_s + LATE_S:
            for slot in self._slots.values():
                slot.heard_s = now_s
        if self._stop_by_s is not None and now_s >= self._stop_by_s:
            self._stop_by_s = None
            return [action for slot in self._slots.values() for action in self._kill(slot)]
        actions: list[Action] = []
        for slot in self._slots.values():
            own_s = self._due_s(slot)
            if own_s is None or now_s < own_s:
                continue
            if slot.state is SlotState.RESTING:
                slot.state = SlotState.ASLEEP
            else:
                text = (
                    f"the agent of slot {slot.number} has sent nothing for too long, and is killed"
                )
                actions += [LogLine("warning", text), *self._kill(slot)]
        return actions

    def _kill(self, slot: _Slot) -> list[Action]:
        if not slot.has_agent:
            return []
        slot.state = SlotState.KILLED
        return [Signal(slot.number, "kill")]
