"""Opens, checks and closes one release, in its own thread."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from launcher.config.load import Cluster
from launcher.config.network import RANDOM, InputConfig
from launcher.config.node import NodeConfig
from launcher.errors import LacksRoomError, LauncherError, shortened
from launcher.inputs.frames import Inputs, open_inputs
from launcher.progress import ProgressDisplay
from launcher.quantities import megabytes
from launcher.results.collecting import Results
from launcher.results.comparison.agreement import FirstResults, worst_of
from launcher.results.networks import network_numbers
from launcher.results.whole import ExecutedPlans, compare_all
from launcher.run.request import Request
from launcher.scratch import scratch_folder
from launcher.service.events import (
    Closed,
    Event,
    ModelRelease,
    Note,
    ReleaseChecked,
    ReleaseFailed,
    ReleaseLoaded,
    RunEnded,
)
from launcher.streaming import job
from launcher.streaming.live_cluster import LiveCluster, live_cluster
from launcher.streaming.live_model import LiveModel
from launcher.streaming.target import LoadedTarget
from launcher.threads import in_thread

Report = Callable[[Event | Note], None]
"""Takes an event, or something for the history; called from any thread."""

START_WAIT_S = 5.0
"""How long a release waits for nodes without which it has no plan."""

CHECKED_FRAMES = 3
"""Frames of random numbers whose results are compared with the whole model's."""

ENDING_S = 1.0
"""How long after the first frame that it fails a run may take to end."""


class GivenUpError(LauncherError):
    """A release is closed before it is loaded."""


class Turns:
    """Lets one release at a time be planned and loaded: the next one then knows what is left."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_taken = False

    @contextmanager
    def mine(self, is_wanted: Callable[[], bool]) -> Iterator[None]:
        """Wait for the turn; raises `GivenUpError` once it is no longer wanted."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_taken or not is_wanted())
            if not is_wanted():
                raise GivenUpError("abandoned")
            self._is_taken = True
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()

    def look(self) -> None:
        """Wake waiting releases: one may no longer be wanted."""
        with self._changed:
            self._changed.notify_all()


class OpenedRelease:
    """A release from its opening on; its thread ends with `Closed` or `ReleaseFailed`."""

    def __init__(
        self,
        release: ModelRelease,
        cluster: Callable[[], Cluster],
        *,
        turns: Turns,
        held: Callable[[], Mapping[str, Sequence[int]]],
        report: Report,
    ) -> None:
        """`cluster` reads how it runs; `held` returns the bytes of each release that has a node,
        by node."""
        self.release = release
        self.live: LiveCluster | None = None
        self.stage = ""
        """The present step of its loading, for people."""
        self._cluster = cluster
        self._turns = turns
        self._held = held
        self._report = report
        self._nodes: Sequence[NodeConfig] = ()
        self._taken: Sequence[NodeConfig] = ()
        """Nodes with an address all of whose slots other releases have."""
        self._wanted: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._is_given_up = threading.Event()
        self._ended = in_thread(self._run, str(release))

    @property
    def is_alive(self) -> bool:
        """Whether its thread has not ended."""
        return not self._ended.done()

    def check(self) -> None:
        """Have it compared with its whole model; reports `ReleaseChecked`."""
        self._wanted.put("check")

    def close(self) -> None:
        """Have it closed, or its loading cancelled."""
        self._is_given_up.set()
        self._turns.look()
        self._wanted.put("close")

    def held_bytes(self) -> Mapping[str, int]:
        """The memory that its plan takes, by node, once it is loaded; 0 on a node that only stands
        by for it, whose agent it has as well."""
        live = self.live
        if live is None:
            return {}
        planned = {node: memory.total_bytes for node, memory in live.plan.memory.items()}
        return {node.name: 0 for node in self._nodes if node.address is not None} | planned

    # ------------------------------------------------------------ its thread

    def _run(self) -> None:
        release = self.release
        event: Event = Closed(release)
        try:
            with ExitStack() as stack:
                cluster, opened = self._open(stack)
                self._report(ReleaseLoaded(release))
                while self._wanted.get() == "check":
                    checked = self._checked(cluster, opened)
                    if not opened.run.feeds[0].ended.done():  # else `RunEnded` says why
                        self._report(checked)
                self.live = None
        except GivenUpError:
            pass
        except LauncherError as error:
            if not self._is_given_up.is_set():
                lacks_room = isinstance(error, LacksRoomError) or bool(self._taken)
                all_taken = len(self._taken) == len(self._nodes)
                event = ReleaseFailed(release, str(error), lacks_room, lacks_room and all_taken)
        except BaseException as error:  # noqa: BLE001 - the service continues, and reports it
            text = shortened(f"{type(error).__name__}: {error}")
            if not self._is_given_up.is_set():
                event = ReleaseFailed(release, text)
        finally:
            self.live = None
        self._report(event)

    def _open(self, stack: ExitStack) -> tuple[Cluster, job.Live]:
        progress = _ReleaseDisplay(self)
        with self._turns.mine(lambda: not self._is_given_up.is_set()):
            cluster, held = self._cluster(), self._held()
            self._nodes = cluster.config.nodes
            self._taken = [
                node
                for node in self._nodes
                if node.address is not None and len(held.get(node.name, ())) >= node.slots
            ]
            cluster = _within(_impatient(cluster), held)
            live = stack.enter_context(
                job.open_live(
                    Request(Path(cluster.source.name)),
                    progress,
                    most=cluster.config.serve.most_in_flight,
                    loaded=LoadedTarget(cluster, None),
                    follows=cluster.config.serve.traces is not None,
                )
            )
            progress.is_open = True
            self.live = live_cluster(live, ExitStack())
        self.live.ended.add_done_callback(self._run_ended)
        return cluster, live

    def _run_ended(self, ended: Future[None]) -> None:
        if not self._is_given_up.is_set():
            self._report(RunEnded(self.release, str(ended.exception())))

    def _checked(self, cluster: Cluster, opened: job.Live) -> ReleaseChecked:
        """Compare its results with the whole model's."""
        release = self.release
        if not cluster.config.verify or self.live is None:
            return ReleaseChecked(release)
        network = self.live.model(release.model)
        try:
            with scratch_folder() as folder:
                found = _disagreement(opened, network, cluster, folder, _ReleaseDisplay(self))
        except (LauncherError, OSError) as error:
            if not isinstance(error, GivenUpError):
                with contextlib.suppress(Exception):  # if the run ends, it does so at once
                    network.ended.result(ENDING_S)
            return ReleaseChecked(release, str(error), was_compared=False)
        return ReleaseChecked(release, found)

    def told(self, note: Note, *, is_open: bool) -> None:
        """Take a run's message; raises `GivenUpError` if the release is no longer wanted."""
        if is_open:
            self._report(replace(note, text=f"{self.release}: {note.text}"))
            return
        self.stage = note.text
        if self._is_given_up.is_set():
            raise GivenUpError("abandoned")


