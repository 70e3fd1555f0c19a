"""A cluster that computes frames for a program, one by one or as a stream.

`csdf_edge.open` and `launch serve` open it here.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import ArrayLike, NDArray

from launcher.errors import BadInputError, shortened
from launcher.progress import ProgressDisplay
from launcher.run.feed import Withdrawal
from launcher.run.request import Request
from launcher.run.streamed_results import StreamedResults
from launcher.run.tensors import as_tensor
from launcher.streaming import job
from launcher.view.frame_trace import FrameTrace
from launcher.view.model import RunView
from launcher.view.observation import Observation

if TYPE_CHECKING:
    from cnn.model import Model
    from cnn.network import Tensor
    from launcher.run.live import LiveNetwork
    from partition.plan import Plan

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of a network; the shape of an output that `varies` is its largest."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    varies: bool = False


def open_cluster(
    request: Request,
    progress: ProgressDisplay,
    *,
    most: int,
    check: Callable[[Model], None] = lambda _: None,
    follows: bool = False,
    is_service: bool = False,
) -> LiveCluster:
    """Plan and deploy what `request` names; return once the nodes have loaded their subnets.

    At most `most` frames of each network are in flight. `check` is called with the model before
    anything is started. A service waits without a limit for the nodes that it needs to begin,
    unless the user sets one. With `follows`, single frames can be followed (`LiveModel.submit`).
    Raises `LauncherError`.
    """
    if most < 1:
        raise BadInputError(f"most_in_flight={most}: at least one frame must be under way")
    with ExitStack() as stack:
        opening = job.open_live(
            request, progress, most=most, check=check, is_service=is_service, follows=follows
        )
        live = stack.enter_context(opening)
        return live_cluster(live, stack.pop_all())


def live_cluster(live: job.Live, stack: ExitStack) -> LiveCluster:
    """Return the cluster of a run; `stack` holds what ends with it."""
    return LiveCluster(live.plan, live.run.networks, stack, live.run.observation)


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
    shapes and dtypes in `inputs`, in any byte order and layout, or to nested lists of numbers;
    wrong ones raise `LauncherError` before anything is sent (`launcher.run.tensors`). Arrays are
    copied, so they may be written to again at once. A result is a dict of output names to arrays.
    Recovers from a lost node as `launch` does; an error from which it cannot recover is raised by
    every call that waits or comes later.
    """

    def __init__(self, networks: Sequence[LiveNetwork], batch: int = 1) -> None:
        """`networks` is one network, or those of a `LiveCluster`, whose nodes compute `batch`
        frames at once."""
        self._networks = tuple(networks)
        self._batch = batch

    @property
    def _network(self) -> LiveNetwork:
        if len(self._networks) > 1:
            names = ", ".join(network.part.name for network in self._networks)
            raise BadInputError(
                f"the cluster has {len(self._networks)} networks; take one of them by "
                f"cluster.model(name): {names}"
            )
        return self._networks[0]

    @property
    def name(self) -> str:
        """The network's name."""
        return self._network.part.name

    @cached_property
    def inputs(self) -> Mapping[str, TensorInfo]:
        """The network's inputs by name."""
        network = self._network.part.model.network
        return {name: _info(network.tensors[name]) for name in network.inputs}

    @cached_property
    def outputs(self) -> Mapping[str, TensorInfo]:
        """The network's outputs by name."""
        model = self._network.part.model
        return {name: _output(model, name) for name in model.outputs}

    def infer(
        self, frame: Mapping[str, ArrayLike], *, timeout_s: float | None = None
    ) -> dict[str, Array]:
        """Return one frame's result.

        Raises `TimeoutError` if it has not arrived within `timeout_s`, and says so if the nodes are
        lost; the frame is computed then if it has been sent.
        """
        feed = self._network.feed
        if feed.is_own_thread:
            raise BadInputError(
                "infer() cannot wait in a callback of a future, which runs in the cluster's own "
                "thread: call it in another one, or call submit()"
            )
        until_s = inf if timeout_s is None else time.monotonic() + timeout_s
        future = self.submit(frame, timeout_s=timeout_s)
        try:
            left_s = None if timeout_s is None else max(0.0, until_s - time.monotonic())
            return future.result(left_s)
        except FutureTimeoutError:
            future.cancel()
            trouble = feed.trouble()
            said = f"no result came within {timeout_s:g} s" + (f": {trouble}" if trouble else "")
            raise TimeoutError(said) from None
        except BaseException:
            future.cancel()
            raise

    def submit(
        self,
        frame: Mapping[str, ArrayLike],
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
        checked = self._checked(frame, copy=copy)
        return self._network.submit(
            checked, block=block, timeout_s=timeout_s, trace=trace, withdrawal=withdrawal
        )

    def stream(
        self, frames: Iterable[Mapping[str, ArrayLike]], *, in_flight: int | None = None
    ) -> Iterator[dict[str, Array]]:
        """Yield the results of `frames`, in order, each as soon as it has arrived.

        `frames` may never end. It is iterated in another thread, at most `in_flight` frames (by
        default 8 batches) ahead of the results that were taken. An exception that it raises is
        raised here after the results of the frames before.
        """
        yield from self._streamed(frames, in_flight)

    def _streamed(
        self, frames: Iterable[Mapping[str, ArrayLike]], in_flight: int | None
    ) -> StreamedResults[Mapping[str, ArrayLike]]:
        most = 8 * self._batch if in_flight is None else in_flight
        if most < 1:
            raise BadInputError(f"in_flight={in_flight}: at least one frame must be under way")
        return StreamedResults(self.submit, frames, lambda: most)

    @property
    def ended(self) -> Future[None]:
        """Done once the cluster computes nothing more, with the error that ended it."""
        return self._networks[0].feed.ended

    async def infer_async(self, frame: Mapping[str, ArrayLike]) -> dict[str, Array]:
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
        self, frames: Iterable[Mapping[str, ArrayLike]], *, in_flight: int | None = None
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

    def _checked(self, frame: Mapping[str, ArrayLike], *, copy: bool) -> dict[str, Array]:
        known = ", ".join(self.inputs)
        if not isinstance(frame, Mapping):
            raise BadInputError(
                f"a frame is a mapping of input names to arrays, not {type(frame).__name__}; "
                f"the network's inputs are {known}"
            )
        for name in frame:
            if name not in self.inputs:
                shown = shortened(repr(name))
                raise BadInputError(f"the network has no input {shown}; its inputs are {known}")
        checked = {}
        for name, spec in self.inputs.items():
            if name not in frame:
                raise BadInputError(f"input {name!r} is missing; the network's inputs are {known}")
            checked[name] = as_tensor(frame[name], name, spec.dtype, spec.shape, copy=copy)
        return checked


def _cancel_submitted(submitting: asyncio.Future[Future[dict[str, Array]]]) -> None:
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result().cancel()


def _leave(stack: ExitStack, process: int) -> None:
    """Abandon the frames in flight and end the agents, only in the process that started them."""
    if os.getpid() == process:
        abandoned = GeneratorExit()
        stack.__exit__(GeneratorExit, abandoned, None)


class LiveCluster(LiveModel):
    """Nodes that hold the subnets of one or several networks; `csdf_edge.open` makes it.

    A cluster of one network has all methods of `LiveModel`. In one of several, `model` returns each
    network by its name: they share the nodes, but no network waits for another's frames.
    """

    def __init__(
        self,
        plan: Plan,
        networks: Sequence[LiveNetwork],
        stack: ExitStack,
        observation: Observation,
    ) -> None:
        """`stack` holds what ends with the cluster; others view it by `observation`."""
        super().__init__(networks, plan.batch)
        self.plan = plan
        self._observation = observation
        self._models = {
            network.part.name: LiveModel((network,), plan.batch) for network in networks
        }
        self._stack = stack
        self._abandoned = weakref.finalize(self, _leave, stack, os.getpid())

    def view(self) -> RunView:
        """Return the present state of the cluster: its nodes, channels, counters and last events.

        Waits until the agents have sent their statistics, less than half a second. At most once per
        second they are asked for them.
        """
        return self._observation.view()

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the networks."""
        return tuple(self._models)

    def model(self, name: str) -> LiveModel:
        """Return the network of that name. Raises `LauncherError` if there is none."""
        if name not in self._models:
            raise BadInputError(f"there is no network {name!r}; there are {', '.join(self.models)}")
        return self._models[name]

    def __enter__(self) -> LiveCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._networks[0].feed.is_own_thread:
            raise BadInputError(
                "a cluster cannot be closed in a callback of a future, which runs in the cluster's "
                "own thread: close it in another one"
            )
        self._abandoned.detach()
        self._stack.__exit__(kind, error, trace)

    def close(self) -> None:
        """Wait for all results, and end the agents that were started; nothing the second time.

        Gives up at once, and raises `LauncherError`, if too few nodes are left for them. A program
        that ends without this, or drops the cluster, loses them, and leaves no agent either.
        """
        self.__exit__(None, None, None)
