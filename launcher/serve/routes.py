"""Binds each request to one version of its model as it arrives.

Which version that is may change at any time. A request is answered by the version that it was bound
to, so a version may be closed once nothing is bound to it. While no version of a model serves, its
requests wait for one, but not for long, and not many of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from launcher.run.feed import Feed
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.tensors import ModelRepository, ServedModel
from launcher.streaming.live_cluster import LiveCluster
from launcher.streaming.live_model import LiveModel
from launcher.tasks.opening import Task

WAIT_S = 10.0
"""How long a request waits for a version of its model to serve."""

MOST_WAITING = 256
"""Requests that wait for a version; more are refused at once."""

MOST_WAITING_BYTES = 64 << 20
"""The most bytes of those requests."""


@dataclass(eq=False)
class ServedVersion:
    """A version of a model, and the feed of the network that computes it."""

    model: ServedModel
    feed: Feed
    task: Task | None = None
    """Fits pictures to the network, and decodes its outputs."""
    under_way: int = 0
    """Requests that are bound to it."""
    _on_idle: Callable[[], None] | None = field(default=None, init=False)

    def when_idle(self, call: Callable[[], None]) -> None:
        """Call once no request is bound to it; no more are being bound."""
        if self.under_way:
            self._on_idle = call
        else:
            call()

    def keep(self) -> None:
        """Forget `when_idle`: requests are bound to it again."""
        self._on_idle = None

    def begin(self) -> None:
        """Note that another request is bound to it."""
        self.under_way += 1

    def end(self) -> None:
        """Note that a request is answered."""
        self.under_way -= 1
        if not self.under_way and self._on_idle is not None:
            call, self._on_idle = self._on_idle, None
            call()


class Routes:
    """The version of each model to which new requests go; for one event loop."""

    def __init__(self, versions: Iterable[ServedVersion] = ()) -> None:
        self._current: dict[str, ServedVersion | None] = {one.model.name: one for one in versions}
        self._changed = asyncio.Event()
        self._waiting = self._waiting_bytes = 0
        self.repository = ModelRepository(())
        """The models that are served now."""
        self._describe()

    @property
    def is_ready(self) -> bool:
        """Whether there is a version of each model that computes frames."""
        return all(one is not None and not one.feed.ended.done() for one in self._current.values())

    def route(self, model: str, version: ServedVersion | None) -> None:
        """Bind new requests to this version; without one they wait."""
        if version is not None:
            version.keep()
        self._current[model] = version
        self._describe()

    def expect(self, model: str) -> None:
        """A version of this model will be served: requests of it wait."""
        self._current.setdefault(model, None)
        self._describe()

    def forget(self, model: str) -> None:
        """Forget a model that no longer exists."""
        self._current.pop(model, None)
        self._describe()

    def _describe(self) -> None:
        self.repository = ModelRepository(
            tuple(one.model for one in self._current.values() if one is not None),
            frozenset(name for name, one in self._current.items() if one is None),
        )
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @asynccontextmanager
    async def bound(
        self, name: str, version: str = "", held_bytes: int = 0
    ) -> AsyncIterator[ServedVersion]:
        """Give the version that a request is bound to while the context lasts.

        `held_bytes` of the request have been read. Raises `RequestError` if there is no version, or
        none in time.
        """
        if name in self.repository.unready:
            await self._wait_for(name, held_bytes)
        self.repository.find(name, version)
        served = self._current[name]
        if served is None:
            raise AssertionError(f"{name} is in the repository, but nothing serves it")
        served.begin()
        try:
            yield served
        finally:
            served.end()

    async def _wait_for(self, name: str, held_bytes: int) -> None:
        is_full = self._waiting_bytes + held_bytes > MOST_WAITING_BYTES
        if self._waiting >= MOST_WAITING or is_full:
            raise RequestError(
                f"no version of {name!r} serves now, and {self._waiting} requests wait already",
                Refusal.UNAVAILABLE,
            )
        self._waiting += 1
        self._waiting_bytes += held_bytes
        try:
            await asyncio.wait_for(self._wait(name), WAIT_S)
        except asyncio.TimeoutError:
            raise RequestError(
                f"no version of {name!r} serves now; try again later", Refusal.UNAVAILABLE
            ) from None
        finally:
            self._waiting -= 1
            self._waiting_bytes -= held_bytes

    async def _wait(self, name: str) -> None:
        while name in self.repository.unready:
            await self._changed.wait()


def fixed_routes(
    live: LiveCluster, versions: Mapping[str, str] = {}, tasks: Mapping[str, Task] = {}
) -> Routes:
    """Return routes to all networks of a cluster, with the versions that they have, usually 1."""
    return Routes(
        served_version(each, versions.get(each.name, "1"), tasks.get(each.name))
        for each in map(live.model, live.models)
    )


def served_version(network: LiveModel, version: str, task: Task | None) -> ServedVersion:
    """Return a version of a network that is served.

    Raises `BadInputError` for dtypes that the protocol does not have.
    """
    labels = () if task is None else task.names
    model = ServedModel(network.name, network.inputs, network.outputs, version, labels=labels)
    return ServedVersion(model, network.feed, task)
