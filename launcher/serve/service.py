"""Serves requests, whose tensors are arrays by then, for both servers."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from launcher.errors import BadInputError, FullError
from launcher.serve.control import Control
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.infer_request import InferRequest, put_together
from launcher.serve.request_traces import RequestTrace, RequestTraces
from launcher.serve.routes import Routes, ServedVersion
from launcher.serve.served_sinks import ServedSinks
from launcher.serve.tensors import ModelRepository
from launcher.view.model import RunView
from launcher.view.sampling import RecentSamples
from nodes.protocol.payload import Array

if TYPE_CHECKING:
    from launcher.inputs.fitting import ImagePlacement


@dataclass(frozen=True)
class ClientLimits:
    """Limits for slow clients and for many clients, of each of the two servers."""

    read_s: float = 30.0
    """For a request to arrive, from its beginning to its end, and for a connection to begin one."""
    connections: int = 1024
    room_bytes: int = 12 << 20
    """For requests that are arriving and answers that are leaving, over all connections."""
    streams: int = 32
    """Calls of `ModelStreamInfer`, which may last as long as their clients want."""
    stream_in_flight: int = 16
    """Requests in flight of one such call."""
    grace_s: float = 30.0
    """For requests in flight to be answered once the server stops."""


SEVERAL_HELD_BYTES = 128 << 20
"""Bytes of the requests of several frames that are in flight."""

LARGE_MESSAGE_BYTES = 32 << 20
"""The limit of a gRPC message where models may be added that are larger than the first ones."""


@dataclass
class Service:
    """The models that are served, for clients that have the token if there is one."""

    routes: Routes
    token: str | None = None
    limits: ClientLimits = ClientLimits()
    sinks: Mapping[str, ServedSinks] = field(default_factory=dict)
    """The sinks of the results of requests, by model."""
    control: Control | None = None
    views: Callable[[], Sequence[RunView]] = tuple
    """The present view of each run; waits as `LiveCluster.view` does."""
    traces: RequestTraces | None = None
    recent: RecentSamples = field(default_factory=RecentSamples)
    """The samples of the last minutes."""
    several_bytes: int = 0
    """Bytes of the requests of several frames that are in flight now."""
    metrics_are_open: bool = False
    """Whether `/metrics` is answered without the token."""
    version: str = field(default_factory=lambda: version("csdf-edge"))

    @property
    def repository(self) -> ModelRepository:
        """The models that are served now."""
        return self.routes.repository

    @property
    def is_ready(self) -> bool:
        """Whether all models compute frames."""
        return self.routes.is_ready

    @property
    def largest_message_bytes(self) -> int:
        """Bytes that a gRPC message may have."""
        largest = self.repository.largest_message_bytes
        return largest if self.control is None else max(largest, LARGE_MESSAGE_BYTES)

    def begin_trace(
        self, headers: Mapping[str, str], served: ServedVersion, transport: str, began_s: float
    ) -> RequestTrace | None:
        """Return the trace of a request with these headers, if it is to be traced; `infer` ends
        it."""
        if self.traces is None:
            return None
        return self.traces.begin(headers, served.model, transport, began_s)

    def check_token(self, authorization: str | bytes | None) -> None:
        """Raise `RequestError` unless this header has the clients' token or the operators'.

        Tokens are compared in constant time.
        """
        if self.token is None or (
            self.control is not None and self.control.is_operator(authorization)
        ):
            return
        given = authorization or ""
        if isinstance(given, str):
            given = given.encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, b"Bearer " + self.token.encode()):
            raise RequestError(
                "a token is needed: send the header 'Authorization: Bearer TOKEN'",
                Refusal.UNAUTHENTICATED,
            )

    async def infer_all(
        self, served: ServedVersion, request: InferRequest, trace: RequestTrace | None = None
    ) -> Mapping[str, Array]:
        """Return the version's outputs of all frames of a request, put together; see `infer`.

        If a frame is refused, or the caller is cancelled, frames that are not sent yet are not
        computed. `trace` follows the first frame.
        """
        if request.frames == 1:
            return await self.infer(served, request.inputs, request.id, trace)
        if request.frames > served.feed.most:
            raise RequestError(
                f"the request has {request.frames} frames, more than the {served.feed.most} that "
                "may be in flight; send fewer"
            )
        size_bytes = request.size_bytes
        if self.several_bytes and self.several_bytes + size_bytes > SEVERAL_HELD_BYTES:
            raise RequestError(
                "too many requests of several frames are in flight; try again later", Refusal.FULL
            )
        self.several_bytes += size_bytes
        asked = [
            asyncio.ensure_future(
                self.infer(served, inputs, request.id, trace if number == 0 else None)
            )
            for number, inputs in enumerate(request.each_frame())
        ]
        try:
            return put_together(await asyncio.gather(*asked))
        finally:
            self.several_bytes -= size_bytes
            for one in asked:
                one.cancel()

    async def infer(
        self,
        served: ServedVersion,
        inputs: Mapping[str, Array],
        name: str = "",
        trace: RequestTrace | None = None,
        placement: ImagePlacement | None = None,
    ) -> Mapping[str, Array]:
        """Return the version's outputs of one frame; its arrays must not be written to meanwhile.

        The sinks get the outputs as the result of `name`, of an image that lies in the inputs as
        `placement` says. A frame is not sent if its caller is cancelled before. Raises
        `LauncherError`, at once if as many frames are in flight as the cluster takes. `trace` is
        that of the request, if it is traced.
        """
        began_ns, outcome = time.monotonic_ns(), "failed"
        model = served.model.name
        try:
            if (sinks := self.sinks.get(model)) is not None:
                sinks.check_room()
            frame = None if trace is None else trace.frame
            future = served.feed.submit(inputs, block=False, trace=frame)
            outputs = await asyncio.wrap_future(future)
            if (sinks := self.sinks.get(model)) is not None:
                await sinks.put(name, outputs, placement)
            outcome = "success"
        except FullError:
            outcome = "full"
            raise
        except BadInputError:
            outcome = "invalid"
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            served.model.statistics.add(outcome, time.monotonic_ns() - began_ns)
            if trace is not None and self.traces is not None:
                self.traces.end(trace, outcome)
        return outputs
