"""Compares the rate of our FIFOs with that of bare ZeroMQ, and measures what keys cost.

    python -m benchmarks.fifo [--rounds 11] [--capacity 8] [--json]

Two processes, a writer and a reader. For each size and transport they take turns, many times over:
a burst through bare pyzmq (`PUSH`/`PULL`, `copy=False`, default settings, nothing but the bytes),
the same burst through our FIFO (header, credits, order, bound), and over TCP once more through a
FIFO that is encrypted and authenticated (CURVE), as between machines. The machine is not quiet, so
each burst is compared with its neighbours; the report gives the medians of the rates and of the
ratios. Last, tokens of 1 KB at full rate: microseconds per token from end to end, which include
making, sending, receiving, checking and releasing it.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np
import zmq

from benchmarks.one_fifo import READER, WRITER, FifoSpec, WireReader, WireWriter
from benchmarks.report import Figure, print_json, report
from nodes.host.heap import keep_one_heap
from nodes.net.curve import new_pair
from nodes.net.keys import Keyring

ASKED_RATIO = 0.85
ASKED_TOKEN_US = 150.0
BURSTS = ((800_000, 1000), (12_800_000, 64))
"""Bytes of a tensor and tensors in a burst: long against what fits into the kernel's buffers, which
is under way before the first arrives."""
TOKEN_BYTES, TOKENS = 1024, 2000
ARRAYS = 4
"""Different arrays that are sent in turn, as an engine's outputs would be."""

BARE, FIFO, CURVE = "bare", "fifo", "curve"
WAYS: Mapping[str, tuple[str, ...]] = {"ipc": (BARE, FIFO), "tcp": (BARE, FIFO, CURVE)}
"""Transport → who takes turns."""


@dataclass(frozen=True)
class Bursts:
    """Way → seconds per tensor of each round."""

    transport: str
    size_bytes: int
    seconds: Mapping[str, tuple[float, ...]]

    def rates(self, way: str) -> list[float]:
        """Bytes per second."""
        return [self.size_bytes / seconds for seconds in self.seconds[way]]

    def ratios(self, way: str, other: str) -> list[float]:
        """Rate of one way ÷ that of another, in the same round."""
        pairs = zip(self.seconds[way], self.seconds[other], strict=True)
        return [theirs / own for own, theirs in pairs]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fifo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--capacity", type=int, default=8, help="frames (default: 8)")
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    parser.add_argument("--writer", nargs=7, help=argparse.SUPPRESS)
    options = parser.parse_args()
    # As an agent does it, in both processes and for all ways.
    keep_one_heap()
    gc.freeze()
    if options.writer:
        return write(*options.writer)
    large: list[Bursts] = []
    small: list[Bursts] = []
    with tempfile.TemporaryDirectory(prefix="fifo-") as directory:
        for transport, ways in WAYS.items():
            address = f"ipc://{directory}/{{}}" if transport == "ipc" else "tcp://127.0.0.1:*"
            for size, frames in BURSTS:
                with Pair(address, size, options.capacity) as pair:
                    found = measured(pair, ways, frames, options.rounds)
                    large.append(Bursts(transport, size, found))
            with Pair(address, TOKEN_BYTES, max(options.capacity, 8)) as pair:
                found = measured(pair, ways[1:], TOKENS, options.rounds)
                small.append(Bursts(transport, TOKEN_BYTES, found))
    every = figures(large, small)
    if options.json:
        settings = {"rounds": options.rounds, "capacity": options.capacity}
        title = "A FIFO beside bare pyzmq, and what encryption costs"
        notes = [
            "Bursts between two processes on one machine, in turn; a ratio is that of neighbours. "
            "A wire of 1 Gbit/s carries 0.125 GB/s."
        ]
        data = {"bursts": [asdict(one) for one in (*large, *small)]}
        print_json(report("fifo", title, every, settings=settings, notes=notes, data=data))
    else:
        for one in every:
            held = {None: "", True: "  holds", False: "  DOES NOT HOLD"}[one.holds]
            print(f"{one.what}: {one.measured} ({one.low} to {one.high}) {one.unit}{held}")
    return 0 if all(one.holds is not False for one in every) else 1


