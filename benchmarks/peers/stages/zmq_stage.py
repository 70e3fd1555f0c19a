"""The plainest pyzmq script: PULL a frame, compute, PUSH the result.

    python -m benchmarks.peers.stages.zmq_stage CHAIN NUMBER LISTEN NEXT HIGH_WATER_MARK

A frame is a message of a JSON header and the tensors' bytes, as in pyzmq's documentation. Queues
are bounded by ZeroMQ's high-water marks on both sides, in frames.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from benchmarks.peers.stages.session import open_session, read_stage


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
        first, *parts = pull.recv_multipart(copy=False)
        header = json.loads(first.bytes)
        inputs = [
            np.frombuffer(part.buffer, dtype).reshape(shape)
            for part, (dtype, shape) in zip(parts, header["tensors"], strict=True)
        ]
        outputs: list[Any] = compute(inputs)
        header["tensors"] = [(str(array.dtype), array.shape) for array in outputs]
        push.send_multipart([json.dumps(header).encode(), *outputs], copy=False)


if __name__ == "__main__":
    main()
