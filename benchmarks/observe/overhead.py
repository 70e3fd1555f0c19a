"""Measures what it costs to look: frames per second with metrics, terminal and page, and without.

There are two clusters of the same model and as many agents. One is looked at once per second: the
server and every agent are scraped, and what `launch top` and an open page ask the server for is
fetched; all its agents log as JSON. The other has no server and no log. Each streams in turn while
the other one waits, and the ratio of each pair counts. The process that looks runs on this machine,
too, but draws nothing.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.daemon import Daemon
from benchmarks.programs import Program, free_port
from benchmarks.report import Figure, report
from benchmarks.serving.cost import a_frame, figure, pairs, served
from benchmarks.serving.server import DIGITS
from benchmarks.undisturbed import undisturbed
from launcher.progress import open_progress
from launcher.run.request import Request
from launcher.serve.over_http.own_routes import SHOWN_PATH
from launcher.streaming.live_cluster import LiveCluster, open_cluster
from launcher.threads import Repeated
from launcher.view.json_form import VIEW_PATH
from nodes.host.heap import keep_one_heap

MODELS = {"digits": str(DIGITS / "digits.onnx"), "squeezenet": "onnx-wheel:squeezenet"}
LOOKS = ("/metrics", VIEW_PATH, SHOWN_PATH)
"""What is fetched from the server: metrics, what `launch top` shows, and the page."""

NODES, LOOK_EVERY_S = 3, 1.0
KEPT = 0.98


def measure(rounds: int, seconds: float) -> dict[str, Any]:
    """The ratio for each model, with the quartiles of its pairs."""
    keep_one_heap()
    figures: list[Figure] = []
    with undisturbed() as how:
        for name, path in MODELS.items():
            figures += _of_model(name, path, rounds, seconds)
    settings = {"nodes": NODES, "rounds": rounds, "seconds": seconds, "undisturbed": how}
    settings |= {"looked at every": f"{LOOK_EVERY_S:g} s", "looks": " ".join(LOOKS)}
    return report("observe-overhead", "What looking at a cluster costs", figures, settings=settings)


def _of_model(name: str, path: str, rounds: int, seconds: float) -> Iterator[Figure]:
    with ExitStack() as stack:
        plain = stack.enter_context(_cluster(path, ()))
        metrics = [free_port() for _ in range(NODES)]
        seen = stack.enter_context(_cluster(path, ("--log-format", "json"), metrics))
        ports = stack.enter_context(served(seen))
        pages = [f"http://127.0.0.1:{ports['http']}{look}" for look in LOOKS]
        pages += [f"http://127.0.0.1:{port}/metrics" for port in metrics]
        scraper = Program.python("-c", SCRAPER, *pages)
        stack.callback(scraper.close)
        scraper.ready()
        looks = 0

        def look() -> None:
            nonlocal looks
            scraper.tell()
            assert scraper.hear() == "read"
            looks += 1

        def looked_at() -> float:
            with Repeated(look, lambda: LOOK_EVERY_S, "looking"):
                return _rate(seen, seconds)

        found = pairs(lambda: _rate(plain, seconds), looked_at, rounds)
    yield Figure(
        f"{name}, not looked at", round(statistics.median(a for a, _ in found), 1), "frames/s"
    )
    note = f"{looks} looks at {len(pages)} addresses"
    ratios = [looked / alone for alone, looked in found]
    yield figure(f"{name}, looked at ÷ not", ratios, at_least=KEPT, note=note)


def _rate(cluster: LiveCluster, seconds: float) -> float:
    """Frames per second of a stream that is never idle."""
    frame, count = a_frame(cluster), 0
    results = cluster.stream(itertools.repeat(frame), in_flight=16)
    next(results)
    began_s = time.perf_counter()
    for _ in results:
        count += 1
        if time.perf_counter() >= began_s + seconds:
            break
    rate = count / (time.perf_counter() - began_s)
    results.close()  # type: ignore[attr-defined]
    return rate


SCRAPER = """
import http.client, sys, time
pages = [page.removeprefix("http://").partition("/") for page in sys.argv[1:]]
print("ready", flush=True)
while sys.stdin.readline():
    for host, slash, path in pages:
        connection = http.client.HTTPConnection(host, timeout=10)
        connection.request("GET", slash + path)
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read()
    print("read", flush=True)
"""
"""Reads all pages once for each line of its input; a process of its own, as Prometheus is."""


@contextmanager
def _cluster(
    model: str, options: Sequence[str], metrics: Sequence[int] = ()
) -> Iterator[LiveCluster]:
    """A cluster of agents that were started with these options, and serve metrics at these ports of
    loopback."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = [f"n{number}" for number in range(NODES)]
        nodes = [{"name": n, "address": f"tcp://127.0.0.1:{free_port()}"} for n in names]
        for number, node in enumerate(nodes):
            command = [sys.executable, "-m", "nodes.cli", "--listen", node["address"], *options]
            command += ["--cache", str(folder / f"cache{number}")]
            command += ["--metrics", f"127.0.0.1:{metrics[number]}"] if metrics else []
            agent = Daemon(node["name"], command, folder, {}, rest_s=lambda: 0.0)
            stack.callback(agent.end)
        data = {
            "model": {"path": model, "name": "model"},
            "strategy": "sequential",
            "recovery": {"adapt": False},
            "nodes": nodes,
        }
        target = folder / "cluster.yaml"
        target.write_text(json.dumps(data), "utf-8")  # JSON is YAML
        progress = stack.enter_context(open_progress())
        yield stack.enter_context(open_cluster(Request(target), progress, most=64))