def figures(large: list[Bursts], small: list[Bursts]) -> list[Figure]:
    """Ratios with what was asked of them, then rates, then small tokens."""
    listed = []
    for one in large:
        what = f"{one.transport}, {one.size_bytes / 1e6:g} MB"
        ratios = one.ratios(FIFO, BARE)
        listed.append(_figure(f"{what}: FIFO ÷ bare pyzmq", ratios, "×", at_least=ASKED_RATIO))
        if CURVE in one.seconds:
            listed.append(_figure(f"{what}: encrypted ÷ plain FIFO", one.ratios(CURVE, FIFO), "×"))
        for way in one.seconds:
            rates = [rate / 1e9 for rate in one.rates(way)]
            listed.append(_figure(f"{what}: {_named(way)}", rates, "GB/s"))
    for one in small:
        for way, seconds in one.seconds.items():
            most = None if way == CURVE else ASKED_TOKEN_US
            what = f"{one.transport}, token of 1 KB: {_named(way)}"
            listed.append(_figure(what, [1e6 * each for each in seconds], "µs", at_most=most))
    return listed


def _named(way: str) -> str:
    return {BARE: "bare pyzmq", FIFO: "FIFO", CURVE: "encrypted FIFO"}[way]


def _figure(
    what: str,
    values: list[float],
    unit: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Figure:
    low, high = round(min(values), 3), round(max(values), 3)
    middle = round(median(values), 3)
    return Figure(what, middle, unit, at_least=at_least, at_most=at_most, low=low, high=high)


class Pair:
    """This process reading, a child writing, connected in all ways at once."""

    def __init__(self, address: str, size: int, capacity: int) -> None:
        self.size = size
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._bare = self._context.socket(zmq.PULL)
        self._bare.bind(address.format(BARE))
        (public, secret), (writer, writers_secret) = new_pair(), new_pair()
        keyring = Keyring(secret, nodes={WRITER: writer})
        spec = FifoSpec("float32", (size // 4,), capacity)
        self._fifos = {
            way: WireReader(spec, address.format(way).replace("*", "0"), keys)
            for way, keys in ((FIFO, None), (CURVE, keyring))
            if way == FIFO or not address.startswith("ipc")
        }
        encrypted = self._fifos.get(CURVE)
        addresses = (self._fifos[FIFO].address, encrypted.address if encrypted else "")
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fifo", "--writer",
             self._bare.getsockopt_string(zmq.LAST_ENDPOINT), *addresses, str(size), str(capacity),
             writers_secret.hex(), public.hex()],
            stdin=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()
        for fifo in self._fifos.values():
            fifo.close()
        self._bare.close()
        self._context.term()

    def burst(self, way: str, frames: int) -> float:
        """Seconds per frame of a burst, from the first arrival to the last."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{way} {frames + 1}\n")
        self._child.stdin.flush()
        take: Callable[[], None] = self._take_bare
        if way != BARE:
            fifo = self._fifos[way]
            take = lambda: self._take_from(fifo)  # noqa: E731 - one of two
        take()
        began = time.perf_counter()
        for _ in range(frames):
            take()
        return (time.perf_counter() - began) / frames

    def _take_bare(self) -> None:
        assert len(self._bare.recv(copy=False)) == self.size

    def _take_from(self, fifo: WireReader) -> None:
        _, array = fifo.get()
        assert array.nbytes == self.size
        del array
        fifo.done()


def write(
    bare_address: str, fifo: str, curve: str, size: str, capacity: str, secret: str, reader: str
) -> int:
    """The child: sends as many frames as each line of standard input says, the way it says."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    bare = context.socket(zmq.PUSH)
    bare.connect(bare_address)
    spec = FifoSpec("float32", (int(size) // 4,), int(capacity))
    fifos = {FIFO: WireWriter(spec, fifo, None)}
    if curve:
        keyring = Keyring(bytes.fromhex(secret), nodes={READER: bytes.fromhex(reader)})
        fifos[CURVE] = WireWriter(spec, curve, keyring)
    arrays = [np.full(int(size) // 4, k, np.float32) for k in range(ARRAYS)]
    for line in sys.stdin:
        way, frames = line.split()
        for k in range(int(frames)):
            if way == BARE:
                bare.send(arrays[k % ARRAYS], copy=False)
            else:
                fifos[way].put(arrays[k % ARRAYS])
    for one in fifos.values():
        one.close()
    bare.close()
    context.term()
    return 0


def measured(
    pair: Pair, ways: tuple[str, ...], frames: int, rounds: int
) -> dict[str, tuple[float, ...]]:
    """Seconds per frame of each way in each round, whose order changes from round to round."""
    for way in ways:
        pair.burst(way, frames // 4)
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        first = number % len(ways)
        for way in (*ways[first:], *ways[:first]):
            found[way].append(pair.burst(way, frames))
    return {way: tuple(values) for way, values in found.items()}


if __name__ == "__main__":
    sys.exit(main())
