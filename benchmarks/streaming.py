"""Streams a camera over three local agents for as long as asked: `python -m benchmarks.streaming`.

ffmpeg makes a picture with a clock at a steady rate and serves it on this machine as a camera does
(MPEG transport stream over TCP). `launch` streams it, as a user starts it, through a small network
on three local agents to JSON lines and .npy files, both with a bound. The report gives the resident
memory of the launcher and of each agent after the warm-up and at the end, the disk use against the
bounds, and what became of every frame. Memory is the median of a tenth of the readings.

A channel takes memory when it is full for the first time, which may be hours after the start, and
keeps it. During the warm-up the benchmark therefore stops each agent in turn for a second, in which
all channels before it fill.

    python -m benchmarks.streaming --minutes 30 --rate 30
    python -m benchmarks.streaming --minutes 3 --broker      # mosquitto is stopped for 30 s
    python -m benchmarks.streaming --minutes 3 --cut-source  # ffmpeg is killed for 10 s
    python -m benchmarks.streaming --cameras 4 --rate 5      # in one service, `launch up`

With `--broker` results also go to mosquitto, in front of which at most 200 results wait. Each frame
must be either seen by mosquitto_sub or counted as dropped. With `--cut-source` the results must go
on when ffmpeg is back, and the gap must be counted.

With `--cameras` a service streams as many, each with its own model and a sink of JSON lines. Each
frame that was read must have its line there, or be counted as dropped, as `on_overload` says.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import imageio_ffmpeg

from benchmarks.daemon import Daemon
from benchmarks.lab.shell import wait_until
from benchmarks.networks import convolutions
from benchmarks.processes import agents_of, command_of, rss_bytes
from benchmarks.programs import LAUNCH, free_port
from benchmarks.report import Figure, arguments, report, show
from benchmarks.service.server import Up
from launcher.threads import Repeated

SIDE, FILTERS, LAYERS = 64, 16, 4
NODES = ("left", "middle", "right")

LINES_BYTES, LINES_FILE_BYTES = 4_000_000, 1_000_000
NPY_BYTES = 1_000_000
"""Bounds of the sinks that are reached within minutes."""

MOST_GROWTH = 0.01
LEAST_MINUTES = 20.0
BROKER_OFF_S, SOURCE_OFF_S = 30.0, 10.0
AGENT_STOPPED_S = 1.0
WARM_UP = 0.1
"""The part of the readings that is taken as the warm-up."""
QUEUE_RESULTS = 200
READ_EVERY_S = 2.0
END_S, REST_S = 60.0, 0.2
TOPIC = "stream"


def main() -> int:
    parser = arguments("benchmarks.streaming", __doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=30, help="frames per second (default: 30)")
    parser.add_argument("--broker", action="store_true", help="stop mosquitto half-way")
    parser.add_argument("--cut-source", action="store_true", help="kill ffmpeg half-way")
    parser.add_argument("--cameras", type=int, default=0, help="number of cameras of a service")
    options = parser.parse_args()
    if options.cameras:
        return show(of_service(options), as_json=options.json)
    if options.broker and shutil.which("mosquitto") is None:
        parser.error("--broker needs mosquitto and mosquitto_sub; install Debian's packages")
    with tempfile.TemporaryDirectory(prefix="csdf-streaming-") as name, ExitStack() as stack:
        folder = Path(name)
        ports = free_port(), free_port()
        source = camera(folder, ports[0], options.rate)
        stack.callback(source.end)
        broker = Broker(folder, ports[1]) if options.broker else None
        if broker is not None:
            stack.callback(broker.close)
        frames = round(options.minutes * 60 * options.rate)
        cluster = write_cluster(folder, *ports, has_broker=options.broker)
        seen = streamed(cluster, frames, 60 * options.minutes, source, broker, options.cut_source)
        figures = [*memory_figures(seen, options.minutes), *frame_figures(seen)]
        if broker is not None:
            figures += broker_figures(seen, broker)
        if options.cut_source:
            figures += gap_figures(seen, options.rate)
    what = ", the broker stopped" * options.broker + ", the source cut" * options.cut_source
    data = report(
        "streaming",
        f"A camera over three agents: {options.minutes:g} minutes{what}",
        figures,
        settings={"minutes": options.minutes, "rate": options.rate, "nodes": len(NODES)},
        notes=[
            "ffmpeg serves a picture with a clock on the loopback interface, and launch streams it "
            "through a small network to JSON lines and .npy files with bounds. Memory is resident "
            "memory: the medians of the first and the last tenth of the readings after the warm-up."
        ],
        data={"report": seen.report, "memory": thinned(seen.memory)},
    )
    return show(data, as_json=options.json)


# ---------------------------------------------------------------- what is run


def write_cluster(folder: Path, camera: int, broker: int, *, has_broker: bool) -> Path:
    """Write the network and the cluster's file; the folder gets the sinks' files too."""
    convolutions(folder / "means.onnx", LAYERS, FILTERS, SIDE)
    sinks: list[dict[str, Any]] = [
        {
            "kind": "json-lines",
            "path": "lines/results.jsonl",
            "rotate_bytes": LINES_FILE_BYTES,
            "keep_bytes": LINES_BYTES,
        },
        {"kind": "npy", "path": "arrays", "keep_bytes": NPY_BYTES},
    ]
    if has_broker:
        sinks.append(
            {
                "kind": "mqtt",
                "host": "127.0.0.1",
                "port": broker,
                "topic": TOPIC,
                "queue_results": QUEUE_RESULTS,
                "on_overload": "drop-newest",
            }
        )
    (folder / "lines").mkdir()
    path = folder / "cluster.yaml"
    cluster = {
        "model": "means.onnx",
        "task": "none",
        "strategy": "sequential-count",
        "nodes": [{"name": name} for name in NODES],
        "input": {"source": f"tcp://127.0.0.1:{camera}"},
        "reconnect": {"first_s": 0.2, "most_s": 1.0},
        "sinks": sinks,
    }
    path.write_text(json.dumps(cluster), "utf-8")  # JSON is YAML
    return path


class Away(Daemon):
    """A program that can be ended for a while."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self._away_s = REST_S
        super().__init__(name, command, folder, {}, rest_s=self._rest)

    def _rest(self) -> float:
        away_s, self._away_s = self._away_s, REST_S
        return away_s

    def off(self, seconds: float, number: signal.Signals) -> None:
        """End it with a signal, and start it again `seconds` later."""
        self._away_s, pid = seconds, self.pid
        if pid is not None:
            os.kill(pid, number)


