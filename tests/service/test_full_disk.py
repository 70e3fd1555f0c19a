"""A service whose state folder is on a full disk continues serving, says so, and writes again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import agents_of
from benchmarks.service.server import LAUNCH, images, write_cluster, write_version
from tests.launcher.test_full_disk import why_not

WAIT_S = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.namespaces]

SCRIPT = 'mount -t tmpfs -o size=512k none state || exit 77; exec "$@"'
"""Gives the service a state folder on a small disk, in its own mount namespace."""


class SmallDisk:
    """A service on a small disk, which is seen through its process."""

    def __init__(self, folder: Path) -> None:
        (folder / "state").mkdir()
        cluster = write_cluster(folder, ("digits", 1), count=1)
        command = ["unshare", "-m", "sh", "-c", SCRIPT, "sh", *LAUNCH, "up", str(cluster)]
        self.log = folder / "up.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--state", str(folder / "state")],
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.state = Path(f"/proc/{self.process.pid}/root{folder / 'state'}")
        self.wait_for(lambda: "version 1 of digits serves" in self.log.read_text())
        self.http = re.findall(r"(http://[\w.:]+)", self.log.read_text())[0]

    def wait_for(self, holds: Callable[[], bool]) -> None:
        until_s = time.monotonic() + WAIT_S
        while not holds():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until_s, self.log.read_text()

    def command(self, *arguments: str) -> tuple[int, Any]:
        given = [*LAUNCH, *arguments, "--state", str(self.state), "--json"]
        ran = subprocess.run(given, capture_output=True, text=True, check=False, timeout=WAIT_S)
        assert "Traceback" not in ran.stderr
        return ran.returncode, json.loads(ran.stdout)

    def status(self) -> dict[str, Any]:
        found = self.command("status")[1]
        assert isinstance(found, dict)
        return found

    def answers(self) -> bool:
        """Whether a request is answered; while no version serves, it waits and is refused."""
        tensor = {"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32"}
        body = json.dumps({"inputs": [tensor | {"data": images()[0].ravel().tolist()}]}).encode()
        url = f"{self.http}/v2/models/digits/infer"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as answer:
                return len(json.load(answer)["outputs"]) == 1
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            return False

    def metric(self) -> str:
        with urllib.request.urlopen(f"{self.http}/metrics", timeout=20) as answer:
            found = re.search(r"^csdf_edge_state_written (\S+)$", answer.read().decode(), re.M)
        assert found is not None
        return found[1]

    def fill(self) -> None:
        with (self.state / "filler").open("wb", buffering=0) as filler:
            for size in (1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        filler.write(bytes(size))

    def lose_the_agent(self) -> None:
        """Something happens that belongs into the history."""
        before = len(self.log.read_text())
        agents = agents_of(self.process.pid)
        os.kill(agents[0], signal.SIGKILL)
        self.wait_for(lambda: "was lost" in self.log.read_text()[before:])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[SmallDisk]:
    if reason := why_not():
        pytest.skip(reason)
    for version in (1, 2):
        write_version(tmp_path, version)
    service = SmallDisk(tmp_path)
    yield service
    if service.process.poll() is None:
        service.process.terminate()
        assert service.process.wait(WAIT_S) == 0


def test_it_continues_says_so_and_writes_again(service: SmallDisk, tmp_path: Path) -> None:
    assert service.metric() == "1.0"
    service.fill()
    service.lose_the_agent()
    service.wait_for(lambda: bool(service.status()["problem"]))
    code, status = service.command("status")
    assert (code, status["state"]) == (3, "degraded")
    assert "database or disk is full" in status["problem"]
    assert "make room" in status["problem"]
    assert "remove" not in status["problem"], "nobody is told to delete the state"
    assert status["problem"] in service.log.read_text()
    assert service.metric() == "0.0"
    service.wait_for(service.answers)
    write_cluster(tmp_path, ("digits", 2), count=1)
    code, answer = service.command("apply", str(tmp_path / "cluster.yaml"))
    assert code in (1, 2)
    assert "make room" in answer["error"]
    assert service.status()["generation"] == 1
    service.lose_the_agent()
    service.wait_for(service.answers)
    (service.state / "filler").unlink()
    service.wait_for(lambda: not service.status()["problem"])
    assert service.metric() == "1.0"
    assert service.status()["state"] == "ok"
    inside = ["nsenter", "--mount", "--target", str(service.process.pid)]
    logs = [*inside, *LAUNCH, "logs", "--state", str(tmp_path / "state")]
    logged = subprocess.run(logs, capture_output=True, text=True, check=True).stdout
    assert logged.count("was lost") == 2, "what happened meanwhile is in the history, too"
    assert "the state is written again" in logged
    code, answer = service.command("apply", str(tmp_path / "cluster.yaml"))
    assert code == 0, answer
    assert "Traceback" not in service.log.read_text()
