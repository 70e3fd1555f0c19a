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


@dataclass(frozen=True, slots=True)
class OfRelease:
    """An event or an action that is about one release."""

    release: ModelRelease


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


class ReleaseLoaded(OfRelease):
    """The nodes have loaded a release."""


@dataclass(frozen=True, slots=True)
class ReleaseFailed(OfRelease):
    """A release could not be loaded, or its thread has ended with an error: it holds nothing.

    `lacks_room` says that it may fit once another release is closed, `must_wait` that it cannot
    fit before.
    """

    reason: str
    lacks_room: bool = False
    must_wait: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseChecked(OfRelease):
    """A release was compared with its whole model; `problem` is empty if it agrees.

    Without `was_compared`, the comparison could not be made, and may be possible later.
    """

    problem: str = ""
    was_compared: bool = True


@dataclass(frozen=True, slots=True)
class RunEnded(OfRelease):
    """The run of a release ended with an error."""

    reason: str


class Drained(OfRelease):
    """A release that gets no more requests has answered all."""


class Closed(OfRelease):
    """A release no longer holds anything."""


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


class Open(OfRelease):
    """Plan a release and load it; answered by `ReleaseLoaded` or `ReleaseFailed`."""


class CheckRelease(OfRelease):
    """Compare a release with its whole model; answered by `ReleaseChecked`."""


@dataclass(frozen=True, slots=True)
class Route:
    """New requests of a model go to this release; without one, they wait."""

    model: str
    release: ModelRelease | None


class Drain(OfRelease):
    """Report `Drained` once all requests that this release has are answered."""


class Close(OfRelease):
    """Close a release, or cancel its loading; answered by `Closed`."""


@dataclass(frozen=True, slots=True)
class Forget:
    """A model is no longer wanted, and nothing of it is left."""

    model: str


class NoteGood(OfRelease):
    """A release has been checked and serves; it is what a failed one falls back to."""


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
