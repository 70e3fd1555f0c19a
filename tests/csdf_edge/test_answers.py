"""One contract for every API that gives a future or an iterator of results.

Whatever happens to the caller, to the cluster or to the interpreter: nothing waits for ever, what
nobody wants is not computed, every caller learns why, and no agent is left.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

import csdf_edge
from csdf_edge import LauncherError, LiveCluster
from tests.csdf_edge.test_live import DIGITS, ROOT, agents_of, check, frames, have_ended
from tests.nodes.speaker import AgentProcess

pytestmark = pytest.mark.slow

WAIT_S = 20.0
MANY = 40
"""More frames than the channels of the cluster hold."""

Frame = dict[str, np.ndarray]


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        os.sched_yield()


def write_cluster(folder: Path, recovery: str) -> Path:
    """Two agents on this machine, of which a silent one counts as lost only after a minute."""
    path = folder / "cluster.yaml"
    path.write_text(
        f"model: {DIGITS / 'digits.onnx'}\nnodes: [{{name: a}}, {{name: b}}]\n"
        f"strategy: sequential\nrun: {{silence_timeout_s: 60, lease_s: 60}}\nrecovery: {recovery}\n"
    )
    return path


@contextmanager
def opened(path: Path, most: int = MANY) -> Iterator[tuple[LiveCluster, list[int]]]:
    others = agents_of(os.getpid())
    with csdf_edge.open(path, most_in_flight=most) as cluster:
        yield cluster, [agent for agent in agents_of(os.getpid()) if agent not in others]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveCluster, list[int]]]:
    """For tests that stop its agents for a while."""
    path = write_cluster(tmp_path_factory.mktemp("held"), "{heartbeat_s: 60}")
    with opened(path) as found:
        yield found


def signalled(agents: list[int], number: signal.Signals) -> None:
    for agent in agents:
        os.kill(agent, number)


class Asked:
    """Results that `ask` asks for while all agents are stopped by `hold`."""

    def __init__(self, cluster: LiveCluster, hold: Callable[[], None] = lambda: None) -> None:
        self.cluster = cluster
        self.begin(hold)

    def begin(self, hold: Callable[[], None]) -> None:
        hold()
        self.futures = self.asked()

    def asked(self) -> list[Future[Frame]]:
        return [self.ask(frame) for frame in frames()[:MANY]]

    def ask(self, frame: Frame) -> Future[Frame]:
        raise NotImplementedError

    def cancel(self) -> None:
        """Give the results up, as users of the API do."""
        for future in self.futures:
            future.cancel()

    def results(self) -> list[Frame]:
        return [future.result(WAIT_S) for future in self.futures]

    def close(self) -> None:
        """End what this object itself has begun."""


class Submit(Asked):
    """Futures of `submit`."""

    def ask(self, frame: Frame) -> Future[Frame]:
        return self.cluster.submit(frame)


class SubmitToAModel(Asked):
    """Futures of one network's `submit`."""

    def ask(self, frame: Frame) -> Future[Frame]:
        return self.cluster.model(self.cluster.models[0]).submit(frame)


class Infer(Asked):
    """`infer` in threads of the program; a timeout gives it up."""

    timeout_s = 0.5

    def begin(self, hold: Callable[[], None]) -> None:
        self.threads = ThreadPoolExecutor(MANY)
        super().begin(hold)

    def ask(self, frame: Frame) -> Future[Frame]:
        return self.threads.submit(self.cluster.infer, frame, timeout_s=self.timeout_s)

    def cancel(self) -> None:
        for future in self.futures:
            with pytest.raises(TimeoutError, match=r"^no result arrived within 0\.5 s$"):
                future.result(WAIT_S)

    def close(self) -> None:
        self.threads.shutdown()


class Stream(Asked):
    """`stream` of frames that never end; its consumer takes one result, and then leaves."""

    def begin(self, hold: Callable[[], None]) -> None:
        is_held = threading.Event()

        def given() -> Iterator[Frame]:
            yield frames()[0]
            is_held.wait(WAIT_S)
            yield from itertools.cycle(frames())

        self.stream = self.cluster.stream(given(), in_flight=MANY)
        check([next(self.stream)])
        hold()
        is_held.set()

    def cancel(self) -> None:
        self.stream.close()

    def results(self) -> list[Frame]:
        return list(self.stream)


