"""A cluster that computes frames for a program, one by one or as a stream.

`csdf_edge.open` and `launch serve` open it here.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from launcher.errors import BadInputError
from launcher.progress import ProgressDisplay
from launcher.run.feed import Feed
from launcher.run.request import Request
from launcher.streaming import job
from launcher.streaming.live_model import LiveModel
from launcher.streaming.target import LoadedTarget
from launcher.tasks.opening import Task, open_task
from launcher.view.model import RunView
from launcher.view.observation import Observation

if TYPE_CHECKING:
    from cnn.model import Model
    from partition.plan import Plan


def open_cluster(
    request: Request,
    progress: ProgressDisplay,
    *,
    most: int,
    loaded: LoadedTarget | None = None,
    check: Callable[[Model], None] = lambda _: None,
    follows: bool = False,
    is_service: bool = False,
) -> LiveCluster:
    """Plan and deploy what `request` names; return once the nodes have loaded their subnets.

    `loaded` is what the request names, if that has been read.

    At most `most` frames of each network are in flight. `check` is called with the model before
    anything is started. A service waits without a limit for the nodes that it needs to begin,
    unless the user sets one. With `follows`, single frames can be followed (`LiveModel.submit`).
    Raises `LauncherError`.
    """
    if most < 1:
        raise BadInputError(f"most_in_flight={most}: at least one frame must be under way")
    with ExitStack() as stack:
        opening = job.open_live(
            request,
            progress,
            most=most,
            loaded=loaded,
            check=check,
            is_service=is_service,
            follows=follows,
        )
        live = stack.enter_context(opening)
        return live_cluster(live, stack.pop_all())


def live_cluster(live: job.Live, stack: ExitStack) -> LiveCluster:
    """Return the cluster of a run; `stack` holds what ends with it."""
    tasks = [partial(open_task, live.cluster, feed.part.model) for feed in live.run.feeds]
    return LiveCluster(live.plan, live.run.feeds, tasks, stack, live.run.observation)


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
        feeds: Sequence[Feed],
        tasks: Sequence[Callable[[], Task]],
        stack: ExitStack,
        observation: Observation,
    ) -> None:
        """`tasks` open the task of each feed's network; `stack` holds what ends with the cluster;
        others view it by `observation`."""
        super().__init__(feeds[0], tasks[0])
        self.plan = plan
        self._observation = observation
        self._models = {
            feed.part.name: LiveModel(feed, task) for feed, task in zip(feeds, tasks, strict=True)
        }
        self._stack = stack
        self._abandoned = weakref.finalize(self, _leave, stack, os.getpid())

    @property
    def feed(self) -> Feed:
        """The frames of the only network; raises `BadInputError` if there are several."""
        if len(self._models) > 1:
            raise BadInputError(
                f"the cluster has {len(self._models)} networks; take one of them by "
                f"cluster.model(name): {', '.join(self._models)}"
            )
        return self._feed

    @property
    def ended(self) -> Future[None]:
        """Done once the cluster computes nothing more, with the error that ended it."""
        return self._feed.ended

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
        if self._feed.is_own_thread:
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
