"""Agents that measure their board: real processes, which keep the result."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest
import zmq

from nodes.core.events import FiguresFound
from nodes.executors.preparing.entries import PreparedFiles
from nodes.measuring.board import BEFORE_LAUNCHERS, BoardMeasuring, MeasuredEngine
from nodes.protocol.messages import (
    OLDEST_PROTOCOL,
    BoardFigures,
    Figures,
    GetFigures,
    Hello,
    Ping,
    Pong,
    Welcome,
)
from tests.nodes.speaker import AgentProcess, Speaker

pytestmark = pytest.mark.alone

ENGINE = MeasuredEngine("onnxruntime", "cpu", "ONNX Runtime 1 (CPU)")
WAIT_S = 60.0


class Board:
    """A board whose figures are asked for by tests."""

    def __init__(self, cache: Path, engine: MeasuredEngine = ENGINE) -> None:
        self.found: SimpleQueue[FiguresFound] = SimpleQueue()
        self.measuring = BoardMeasuring(
            engine,
            PreparedFiles(cache),
            self.found.put,
            loopback="tcp://127.0.0.1:0",
            guarded=False,
            computing_thread=lambda: "self",
        )

    def ask(self, *, may_measure: bool = True, again: bool = False) -> FiguresFound:
        self.measuring.find("s", 1, may_measure=may_measure, again=again)
        return self.found.get(timeout=WAIT_S)


def kept(cache: Path) -> list[Path]:
    return sorted(cache.glob("figures-*/figures.json"))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BoardFigures]:
    """A cache with the figures of this machine."""
    cache = tmp_path_factory.mktemp("cache")
    found = Board(cache).ask()
    assert found.figures is not None, found.reason
    return cache, found.figures


def test_a_measured_board_has_figures_that_are_kept(measured: tuple[Path, BoardFigures]) -> None:
    cache, figures = measured
    assert figures.threads == 1
    assert 1e-13 < figures.dense_s_per_mac < 1e-7
    assert len(kept(cache)) == 1
    assert not list(cache.glob("partial.*"))
    assert Board(cache).ask(may_measure=False).figures == figures


def test_threads_that_wait_for_each_other_do_not_make_a_board_faster_than_its_cores(
    measured: tuple[Path, BoardFigures], tmp_path: Path
) -> None:
    """Also while other programs use the CPUs: what one thread waits, another computes."""
    board = Board(tmp_path)
    cores = len(os.sched_getaffinity(0))
    threads = min(2, cores)
    board.measuring.find("s", threads, may_measure=True)
    found = board.found.get(timeout=WAIT_S)
    if found.figures is None:  # others disturbed it, twice
        assert "disturbed" in found.reason or "became" in found.reason
        return
    assert found.figures.threads == threads
    assert found.figures.dense_s_per_mac > measured[1].dense_s_per_mac / (2 * threads)


def test_a_board_measures_itself_again_if_it_is_asked_to(
    measured: tuple[Path, BoardFigures], tmp_path: Path
) -> None:
    board, wrong = Board(tmp_path), replace(measured[1], dense_s_per_mac=1e-5)
    board.measuring._keep(board.measuring._key(1), wrong)
    assert board.ask(may_measure=False, again=True).figures == wrong
    assert (found := board.ask(again=True).figures) is not None
    assert found.dense_s_per_mac < 1e-7
    assert board.ask(may_measure=False).figures == found


def test_a_measuring_process_that_is_killed_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    board = Board(tmp_path)
    board.measuring.find("s", 1, may_measure=True)
    while not list(tmp_path.glob("partial.*")) and board.found.empty():
        select.select([], [], [], 0.001)
    board.measuring.close()
    found = board.found.get(timeout=WAIT_S)
    assert found.figures is not None or "killed" in found.reason
    PreparedFiles(tmp_path)  # the next agent with this cache
    assert not list(tmp_path.glob("partial.*"))


def test_a_cache_that_is_gone_is_named(tmp_path: Path) -> None:
    board = Board(tmp_path / "cache")
    (tmp_path / "cache").rename(tmp_path / "elsewhere")
    assert "cache cannot be opened: No such file" in board.ask().reason


def test_figures_of_another_engine_are_not_taken(measured: tuple[Path, BoardFigures]) -> None:
    other = MeasuredEngine("onnxruntime", "cpu", "ONNX Runtime 2 (CPU)")
    found = Board(measured[0], other).ask(may_measure=False)
    assert found.figures is None
    assert "not measured now" in found.reason


@pytest.mark.parametrize("damage", [b"", b"{", b'{"threads": 1}', b"\0" * 400])
def test_damaged_figures_are_no_figures_and_are_removed(
    measured: tuple[Path, BoardFigures], tmp_path: Path, damage: bytes
) -> None:
    _, figures = measured
    board = Board(tmp_path)
    board.measuring._keep(board.measuring._key(1), figures)
    assert board.ask(may_measure=False).figures == figures
    (file,) = kept(tmp_path)
    file.write_bytes(damage)
    found = Board(tmp_path).ask(may_measure=False)
    assert (found.figures, kept(tmp_path)) == (None, [])


def test_figures_that_were_written_by_somebody_else_are_checked(
    measured: tuple[Path, BoardFigures], tmp_path: Path
) -> None:
    """An entry may be intact as such and still hold no figures."""
    board = Board(tmp_path)
    with board.measuring._kept.making(board.measuring._key(1)) as folder:
        (folder / "figures.json").write_text(json.dumps({"threads": "many"}))
    assert board.ask(may_measure=False).figures is None
    assert kept(tmp_path) == []


def test_two_agents_of_one_machine_measure_once(tmp_path: Path) -> None:
    one, other = Board(tmp_path), Board(tmp_path)
    for board in (one, other):
        board.measuring.find("s", 1, may_measure=True)
    found = [board.found.get(timeout=WAIT_S) for board in (one, other)]
    assert found[0].figures is not None
    assert found[0].figures == found[1].figures


def test_an_engine_that_is_not_measured_says_so(tmp_path: Path) -> None:
    found = Board(tmp_path, MeasuredEngine("none-such", "cpu", "None")).ask()
    assert found.figures is None
    assert "could not be measured" in found.reason or "unexpectedly" in found.reason


def test_a_closed_agent_measures_nothing(tmp_path: Path) -> None:
    board = Board(tmp_path)
    board.measuring.close()
    assert "the agent ends" in board.ask().reason


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    process = AgentProcess(tmp_path / "cache")
    yield process
    process.end()


@pytest.fixture
def speaker(agent: AgentProcess) -> Iterator[Speaker]:
    with zmq.Context() as context:
        speaker = Speaker(context, agent.control)
        speaker.open_session()
        yield speaker
        speaker.close()


def test_an_agent_answers_other_messages_while_it_measures_and_keeps_no_memory(
    agent: AgentProcess, speaker: Speaker
) -> None:
    before = agent.rss_bytes()
    speaker.say(GetFigures(1), Ping())
    assert isinstance(speaker.hear(), Pong)
    speaker.socket.setsockopt(zmq.RCVTIMEO, int(WAIT_S * 1000))
    first = speaker.hear(Figures)
    assert first.figures is not None, first.reason
    assert speaker.ask(GetFigures(1)) == first
    assert agent.rss_bytes() < before + (2 << 20)
    assert not children(agent.pid)


def test_an_agent_that_ends_takes_its_measuring_process_with_it(
    agent: AgentProcess, speaker: Speaker
) -> None:
    speaker.say(GetFigures(1), Ping())
    assert isinstance(speaker.hear(), Pong)
    os.kill(agent.pid, signal.SIGTERM)
    assert agent.report()["why"]


def test_a_service_measures_its_board_before_a_launcher_comes(tmp_path: Path) -> None:
    """So a slow board has its figures when it is asked. Nobody waits for them meanwhile."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(allowed)})
        try:
            service = AgentProcess(tmp_path / "cache", environment=environment)
        finally:
            os.sched_setaffinity(0, allowed)
    try:
        until_s = time.monotonic() + WAIT_S
        while not kept(tmp_path / "cache" / "derived"):
            assert time.monotonic() < until_s
            select.select([], [], [], 0.05)
        with zmq.Context() as context:
            speaker = Speaker(context, service.control)
            threads = speaker.open_session().threads
            assert speaker.ask(GetFigures(threads)).figures is not None
            assert len(kept(tmp_path / "cache" / "derived")) == 1
            speaker.close()
    finally:
        service.end()


