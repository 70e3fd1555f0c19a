"""Delivers the results of requests to the sinks of `cluster.yaml`, in the order in which the
requests arrived.

A request is answered once its result is in the queue of every sink, so a sink that is slower than
the requests slows them down, or drops results, as its `on_overload` says. While as many requests
wait for a place in a queue as the cluster takes, more are refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from launcher.clock import now_s
from launcher.config.ends.sink import FrameResult, Sink, SinkConfig
from launcher.config.load import Cluster
from launcher.config.run import ReconnectConfig
from launcher.errors import FullError, LauncherError, RunFailedError, shortened
from launcher.inputs.fitting import ImagePlacement
from launcher.progress import Say
from launcher.sinks.filtering import ResultFilter
from launcher.sinks.opening import open_sinks
from launcher.streaming.delivery import Delivery
from launcher.tasks.opening import Task
from launcher.threads import in_thread
from nodes.protocol.payload import Array

CLOSING_S = 10.0
"""How long a sink may take for its last results once the server has stopped."""


def open_served_sinks(cluster: Cluster, most: int, say: Say) -> dict[str, ServedSinks]:
    """Open the sinks of the file, by the network whose results they get; at most `most` requests of
    a network wait for one of them.

    Raises `BadInputError` for sinks that the results of requests cannot have.
    """
    config = cluster.config
    opened: dict[str, list[tuple[SinkConfig, Sink]]] = {}
    with ExitStack() as stack:
        for index, (keys, sink) in enumerate(open_sinks(cluster)):
            stack.callback(sink.close)
            if sink.needs_image:
                raise cluster.error(
                    ("sinks", index), "needs images, but requests have the network's inputs instead"
                )
            opened.setdefault(network_of(cluster, index), []).append((keys, sink))
        stack.pop_all()
    return {name: ServedSinks(sinks, config.reconnect, most, say) for name, sinks in opened.items()}


def network_of(cluster: Cluster, index: int) -> str:
    """Return the network whose results a sink of the file gets; raises `BadInputError` if there are
    several and the sink names none."""
    named, models = cluster.config.sinks[index].network, cluster.models
    if named is None and len(models) > 1:
        raise cluster.error(
            ("sinks", index),
            "gets the results of one network, but several networks are served; name it by "
            f"network: {models[0].name}",
        )
    return named or models[0].name


class ServedSinks:
    """The sinks of one network; enter it to deliver, leave it once no more requests come."""

    def __init__(
        self,
        opened: Sequence[tuple[SinkConfig, Sink]],
        reconnect: ReconnectConfig,
        most: int,
        say: Say,
    ) -> None:
        self.running: list[Future[None]] = []
        """The threads of the sinks, which end early if a sink can take nothing more."""
        self._deliveries = [
            Delivery(
                sink,
                reconnect,
                say,
                wanted=ResultFilter.of(keys),
                on_overload=keys.on_overload,
                places=keys.queue_results,
            )
            for keys, sink in opened
        ]
        self.task: Task | None = None
        """Decodes the outputs; without it, results have no predictions."""
        self._most = most
        self._say = say
        self._given = 0  # results, counted by the servers' thread
        self._queued = 0  # of those, how many are in all queues, counted by the other thread
        self._in_order = ThreadPoolExecutor(1, "csdf-edge results")

    def __enter__(self) -> ServedSinks:
        self.running = [in_thread(partial(_run, each), "sink") for each in self._deliveries]
        return self

    def do_without(self, failed: Callable[[str], None]) -> None:
        """Continue without a sink that has failed, after telling `failed` why."""

        def ended(delivery: Delivery, thread: Future[None]) -> None:
            if (error := thread.exception()) is not None:
                delivery.abandon()
                failed(f"{error}; this sink gets no more results of requests")

        for delivery, thread in zip(self._deliveries, self.running, strict=True):
            thread.add_done_callback(partial(ended, delivery))

    def __exit__(self, *_: object) -> None:
        for delivery in self._deliveries:
            delivery.finish()
        until_s = time.monotonic() + CLOSING_S
        for delivery, thread in zip(self._deliveries, self.running, strict=True):
            wait([thread], max(0.0, until_s - time.monotonic()))
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

    async def put(
        self, name: str, outputs: Mapping[str, Array], placement: ImagePlacement | None = None
    ) -> None:
        """Hand a request's result to all sinks, with the request's id as its `name`.

        Without a `placement` of the request's image, predictions are in pixels of the network's
        input.
        """
        if not self._deliveries:
            return
        result = FrameResult(self._given, now_s(), outputs, shortened(name))
        self._given += 1
        # A client that disconnects meanwhile must neither take its result nor a place from the
        # sinks.
        await asyncio.shield(
            asyncio.get_running_loop().run_in_executor(
                self._in_order, self._put, result, placement, time.monotonic()
            )
        )

    def _put(self, result: FrameResult, placement: ImagePlacement | None, read_s: float) -> None:
        try:
            if self.task is not None:
                result = replace(result, predictions=self.task.decode(result.outputs, placement))
            for delivery in self._deliveries:
                delivery.put(result, read_s)
        finally:
            self._queued += 1


def _run(delivery: Delivery) -> None:
    try:
        delivery.run()
    except LauncherError:
        raise
    except BaseException as error:  # a plugin's, which must reach the user
        what = f"{delivery.description}: {type(error).__name__}: {error}"
        raise RunFailedError(what) from error
