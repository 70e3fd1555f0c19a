"""Runs Triton's `perf_analyzer` against `launch serve`, in every way in which it can ask.

The program is in the wheels of `tritonclient` up to 2.54 (`bin/perf_analyzer`), and in those of
`perf-analyzer` for newer systems. Libraries that it lacks are found through LD_LIBRARY_PATH.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, Table, report
from benchmarks.serving.server import DIGITS, Serving

JSON = ("--input-tensor-format", "json", "--output-tensor-format", "json")
WAYS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("http", "binary, synchronous", ("--sync",)),
    ("http", "binary, asynchronous", ("--async",)),
    ("http", "JSON, synchronous", ("--sync", *JSON)),
    ("http", "JSON, asynchronous", ("--async", *JSON)),
    ("grpc", "synchronous", ("--sync",)),
    ("grpc", "asynchronous", ("--async",)),
    ("grpc", "stream", ("--async", "--streaming")),
    ("grpc", "compressed", ("--sync", "--grpc-compression-algorithm", "gzip")),
)
CONCURRENCY = (1, 8)
WAIT_S = 120.0


def measure(binary: Path, model: str | None, requests: int) -> dict[str, Any]:
    """A table with a row per run; a run that fails is counted, and its message is in the table."""
    with tempfile.TemporaryDirectory() as folder:
        target = DIGITS / "cluster.yaml"
        if model is not None:
            target = Path(folder) / "cluster.yaml"
            nodes = "nodes: [{name: a}, {name: b}]\n"
            target.write_text(f"model: {{path: '{model}', name: digits}}\n{nodes}")
        serving = Serving(target=target)
        rows = []
        failed = 0
        for kind, how, options in WAYS:
            for concurrency in CONCURRENCY:
                output = _run(binary, kind, getattr(serving, kind), concurrency, requests, options)
                found = _figures(output)
                failed += found is None
                rows.append((kind, how, str(concurrency), *(found or (_reason(output), "", ""))))
        serving.end()
    return report(
        "serving-perf-analyzer",
        "Triton's perf_analyzer",
        [Figure("runs that failed", failed, at_most=0, note=f"of {len(rows)}")],
        settings={"model": model or "digits", "requests": requests},
        tables=[
            Table(
                "Latencies by Triton's own client",
                ("server", "way", "requests in flight", "median (ms)", "99 % (ms)", "requests"),
                tuple(rows),
            )
        ],
    )


def _run(
    binary: Path, kind: str, address: str, concurrency: int, requests: int, options: tuple[str, ...]
) -> str:
    ran = subprocess.run(
        [
            *(str(binary), "-m", "digits", "-i", kind, "-u", address),
            *("--concurrency-range", str(concurrency), "--request-count", str(requests)),
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return ran.stdout + ran.stderr


def _figures(output: str) -> tuple[str, str, str] | None:
    """The median, the 99th percentile and the number of requests that the server answered."""
    median, last = re.search(r"p50 latency: (\d+)", output), re.search(r"p99 .*: (\d+)", output)
    served = re.search(r"Successful request count: (\d+)", output)
    if median is None or last is None or served is None or "Failed" in output:
        return None
    return f"{int(median[1]) / 1e3:.2f}", f"{int(last[1]) / 1e3:.2f}", served[1]


def _reason(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