def test_a_measurement_that_nobody_has_asked_for_yields_to_a_deployment(tmp_path: Path) -> None:
    board = Board(tmp_path)
    board.measuring.find(BEFORE_LAUNCHERS, 1, may_measure=True)
    while not children(os.getpid()) and board.found.empty():
        select.select([], [], [], 0.001)
    board.measuring.yield_to_deployment()
    assert board.found.get(timeout=WAIT_S).figures is None
    assert board.ask().figures is not None


def test_a_launcher_of_the_version_before_is_answered_as_before(agent: AgentProcess) -> None:
    with zmq.Context() as context:
        older = Speaker(context, agent.control)
        welcome = older.ask(Hello(OLDEST_PROTOCOL, "older", 5.0))
        assert isinstance(welcome, Welcome)
        assert (welcome.protocol, welcome.threads) == (OLDEST_PROTOCOL, 0)
        older.say(GetFigures(1))  # what no launcher of that version sends
        older.await_cut_off()
        older.close()


def test_what_the_agent_offers_has_threads_and_the_newest_operator_set(agent: AgentProcess) -> None:
    with zmq.Context() as context:
        speaker = Speaker(context, agent.control)
        welcome = speaker.open_session()
        assert welcome.threads >= 1
        assert welcome.engines[0].opset >= 21
        speaker.close()


def children(pid: int) -> str:
    return "".join(
        (task / "children").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()
    )
