"""Moves the tensors of an agent with bare pyzmq (`copy=False`) and nothing else, for comparison.

Three processes form a chain like three agents: a source, a relay and a sink, `PUSH`/`PULL`. The
relay receives a message and sends another array of the same size, like an engine's output. It
reports the CPU time that its process used per message.
"""

from __future__ import annotations

import gc
import sys
import time

import numpy as np
import zmq

from benchmarks.programs import Program
from nodes.host.heap import keep_one_heap

ARRAYS = 4
UNDER_WAY_BYTES = 64 << 20
"""Bounds queues where ZeroMQ's own bound of 1000 messages would fill the memory."""

WARM = 20
"""Messages before the relay begins to count."""


class Relayed:
    """The three processes, as a context manager. Bursts run one after the other."""

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes

    def __enter__(self) -> Relayed:
        self._sink = self._start("sink")
        self._relay = self._start("relay", self._sink.hear())
        self._source = self._start("source", self._relay.hear())
        return self

    def __exit__(self, *_: object) -> None:
        for child in (self._source, self._relay, self._sink):
            child.close()

    def _start(self, part: str, peer: str = "") -> Program:
        return Program.python("-m", "benchmarks.limits.bare", part, str(self._size), peer)

    def burst(self, messages: int, pace_s: float = 0.0) -> float:
        """CPU seconds of the relay per message, when one is sent every `pace_s` seconds."""
        for child in (self._sink, self._relay, self._source):
            child.tell(f"{messages + WARM} {pace_s}")
        _, cpu_s, _ = (float(child.hear()) for child in (self._sink, self._relay, self._source))
        return cpu_s / messages


def main() -> None:
    part, size, peer = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    keep_one_heap()  # as an agent does it
    gc.freeze()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    waiting = max(2, min(1000, UNDER_WAY_BYTES // size))
    pull.set_hwm(waiting)
    push.set_hwm(waiting)
    if part != "source":
        pull.bind("tcp://127.0.0.1:*")
        print(pull.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
    if part != "sink":
        push.connect(peer)
    arrays = [np.full(size // 4, k, np.float32) for k in range(ARRAYS)]
    for line in sys.stdin:
        count, pace_s = line.split()
        print(_burst(part, pull, push, arrays, int(count), float(pace_s)), flush=True)
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
