"""Measures what it costs to look: frames per second with metrics, terminal and page, and without.

There are two clusters of the same model and as many agents. One is looked at once per second: the
server and every agent are scraped, and what `launch top` and an open page ask the server for is
fetched; all its agents log as JSON. The other has no server and no log. Each streams in turn while
the other one waits, and the ratio of each pair counts. The process that looks runs on this machine,
too, but draws nothing.
"""

from __future__ import annotations

import argparse
import itertools
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, report
from benchmarks.serving.cost import a_frame, served
from benchmarks.serving.server import DIGITS
from benchmarks.undisturbed import undisturbed
from launcher.progress import open_progress
from launcher.run.request import Request
from launcher.serve.own_routes import SHOWN_PATH
from launcher.streaming.live_cluster import LiveCluster, open_cluster
from launcher.view.json_form import VIEW_PATH
from nodes.host.heap import keep_one_heap

MODELS = {"digits": str(DIGITS / "digits.onnx"), "squeezenet": "onnx-wheel:squeezenet"}
LOOKS = {"metrics": "/metrics", "top": VIEW_PATH, "page": SHOWN_PATH}
"""What is fetched from the server for each way to look at it."""

LOOK_EVERY_S = 1.0
KEPT = 0.98


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """The ratio for each model, with the quartiles of its pairs."""
    keep_one_heap()
    figures: list[Figure] = []
    with undisturbed() as how:
        for name in given.models:
            figures += _of_model(name, MODELS.get(name, name), given)
    settings = {"nodes": given.nodes, "rounds": given.rounds, "seconds": given.seconds}
    settings |= {"looked at every": f"{LOOK_EVERY_S:g} s", "undisturbed": how}
    settings |= {"looks": " ".join(given.looks)}
    return report("observe-overhead", "What looking at a cluster costs", figures, settings=settings)


def _of_model(name: str, path: str, given: argparse.Namespace) -> Iterator[Figure]:
    with ExitStack() as stack:
        plain, _ = stack.enter_context(_cluster(path, given.nodes, ()))
        seen, pages = stack.enter_context(
            _cluster(path, given.nodes, ("--metrics", "127.0.0.1:0", "--log-format", "json"))
        )
        ports = stack.enter_context(served(seen))
        looks = [f"http://127.0.0.1:{ports['http']}{LOOKS[look]}" for look in given.looks]
        pages = (*looks, *(pages if "metrics" in given.looks else ()))
        for warm_up in (plain, seen):
            _rate(warm_up, given.seconds / 2)
        pairs, scraper = [], Scraper(pages)
        stack.callback(scraper.close)
        for number in range(given.rounds):
            for is_seen in (number % 2 == 0, number % 2 == 1):
                if is_seen:
                    scraper.begin()
                    looked = _rate(seen, given.seconds)
                    scraper.end()
                else:
                    alone = _rate(plain, given.seconds)
            pairs.append((alone, looked))
    ratios = [looked / alone for alone, looked in pairs]
    low, middle, high = statistics.quantiles(ratios)
    rate = statistics.median(alone for alone, _ in pairs)
    yield Figure(f"{name}, not looked at", round(rate, 1), "frames/s")
    yield Figure(
        f"{name}, looked at ÷ not",
        round(middle, 4),
        at_least=KEPT,
        low=round(low, 4),
        high=round(high, 4),
        note=f"{scraper.count} looks at {len(pages)} addresses",
    )


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


class Scraper:
    """Reads `pages` once per second between `begin` and `end`."""

    def __init__(self, pages: Sequence[str]) -> None:
        self.count = 0
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRAPER, *pages],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self._stopped = threading.Event()
        self._thread = threading.Thread()

    def begin(self) -> None:
        self._stopped.clear()
        self._thread = threading.Thread(target=self._scrape)
        self._thread.start()

    def end(self) -> None:
        self._stopped.set()
        self._thread.join()

    def close(self) -> None:
        self._process.communicate()

    def _scrape(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        while not self._stopped.wait(LOOK_EVERY_S):
            self._process.stdin.write("\n")
            assert self._process.stdout.readline() == "read\n"
            self.count += 1


@contextmanager
def _cluster(
    model: str, nodes: int, options: Sequence[str]
) -> Iterator[tuple[LiveCluster, tuple[str, ...]]]:
    """A cluster of agents that were started with these options, and the pages of their metrics."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        boards = [stack.enter_context(_board(folder / f"n{n}", options)) for n in range(nodes)]
        text = "".join(f"  - {{name: n{n}, address: '{b[0]}'}}\n" for n, b in enumerate(boards))
        target = folder / "cluster.yaml"
        target.write_text(
            f"model: {{path: '{model}', name: model}}\nstrategy: sequential\n"
            f"recovery: {{adapt: false}}\nnodes:\n{text}"
        )
        progress = stack.enter_context(open_progress())
        cluster = stack.enter_context(open_cluster(Request(target), progress, most=64))
        yield cluster, tuple(page for _, page in boards if page)


@contextmanager
def _board(cache: Path, options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """An agent: its control address, and the page of its metrics if it has one."""
    command = [sys.executable, "-m", "nodes.cli", "--listen", "tcp://127.0.0.1:0"]
    log = cache.with_suffix(".log")
    with log.open("w") as written:
        agent = subprocess.Popen(
            [*command, "--cache", str(cache), "--exit-with-parent", *options],
            stdin=subprocess.PIPE,
            stderr=written,
        )
    try:
        until_s = time.monotonic() + 60
        while (found := re.search(r"control (\S+),", log.read_text())) is None:
            assert agent.poll() is None, log.read_text()
            assert time.monotonic() < until_s, "the agent does not say that it is ready"
            time.sleep(0.05)
        page = re.search(r"metrics (\S+),", log.read_text())
        yield found[1], f"http://{page[1]}/metrics" if page else ""
    finally:
        agent.communicate()
