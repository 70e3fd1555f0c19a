"""Moves the tensors of an agent with bare pyzmq (`copy=False`) and nothing else, for comparison.

Three processes form a chain like three agents: a source, a relay and a sink, `PUSH`/`PULL`. The
relay receives a message and sends another array of the same size, like an engine's output. It
reports the CPU time that its process used per message.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from types import TracebackType

import numpy as np
import zmq

from nodes.host.heap import keep_one_heap

ARRAYS = 4
UNDER_WAY_BYTES = 64 << 20
"""Bounds queues where ZeroMQ's own bound of 1000 messages would fill the memory."""

WARM = 20
"""Messages before the relay begins to count."""


class Relayed:
    """The three processes, as a context manager. Bursts run one after the other."""

    def __init__(self, size_bytes: int, address: str) -> None:
        """`address` has a place for a name, such as `ipc:///tmp/x/{}`, or is a TCP address with a
        wildcard port."""
        self._size = size_bytes
        self._address = address

    def __enter__(self) -> Relayed:
        self._sink = self._start("sink")
        at_sink = self._answer(self._sink)
        self._relay = self._start("relay", at_sink)
        at_relay = self._answer(self._relay)
        self._source = self._start("source", at_relay)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in (self._source, self._relay, self._sink):
            assert child.stdin is not None
            child.stdin.close()
        for child in (self._source, self._relay, self._sink):
            child.wait()

    def _start(self, part: str, peer: str = "") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.limits.bare", part, str(self._size),
             self._address.format(part), peer],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _answer(self, child: subprocess.Popen[str]) -> str:
        assert child.stdout is not None
        return child.stdout.readline().strip()

    def burst(self, messages: int, pace_s: float = 0.0) -> float:
        """CPU seconds of the relay per message, when one is sent every `pace_s` seconds."""
        for child in (self._sink, self._relay, self._source):
            assert child.stdin is not None
            child.stdin.write(f"{messages + WARM} {pace_s}\n")
            child.stdin.flush()
        cpu_s = float(self._answer(self._relay))
        self._answer(self._sink)
        self._answer(self._source)
        return cpu_s / messages


def main() -> None:
    parser = argparse.ArgumentParser(description="One of the processes; started by `Relayed`.")
    parser.add_argument("part", choices=("source", "relay", "sink"))
    parser.add_argument("size", type=int)
    parser.add_argument("address")
    parser.add_argument("peer")
    options = parser.parse_args()
    keep_one_heap()  # as an agent does it
    gc.freeze()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    waiting = max(2, min(1000, UNDER_WAY_BYTES // options.size))
    pull.set_hwm(waiting)
    push.set_hwm(waiting)
    if options.part != "source":
        pull.bind(options.address)
        print(pull.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
    if options.part != "sink":
        push.connect(options.peer)
    arrays = [np.full(options.size // 4, k, np.float32) for k in range(ARRAYS)]
    for line in sys.stdin:
        count, pace_s = line.split()
        print(_burst(options.part, pull, push, arrays, int(count), float(pace_s)), flush=True)
    context.destroy(linger=0)


def _burst(
    part: str,
    pull: zmq.Socket[bytes],
    push: zmq.Socket[bytes],
    arrays: list[np.ndarray],
    count: int,
    pace_s: float,
) -> float:
    began_s, began_cpu_s = time.monotonic(), 0.0
    for number in range(count):
        if number == WARM:
            began_cpu_s = time.process_time()
        if part == "source" and pace_s:
            time.sleep(max(0.0, began_s + number * pace_s - time.monotonic()))
        if part != "source":
            pull.recv(copy=False)
        if part != "sink":
            push.send(arrays[number % ARRAYS], copy=False)
    return time.process_time() - began_cpu_s


if __name__ == "__main__":
    main()
