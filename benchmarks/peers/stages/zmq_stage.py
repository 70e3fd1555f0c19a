"""The plainest pyzmq script: PULL a frame, compute, PUSH the result.

    python -m benchmarks.peers.stages.zmq_stage CHAIN NUMBER LISTEN NEXT HIGH_WATER_MARK

Queues are bounded by ZeroMQ's high-water marks on both sides, in frames.
"""

from __future__ import annotations

import sys
from pathlib import Path

import zmq

from benchmarks.peers.stages.session import open_session, packed, read_stage, unpacked


def main() -> None:
    chain, number, listen, following, mark = sys.argv[1:]
    compute = open_session(*read_stage(Path(chain), int(number)))
    context = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pull.rcvhwm = push.sndhwm = int(mark)
    pull.bind(listen)
    push.connect(following)
    print("ready", flush=True)
    while True:
        arrays = unpacked(pull.recv_multipart(copy=False))
        push.send_multipart(packed(compute(arrays)), copy=False)


if __name__ == "__main__":
    main()
