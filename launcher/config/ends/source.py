"""Defines what a source of frames is, and how `cluster.yaml` describes one.

A source gives frames one after the other, in one thread. It does not queue, drop or reconnect:
`launcher.streaming` does that for all sources alike. A package can add a kind of source by an entry
point in the group `csdf_edge.sources` whose name is the kind and whose value is a subclass of
`SourceConfig`; `csdf_edge.testing.SourceContract` holds the tests that it must pass.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from launcher.config.kinds import file_names
from launcher.config.strict import StrictModel
from launcher.errors import LauncherError
from nodes.protocol.payload import Array

GROUP = "csdf_edge.sources"
"""The group of entry points that name the kinds of source."""


class SourceLostError(LauncherError):
    """The connection to a source broke or could not be made; a later attempt may succeed."""


class FrameRefusedError(LauncherError):
    """This frame can never be used, while later ones may be; it is counted, and left out."""


@dataclass(frozen=True, slots=True, eq=False)
class SourceFrame:
    """One frame of a source, before it is fitted to the network's input."""

    data: Array | Mapping[str, Array]
    """An image, uint8 [height, width, 3] in RGB, or the network's inputs by name.

    An array that has no name, as in an .npy file, is the only input; its key is "".
    """
    taken_s: float
    """When it was taken or read, in seconds of Unix time."""
    name: str = ""
    """The name of its file, without the folder; empty if it has none."""
    media_s: float | None = None
    """Its presentation time in seconds from the beginning of its video; None if it has none."""
    index: int | None = None
    """Its number, if the source numbers its frames; None for the next one. Numbers rise."""
    load: Callable[[], Array | Mapping[str, Array]] | None = None
    """Reads the data, which are empty then, in another thread, once the frame cannot be dropped any
    more. Raises `BadInputError` for a file that is broken."""
    settle: Callable[[], None] = lambda: None
    """Called once, in any thread, when every sink has the frame's result, or when the frame is left
    out. It is not called for a frame that was read when the stream failed. Raises `BadInputError`
    if the source cannot do what is due then."""


class Source(Protocol):
    """Gives frames. `frames` and `close` may be called from different threads."""

    @property
    def description(self) -> str:
        """The origin of the frames, for messages; without passwords."""
        ...

    @property
    def is_live(self) -> bool:
        """Whether frames arise even if they are not taken, as with a camera.

        Frames of a live source are dropped by default if the cluster is slower; others wait.
        """
        ...

    def frames(self) -> Iterator[SourceFrame]:
        """Connect, and yield the frames until the source ends.

        Raises `SourceLostError` if the connection cannot be made or breaks; the next call connects
        again, and continues after the frames that were yielded if the source keeps them. Raises
        `FrameRefusedError` for a broken frame, after which the next call continues. Raises
        `BadInputError` if the source can never give frames, or cannot continue after a broken one.
        """
        ...

    def close(self) -> None:
        """Make `frames`, in whatever thread it runs, end within a second; may be called twice."""
        ...


@runtime_checkable
class ResumableSource(Protocol):
    """A source that knows which of its frames are settled, so that another can continue after it.

    A source may have this method.
    """

    def resume(self, former: Source) -> None:
        """Continue after a closed source of the same keys, with the frames that it did not settle.

        It is called before `frames`.
        """
        ...


class SourceConfig(StrictModel):
    """The keys of one kind of source in `cluster.yaml`, `kind` excepted."""

    kind: ClassVar[str]

    def paths(self, folder: Path) -> dict[str, Path]:
        """Return the keys whose values are paths, which begin at `folder`."""
        return {key: folder / os.path.expanduser(name) for key, name in file_names(self).items()}

    def repeats(self, folder: Path) -> bool:  # noqa: ARG002
        """Return whether the source gives the same frames whenever it is opened, as a file does."""
        return False

    @abstractmethod
    def open(self, folder: Path) -> Source:
        """Return the source, not connected yet; relative paths begin at `folder`.

        Raises `BadInputError` for a value that can never be used.
        """
