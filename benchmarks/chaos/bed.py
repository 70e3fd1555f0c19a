"""Sets up boards with agents and a stream over them, into which faults can be injected.

The boards are those of the laboratory (`benchmarks.lab`). Agents and launcher are the shipped ones.
The last board stands by.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path

from benchmarks.chaos.ledger import Ledger
from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, plans
from benchmarks.lab.lab import READY
from benchmarks.lab.readings import processes, thread_called
from benchmarks.lab.replica import reference
from benchmarks.lab.runs import planned
from benchmarks.lab.shell import perform, wait_until
from benchmarks.programs import Program
from launcher.config.load import load_cluster
from launcher.config.node import NodeConfig
from launcher.config.units import parse_bytes
from launcher.errors import LauncherError, RunFailedError
from launcher.plan.planner import Planner
from launcher.plan.replanning import Replanner
from launcher.plan.settings import read_model
from launcher.progress import open_progress
from launcher.run.runtime import RunResult
from nodes.execution.worker import THREAD_NAME
from nodes.protocol.payload import Array

DISTINCT = 31
"""Inputs that are not alike; frames repeat them."""

STANDBY = "spare"
LIMIT_BYTES = parse_bytes("400MB")
READY_S = 60.0
STRIKE_S = 1.5
CALIBRATE_S = 6.0


@dataclass(frozen=True)
class Streamed:
    """What came of a stream. Times in seconds.

    `recover_s`: from the fault to the first result that had been under way when it struck, one for
    each recovery since; without any, the longest pause since the fault. `ended`: the sentence
    that the run ended with, if it did not end well; `frames` are then those that have a result.
    """

    frames: int
    results: int
    lost: int
    doubled: int
    wrong: int
    replayed: int
    recoveries: tuple[str, ...]
    recover_s: tuple[float, ...]
    seconds: float
    ended: str | None

    def as_json(self) -> dict[str, object]:
        """The figures; sentences name folders of this machine, and are only counted."""
        derived = {"recoveries": len(self.recoveries), "ended": self.ended is not None}
        return {**asdict(self), **derived}

    @property
    def is_whole(self) -> bool:
        """Every frame has exactly one result, and it is right."""
        return self.lost == self.doubled == self.wrong == 0


Wait = Callable[[float], bool]
"""Lets so many seconds pass; False if the stream was over before."""

Fault = Callable[["Bed", Wait], None]


class Bed:
    """Use in a `with` statement. `rate` is what a stream without faults gives, in frames a second;
    0 until the first."""

    def __init__(self, model: str, *, keys: bool) -> None:
        """`keys`: agents and launcher have keys."""
        config = LabConfig(
            name="chaos" if keys else "chaosopn",
            undisturbed=True,
            keys=keys,
            defaults=BoardConfig(board="cpu", cpu=0.2, memory=LIMIT_BYTES, link=125e6),
            devices=(DeviceConfig(count=3), DeviceConfig(name=STANDBY, disk=parse_bytes("64MB"))),
            cluster={"model": model, "strategy": "sequential"},
        )
        self.lab = Lab(config)
        self.rate = 0.0
        self.harmed: set[str] = set()
        self.tools = ExitStack()
        """What faults have set up and is taken down after them."""
        self._helper: Program | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Bed:
        self._stack.enter_context(self.lab)
        try:
            self._prepare()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.tools.close()
        self._stack.close()

    def _prepare(self) -> None:
        place = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-"))
        self.folder = Path(place)
        cluster = load_cluster(self.lab.cluster_file)
        nodes = tuple(
            node.model_copy(update={"standby": node.name == STANDBY, "memory": LIMIT_BYTES})
            for node in cluster.config.nodes
        )
        run_config = cluster.config.run.model_copy(update={"lease_s": 5.0})
        self.cluster = cluster.changed(nodes=nodes, run=run_config)
        self.model = read_model(self.cluster)
        self._reference = reference(self.model, self.folder, DISTINCT)
        self._plan("subnets")

    def _plan(self, folder: str) -> None:
        with open_progress() as progress:
            self._made = planned(self.cluster, self.model, self.folder / folder, progress)

    def calibrate(self) -> None:
        """Find the usual rate; raises `RunFailedError` if not even a usual stream succeeds."""
        for _ in range(2):  # the first prepares subnets
            found = self.stream(CALIBRATE_S)
            if found.ended is not None:
                raise RunFailedError(found.ended)
            self.rate = found.frames / found.seconds

    # ------------------------------------------------------------ before the stream

    def readdress(self, board: str, address: str) -> None:
        """The cluster says that a board is at another address, until it is mended."""
        self._change(
            lambda node: (
                node.model_copy(update={"address": address}) if node.name == board else node
            )
        )

    def plan_without(self, board: str) -> None:
        """The plan has a part for the board that stood by, and this one stands by, until mended."""
        self._change(lambda node: node.model_copy(update={"standby": node.name == board}))
        self.tools.callback(setattr, self, "_made", self._made)
        self._plan("without")

    def empty_cache(self, board: str) -> None:
        """A board with a disk of its own: its agent starts anew with nothing cached."""
        self.lab.kill(board)
        perform(plans.empty_disk(self.lab.place(board)))
        self.start(board)

    def _change(self, change: Callable[[NodeConfig], NodeConfig]) -> None:
        self.tools.callback(setattr, self, "cluster", self.cluster)
        nodes = tuple(change(node) for node in self.cluster.config.nodes)
        self.cluster = self.cluster.changed(nodes=nodes)

    # ------------------------------------------------------------ the stream

    def stream(self, seconds: float, fault: Fault | None = None) -> Streamed:
        """Stream for about `seconds` at the usual rate; `fault` strikes after `STRIKE_S` of
        them, in another thread. Raises what `fault` raises."""
        frames = max(40, round(seconds * (self.rate or 10.0)))
        strike_at = max(4, round(STRIKE_S * self.rate)) if self.rate else 0
        ledger, strike = Ledger(self._reference.results), _Strike(self, fault)

        def take(frame: int, outputs: Mapping[str, Array]) -> None:
            ledger.take(frame, outputs, time.monotonic())
            if frame >= strike_at:
                strike.begin()

        recovery = self.cluster.config.recovery.model_copy(
            update={"adapt": False, "rebalance": "auto"}
        )
        replan = Replanner(Planner(self.cluster, self.model), self.folder)
        made, given = replace(self._made, cluster=self.cluster), cycle(self._reference.frames)
        began_s, ended, result = time.monotonic(), None, None
        try:
            result = made.stream([*islice(given, frames)], take, recovery=recovery, replan=replan)
        except LauncherError as error:
            ended = str(error)
        finally:
            replan.close()
            strike.end()
        seconds = time.monotonic() - began_s
        return _streamed(ledger, result, frames, seconds, ended, strike.struck_s)

    # ------------------------------------------------------------ afterwards

    def help_by(self, helper: Program) -> None:
        """A process of a fault's, which a line sets off, until the fault is taken down."""
        self._helper = helper
        self.tools.callback(helper.kill)
        helper.ready()

    def set_off(self) -> None:
        """Tell the helper that was set up before the stream."""
        assert self._helper is not None
        self._helper.tell()

    def mend(self) -> None:
        """Return all boards to what they were: cables in, agents of harmed boards restarted."""
        self.tools.close()
        for board in sorted(self.harmed):
            self.lab.restore(board)
            self.lab.resume(board)
            self.lab.kill(board)
            self.start(board)
        self.harmed.clear()

    def agent(self, board: str) -> int | None:
        """The process of a board's agent: the one whose threads compute."""
        found = processes(self.lab.layout, self.lab.place(board))
        return next((pid for pid in sorted(found) if thread_called({pid}, THREAD_NAME)), None)

    def start(self, board: str) -> None:
        """Start an agent as the laboratory does, without the quota meanwhile."""
        self.lab.starve(board, 1.0)
        self.lab.restart(board)

    def start_as(self, board: str, before: tuple[str, ...] = (), listen: str | None = None) -> None:
        """Start an agent below another program, or listening elsewhere."""
        place = self.lab.place(board)
        self.lab.starve(board, 1.0)
        log = place.log.open("wb")
        self.tools.callback(log.close)
        command = (*before, *plans.agent(self.lab.layout, place, listen))
        process = self.lab.popen(
            board, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        self.tools.callback(_reap, process)
        wait_until(
            lambda: READY in place.log.read_bytes(),
            READY_S,
            lambda: f"{board}: {place.log.read_text('utf-8', 'replace')[-400:]}",
        )
        self.lab.starve(board, place.slice.cpu)


class _Strike:
    """The fault's thread: begins once, ends early when the stream is over."""

    def __init__(self, bed: Bed, fault: Fault | None) -> None:
        self._bed, self._fault = bed, fault
        self._over = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="fault")
        self.struck_s: float | None = None

    def begin(self) -> None:
        if self.struck_s is None and self._fault is not None:
            self.struck_s = time.monotonic()
            self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self.struck_s is not None:
            self._thread.join()
        if self._failed:
            raise self._failed[0]

    def _run(self) -> None:
        assert self._fault is not None
        try:
            self._fault(self._bed, lambda seconds: not self._over.wait(seconds))
        except BaseException as error:  # noqa: BLE001 - raised again by `end`
            self._failed.append(error)


def _streamed(
    ledger: Ledger,
    result: RunResult | None,
    frames: int,
    seconds: float,
    ended: str | None,
    struck_s: float | None,
) -> Streamed:
    wanted = frames if ended is None else ledger.next_frame
    recoveries = () if result is None else result.recoveries
    recover_s: list[float] = []
    if struck_s is not None and ended is None:
        came = [ledger.came_s(past.frame) for past in recoveries]
        recover_s = [s - struck_s for s in came if s is not None and s > struck_s]
        if not recover_s:
            recover_s = [ledger.longest_pause_s(struck_s)]
    return Streamed(
        frames=wanted,
        results=ledger.results,
        lost=ledger.lost(wanted),
        doubled=ledger.doubled,
        wrong=ledger.wrong + ledger.out_of_order,
        replayed=sum(past.replayed for past in recoveries),
        recoveries=tuple(reason for past in recoveries for reason in past.reasons),
        recover_s=tuple(recover_s),
        seconds=seconds,
        ended=ended,
    )


def _reap(process: subprocess.Popen[str]) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.1)
    if process.poll() is None:
        process.kill()
        process.wait()