class _ReleaseDisplay(ProgressDisplay):
    """Passes on a run's messages; its loading is also cancelled here."""

    def __init__(self, opened: OpenedRelease) -> None:
        self._opened = opened
        self._run = ""
        self.is_open = False
        """Whether it is loaded; from then on, it reports its events."""

    def name_run(self, run: str) -> None:
        """See `ProgressDisplay`."""
        self._run = run

    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:
        """See `ProgressDisplay`."""
        self._opened.told(Note(level, text, tuple(nodes), self._run), is_open=self.is_open)

    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:
        """See `ProgressDisplay`."""
        if not self.is_open:
            text = f"{stage}: {done} of {total} {note}".rstrip()
            self._opened.told(Note("info", text), is_open=False)


def _impatient(cluster: Cluster) -> Cluster:
    """Return the cluster with a short wait for nodes that are missing, unless the user sets one:
    the core tries again, and others may be waiting for their turn."""
    run = cluster.config.run
    if run.start_wait_s is not None:
        return cluster
    return cluster.changed(run=run.model_copy(update={"start_wait_s": START_WAIT_S}))


def _within(cluster: Cluster, held: Mapping[str, Sequence[int]]) -> Cluster:
    """Return the cluster with the memory that others leave. Raises `LacksRoomError`."""
    nodes = []
    for node in cluster.config.nodes:
        others = sum(held.get(node.name, ()))
        if node.memory is None or not others:
            nodes.append(node)
            continue
        left = node.memory - others
        if left <= 0:
            raise LacksRoomError(
                f"node {node.name!r}: other models hold {megabytes(others)} of its "
                f"{megabytes(node.memory)}"
            )
        nodes.append(node.model_copy(update={"memory": left}))
    return cluster.changed(nodes=tuple(nodes))


def _disagreement(
    live: job.Live, network: LiveModel, cluster: Cluster, folder: Path, progress: ProgressDisplay
) -> str:
    """Return how a release's results differ from its whole model's; empty if they agree.

    `folder` is for temporary files. Raises `LauncherError` if either cannot be computed.
    """
    model = live.model
    described = open_inputs(
        model.network,
        InputConfig(files=(RANDOM,)),
        folder,
        frames=CHECKED_FRAMES,
        seed=cluster.config.seed,
        is_classifier=False,
        where="the check",
    )
    inputs = Inputs(described.items[:CHECKED_FRAMES], CHECKED_FRAMES, described.description)
    results = Results(
        inputs,
        model.network.outputs,
        None,
        FirstResults(folder / "first", network_numbers(model)),
        (),
        checked=False,
        constants=model.constant_outputs,
    )
    futures = [network.submit(inputs[number]) for number in range(CHECKED_FRAMES)]
    for number, future in enumerate(futures):
        results.on_result(number, future.result())

    def show(done: int, total: int) -> None:
        progress.update("comparing with the whole model", done, total)

    ran = ExecutedPlans(live.plan, live.subnets)
    found = worst_of(
        compare_all(model, results, folder, show, cluster.config.tolerance, ran).values()
    )
    return "" if found is None or found.agrees else found.disagreement
