"""A run in a thread of its own, into which a program pushes frames while it does other work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from secrets import token_hex
from typing import TypeAlias

from launcher.errors import LauncherError, RunFailedError
from launcher.plan.networks import Part
from launcher.run.feed import Feed, Outputs
from launcher.run.runtime import Array, Frame, OnUpdate, PushedNetwork, RunResult, Update
from launcher.run.streamed_results import StreamedResults
from launcher.view.frame_trace import FrameTrace
from launcher.view.observation import Observation

Stream: TypeAlias = Callable[[tuple[PushedNetwork, ...], OnUpdate], RunResult]
"""Streams frames through a plan until they end (`launcher.run.runtime.Runner`, its plan given)."""


def observe(networks: Sequence[LiveNetwork], versions: Mapping[str, str] = {}) -> Observation:
    """Return an observation of a new run of these networks; by name, their versions, usually 1."""
    names = [network.part.name for network in networks]
    return Observation(
        token_hex(8),
        names,
        [network.feed.figures for network in networks],
        [versions.get(name, "1") for name in names],
    )


@dataclass(frozen=True, slots=True)
class LiveNetwork:
    """One network of a live run, whose frames come from `feed`; its tensors have its own names."""

    part: Part
    feed: Feed

    def submit(
        self,
        frame: Frame,
        *,
        block: bool = True,
        timeout_s: float | None = None,
        trace: FrameTrace | None = None,
    ) -> Future[Outputs]:
        """See `Feed.submit`."""
        named = {self.part.common(name): array for name, array in frame.items()}
        return self.feed.submit(named, block=block, timeout_s=timeout_s, trace=trace)

    def stream(self, frames: Iterable[Frame]) -> Iterator[Outputs]:
        """Return the results of `frames`, in order (`launcher.run.streamed_results`)."""
        return iter(StreamedResults(self.submit, frames, lambda: self.feed.most))

    def pushed(self) -> PushedNetwork:
        """Return its frames for the run."""
        inputs = tuple(map(self.part.common, self.part.model.network.inputs))
        return PushedNetwork(inputs, self.feed, self._took)

    def _took(self, index: int, outputs: Mapping[str, Array]) -> None:
        model = self.part.model
        own = self.part.own(outputs, model.network.outputs)
        self.feed.took(index, {**own, **model.constant_outputs})


class LiveRun:
    """Streams what is submitted to `networks`; enter it to begin, leave it to end.

    Entering waits until the nodes have loaded their subnets, and raises the `LauncherError` with
    which that failed. Leaving waits for all results, or, after an exception, gives them up.
    """

    def __init__(
        self,
        stream: Stream,
        networks: Sequence[LiveNetwork],
        on_update: OnUpdate,
        observation: Observation | None = None,
    ) -> None:
        """`on_update` is called in the run's thread; `stream` keeps the `observation`."""
        self.networks = tuple(networks)
        self.observation = observation or observe(networks)
        self.result: RunResult | None = None
        """What was measured, once the run has ended well."""
        self._stream = stream
        self._on_update = on_update
        self._streams = threading.Event()
        self._error: BaseException | None = None
        self._reported: LauncherError = RunFailedError("the cluster is closed")
        """What frames without a result, and later ones, end with."""
        self._thread = threading.Thread(target=self._run, name="csdf-edge run")

    def __enter__(self) -> LiveRun:
        self._thread.start()
        try:
            self._streams.wait()
        except BaseException:
            self._end(given_up=True)
            raise
        if self._error is not None:
            self._end(given_up=True)
            raise self._error
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._end(given_up=kind is not None)
        if self._error is not None and (kind is None or error is self._reported):
            raise self._error from None

    def ended_well(self) -> RunResult:
        """Return what was measured, after the run; raises `RuntimeError` if it failed."""
        if self.result is None:
            raise RuntimeError("the run has not ended well")
        return self.result

    def _end(self, *, given_up: bool) -> None:
        for network in self.networks:
            if given_up:
                network.feed.give_up()
            else:
                network.feed.end()
        try:
            self._thread.join()
        except BaseException:  # Ctrl-C while the last results are awaited
            for network in self.networks:
                network.feed.give_up()
            self._thread.join()
            raise
        finally:
            for network in self.networks:
                network.feed.close()

    def _run(self) -> None:
        try:
            pushed = tuple(network.pushed() for network in self.networks)
            self.result = self._stream(pushed, self._update)
        except LauncherError as error:
            self._error = self._reported = error
        except BaseException as error:  # noqa: BLE001 - leaving the context raises it
            self._error = error
            self._reported = RunFailedError(f"{type(error).__name__}: {error}")
        finally:
            for network in self.networks:
                network.feed.finish(self._reported)
            self._streams.set()

    def _update(self, update: Update) -> None:
        self._on_update(update)
        if update.stage == "streaming":
            self._streams.set()
