"""How much of what ZeroMQ can do is left of it in a FIFO: `python -m benchmarks.fifo`.

Two processes, a writer and a reader. For each size and transport they take turns, many times over:
a burst through bare pyzmq (`PUSH`/`PULL`, `copy=False`, default settings, nothing but the bytes),
then the same burst through our FIFO (header, credits, order, bound). The machine is not quiet, so
each burst is compared with its neighbours: told are the medians of the rates and the median of the
ratios. Last, tokens of 1 KB as fast as they go: microseconds per token from end to end, which
include making, sending, receiving, checking and giving back.

`--curve`: over TCP the FIFO is encrypted and authenticated, as between machines, and bare pyzmq is
not; so the ratios tell what that costs.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
import zmq

from nodes.curve import new_pair
from nodes.executors.heap import keep_one_heap
from nodes.fifos import READER, WRITER, FifoSpec, WireReader, WireWriter
from nodes.keys import Keyring

ASKED_RATIO = 0.85
ASKED_TOKEN_US = 150.0
BURSTS = ((800_000, 1000), (12_800_000, 64))
"""Bytes of a tensor and tensors in a burst: long against what fits into the kernel's buffers, which
is under way before the first arrives."""
ARRAYS = 4
"""Different arrays that are sent in turn, as an engine's outputs would be."""


@dataclass(frozen=True)
class Measured:
    """Medians over the rounds; rates in bytes per second."""

    transport: str
    bytes: int
    bare_rate: float
    fifo_rate: float
    ratio: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--capacity", type=int, default=8, help="frames (default: 8)")
    parser.add_argument(
        "--curve", action="store_true", help="encrypt the FIFO over TCP, and only it"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--writer", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    # As an agent does it, in both processes and for both ways.
    keep_one_heap()
    gc.freeze()
    if options.writer:
        bare, fifo, size, capacity, secret, reader = options.writer
        keyring = writer_keys(secret, reader)
        return write(bare, fifo, int(size), int(capacity), keyring)
    measured = []
    tokens = {}
    with tempfile.TemporaryDirectory(prefix="fifo-") as directory:
        transports = {"ipc": f"ipc://{directory}/{{}}", "tcp": "tcp://127.0.0.1:*"}
        if options.curve:
            transports = {"curve": transports["tcp"]}
        for transport, address in transports.items():
            for size, frames in BURSTS:
                with Pair(address, size, options.capacity, options.curve) as pair:
                    measured.append(compare(transport, pair, frames, options.rounds, options.json))
            with Pair(address, 1024, max(options.capacity, 8), options.curve) as pair:
                tokens[transport] = token_us(pair, options.rounds)
                if not options.json:
                    print(
                        f"{transport}     1 KB token: {tokens[transport]:6.1f} µs end to end"
                        + ("" if options.curve else f" (asked: at most {ASKED_TOKEN_US:g})")
                    )
    if options.json:
        print(json.dumps({"fifo": [asdict(m) for m in measured], "token_us": tokens}))
    if options.curve:
        return 0
    good = all(m.ratio >= ASKED_RATIO for m in measured)
    return 0 if good and max(tokens.values()) <= ASKED_TOKEN_US else 1


class Pair:
    """This process reading, a child writing, connected in both ways at once."""

    def __init__(self, address: str, size: int, capacity: int, curve: bool) -> None:
        self.size = size
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.bare = self._context.socket(zmq.PULL)
        self.bare.bind(address.format("bare"))
        fifo = address.format("fifo").replace("*", "0")
        keyring, keys = None, ["", ""]
        if curve:
            (public, secret), (writer, writers_secret) = new_pair(), new_pair()
            keyring = Keyring(secret, nodes={WRITER: writer})
            keys = [writers_secret.hex(), public.hex()]
        self.fifo = WireReader(FifoSpec("float32", (size // 4,), capacity), fifo, keyring)
        bare = self.bare.getsockopt_string(zmq.LAST_ENDPOINT)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fifo",
             "--writer", bare, self.fifo.address, str(size), str(capacity), *keys],
            stdin=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()
        self.fifo.close()
        self.bare.close()
        self._context.term()

    def burst(self, way: str, frames: int) -> float:
        """Seconds per frame of a burst, from the first arrival to the last."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{way} {frames + 1}\n")
        self._child.stdin.flush()
        take: Callable[[], Any] = self._take_bare if way == "bare" else self._take_fifo
        take()
        began = time.perf_counter()
        for _ in range(frames):
            take()
        return (time.perf_counter() - began) / frames

    def _take_bare(self) -> None:
        assert len(self.bare.recv(copy=False)) == self.size

    def _take_fifo(self) -> None:
        _, array = self.fifo.get()
        assert array.nbytes == self.size
        del array
        self.fifo.done()


def writer_keys(secret: str, reader: str) -> Keyring | None:
    """What the child was given on its command line; nothing without `--curve`."""
    return Keyring(bytes.fromhex(secret), nodes={READER: bytes.fromhex(reader)}) if secret else None


def write(
    bare_address: str, fifo_address: str, size: int, capacity: int, keyring: Keyring | None
) -> int:
    """The child: sends as many frames as each line of standard input says, the way it says."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    bare = context.socket(zmq.PUSH)
    bare.connect(bare_address)
    fifo = WireWriter(FifoSpec("float32", (size // 4,), capacity), fifo_address, keyring)
    arrays = [np.full(size // 4, k, np.float32) for k in range(ARRAYS)]
    for line in sys.stdin:
        way, frames = line.split()
        for k in range(int(frames)):
            if way == "bare":
                bare.send(arrays[k % ARRAYS], copy=False)
            else:
                fifo.put(arrays[k % ARRAYS])
    fifo.close()
    bare.close()
    context.term()
    return 0


def compare(transport: str, pair: Pair, frames: int, rounds: int, quiet: bool) -> Measured:
    for way in ("bare", "fifo"):
        pair.burst(way, frames // 4)
    bursts = [(pair.burst("bare", frames), pair.burst("fifo", frames)) for _ in range(rounds)]
    measured = Measured(
        transport,
        pair.size,
        bare_rate=pair.size / median(bare for bare, _ in bursts),
        fifo_rate=pair.size / median(fifo for _, fifo in bursts),
        ratio=median(bare / fifo for bare, fifo in bursts),
    )
    if not quiet:
        print(
            f"{transport} {pair.size / 1e6:5.1f} MB tensor: {measured.fifo_rate / 1e9:5.2f} GB/s, "
            f"bare pyzmq {measured.bare_rate / 1e9:5.2f} GB/s, ratio {measured.ratio:.2f}"
            + ("" if transport == "curve" else f" (asked: at least {ASKED_RATIO})")
        )
    return measured


def token_us(pair: Pair, rounds: int) -> float:
    pair.burst("fifo", 200)
    return median(pair.burst("fifo", 2000) for _ in range(rounds)) * 1e6


if __name__ == "__main__":
    sys.exit(main())