class Coroutines(Asked):
    """Coroutines in an event loop of the program, whose tasks are cancelled."""

    def begin(self, hold: Callable[[], None]) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        super().begin(hold)

    def started(self, coroutine: Coroutine[object, object, Frame]) -> Future[Frame]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def close(self) -> None:
        ends = asyncio.run_coroutine_threadsafe(self.loop.shutdown_default_executor(), self.loop)
        ends.result(WAIT_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT_S)
        self.loop.close()


class InferAsync(Coroutines):
    """`infer_async`."""

    def ask(self, frame: Frame) -> Future[Frame]:
        return self.started(self.cluster.infer_async(frame))


class StreamAsync(Coroutines):
    """`stream_async`."""

    def asked(self) -> list[Future[Frame]]:
        return [self.started(self.last())]

    async def last(self) -> Frame:
        stream = self.cluster.stream_async(frames()[:MANY], in_flight=MANY)
        return [result async for result in stream][-1]


APIS = (Stream, Submit, SubmitToAModel, InferAsync, StreamAsync, Infer)
"""The first one waits for a result before all agents are held, and the last one has a time-out."""

each_api = pytest.mark.parametrize("api", APIS, ids=[api.__name__ for api in APIS])


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "csdf-edge frames"]


@each_api
@pytest.mark.parametrize("is_dropped", [False, True], ids=["cancelled", "dropped"])
def test_what_nobody_wants_is_not_computed_and_leaves_nothing(
    held: tuple[LiveCluster, list[int]], api: type[Asked], is_dropped: bool
) -> None:
    cluster, agents = held
    before = cluster.view().frames_total
    try:
        asked = api(cluster, lambda: signalled(agents, signal.SIGSTOP))
        until(lambda: cluster.view().in_flight >= MANY - 1)
        if not is_dropped or api is not Stream:
            asked.cancel()
        else:
            del asked.stream
            gc.collect()
    finally:
        signalled(agents, signal.SIGCONT)
    until(lambda: not cluster.view().in_flight)
    asked.close()
    assert cluster.view().frames_total - before < MANY
    until(lambda: not readers())
    check([cluster.infer(frames()[0], timeout_s=WAIT_S)])


@pytest.mark.parametrize("streams", [False, True])
def test_a_task_that_is_cancelled_while_it_waits_for_room_holds_up_no_event_loop(
    held: tuple[LiveCluster, list[int]], streams: bool
) -> None:
    cluster, agents = held
    signalled(agents, signal.SIGSTOP)
    try:
        futures = [cluster.submit(frames()[0], block=False) for _ in range(MANY)]
        before = cluster.view().in_flight

        async def waits() -> object:
            if not streams:
                return await cluster.infer_async(frames()[0])
            return [result async for result in cluster.stream_async(frames())]

        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(waits(), 0.3))
        until(lambda: not readers())
        assert cluster.view().in_flight == before == MANY
    finally:
        signalled(agents, signal.SIGCONT)
    assert len([future.result(WAIT_S) for future in futures]) == MANY


def test_everybody_who_waits_learns_why_a_run_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Infer, "timeout_s", WAIT_S)
    said: dict[str, str] = {}
    with (  # noqa: PT012 - the cluster raises it, too, when it is left
        pytest.raises(LauncherError, match="node 'b'"),
        opened(write_cluster(tmp_path, "false"), len(APIS) * MANY) as (cluster, agents),
    ):
        asked = [api(cluster, lambda: signalled(agents, signal.SIGSTOP)) for api in APIS]
        os.kill(agents[1], signal.SIGKILL)
        os.kill(agents[0], signal.SIGCONT)
        for each in asked:
            said[type(each).__name__] = end_of(each)
            each.close()
    assert len(said) == len(APIS)
    assert all("node 'b'" in sentence for sentence in said.values()), said


def end_of(asked: Asked) -> str:
    """The sentence with which the results end; empty if all are there."""
    try:
        asked.results()
    except (LauncherError, TimeoutError) as error:
        return str(error)
    return ""


def test_a_caller_that_waits_while_the_cluster_is_closed_gets_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Infer, "timeout_s", WAIT_S)
    with opened(write_cluster(tmp_path, "true"), len(APIS) * MANY) as (cluster, agents):
        asked = [api(cluster) for api in APIS]
        with ThreadPoolExecutor(2) as threads:
            closing = [threads.submit(cluster.close) for _ in range(2)]
            said = {type(each).__name__: end_of(each) for each in asked}
            for future in closing:
                future.result(WAIT_S)
        for each in asked:
            each.close()
    cluster.close()
    assert have_ended(agents)
    assert set(said.values()) <= {"", "the cluster is closed"}, said
    with pytest.raises(LauncherError, match="the cluster is closed"):
        cluster.infer(frames()[0])