def camera(folder: Path, port: int, rate: int, name: str = "camera") -> Away:
    """ffmpeg, which serves one reader after the other until it is ended."""
    command = [
        imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-loglevel", "error", "-nostdin",
        "-re", "-f", "lavfi", "-i", f"testsrc2=size=160x120:rate={rate}",
        "-c:v", "mpeg2video", "-g", "10", "-f", "mpegts", f"tcp://127.0.0.1:{port}?listen",
    ]  # fmt: skip
    return Away(name, command, folder)


class Broker:
    """mosquitto, and mosquitto_sub, whose session outlives the broker's end."""

    def __init__(self, folder: Path, port: int) -> None:
        self._seen = folder / "seen.jsonl"
        (folder / "broker").mkdir()
        config = folder / "mosquitto.conf"
        config.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\npersistence true\n"
            f"persistence_location {folder}/broker/\nmax_queued_messages 0\n"
        )
        self.daemon = Away("mosquitto", ("mosquitto", "-c", str(config)), folder)
        wait_until(lambda: _listens(port), END_S, lambda: "mosquitto does not listen")
        with self._seen.open("wb") as file:
            self._subscriber = subprocess.Popen(
                ("mosquitto_sub", "-h", "127.0.0.1", "-p", str(port), "-t", TOPIC, "-q", "1", "-c",
                 "-i", "benchmark", "-k", "5"), stdout=file, stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def seen(self, wanted: int) -> Counter[int]:
        """Return how often each frame was seen, once so many frames were or too long passed."""
        until_s, found = time.monotonic() + END_S, Counter[int]()
        while time.monotonic() < until_s:
            lines = self._seen.read_text("utf-8").splitlines(keepends=True)
            found = Counter(json.loads(line)["index"] for line in lines if line.endswith("\n"))
            if len(found) >= wanted:
                break
            time.sleep(0.5)
        return found

    def close(self) -> None:
        """End both."""
        self._subscriber.terminate()
        self._subscriber.wait()
        self.daemon.end()


def _listens(port: int) -> bool:
    with suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


@dataclass
class Seen:
    """What was seen of a stream; memory in bytes by process, in the order of the readings."""

    report: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, list[int]] = field(default_factory=dict)
    most_lines_bytes: int = 0
    most_npy_bytes: int = 0


def streamed(
    cluster: Path,
    frames: int,
    seconds: float,
    camera: Away,
    broker: Broker | None,
    cut_source: bool,
) -> Seen:
    """Launch the stream, and look at it until it has ended."""
    command = [*LAUNCH, str(cluster), "--frames", str(frames), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr)
    seen = Seen()
    disturbing = threading.Thread(
        target=disturb,
        args=(seconds, process.pid, camera, broker, cut_source),
        daemon=True,
    )
    disturbing.start()
    try:
        with Repeated(
            lambda: look(process.pid, cluster.parent, seen), lambda: READ_EVERY_S, "reading memory"
        ):
            output = process.communicate()[0]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait()
    if process.returncode:
        raise SystemExit(f"launch ended with exit code {process.returncode}")
    disturbing.join()
    seen.report = json.loads(output.decode().replace(f"{cluster.parent}/", ""))
    return seen


