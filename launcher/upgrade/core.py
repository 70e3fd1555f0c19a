"""Decides in which order boards are upgraded, and which steps are undone where one fails.

    all boards:       LOOK
    board by board:   COPY → BUILD → TRY → SWITCH → RESTART → CHECK → PRUNE → next board
                        │      │      │      └────────┴────────┴─ fails:
                        └──────┴──────┴─ fails:        SWITCH_BACK → RESTART_BACK → CHECK_BACK
                              DISCARD → end                                  └→ DISCARD → end

No board is changed before all of them have been examined, and none after one has failed. So at most
one board at a time is without a working agent, and a version that cannot work reaches one board
only, which goes back to its former version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias


class UpgradeStep(Enum):
    """A step of a board's upgrade; the value describes it in a report."""

    LOOK = "examine it"
    COPY = "copy the wheel"
    BUILD = "install it next to the present version"
    TRY = "try it"
    SWITCH = "switch"
    RESTART = "restart the agent"
    CHECK = "wait for the agent"
    PRUNE = "remove older versions"
    SWITCH_BACK = "switch back"
    RESTART_BACK = "restart the former agent"
    CHECK_BACK = "wait for the former agent"
    DISCARD = "remove the new version"


_ON_SUCCESS = {
    UpgradeStep.COPY: UpgradeStep.BUILD,
    UpgradeStep.BUILD: UpgradeStep.TRY,
    UpgradeStep.TRY: UpgradeStep.SWITCH,
    UpgradeStep.SWITCH: UpgradeStep.RESTART,
    UpgradeStep.RESTART: UpgradeStep.CHECK,
    UpgradeStep.CHECK: UpgradeStep.PRUNE,
    UpgradeStep.SWITCH_BACK: UpgradeStep.RESTART_BACK,
    UpgradeStep.RESTART_BACK: UpgradeStep.CHECK_BACK,
    UpgradeStep.CHECK_BACK: UpgradeStep.DISCARD,
}
"""The step after one that has succeeded; after the others, the board is done."""

_ON_FAILURE = {
    UpgradeStep.COPY: UpgradeStep.DISCARD,
    UpgradeStep.BUILD: UpgradeStep.DISCARD,
    UpgradeStep.TRY: UpgradeStep.DISCARD,
    UpgradeStep.SWITCH: UpgradeStep.SWITCH_BACK,
    UpgradeStep.RESTART: UpgradeStep.SWITCH_BACK,
    UpgradeStep.CHECK: UpgradeStep.SWITCH_BACK,
}
"""The step after one that has failed; the others cannot be undone, or need not be."""


@dataclass(frozen=True, slots=True)
class StepSucceeded:
    """A step has succeeded; `is_upgraded`: LOOK found the new version on the board already."""

    board: str
    step: UpgradeStep
    is_upgraded: bool = False


@dataclass(frozen=True, slots=True)
class StepFailed:
    """A step has failed."""

    board: str
    step: UpgradeStep
    reason: str


Event: TypeAlias = StepSucceeded | StepFailed


@dataclass(frozen=True, slots=True)
class Perform:
    """Do this step with this board; exactly one event answers it."""

    board: str
    step: UpgradeStep


@dataclass(frozen=True, slots=True)
class UpgradeProblem:
    """Why a board was not upgraded, and its state now."""

    board: str
    step: UpgradeStep
    reason: str
    outcome: str

    def __str__(self) -> str:
        return f"{self.board}: could not {self.step.value}: {self.reason}; {self.outcome}"


@dataclass(frozen=True, slots=True)
class UpgradeEnded:
    """The upgrade has ended: boards with the new version now, those that had it, and problems.

    `untouched` has the boards that were not changed because another one had failed.
    """

    upgraded: tuple[str, ...]
    present: tuple[str, ...]
    untouched: tuple[str, ...]
    problems: tuple[UpgradeProblem, ...]


Action: TypeAlias = Perform | UpgradeEnded

UNCHANGED = "it was not changed"
RETURNED = "it has its former version again, whose agent works"


@dataclass
class Upgrade:
    """The upgrade of these boards, in this order."""

    boards: Sequence[str]
    _looked_at: dict[str, StepSucceeded | StepFailed] = field(default_factory=dict)
    _waiting: list[str] = field(default_factory=list)
    _upgraded: list[str] = field(default_factory=list)
    _failure: StepFailed | None = None

    def begin(self) -> list[Action]:
        """Return the first actions: all boards are examined."""
        return [Perform(board, UpgradeStep.LOOK) for board in self.boards]

    def handle(self, event: Event) -> list[Action]:
        """Return the actions that follow from an event."""
        match event:
            case StepSucceeded(_, UpgradeStep.LOOK) | StepFailed(_, UpgradeStep.LOOK):
                return self._looked(event)
            case StepSucceeded():
                return self._succeeded(event)
            case StepFailed():
                return self._failed(event)

    def _looked(self, event: StepSucceeded | StepFailed) -> list[Action]:
        self._looked_at[event.board] = event
        if len(self._looked_at) < len(self.boards):
            return []
        found = [self._looked_at[board] for board in self.boards]
        problems = [
            UpgradeProblem(each.board, each.step, each.reason, UNCHANGED)
            for each in found
            if isinstance(each, StepFailed)
        ]
        self._waiting = [
            each.board for each in found if isinstance(each, StepSucceeded) and not each.is_upgraded
        ]
        return [self._ended(*problems)] if problems else [self._next_board()]

    def _succeeded(self, event: StepSucceeded) -> list[Action]:
        following = _ON_SUCCESS.get(event.step)
        if following is not None:
            return [Perform(event.board, following)]
        if self._failure is None:
            return self._upgraded_board(event.board)
        was_switched = _ON_FAILURE[self._failure.step] is UpgradeStep.SWITCH_BACK
        return [self._ended(_problem(self._failure, RETURNED if was_switched else UNCHANGED))]

    def _failed(self, event: StepFailed) -> list[Action]:
        if event.step is UpgradeStep.PRUNE:
            return self._upgraded_board(event.board)
        if self._failure is None:
            self._failure = event
            return [Perform(event.board, _ON_FAILURE[event.step])]
        if event.step is UpgradeStep.DISCARD:
            return self._succeeded(StepSucceeded(event.board, event.step))
        outcome = f"its former version does not work either, could not {event.step.value}: "
        return [self._ended(_problem(self._failure, outcome + event.reason))]

    def _upgraded_board(self, board: str) -> list[Action]:
        self._upgraded.append(board)
        return [self._next_board()]

    def _next_board(self) -> Action:
        if not self._waiting:
            return self._ended()
        return Perform(self._waiting.pop(0), UpgradeStep.COPY)

    def _ended(self, *problems: UpgradeProblem) -> UpgradeEnded:
        present = [
            board
            for board, looked in self._looked_at.items()
            if isinstance(looked, StepSucceeded) and looked.is_upgraded
        ]
        return UpgradeEnded(
            tuple(self._upgraded), tuple(present), tuple(self._waiting), tuple(problems)
        )


def _problem(failure: StepFailed, outcome: str) -> UpgradeProblem:
    return UpgradeProblem(failure.board, failure.step, failure.reason, outcome)
