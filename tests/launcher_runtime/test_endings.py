"""However a launcher ends, its agents end, and its temporary files are deleted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher.config.access import Access
from launcher.errors import BadInputError
from launcher.run import processes
from launcher.run.processes import LONGEST_IPC_PATH, start_agents
from launcher.run.runtime import Node
from tests.launcher_runtime.clusters import WAIT_S, has_ended, is_running


@dataclass
class Running:
    """A launcher in the middle of a run."""

    process: subprocess.Popen[str]
    agents: tuple[int, ...]
    sockets: Path


@contextmanager
def endless(directory: Path, cache: Path, *addresses: str) -> Iterator[Running]:
    command = [sys.executable, "-m", "tests.launcher_runtime.endless", str(directory), str(cache)]
    command += addresses
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            agents = tuple(int(pid) for pid in process.stdout.readline().split())
            place = process.stdout.readline().strip()
            assert agents or addresses, "the launcher started no agent"
            assert place, "the launcher got no result"
            sockets = Path(place)
            yield Running(process, agents, sockets)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_launcher_that_is_told_to_end_ends_its_agents_first(
    tmp_path: Path, cache: Path, number: signal.Signals, code: int
) -> None:
    with endless(tmp_path, cache) as running:
        assert all(is_running(pid) for pid in running.agents)
        assert running.sockets.is_dir()
        running.process.send_signal(number)
        _, complaints = running.process.communicate(timeout=WAIT_S)
        assert running.process.returncode == code, complaints
        assert not any(is_running(pid) for pid in running.agents)
        assert not running.sockets.exists()


@pytest.mark.slow
def test_the_agents_of_a_launcher_that_is_killed_end_by_themselves(
    tmp_path: Path, cache: Path
) -> None:
    with endless(tmp_path, cache) as running:
        running.process.kill()
        assert all(has_ended(pid) for pid in running.agents)


def test_agents_end_with_the_block_that_started_them(cache: Path) -> None:
    nodes = (Node("a"), Node("b"))
    with start_agents(nodes, cache) as agents:
        assert list(agents) == ["a", "b"]
        pids = [agent.pid for agent in agents.values()]
        assert all(is_running(pid) for pid in pids)
        assert all(os.getsid(pid) == pid for pid in pids), "Ctrl-C must not reach them"
    assert not any(is_running(pid) for pid in pids)


@pytest.mark.slow
def test_an_agent_in_which_nothing_runs_any_more_is_killed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not notice that its standard input is closed, nor SIGTERM."""
    assert processes.LEAVE_S >= 2, "an agent needs this long to end"
    monkeypatch.setattr(processes, "LEAVE_S", 0.5)
    with start_agents((Node("a"),), cache) as agents:
        pid = agents["a"].pid
        os.kill(pid, signal.SIGSTOP)
        began_s = time.monotonic()
    assert not is_running(pid)
    assert 2 * 0.5 <= time.monotonic() - began_s < WAIT_S


def test_what_an_agent_that_died_has_left_is_ended_at_once_and_never_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later its group's id may be that of somebody else's."""
    signalled: list[tuple[int, int]] = []
    killpg = os.killpg

    def record(group: int, number: int) -> None:
        signalled.append((group, number))
        killpg(group, number)

    monkeypatch.setattr("os.killpg", record)
    with start_agents((Node("a"),), cache) as agents:
        pid = agents["a"].pid
        os.kill(pid, signal.SIGKILL)
        assert agents["a"].wait(time.monotonic() + WAIT_S)
        assert agents["a"].exit_code() == -signal.SIGKILL
    assert signalled == [(pid, signal.SIGKILL)]


@pytest.mark.slow
def test_agents_end_when_the_block_raises_while_they_still_start(cache: Path) -> None:
    pids: list[int] = []

    def stumble() -> None:
        with start_agents((Node("a"), Node("b")), cache) as agents:
            pids.extend(agent.pid for agent in agents.values())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stumble()
    assert len(pids) == 2
    assert not any(is_running(pid) for pid in pids)


@pytest.mark.slow
def test_only_nodes_without_an_address_get_an_agent(cache: Path) -> None:
    with start_agents((Node("here"), Node("there", "tcp://127.0.0.1:9")), cache) as agents:
        assert list(agents) == ["here"]
        # An agent elsewhere must be able to dial it, so it listens where that one can be reached.
        assert agents["here"].address.startswith("tcp://127.0.0.1:")


@pytest.mark.slow
def test_sockets_lie_in_a_private_directory_with_a_short_path(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with start_agents((Node("a"),), cache) as agents:
        path = Path(agents["a"].address.removeprefix("ipc://"))
        assert len(os.fsencode(path)) + len(".data") <= LONGEST_IPC_PATH
        assert path.parent.stat().st_mode & 0o077 == 0
    assert not path.parent.exists()


def test_a_host_that_nobody_knows_is_a_users_mistake(cache: Path) -> None:
    insecure = Access(insecure=True)
    there = "tcp://no-such-host.invalid:7070"
    nodes = (Node("here", access=insecure), Node("there", there, access=insecure))
    unknown = pytest.raises(BadInputError, match=r"cannot reach 'no-such-host\.invalid'")
    with unknown, start_agents(nodes, cache):
        pass
