"""The methods by which a program uses one network of a run, while it does other work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, TypeAlias, cast

from numpy.typing import ArrayLike

from launcher.errors import BadInputError
from launcher.run.feed import Feed, Withdrawal
from launcher.run.streamed_results import StreamedResults
from launcher.streaming.predicting import (
    ImagePrediction,
    Origin,
    Picture,
    PredictionStream,
    picture_of,
    prediction,
)
from launcher.tasks.opening import Task
from launcher.view.frame_trace import FrameTrace
from nodes.protocol.payload import Array

if TYPE_CHECKING:
    from cnn.model import Model
    from cnn.network import Tensor


Frame: TypeAlias = "Mapping[str, ArrayLike] | ArrayLike"
"""Arrays by the names of the network's inputs; an array alone is the only input."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of a network; the shape of an output that `varies` is its largest."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    varies: bool = False


def _info(tensor: Tensor) -> TensorInfo:
    return TensorInfo(tensor.name, tensor.dtype, tensor.shape, tensor.varies)


def _output(model: Model, name: str) -> TensorInfo:
    constant = model.constant_outputs.get(name)
    if constant is None:
        return _info(model.network.tensors[name])
    return TensorInfo(name, constant.dtype.name, constant.shape)


class LiveModel:
    """One network of a cluster, which has its own stream of frames (`LiveCluster.model`).

    All methods may be called from any thread. A frame is a mapping of input names to arrays of the
    shapes and dtypes in `inputs`, in any byte order and layout, or to nested lists of numbers; for
    a network with one input, an array alone will do. Wrong ones raise `LauncherError` before
    anything is sent (`launcher.run.tensors`). Arrays are copied, so they may be written to again at
    once. A result is a dict of output names to arrays; `predict` and `predictions` take images and
    return what the network finds in them. Recovers from a lost node as `launch` does; an error from
    which it cannot recover is raised by every call that waits or comes later.
    """

    def __init__(self, feed: Feed, open_task: Callable[[], Task]) -> None:
        """`open_task` is called when the first image is to be fitted; it raises `BadInputError`."""
        self._feed = feed
        self._open_task = open_task

    @property
    def feed(self) -> Feed:
        """The frames of the network."""
        return self._feed

    @property
    def name(self) -> str:
        """The network's name."""
        return self.feed.part.name

    @cached_property
    def inputs(self) -> Mapping[str, TensorInfo]:
        """The network's inputs by name."""
        return {name: _info(tensor) for name, tensor in self.feed.part.inputs.items()}

    @cached_property
    def outputs(self) -> Mapping[str, TensorInfo]:
        """The network's outputs by name."""
        model = self.feed.part.model
        return {name: _output(model, name) for name in model.outputs}

    @cached_property
    def _task(self) -> Task:
        _ = self.feed  # it is an error to ask several networks at once
        task = self._open_task()
        task.check_predicts()
        return task

    def predict(self, image: Picture, *, timeout_s: float | None = None) -> ImagePrediction:
        """Return what the network finds in one image, in pixels of that image.

        `image` is the path of a PNG or JPEG file, its bytes, a picture of Pillow, or an array,
        uint8 [height, width, 3] in RGB. It is fitted and the outputs are decoded as `task` and
        `input` of `cluster.yaml` say, and otherwise the model. Raises `LauncherError` for what is
        not an image, and for a network whose outputs have no known meaning; `TimeoutError` as
        `infer` does.
        """
        try:
            task, picture = self._task, picture_of(image)
            inputs, placement = task.prepare(picture[0])
        except BadInputError as error:  # a user's mistake, which no traceback explains
            raise error.with_traceback(None) from None
        return prediction(task, picture, placement, self._infer(inputs, timeout_s, copy=False))

    def predictions(
        self, source: Origin, *, in_flight: int | None = None
    ) -> Iterator[ImagePrediction]:
        """Yield what the network finds in each image of a source, in order, as soon as it is known.

        `source` is a folder, a glob, a video file, a camera (`/dev/video0`, 0, `rtsp://…`), the
        mapping of a source as in `cluster.yaml`, or an iterable of what `predict` takes. Images are
        read in another thread, at most `in_flight` of them (by default 8 batches) ahead of the
        predictions that were taken; of a camera, frames that nobody takes in time are dropped.
        Raises as `predict` does; an error of the source comes after the predictions before it.
        """
        most = self._most(in_flight)
        try:
            return iter(PredictionStream(self._task, source, self.feed.submit, most))
        except BadInputError as error:
            raise error.with_traceback(None) from None

    def infer(self, frame: Frame, *, timeout_s: float | None = None) -> dict[str, Array]:
        """Return one frame's result.

        Raises `TimeoutError` if it has not arrived within `timeout_s`, and says so if the nodes are
        lost; the frame is computed then if it has been sent.
        """
        return self._infer(frame, timeout_s, copy=True)

    def _infer(self, frame: Frame, timeout_s: float | None, *, copy: bool) -> dict[str, Array]:
        feed = self.feed
        if feed.is_own_thread:
            raise BadInputError(
                "infer() cannot wait in a callback of a future, which runs in the cluster's own "
                "thread: call it in another one, or call submit()"
            )
        timeout_s = _checked(timeout_s)
        until_s = inf if timeout_s is None else time.monotonic() + timeout_s
        future = self.submit(frame, timeout_s=timeout_s, copy=copy)
        try:
            left_s = None if timeout_s is None else max(0.0, until_s - time.monotonic())
            return future.result(left_s)
        except FutureTimeoutError:
            future.cancel()
            trouble = feed.trouble()
            said = f"no result arrived within {timeout_s:g} s" + (f": {trouble}" if trouble else "")
            raise TimeoutError(said) from None
        except BaseException:
            future.cancel()
            raise

    def submit(
        self,
        frame: Frame,
        *,
        block: bool = True,
        timeout_s: float | None = None,
        copy: bool = True,
        trace: FrameTrace | None = None,
        withdrawal: Withdrawal | None = None,
    ) -> Future[dict[str, Array]]:
        """Return a future of one frame's result; `trace` follows the frame.

        While the cluster has as many frames in flight as it takes, this waits, for at most
        `timeout_s`. Then, and at once unless it is to `block`, it raises `FullError`. Callbacks of
        the future run in the cluster's own thread and hold it up while they run. Without `copy`,
        the arrays must not be written to until the result has arrived. A `withdrawal` ends the
        wait.
        """
        if not isinstance(frame, Mapping) and len(self.feed.part.inputs) == 1:
            frame = {next(iter(self.feed.part.inputs)): frame}
        return self.feed.submit(
            cast("Mapping[str, ArrayLike]", frame),
            block=block,
            timeout_s=_checked(timeout_s),
            copy=copy,
            trace=trace,
            withdrawal=withdrawal,
        )

    def stream(
        self, frames: Iterable[Frame], *, in_flight: int | None = None
    ) -> Iterator[dict[str, Array]]:
        """Yield the results of `frames`, in order, each as soon as it has arrived.

        `frames` may never end. It is iterated in another thread, at most `in_flight` frames (by
        default 8 batches) ahead of the results that were taken. An exception that it raises is
        raised here after the results of the frames before.
        """
        yield from self._streamed(frames, in_flight)

    def _streamed(self, frames: Iterable[Frame], in_flight: int | None) -> StreamedResults[Frame]:
        most = self._most(in_flight)
        return StreamedResults(self.submit, frames, lambda: most)

    def _most(self, in_flight: int | None) -> int:
        most = 8 * self.feed.batch if in_flight is None else in_flight
        if most < 1:
            raise BadInputError(f"in_flight={in_flight}: at least one frame must be under way")
        return most

    @property
    def ended(self) -> Future[None]:
        """Done once the cluster computes nothing more, with the error that ended it."""
        return self.feed.ended

    async def infer_async(self, frame: Frame) -> dict[str, Array]:
        """Do what `infer` does without blocking the event loop.

        A frame is not sent if its task is cancelled before.
        """
        withdrawal = Withdrawal()
        submit = partial(self.submit, frame, withdrawal=withdrawal)
        submitting = asyncio.get_running_loop().run_in_executor(None, submit)
        try:
            return await asyncio.wrap_future(await asyncio.shield(submitting))
        except asyncio.CancelledError:
            withdrawal.withdraw()
            submitting.add_done_callback(_cancel_submitted)
            raise

    async def stream_async(
        self, frames: Iterable[Frame], *, in_flight: int | None = None
    ) -> AsyncIterator[dict[str, Array]]:
        """Do what `stream` does without blocking the event loop.

        If its task is cancelled, frames that are not sent yet are cancelled as well.
        """
        results = self._streamed(frames, in_flight)
        try:
            while (result := await asyncio.to_thread(results.next)) is not None:
                yield result
        finally:
            results.close()


def _checked(timeout_s: float | None) -> float | None:
    """Return a time limit that threads can wait for, None for one that never ends.

    Raises `BadInputError` for one that is negative or not a number.
    """
    if timeout_s is None or timeout_s > TIMEOUT_MAX:
        return None
    if not timeout_s >= 0:
        raise BadInputError(f"timeout_s must be at least 0, not {timeout_s}")
    return timeout_s


def _cancel_submitted(submitting: asyncio.Future[Future[dict[str, Array]]]) -> None:
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result().cancel()
