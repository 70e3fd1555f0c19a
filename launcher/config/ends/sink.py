"""Defines what a sink of results is, and how `cluster.yaml` describes one.

A sink takes results one after the other, in a separate thread, and may block. It does not queue,
drop, retry or reconnect: `launcher.streaming` does that for all sinks alike, within a bound. A
package can add a kind of sink by an entry point in the group `csdf_edge.sinks` whose name is the
kind and whose value is a subclass of `SinkConfig`; `csdf_edge.testing.SinkContract` holds the tests
that it must pass.
"""

from __future__ import annotations

import ssl
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

from pydantic import Field

from launcher.config.run import Overload
from launcher.config.strict import StrictModel
from launcher.errors import BadInputError, LauncherError, reason
from nodes.protocol.payload import Array

GROUP = "csdf_edge.sinks"
"""The group of entry points that name the kinds of sink."""


class SinkLostError(LauncherError):
    """A result could not be delivered now; a later attempt may succeed."""


class ResultRefusedError(LauncherError):
    """This result can never be delivered, while others may be; it is counted, and left out."""


class Predictions(Protocol):
    """The meaning of a network's outputs."""

    def as_json(self) -> dict[str, Any]:
        """Return the predictions as JSON values; every number is finite."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FrameResult:
    """The results of one frame of a source."""

    index: int
    """The frame's number, from 0 on; dropped frames have numbers too."""
    taken_s: float
    """When the frame was taken or read, in seconds of Unix time."""
    outputs: Mapping[str, Array]
    """The network's outputs by name."""
    name: str = ""
    """The name of the frame's file; empty if it has none."""
    media_s: float | None = None
    """The frame's presentation time in seconds from the beginning of its video."""
    predictions: Predictions | None = None
    """The decoded outputs, if `cluster.yaml` has a task."""
    image: Array | None = None
    """The source's image, uint8 [height, width, 3] in RGB, for sinks that need it."""


class Sink(Protocol):
    """Delivers results; all methods are called in one thread."""

    @property
    def description(self) -> str:
        """Where the results go, for messages; without passwords."""
        ...

    @property
    def needs_image(self) -> bool:
        """Whether `FrameResult.image` is used; it is None otherwise."""
        ...

    def write(self, result: FrameResult) -> None:
        """Deliver a result; return once it need not be delivered again.

        Indices rise. Raises `SinkLostError` if it was not delivered and may be tried again with the
        same result, `ResultRefusedError` if only this result cannot be delivered, and
        `RunFailedError` if none ever can.
        """
        ...

    def close(self) -> None:
        """Complete all output, and free everything; may be called twice."""
        ...


@runtime_checkable
class PresentSink(Protocol):
    """A sink that is to be connected while there are no results, because others see whether it is.

    A sink may have this method; it is called in the sink's thread, every few seconds.
    """

    def be_present(self) -> None:
        """Connect, and announce it, unless that is so already; raises as `Sink.write`."""
        ...


class SinkConfig(StrictModel):
    """The keys of one kind of sink in `cluster.yaml`, `kind` excepted."""

    kind: ClassVar[str]

    on_overload: Annotated[
        Overload,
        Field(
            description="What happens to a result if queue_results wait already: the stream waits "
            "(block), or a result is dropped and counted"
        ),
    ] = "block"
    queue_results: Annotated[
        int, Field(ge=1, le=1_000_000, description="Number of results that may wait for this sink")
    ] = 64

    network: Annotated[
        str | None,
        Field(description="Of several networks, the name of the one whose results it gets"),
    ] = None
    labels: Annotated[
        tuple[str | int, ...],
        Field(
            description="Names or numbers of the classes that are delivered; all others are left "
            "out of its results"
        ),
    ] = ()
    score: Annotated[
        float | None, Field(ge=0, le=1, description="Lowest score that is delivered, from 0 to 1")
    ] = None
    empty: Annotated[
        bool, Field(description="Whether a result in which nothing was found is delivered")
    ] = True
    on_change: Annotated[
        bool,
        Field(
            description="Whether only those results are delivered whose classes, or the number of "
            "objects of one, differ from the result before"
        ),
    ] = False

    @abstractmethod
    def open(self, folder: Path) -> Sink:
        """Return the sink, not connected yet; relative paths begin at `folder`.

        Raises `BadInputError` for a value that can never be used.
        """


def tls_trusting(authority: Path | None) -> ssl.SSLContext:
    """Return the TLS of a client that trusts the usual authorities, or the one of a PEM file.

    Raises `BadInputError` if the file has no certificate.
    """
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:  # ssl.SSLError is one
        raise BadInputError(f"tls_ca: {authority}: not a certificate: {reason(error)}") from error
