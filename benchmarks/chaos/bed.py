"""Sets up boards with agents and a stream over them, into which faults can be injected.

The boards are those of the laboratory (`benchmarks.lab`), or plain processes where the machine
does not support emulation. Agents and launcher are the shipped ones. The last board stands by.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.chaos.ledger import Ledger
from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, LabError, plans
from benchmarks.lab.layout import Place
from benchmarks.lab.readings import processes, thread_called
from benchmarks.lab.shell import perform, wait_until
from launcher.config.cluster import NodeConfig
from launcher.config.load import Cluster, load_cluster
from launcher.config.units import parse_bytes, parse_link
from launcher.errors import LauncherError, RunFailedError
from launcher.plan.devices import nodes_of
from launcher.plan.planner import Planner
from launcher.plan.replanning import Replanner
from launcher.plan.settings import read_model, run_options
from launcher.plan.subnet_files import cut_subnets
from launcher.progress import open_progress
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import Array, RunResult, SubnetFiles
from nodes.execution.worker import THREAD_NAME
from nodes.executors.base import LoadOptions
from nodes.executors.registry import open_executor
from partition.plan import Plan

DISTINCT = 31
"""Inputs that are not alike; frames repeat them."""

STANDBY = "spare"
LIMIT_BYTES = parse_bytes("400MB")
READY_S = 60.0
STRIKE_S = 1.5


class Inputs:
    """`count` frames, of which the first `DISTINCT` differ."""

    def __init__(self, distinct: list[dict[str, Array]], count: int) -> None:
        self._distinct, self._count = distinct, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Array]:
        return self._distinct[index % len(self._distinct)]


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

    def __init__(
        self, model: str, *, name: str = "chaos", plain: bool = False, keys: bool = True
    ) -> None:
        config = LabConfig(
            name=name,
            undisturbed=True,
            keys=keys,
            defaults=BoardConfig(
                board="cpu", cpu=0.2, memory=LIMIT_BYTES, link=parse_link("1Gbit/s")
            ),
            devices=(DeviceConfig(count=3), DeviceConfig(name=STANDBY, disk=parse_bytes("64MB"))),
            cluster={"model": model, "strategy": "sequential"},
        )
        self.lab = Lab(config, plain=plain)
        self.rate = 0.0
        self.harmed: set[str] = set()
        self.tools = ExitStack()
        """What faults have set up and is taken down after them."""
        self.helper: subprocess.Popen[str] | None = None
        """A process of theirs, which a line on its standard input sets off."""
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

    @property
    def is_emulated(self) -> bool:
        """Whether boards are more than processes."""
        return self.lab.layout.isolated

    @property
    def boards(self) -> tuple[str, ...]:
        """All of them, the one that stands by last."""
        return tuple(self.lab.layout.places)

    def _prepare(self) -> None:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        self.folder = folder
        self.cluster = self._cluster()
        self.model = read_model(self.cluster)
        with open_progress() as progress:
            self.plan = Planner(self.cluster, self.model).plan(progress)
        self.subnets: Mapping[str, SubnetFiles] = cut_subnets(
            self.model, self.plan, folder / "subnets", lambda _, __: None
        )
        self._distinct, self._expected = self._references(folder)

    def _cluster(self) -> Cluster:
        cluster = load_cluster(self.lab.cluster_file)
        nodes = tuple(
            node.model_copy(update={"standby": node.name == STANDBY, "memory": LIMIT_BYTES})
            for node in cluster.config.nodes
        )
        run_config = cluster.config.run.model_copy(update={"lease_s": 5.0})
        return cluster.changed(nodes=nodes, run=run_config)

    def _references(self, folder: Path) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
        network = self.model.network
        layers = [layer.name for layer in network.layers]
        whole = self.model.cut(layers, network.inputs, network.outputs, folder / "whole")
        executor, options = open_executor("onnxruntime", folder / "cache"), LoadOptions(threads=1)
        executor.prepare([whole.graph], options)
        subnet = executor.load(whole.graph, options)
        random = np.random.default_rng(0)
        distinct: list[dict[str, Array]] = [
            {
                name: random.standard_normal(spec.shape, dtype=np.float32)
                for name, spec in subnet.inputs.items()
            }
            for _ in range(DISTINCT)
        ]
        expected = [dict(subnet.run(one)) for one in distinct]
        subnet.close()
        executor.close()
        return distinct, expected

    def calibrate(self, seconds: float = 6.0) -> None:
        """Find the usual rate; raises `RunFailedError` if not even a usual stream succeeds."""
        for _ in range(2):  # the first prepares subnets
            found = self.stream(seconds)
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
        kept = self.plan, self.subnets
        self.tools.callback(self._take_plan, *kept)
        with open_progress() as progress:
            plan = Planner(self.cluster, self.model).plan(progress)
        folder = self.folder / "without"
        self._take_plan(plan, cut_subnets(self.model, plan, folder, lambda _, __: None))

    def empty_cache(self, board: str) -> None:
        """A board with a disk of its own: its agent starts anew with nothing cached."""
        self.lab.kill(board)
        perform(plans.empty_disk(self.lab.place(board)))
        self.start(board)

    def _change(self, change: Callable[[NodeConfig], NodeConfig]) -> None:
        self.tools.callback(setattr, self, "cluster", self.cluster)
        nodes = tuple(change(node) for node in self.cluster.config.nodes)
        self.cluster = self.cluster.changed(nodes=nodes)

    def _take_plan(self, plan: Plan, subnets: Mapping[str, SubnetFiles]) -> None:
        self.plan, self.subnets = plan, subnets

    # ------------------------------------------------------------ the stream

    def stream(self, seconds: float, fault: Fault | None = None) -> Streamed:
        """Stream for about `seconds` at the usual rate; `fault` strikes after `STRIKE_S` of
        them, in another thread. Raises what `fault` raises."""
        frames = max(40, round(seconds * (self.rate or 10.0)))
        strike_at = max(4, round(STRIKE_S * self.rate)) if self.rate else 0
        ledger, strike = Ledger(self._expected), _Strike(self, fault)

        def take(frame: int, outputs: Mapping[str, Array]) -> None:
            ledger.take(frame, outputs, time.monotonic())
            if frame >= strike_at:
                strike.begin()

        options = run_options(self.cluster)
        recovery = options.recovery.model_copy(update={"adapt": False, "rebalance": "auto"})
        replan = Replanner(Planner(self.cluster, self.model), self.folder)
        began_s, ended, result = time.monotonic(), None, None
        try:
            result = run(
                self.plan,
                nodes_of(self.cluster),
                self.subnets,
                listed(Inputs(self._distinct, frames), take),
                lambda _: None,
                replace(options, recovery=recovery, replan=replan),
            )
        except LauncherError as error:
            ended = str(error)
        finally:
            replan.close()
            strike.end()
        seconds = time.monotonic() - began_s
        return _streamed(ledger, result, frames, seconds, ended, strike.struck_s)

    # ------------------------------------------------------------ afterwards

    def mend(self) -> None:
        """Return all boards to what they were: cables in, agents of harmed boards restarted."""
        self.tools.close()
        for board in sorted(self.harmed):
            if self.is_emulated:
                self.lab.restore(board)
            self.lab.resume(board)
            self.lab.kill(board)
            self.start(board)
        self.harmed.clear()

    def agent(self, board: str) -> int | None:
        """The process of a board's agent: the one whose threads compute."""
        layout = self.lab.layout
        found = processes(layout, self.lab.place(board))
        return next((pid for pid in sorted(found) if thread_called({pid}, THREAD_NAME)), None)

    def start(self, board: str) -> None:
        """Start an agent as the laboratory does, without the quota meanwhile."""
        self._unbounded(board)
        self.lab.restart(board)

    def start_as(self, board: str, before: tuple[str, ...] = (), listen: str | None = None) -> None:
        """Start an agent below another program, or listening elsewhere; only emulated boards."""
        place = self.lab.place(board)
        self._unbounded(board)
        log = place.log.open("wb")
        self.tools.callback(log.close)
        command = (*before, *plans.agent(self.lab.layout, place, listen))
        process = self.lab.popen(
            board, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        self.tools.callback(_reap, process)
        wait_until(lambda: b"ready: control" in place.log.read_bytes(), READY_S, lambda: _no(place))
        self.lab.starve(board, place.slice.cpu)

    def _unbounded(self, board: str) -> None:
        if self.is_emulated:
            self.lab.starve(board, 1.0)


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


def _no(place: Place) -> str:
    return f"{place.slice.name}: {place.log.read_text('utf-8', 'replace')[-400:]}"


__all__ = ["Bed", "Fault", "LabError", "Streamed", "Wait"]
