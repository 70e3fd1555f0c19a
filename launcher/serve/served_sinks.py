"""Delivers the results of requests to the sinks of `cluster.yaml`, in the order in which the
requests arrived.

A request is answered once its result is in the queue of every sink, so a sink that is slower than
the requests slows them down, or drops results, as its `on_overload` says. While as many requests
wait for a place in a queue as the cluster takes, more are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from dataclasses import replace

from launcher.clock import now_s
from launcher.config.ends.sink import FrameResult, Sink, SinkConfig
from launcher.config.load import Cluster
from launcher.config.reconnect import ReconnectConfig
from launcher.errors import FullError, LauncherError, RunFailedError, shortened
from launcher.progress import Say
from launcher.serve.tensors import Array
from launcher.sinks.opening import open_sinks
from launcher.streaming.delivery import Delivery
from launcher.tasks.base import Task

CLOSING_S = 10.0
"""How long a sink may take for its last results once the server has stopped."""


def open_served_sinks(cluster: Cluster, most: int, say: Say) -> ServedSinks:
    """Open the sinks of the file; at most `most` requests wait for one of them.

    Raises `BadInputError` for sinks that the results of requests cannot have.
    """
    config = cluster.config
    if config.sinks and len(cluster.models) > 1:
        raise cluster.error(
            ("sinks",), "take the results of one network, and several networks are served"
        )
    opened = open_sinks(cluster)
    for index, (_, sink) in enumerate(opened):
        if sink.needs_image:
            for _, each in opened:
                each.close()
            raise cluster.error(
                ("sinks", index), "needs images, and requests have the network's inputs instead"
            )
    return ServedSinks(opened, config.reconnect, most, say)


class ServedSinks:
    """The sinks of a server; enter it to deliver, leave it once no more requests come."""

    def __init__(
        self,
        opened: Sequence[tuple[SinkConfig, Sink]],
        reconnect: ReconnectConfig,
        most: int,
        say: Say,
    ) -> None:
        self.failed: Future[None] = Future()
        """Receives the error of a sink that can take nothing more."""
        self.failed.set_running_or_notify_cancel()  # nobody can cancel it
        self._deliveries = [
            Delivery(sink, reconnect, say, on_overload=keys.on_overload, places=keys.queue_results)
            for keys, sink in opened
        ]
        self.task: Task | None = None
        """Decodes the outputs; without it, results have no predictions."""
        self._most = most
        self._say = say
        self._given = 0  # results, counted by the servers' thread
        self._queued = 0  # of those, how many are in all queues, counted by the other thread
        self._in_order = ThreadPoolExecutor(1, "csdf-edge results")
        self._threads = [
            threading.Thread(target=self._run, args=(delivery,), name="csdf-edge sink", daemon=True)
            for delivery in self._deliveries
        ]

    def __enter__(self) -> ServedSinks:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for delivery in self._deliveries:
            delivery.finish()
        until_s = time.monotonic() + CLOSING_S
        for delivery, thread in zip(self._deliveries, self._threads, strict=True):
            thread.join(max(0.0, until_s - time.monotonic()))
            delivery.abandon()
            counts = delivery.counts
            self._say(
                f"{delivery.description}: {counts.given} results, {counts.delivered} delivered, "
                f"{counts.dropped} dropped, {counts.refused} refused, "
                f"{counts.waiting} not delivered"
            )
        self._in_order.shutdown()

    def check_room(self) -> None:
        """Raise `FullError` while as many results wait as the cluster takes requests."""
        if self._given - self._queued >= self._most:
            raise FullError("the sinks take no more results now; try again later")

    async def put(self, name: str, outputs: Mapping[str, Array]) -> None:
        """Hand a request's result to all sinks, with the request's id as its `name`."""
        if not self._deliveries:
            return
        result = FrameResult(self._given, now_s(), outputs, shortened(name))
        self._given += 1
        # A client that disconnects meanwhile must neither take its result nor a place from the
        # sinks.
        await asyncio.shield(
            asyncio.get_running_loop().run_in_executor(
                self._in_order, self._put, result, time.monotonic()
            )
        )

    def _put(self, result: FrameResult, read_s: float) -> None:
        try:
            if self.task is not None:
                result = replace(result, predictions=self.task.decode(result.outputs, None))
            for delivery in self._deliveries:
                delivery.put(result, read_s)
        finally:
            self._queued += 1

    def _run(self, delivery: Delivery) -> None:
        try:
            delivery.run()
        except LauncherError as error:
            self._fail(error)
        except BaseException as error:  # noqa: BLE001 - a plugin's, which must reach the user
            self._fail(RunFailedError(f"{delivery.description}: {type(error).__name__}: {error}"))

    def _fail(self, error: LauncherError) -> None:
        with contextlib.suppress(InvalidStateError):  # another sink has failed before
            self.failed.set_exception(error)
