"""The whole network in one process, frame after frame.

    python -m benchmarks.peers.stages.whole_model CHAIN

For every line `FRAMES SKIPPED` on standard input it computes so many frames; it prints `full` once
the skipped ones are done and then a line of JSON: when each frame began and ended (seconds of the
monotonic clock), and how far the result is from the wanted one in `CHAIN`'s folder.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.comparison import worst_of
from benchmarks.peers.stages.session import (
    open_session,
    read_frame,
    read_results,
    read_stage,
)


def main() -> None:
    chain = Path(sys.argv[1])
    compute = open_session(*read_stage(chain, 0))
    frame, wanted = read_frame(chain.parent), read_results(chain.parent)
    print("ready", flush=True)
    for line in sys.stdin:
        frames, skipped = map(int, line.split())
        sent, received, worst = [], [], 0.0
        for number in range(frames):
            sent.append(time.monotonic())
            results = compute(frame)
            received.append(time.monotonic())
            if number == skipped:
                print("full", flush=True)
            worst = max(worst, worst_of(zip(results, wanted, strict=True)))
        print(json.dumps({"sent": sent, "received": received, "difference": worst}), flush=True)


if __name__ == "__main__":
    main()
