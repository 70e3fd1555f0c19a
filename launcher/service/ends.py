"""Keeps the sources and the sinks of a service's models as the present generation wants them.

A model with a source has a stream, whose results its sinks get (`launcher.service.streams`). The
sinks of a model without one get the results of its requests. Those that a change leaves as they are
stay open. All of this runs in the service's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from launcher.config.ends.sink import SinkConfig
from launcher.config.load import Cluster
from launcher.errors import LauncherError
from launcher.serve.routes import ServedVersion
from launcher.serve.served_sinks import ServedSinks, open_served_sinks
from launcher.service.events import Note
from launcher.service.generations import ends_key, ends_of
from launcher.service.streams import ModelStream, StreamedRelease
from launcher.streaming.in_flight import frames_in_flight
from launcher.tasks.opening import open_task
from launcher.threads import in_thread
from partition.plan import Plan

CLOSING_S = 12.0
"""How long sources and sinks may take to close; those that remain are left behind."""


@dataclass(frozen=True)
class _Ends:
    """The source and the sinks of one model, or those of its requests."""

    cluster: Cluster
    stream: ModelStream | None = None
    sinks: ServedSinks | None = None

    def close(self) -> Future[None]:
        """Close them; the future is done once all results that there are have been delivered."""
        if self.stream is not None:
            self.stream.close()
            return self.stream.ended
        sinks = self.sinks
        return in_thread(lambda: None if sinks is None else sinks.__exit__(), "closing sinks")


class ServiceEnds:
    """The sources and sinks of all models; `report` takes notes, from any thread."""

    def __init__(self, report: Callable[[Note], None]) -> None:
        self.sinks: dict[str, ServedSinks] = {}
        """The sinks of the results of requests, by model."""
        self._report = report
        self._ends: dict[str, _Ends] = {}
        self._loop = asyncio.get_running_loop()

    @property
    def streams(self) -> tuple[ModelStream, ...]:
        """The streams of all sources."""
        return tuple(ends.stream for ends in self._ends.values() if ends.stream is not None)

    async def want(self, cluster: Cluster) -> None:
        """Close what this generation does not want any more."""
        wanted = _wanted(cluster)
        await self._close(
            model
            for model, ends in self._ends.items()
            if model not in wanted or ends_key(wanted[model]) != ends_key(ends.cluster)
        )

    def open(self, cluster: Cluster) -> list[str]:
        """Open what this generation wants and is not open; return the models, which have to be
        routed."""
        opened = _wanted(cluster)
        for model in opened.keys() & self._ends.keys():
            del opened[model]
        for model, own in opened.items():
            if own.config.input.source is not None:
                self._ends[model] = _Ends(own, ModelStream(model, own, self._report))
                continue
            failed = partial(self._failed, model)
            try:
                most, say = own.config.serve.most_in_flight, partial(self._say, model)
                (sinks,) = open_served_sinks(own, most, say).values()
            except LauncherError as error:  # it could be opened when it was applied
                failed(str(error))
                continue
            self._ends[model] = _Ends(own, sinks=sinks.__enter__())
            sinks.do_without(failed)
            self.sinks[model] = sinks
        return list(opened)

    async def close(self) -> None:
        """Close all sources and sinks."""
        await self._close(self._ends)

    def route(self, model: str, version: ServedVersion | None, plan: Plan | None) -> None:
        """Let a version of a model, which runs by this plan, compute the frames of its source."""
        ends = self._ends.get(model)
        if ends is None:
            return
        if ends.sinks is not None and version is not None:
            try:
                ends.sinks.task = open_task(ends.cluster, version.feed.part.model)
            except LauncherError as error:
                self._failed(model, str(error))
        if ends.stream is not None:
            streamed = None
            if version is not None and plan is not None:
                most = max(1, ends.cluster.config.serve.most_in_flight // 2)  # requests have others
                version.begin()
                leave = partial(self._leave, version)
                in_flight = min(frames_in_flight(plan), most)
                streamed = StreamedRelease(version.feed, in_flight, leave)
            ends.stream.route(streamed)

    def _leave(self, version: ServedVersion) -> None:
        """Note in the event loop that a stream pushes no more into a version; in any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(version.end)

    async def _close(self, models: Iterable[str]) -> None:
        closing = []
        for model in tuple(models):
            self.sinks.pop(model, None)
            closing.append(asyncio.wrap_future(self._ends.pop(model).close()))
        if closing:
            await asyncio.wait(closing, timeout=CLOSING_S)

    def _say(self, model: str, text: str) -> None:
        self._report(Note("info", f"{model}: {text}"))

    def _failed(self, model: str, text: str) -> None:
        self._report(Note("error", f"{model}: {text}"))


def _wanted(cluster: Cluster) -> dict[str, Cluster]:
    """Return the cluster of each model that has a source or sinks."""
    found: Mapping[str, Cluster | None] = {
        model.name: ends_of(cluster, model) for model in cluster.models
    }
    return {name: own for name, own in found.items() if own is not None}


def end_changes(before: Cluster, after: Cluster) -> list[str]:
    """Describe the sources and sinks that a generation adds, changes or removes, in sentences."""
    former, wanted = _wanted(before), _wanted(after)
    models = [*wanted, *(model for model in former if model not in wanted)]
    return [
        f"{model}: {change}"
        for model in models
        for change in _end_changes(former.get(model), wanted.get(model))
    ]


def _end_changes(old: Cluster | None, new: Cluster | None) -> list[str]:
    if old is not None and new is not None and ends_key(old) == ends_key(new):
        return []
    was = None if old is None else old.config.input.source
    now = None if new is None else new.config.input.source
    found = []
    if was is None and now is not None:
        found.append(f"a source ({now.kind}) is added")
    elif was is not None and now is None:
        found.append(f"its source ({was.kind}) is removed")
    elif was is not None and now is not None and was != now:
        found.append(f"its source ({now.kind}) replaces the former one ({was.kind})")
    left, sinks = _sinks(old), _sinks(new)
    found += [f"a sink ({sink.kind}) is added" for sink in sinks if sink not in left]
    found += [f"a sink ({sink.kind}) is removed" for sink in left if sink not in sinks]
    return found or ["its source and sinks are opened again, with other keys"]


def _sinks(cluster: Cluster | None) -> list[SinkConfig]:
    """Return the sinks, which name no network: those of one model are compared."""
    sinks = () if cluster is None else cluster.config.sinks
    return [sink.model_copy(update={"network": None}) for sink in sinks]
