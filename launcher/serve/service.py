"""What both servers do with a request, once it is arrays."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

from launcher.run.live_cluster import LiveCluster
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.served_sinks import ServedSinks
from launcher.serve.tensors import Array, ModelRepository, ServedModel
from launcher.view.model import RunView


@dataclass(frozen=True)
class ClientLimits:
    """What bounds the harm of slow clients and of many; for each of the two servers."""

    read_s: float = 30.0
    """For a request to arrive, from its beginning to its end, and for a connection to begin one."""
    connections: int = 1024
    streams: int = 32
    """Calls of `ModelStreamInfer`, which may last as long as their clients want."""
    stream_in_flight: int = 16
    """Requests under way of one such call."""
    grace_s: float = 30.0
    """For requests under way to be answered once the server stops."""


@dataclass
class Service:
    """The models of a live cluster, for clients that have the token if there is one."""

    cluster: LiveCluster
    repository: ModelRepository
    token: str | None = None
    limits: ClientLimits = ClientLimits()
    sinks: ServedSinks | None = None
    version: str = field(default_factory=lambda: version("csdf-edge"))

    @property
    def is_ready(self) -> bool:
        """Whether the cluster computes frames."""
        return not self.cluster.ended.done()

    def views(self) -> tuple[RunView, ...]:
        """Return what each run looks like now; waits as `LiveCluster.view` does."""
        return (self.cluster.view(),)

    def check_token(self, authorization: str | bytes | None) -> None:
        """Raise `RequestError` unless this header has the token; compared in constant time."""
        if self.token is None:
            return
        given = authorization or ""
        if isinstance(given, str):
            given = given.encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, b"Bearer " + self.token.encode()):
            raise RequestError(
                "a token is needed: send the header 'Authorization: Bearer TOKEN'",
                Refusal.UNAUTHENTICATED,
            )

    async def infer(
        self, model: ServedModel, inputs: Mapping[str, Array], name: str = ""
    ) -> Mapping[str, Array]:
        """Return the model's outputs of one frame; its arrays must not be written to meanwhile.

        The sinks get the outputs as the result of `name`. A frame whose caller is cancelled is not
        sent any more. Raises `LauncherError`, at once if as many frames are under way as the
        cluster takes.
        """
        began_ns = time.monotonic_ns()
        counted = model.statistics.fail
        try:
            if self.sinks is not None:
                self.sinks.check_room()
            network = self.cluster.model(model.name)
            future = network.submit(inputs, block=False, copy=False)
            outputs = await asyncio.wrap_future(future)
            if self.sinks is not None:
                await self.sinks.put(name, outputs)
            counted = model.statistics.success
        finally:
            counted.add(time.monotonic_ns() - began_ns)
        return outputs
