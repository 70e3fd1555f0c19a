"""An agent that Prometheus scrapes, and that logs as JSON."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq
from prometheus_client.parser import text_string_to_metric_families

from nodes.core.agent import AgentFigures
from nodes.net.metrics import MOST_CONNECTIONS, READ_S, written
from nodes.protocol.messages import PROTOCOL, Bye, Stats, Welcome
from tests.nodes.speaker import WAIT_S, Speaker, refusal_of

STATS = Stats(
    7, (3, 4), (0.5, 0.25), 2.0, 1.0, 10, 20, 300, 400, 50, 1, 2, energy_j=9.0,
    channel_frames=(2, 3), waited_s=(0.5, 0.75),
)  # fmt: skip
IDENTITY = Welcome(PROTOCOL, 'a "board"\n', "1", "tcp://a:2", "engine", "machine", 4, 100)


def samples(text: str) -> dict[str, float]:
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_the_statistics_of_the_deployment_are_written_for_prometheus() -> None:
    text = written(AgentFigures(IDENTITY, has_session=True, is_running=False, stats=STATS))
    assert samples(text) == {
        "csdf_edge_agent_info": 1,
        "csdf_edge_agent_has_session": 1,
        "csdf_edge_agent_running": 0,
        "csdf_edge_agent_resident_memory_bytes": 300,
        "csdf_edge_agent_firings_total": 7,
        "csdf_edge_agent_busy_seconds_total": 0.75,
        "csdf_edge_agent_credit_wait_seconds_total": 0.75,
        "csdf_edge_agent_sent_bytes_total": 10,
        "csdf_edge_agent_received_bytes_total": 20,
        "csdf_edge_agent_energy_joules_total": 9,
        "csdf_edge_agent_channel_frames": 5,
        "csdf_edge_agent_bad_messages_total": 2,
        "csdf_edge_agent_stale_messages_total": 1,
    }


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool, of Debian's package prometheus"
)
def test_names_and_units_are_prometheus_own() -> None:
    text = written(AgentFigures(IDENTITY, has_session=True, is_running=True, stats=STATS))
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_metrics_for_other_machines_must_be_wanted(tmp_path: Path) -> None:
    said = refusal_of(tmp_path, "--metrics", "0.0.0.0:0")
    assert "everybody who reaches it can read the metrics" in said


def test_an_agent_that_cannot_start_says_so_in_a_line_of_json(tmp_path: Path) -> None:
    for mistake in ("--engine", "abacus"), ("--cpus", "abacus"):
        said = json.loads(refusal_of(tmp_path, "--log-format", "json", *mistake))
        assert said["level"] == "error"
        assert "abacus" in said["message"]


class Board:
    """An agent with metrics and a JSON log, and the lines of the log."""

    def __init__(self, cache: Path) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "nodes.cli", "--listen", "tcp://127.0.0.1:0"),
                *("--cache", str(cache), "--name", "board", "--metrics", "127.0.0.1:0"),
                *("--log-format", "json"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        ready = json.loads(self.process.stderr.readline())
        found = re.search(r"control (\S+), .*metrics ([\d.]+):(\d+)", ready["message"])
        assert found is not None, ready
        self.control, self.host, self.port = found[1], found[2], int(found[3])

    def scrape(self, path: str = "/metrics") -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WAIT_S)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def end(self) -> list[dict[str, object]]:
        """The lines that it has logged since it was ready."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=WAIT_S)
        assert self.process.returncode == 0
        return [json.loads(line) for line in errors.splitlines()]


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    board = Board(tmp_path)
    yield board
    if board.process.poll() is None:
        board.end()


@pytest.mark.slow
def test_an_agent_shows_whether_a_launcher_has_it_and_logs_who_does(board: Board) -> None:
    assert samples(board.scrape()[1])["csdf_edge_agent_has_session"] == 0
    speaker = Speaker(zmq.Context.instance(), board.control)
    speaker.open_session("s")
    status, text = board.scrape()
    assert status == 200
    assert samples(text)["csdf_edge_agent_has_session"] == 1
    assert samples(text)["csdf_edge_agent_resident_memory_bytes"] > 1e6
    assert board.scrape("/")[0] == 404
    speaker.say(Bye())
    speaker.close()
    lines = board.end()
    assert {line["node"] for line in lines} == {"board"}
    assert any("is using this agent" in str(line["message"]) for line in lines)


@pytest.mark.slow
def test_who_sends_half_a_request_or_leaves_does_no_harm(board: Board) -> None:
    with socket.create_connection((board.host, board.port), timeout=WAIT_S) as left:
        left.sendall(b"GET /metrics HTTP/1.1\r\n")
    with socket.create_connection((board.host, board.port), timeout=WAIT_S) as odd:
        odd.sendall(b"\x00" * 1000 + b"\r\n\r\n")
        assert odd.recv(12)
    assert board.scrape()[0] == 200
    assert not [line for line in board.end() if line["level"] != "info"]


@pytest.mark.slow
def test_clients_that_are_slow_do_not_hold_up_the_others(board: Board) -> None:
    slow = [
        socket.create_connection((board.host, board.port), timeout=WAIT_S)
        for _ in range(3 * MOST_CONNECTIONS)
    ]
    for one in slow:
        with suppress(OSError):  # the oldest ones have given way
            one.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    began_s = time.monotonic()
    for _ in range(10):
        assert board.scrape()[0] == 200
    assert time.monotonic() - began_s < READ_S
    threads = len(list(Path(f"/proc/{board.process.pid}/task").iterdir()))
    for one in slow:
        one.close()
    assert threads < 3 * MOST_CONNECTIONS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:9550", 200), ("127.0.0.1", 200), ("evil.example", 403), ("evil.example:80", 403)],
)
def test_on_loopback_a_page_of_another_name_is_refused(
    board: Board, host: str, status: int
) -> None:
    connection = http.client.HTTPConnection(board.host, board.port, timeout=WAIT_S)
    connection.request("GET", "/metrics", headers={"Host": host})
    assert connection.getresponse().status == status
