"""Checks the metrics of `launch serve` with a real Prometheus, on loopback.

Prometheus scrapes the server with the shipped rules while clients ask it as fast as it answers.
Its `rate()` over the whole time is compared with the frames that the clients counted. Then a board
is killed, and the time until Prometheus says that the alert fires is taken.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.programs import free_port
from benchmarks.report import Figure, report
from benchmarks.service.server import answers, frames
from benchmarks.serving.clients import Asked, Clients
from benchmarks.serving.server import DIGITS, ROOT, Serving

RULES = ROOT / "deploy" / "prometheus"
ALERT = "CsdfEdgeNodeLost"
CLIENTS, FRAMES = 4, 32
WITHIN = 0.01
ALERT_S = 15.0


def measure(minutes: float) -> dict[str, Any]:
    """The difference of the rates, and the seconds to the alert."""
    if shutil.which("prometheus") is None:
        raise SystemExit("this needs the program prometheus, of Debian's package of that name")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        serving = Serving(log=stack.enter_context((folder / "log").open("wb")))
        stack.callback(serving.end)
        server = stack.enter_context(_prometheus(folder, serving.http))
        with _asking(serving) as asked:
            time.sleep(10.0)  # agents and clients warm up
            began_s, before = time.monotonic(), len(asked.answers)
            time.sleep(60 * minutes)
            seconds, count = time.monotonic() - began_s, len(asked.answers) - before
            theirs = _rate(server, int(seconds))
        ours = count / seconds
        killed_s = time.monotonic()
        os.kill(serving.agents()[1], signal.SIGKILL)
        while ALERT not in _firing(server):
            time.sleep(0.1)
        alert_s = time.monotonic() - killed_s
    assert not asked.wrong
    figures = [
        Figure("answers, counted by the clients", round(ours, 2), "frames/s"),
        Figure("Prometheus' rate(csdf_edge_frames_total)", round(theirs, 2), "frames/s"),
        Figure("their difference", round(abs(theirs / ours - 1), 5), at_most=WITHIN),
        Figure(f"from a board's kill to {ALERT}", round(alert_s, 1), "s", at_most=ALERT_S),
    ]
    settings = {"minutes": minutes, "clients": CLIENTS, "prometheus": _version()}
    return report("observe-prometheus", "Metrics in a real Prometheus", figures, settings=settings)


def _version() -> str:
    said = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True)
    return (said.stdout or said.stderr).splitlines()[0].split(",")[1].split()[1]


@contextmanager
def _asking(serving: Serving) -> Iterator[Asked]:
    """Clients that ask without a pause while the context lasts."""
    wanted = {1: answers(DIGITS / "digits.onnx", FRAMES)}
    clients = Clients([("grpc", serving.grpc)] * CLIENTS, "digits", frames(FRAMES), wanted)
    stopped = threading.Event()

    async def ask() -> None:
        async with clients:
            await asyncio.to_thread(stopped.wait)

    thread = threading.Thread(target=lambda: asyncio.run(ask()))
    thread.start()
    try:
        yield clients.asked
    finally:
        stopped.set()
        thread.join()


@contextmanager
def _prometheus(folder: Path, target: str) -> Iterator[str]:
    """A Prometheus with the shipped configuration that scrapes `target`; gives its address."""
    config = (RULES / "prometheus.yml").read_text().replace("127.0.0.1:8000", target)
    (folder / "prometheus.yml").write_text(config)
    shutil.copy(RULES / "alerts.yml", folder)
    address = f"127.0.0.1:{free_port()}"
    server = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--log.level=error",
        ]
    )
    try:
        yield f"http://{address}"
    finally:
        server.terminate()
        server.wait()


def _rate(server: str, seconds: int) -> float:
    query = urllib.parse.quote(f"rate(csdf_edge_frames_total[{seconds}s])")
    (found,) = _get(f"{server}/api/v1/query?query={query}")["result"]
    return float(found["value"][1])


def _firing(server: str) -> set[str]:
    alerts = _get(f"{server}/api/v1/alerts")["alerts"]
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310
        return json.load(answer)["data"]
