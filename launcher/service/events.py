"""Events and actions of the service's core (`launcher.service.core`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from nodes.core.events import Tick


@dataclass(frozen=True, slots=True)
class ModelRelease:
    """A version of a model, and how it is deployed.

    `digest` identifies the model's files and everything that its deployment depends on. A release
    that is opened again, with its own agents, has a higher `renewal`.
    """

    model: str
    version: str
    digest: str
    renewal: int = 0

    def __str__(self) -> str:
        return f"version {self.version} of {self.model}"


class ReleaseState(Enum):
    """The progress of a release."""

    LOADING = "loading"
    """It is planned, and the nodes load its subnets."""
    CHECKING = "checking"
    """It computes a few frames, which are compared with the whole model's."""
    SERVING = "serving"
    DRAINING = "draining"
    """It answers the requests that it has, and gets no more."""
    CLOSING = "closing"
    FAILED = "failed"
    """It has failed, and no longer holds anything."""


ALIVE = frozenset(ReleaseState) - {ReleaseState.FAILED}
"""The states of a release that may hold memory on the nodes."""


# Events


@dataclass(frozen=True, slots=True)
class Applied:
    """These releases are wanted from now on, and no others.

    With `may_gap`, a release that does not fit next to the former version of its model is opened
    after that one is closed, so that for a while no version of the model serves.
    """

    generation: int
    releases: tuple[ModelRelease, ...]
    may_gap: bool = False


@dataclass(frozen=True, slots=True)
class Renewed:
    """The releases of these models are to be opened again."""

    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseLoaded:
    """The nodes have loaded a release."""

    release: ModelRelease


@dataclass(frozen=True, slots=True)
class ReleaseFailed:
    """A release could not be loaded, or its thread has ended with an error: it holds nothing.

    `lacks_room` says that it may fit once another release is closed, `must_wait` that it cannot
    fit before.
    """

    release: ModelRelease
    reason: str
    lacks_room: bool = False
    must_wait: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseChecked:
    """A release was compared with its whole model; `problem` is empty if it agrees.

    Without `was_compared`, the comparison could not be made, and may be possible later.
    """

    release: ModelRelease
    problem: str = ""
    was_compared: bool = True


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run of a release ended with an error."""

    release: ModelRelease
    reason: str


@dataclass(frozen=True, slots=True)
class Drained:
    """A release that gets no more requests has answered all."""

    release: ModelRelease


@dataclass(frozen=True, slots=True)
class Closed:
    """A release no longer holds anything."""

    release: ModelRelease


@dataclass(frozen=True, slots=True)
class StopService:
    """All releases are to be closed; no further request comes."""


Event: TypeAlias = (
    Applied
    | Renewed
    | ReleaseLoaded
    | ReleaseFailed
    | ReleaseChecked
    | RunEnded
    | Drained
    | Closed
    | StopService
    | Tick
)


# Actions


@dataclass(frozen=True, slots=True)
class Open:
    """Plan a release and load it; answered by `ReleaseLoaded` or `ReleaseFailed`."""

    release: ModelRelease


@dataclass(frozen=True, slots=True)
class CheckRelease:
    """Compare a release with its whole model; answered by `ReleaseChecked`."""

    release: ModelRelease


@dataclass(frozen=True, slots=True)
class Route:
    """New requests of a model go to this release; without one, they wait."""

    model: str
    release: ModelRelease | None


@dataclass(frozen=True, slots=True)
class Drain:
    """Report `Drained` once all requests that this release has are answered."""

    release: ModelRelease


@dataclass(frozen=True, slots=True)
class Close:
    """Close a release, or cancel its loading; answered by `Closed`."""

    release: ModelRelease


@dataclass(frozen=True, slots=True)
class Forget:
    """A model is no longer wanted, and nothing of it is left."""

    model: str


@dataclass(frozen=True, slots=True)
class NoteGood:
    """A release has been checked and serves; it is what a failed one falls back to."""

    release: ModelRelease


@dataclass(frozen=True, slots=True)
class NoteServed:
    """Everything that a generation wants serves, so a rollback may go back to it."""

    generation: int


@dataclass(frozen=True, slots=True)
class Note:
    """Something that the history tells: `info`, `warning` or `error`.

    `nodes` and `run`, which only the log has, are those that it is about.
    """

    level: str
    text: str
    nodes: tuple[str, ...] = ()
    run: str = ""


@dataclass(frozen=True, slots=True)
class ServiceStopped:
    """All releases are closed, after `StopService`."""


Action: TypeAlias = (
    Open
    | CheckRelease
    | Route
    | Drain
    | Close
    | Forget
    | NoteGood
    | NoteServed
    | Note
    | ServiceStopped
)