def disturb(
    seconds: float,
    launcher: int,
    camera: Away | None = None,
    broker: Broker | None = None,
    cut_source: bool = False,
) -> None:
    """Fill all channels during the warm-up; half-way, end what is to be ended."""
    time.sleep(WARM_UP / 2 * seconds)
    fill_channels(launcher)
    time.sleep((1 - WARM_UP) / 2 * seconds)
    if broker is not None:
        broker.daemon.off(BROKER_OFF_S, signal.SIGTERM)
    if cut_source and camera is not None:
        camera.off(SOURCE_OFF_S, signal.SIGKILL)


def fill_channels(launcher: int) -> None:
    """Stop each agent of a launcher for a moment, so that the channels before it fill."""
    for name, pid in processes(launcher):
        if name != "launcher":
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(AGENT_STOPPED_S)
                os.kill(pid, signal.SIGCONT)
            time.sleep(AGENT_STOPPED_S)


def look(launcher: int, folder: Path, seen: Seen) -> None:
    """Add a reading of each process's memory and of the disk use."""
    for name, pid in processes(launcher):
        if resident := rss_bytes(pid):
            seen.memory.setdefault(name, []).append(resident)
    seen.most_lines_bytes = max(seen.most_lines_bytes, size_of(folder / "lines"))
    seen.most_npy_bytes = max(seen.most_npy_bytes, size_of(folder / "arrays"))


def processes(launcher: int) -> Iterator[tuple[str, int]]:
    """The launcher and the agents that it started, by their nodes' names."""
    yield "launcher", launcher
    seen = Counter[str]()
    for pid, words in ((pid, command_of(pid)) for pid in sorted(agents_of(launcher))):
        if "--name" in words:
            name = words[words.index("--name") + 1]
            seen[name] += 1
            yield name if seen[name] == 1 else f"{name} ({seen[name]})", pid


def size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder, whose files may go meanwhile."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(place, name)).st_size
    return total


def of_service(options: argparse.Namespace) -> dict[str, Any]:
    """Stream several cameras in one service, and return the report."""
    seconds, cameras = 60 * options.minutes, [f"camera{n}" for n in range(options.cameras)]
    with tempfile.TemporaryDirectory(prefix="csdf-streaming-") as name, ExitStack() as stack:
        folder = Path(name)
        ports = {one: free_port() for one in cameras}
        for one, port in ports.items():
            stack.callback(camera(folder, port, options.rate, one).end)
        service = Up(folder, write_service(folder, ports))
        stack.callback(lambda: None if service.process.poll() is not None else service.kill())
        for one in cameras:
            wait_until(lambda one=one: one in streaming(service), END_S, service.complaints)
        seen, began_s = Seen(), time.monotonic()
        with Repeated(
            lambda: look(service.process.pid, folder, seen), lambda: READ_EVERY_S, "reading memory"
        ):
            disturb(seconds, service.process.pid)
            time.sleep(max(0.0, began_s + seconds - time.monotonic()))
        if service.end():
            raise SystemExit(f"the service did not end well: {service.complaints()}")
        log = "".join(service.lines) + service.complaints()
        ends = re.findall(
            r"(camera\d+): its stream has ended: (\d+) frames read, (\d+) dropped, (\d+) results",
            log,
        )
        figures = [*memory_figures(seen, options.minutes)]
        for one, *counts in sorted(ends):
            figures += camera_figures(folder, one, tuple(map(int, counts)), options.rate * seconds)
        failures = sum("its stream failed" in line for line in log.splitlines())
        figures.append(Figure("streams that ended well", len(ends), at_least=len(cameras)))
        figures.append(Figure("failures of a stream", failures, at_most=0))
    return report(
        "streaming",
        f"{len(cameras)} cameras in one service: {options.minutes:g} minutes",
        figures,
        settings={"minutes": options.minutes, "rate": options.rate, "cameras": len(cameras)},
        notes=[
            "ffmpeg serves each picture on the loopback interface, and launch up streams it "
            "through a small network on two local agents to JSON lines. Memory is resident memory: "
            "the medians of the first and the last tenth of the readings after the warm-up."
        ],
        data={"memory": thinned(seen.memory)},
    )