@contextmanager
def boards(folder: Path, **keys: str) -> Iterator[tuple[Path, list[AgentProcess]]]:
    """A cluster file of two agents that the launcher does not start, and those."""
    with ExitStack() as stack:
        agents = [AgentProcess(folder / name, "--name", name) for name in ("a", "b")]
        for agent in agents:
            stack.callback(agent.end)
        a, b = (agent.control for agent in agents)
        speed = "macs_per_s: 100M"  # at which the network is worth dividing
        nodes = f"{{name: a, address: '{a}', {speed}}}, {{name: b, address: '{b}', {speed}}}"
        path = folder / "cluster.yaml"
        path.write_text(
            f"model: {DIGITS / 'digits.onnx'}\nnodes: [{nodes}]\nstrategy: sequential\n"
            "recovery: {adapt: false}\n"
        )
        yield path, agents


def test_callers_learn_that_all_boards_are_lost_and_closing_does_not_wait_for_them(
    tmp_path: Path,
) -> None:
    with boards(tmp_path) as (path, agents):
        cluster = csdf_edge.open(path, most_in_flight=4)
        check([cluster.infer(frames()[0], timeout_s=WAIT_S)])
        for agent in agents:
            os.kill(agent.pid, signal.SIGKILL)
        until(lambda: cluster.view().state == "waiting")
        lost = r"for \d+ s too few nodes .*(a|b)' .*(?!\1)(a|b)' .*no node is left; waiting 3 min"
        with pytest.raises(
            TimeoutError, match=rf"within 0\.5 s: {lost}.* Start their agents again"
        ):
            cluster.infer(frames()[0], timeout_s=0.5)
        futures = [cluster.submit(frame) for frame in frames()[:3]]
        with pytest.raises(csdf_edge.FullError, match=lost):
            cluster.submit(frames()[0], block=False)
        began_s = time.monotonic()
        with pytest.raises(LauncherError, match=f"results are missing: {lost}"):
            cluster.close()
        assert time.monotonic() - began_s < WAIT_S
        for future in futures:
            with pytest.raises(LauncherError, match="results are missing"):
                future.result(0)
        cluster.close()


def test_closing_without_boards_is_not_an_error_if_no_result_is_missing(tmp_path: Path) -> None:
    with boards(tmp_path) as (path, agents), csdf_edge.open(path) as cluster:
        check([cluster.infer(frames()[0], timeout_s=WAIT_S)])
        for agent in agents:
            os.kill(agent.pid, signal.SIGKILL)
        until(lambda: cluster.view().state == "waiting")
        began_s = time.monotonic()
        cluster.close()
        assert time.monotonic() - began_s < WAIT_S


def test_closing_ends_also_if_the_boards_are_lost_while_it_waits(tmp_path: Path) -> None:
    with boards(tmp_path) as (path, agents), ThreadPoolExecutor(1) as threads:
        cluster = csdf_edge.open(path)
        for agent in agents:
            os.kill(agent.pid, signal.SIGSTOP)
        future = cluster.submit(frames()[0])
        closing = threads.submit(cluster.close)
        for agent in agents:
            os.kill(agent.pid, signal.SIGKILL)
        with pytest.raises(LauncherError, match="results are missing"):
            closing.result(WAIT_S)
        with pytest.raises(LauncherError, match="results are missing"):
            future.result(0)


def test_a_callback_cannot_wait_for_its_own_cluster(
    held: tuple[LiveCluster, list[int]],
) -> None:
    cluster, _ = held
    found: Future[list[str]] = Future()

    def call(_: object) -> None:
        with pytest.raises(LauncherError) as waited:
            cluster.infer(frames()[0])
        with pytest.raises(LauncherError) as closed:
            cluster.close()
        found.set_result([str(waited.value), str(closed.value)])
        sys.exit("a callback ends nothing")

    cluster.submit(frames()[0]).add_done_callback(call)
    waited, closed = found.result(WAIT_S)
    assert "infer() cannot wait in a callback" in waited
    assert "cannot be closed in a callback" in closed
    check([cluster.infer(frames()[0], timeout_s=WAIT_S)])