def write_service(folder: Path, ports: Mapping[str, int]) -> Path:
    """Write the network and the cluster's file of several cameras, on these ports."""
    path = folder / "cluster.yaml"
    convolutions(folder / "means.onnx", LAYERS, FILTERS, SIDE)
    cluster = {
        "model": [{"path": "means.onnx", "name": name} for name in ports],
        "strategy": "sequential-count",
        "nodes": [{"name": name} for name in NODES[:2]],
        "inputs": {name: {"source": f"tcp://127.0.0.1:{port}"} for name, port in ports.items()},
        "reconnect": {"first_s": 0.2, "most_s": 1.0},
        "sinks": [
            {"kind": "json-lines", "path": f"{name}.jsonl", "network": name} for name in ports
        ],
        "serve": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"},
    }
    path.write_text(json.dumps(cluster), "utf-8")
    return path


def streaming(service: Up) -> dict[str, int]:
    """Return the results so far of each camera that streams."""
    _, status = service.command("status")
    return {each["model"]: each["results"] for each in status.get("streams", ()) if each["results"]}


# ---------------------------------------------------------------- figures


def thinned(memory: dict[str, list[int]]) -> dict[str, list[int]]:
    """Return some sixty of the readings of each process, evenly spaced."""
    return {name: readings[:: len(readings) // 60 + 1] for name, readings in memory.items()}


def memory_figures(seen: Seen, minutes: float) -> list[Figure]:
    """How much more resident memory each process has at the end than after the warm-up.

    Nothing is asked of the growth in a run whose warm-up is too brief to fill the heaps.
    """
    figures = []
    most = 100 * MOST_GROWTH if minutes >= LEAST_MINUTES else None
    for name, readings in seen.memory.items():
        warm = readings[int(WARM_UP * len(readings)) :]
        tenth = max(1, len(warm) // 10)
        first, last = median(warm[:tenth]), median(warm[-tenth - 1 : -1] or warm[-1:])
        note, growth = f"{first / 1e6:.2f} → {last / 1e6:.2f} MB", 100 * (last / first - 1)
        figures.append(Figure(f"{name}: growth", round(growth, 2), "%", at_most=most, note=note))
    return figures


def frame_figures(seen: Seen) -> list[Figure]:
    """What became of the frames, and the disk use of the sinks; the report in the data has more."""
    found = seen.report
    unaccounted = found["read"] - found["dropped"] - found["refused"] - found["results"]
    disk = (
        ("JSON lines", seen.most_lines_bytes, LINES_BYTES),
        (".npy files", seen.most_npy_bytes, NPY_BYTES),
    )
    return [
        Figure("frames read", found["read"], note=f"{found['dropped']} dropped"),
        Figure("frames that are not accounted for", abs(unaccounted), at_most=0),
        *(Figure(f"{what}: most on disk", round(most / 1e6, 3), "MB", at_most=bound / 1e6)
          for what, most, bound in disk),
    ]  # fmt: skip


def camera_figures(
    folder: Path, name: str, counts: tuple[int, ...], expected: float
) -> list[Figure]:
    """Whether each frame of a camera has a line, or is counted as dropped."""
    read, dropped, results = counts
    lines = (folder / f"{name}.jsonl").read_text("utf-8").splitlines()
    indices = [json.loads(line)["index"] for line in lines]
    lost = read - dropped - len(indices)
    return [
        Figure(
            f"{name}: frames read", read, at_least=math.floor(0.98 * expected),
            note=f"{dropped} dropped, {results} results",
        ),
        Figure(f"{name}: frames neither delivered nor dropped", abs(lost), at_most=0),
        Figure(
            f"{name}: lines twice or out of order",
            sum(after <= before for before, after in pairwise(indices)), at_most=0,
        ),
    ]  # fmt: skip


def broker_figures(seen: Seen, broker: Broker) -> list[Figure]:
    """Whether each frame was seen at the broker or is counted as dropped."""
    found = seen.report
    sink = found["sinks"][2]
    received = broker.seen(sink["delivered"])
    missing = found["read"] - found["dropped"] - found["refused"] - len(received) - sink["dropped"]
    return [
        Figure("broker: results that mosquitto_sub saw", len(received)),
        Figure("broker: results dropped", sink["dropped"], at_least=1),
        Figure("broker: frames neither seen nor counted as dropped", abs(missing), at_most=0),
        Figure("broker: results seen twice", sum(received.values()) - len(received), at_most=1),
    ]


def gap_figures(seen: Seen, rate: int) -> list[Figure]:
    """Whether the gap was counted, and the results went on."""
    gaps = seen.report["gaps"]
    last = gaps["last"][-1]["after_frame"] if gaps["last"] else seen.report["read"] - 1
    after = seen.report["read"] - last - 1
    return [
        Figure("cut: gaps counted", gaps["number"], at_least=1),
        Figure(
            "cut: longest gap", round(gaps["longest_s"], 2), "s", at_least=SOURCE_OFF_S,
            at_most=SOURCE_OFF_S + 15,
        ),
        Figure("cut: frames after the last gap", after, at_least=rate),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