@pytest.mark.parametrize("own", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_cluster_is_closed_in_any_thread_and_leaves_the_programs_signals_alone(
    tmp_path: Path, own: signal.Handlers
) -> None:
    before = signal.getsignal(signal.SIGHUP)
    cluster = csdf_edge.open(write_cluster(tmp_path, "true"))
    try:
        signal.signal(signal.SIGHUP, own)
        with ThreadPoolExecutor(1) as threads:
            threads.submit(cluster.close).result(WAIT_S)
        assert signal.getsignal(signal.SIGHUP) is own
    finally:
        signal.signal(signal.SIGHUP, before)


# ---------------------------------------------------------------- the interpreter ends

USES = {
    "nothing": "",
    "submit": "futures = [cluster.submit(frame) for _ in range(16)]",
    "stream": "stream = cluster.stream(itertools.repeat(frame)); next(stream)",
    "a thread": "threading.Thread(target=list, args=(cluster.stream(endless),), daemon=1).start()",
    "stream_async": """
        async def main():
            async for _ in cluster.stream_async(itertools.repeat(frame)):
                begun()
                await asyncio.sleep(0)
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            sys.exit(130)
        """,
}

ENDINGS = {
    "sys.exit": ("sys.exit(3)", None, 3),
    "the end": ("", None, 0),
    "an exception": ("raise ValueError", None, 1),
    "SIGTERM": ("signal.pause()", signal.SIGTERM, 143),
    "SIGINT": ("signal.pause()", signal.SIGINT, -signal.SIGINT),
    "os._exit": ("os._exit(4)", None, 4),
}


@pytest.mark.parametrize(
    ("use", "ending"),
    [
        ("nothing", "sys.exit"),
        ("submit", "SIGTERM"),
        ("a thread", "sys.exit"),
        *(("stream", ending) for ending in ("the end", "an exception", "SIGINT", "os._exit")),
        ("stream_async", "SIGTERM"),
        *(
            pytest.param(*each, marks=pytest.mark.further)
            for each in (
                ("nothing", "SIGTERM"),
                ("submit", "sys.exit"),
                ("a thread", "SIGTERM"),
                ("stream", "sys.exit"),
                ("stream", "SIGTERM"),
            )
        ),
    ],
)
def test_a_program_that_ends_without_closing_ends_at_once_and_leaves_no_agent(
    tmp_path: Path, use: str, ending: str
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    code, number, expected = ENDINGS[ending]
    program = f"""
import asyncio, csdf_edge, itertools, os, signal, sys, threading, numpy as np
frame = {{"image": np.zeros((1, 1, 8, 8), "float32")}}
endless = itertools.repeat(frame)
said = []
def begun():
    if not said:
        said.append(print("open", flush=True))
cluster = csdf_edge.open({str(write_cluster(tmp_path, "true"))!r})
{textwrap.dedent(USES[use])}
begun()
sys.stdin.readline()
{code}
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "open\n"
            agents = agents_of(running.pid)
            assert len(agents) == 2
            if number is not None:
                running.send_signal(number)
            _, said = running.communicate("\n", WAIT_S)
        finally:
            running.kill()
    assert running.returncode == expected, said
    is_told = use == "a thread" or ending in ("an exception", "SIGINT")
    assert ("Traceback" in said) == is_told, said
    until(lambda: have_ended(agents))
    assert ending == "os._exit" or not list(scratch.iterdir())


def test_a_cluster_that_a_program_drops_leaves_no_agent(tmp_path: Path) -> None:
    others = agents_of(os.getpid())
    cluster = csdf_edge.open(write_cluster(tmp_path, "true"))
    agents = [agent for agent in agents_of(os.getpid()) if agent not in others]
    future = cluster.submit(frames()[0])
    del cluster
    gc.collect()
    assert future.done()
    assert have_ended(agents)


def test_a_process_that_is_forked_leaves_the_cluster_to_its_parent(tmp_path: Path) -> None:
    program = f"""
import csdf_edge, os, sys, numpy as np
cluster = csdf_edge.open({str(write_cluster(tmp_path, "true"))!r})
child = os.fork()
if child == 0:
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
frame = {{"image": np.zeros((1, 1, 8, 8), "float32")}}
print(len(cluster.infer(frame, timeout_s=10)))
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * WAIT_S,
    )
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr
