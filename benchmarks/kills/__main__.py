"""Kills processes of a running service at random: `make kills`, or `python -m benchmarks.kills`.

A service (`launch up`) serves two models on three agents with slots; a long run with a journal
computes on the same agents. Something starts each of them again, as systemd would. Clients ask all
the time and ask again what failed; an operator applies new versions and rolls them back. Meanwhile
processes are drawn and killed, or stopped for a while: the server, agents, their slots, what these
start to prepare subnets or to plan, the long run. Only processes that this command has started are
struck.

What is promised: every answer is right and from one version, that it names; whatever was
acknowledged is there (each generation that was applied, each frame in the journal, once); the
service answers again within 10 s; no process and no temporary file is left in the end; memory is
bounded.

The seed is printed first; `--seed` draws the same strikes again, at other moments of the programs.
Ends with exit code 1 if a promise was broken.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

from benchmarks.kills.stage import Stage
from benchmarks.report import Figure, arguments, report, show
from benchmarks.service.server import images, whole

ANSWERS_AGAIN_S = 10.0
MOST_MB = {"server": 600.0, "agents and slots": 400.0}


def main() -> int:
    parser = arguments("benchmarks.kills", __doc__)
    parser.add_argument("--kills", type=int, default=100, help="how many, stops included")
    parser.add_argument("--minutes", type=float, default=15.0, help="within how long")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--keep", type=Path, help="folder for logs and state; it must be empty")
    options = parser.parse_args()
    ort.set_default_logger_severity(4)
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} {text}", file=sys.stderr, flush=True)

    say(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        stage = Stage(folder.absolute(), random.Random(options.seed), say)
        try:
            with stage:
                asyncio.run(stage.play(options.kills, options.minutes))
        except TimeoutError as error:
            say(str(error))
            return 1
        figures = list(_figures(stage))
    settings = {name: getattr(options, name) for name in ("kills", "minutes", "seed")}
    data = report(
        "kills",
        f"{options.kills} processes of a service are killed at random",
        figures,
        settings=settings,
        notes=[_restarts(stage)],
        data={
            "back_after_s": [
                [round(strike.at_s - began_s, 1), str(strike), round(seconds, 2)]
                for strike, seconds in stage.recoveries()
            ]
        },
    )
    for text in (*stage.operator.lost, *stage.left):
        say(text)
    return show(data, as_json=options.json)


def _figures(stage: Stage) -> list[Figure]:
    asked, operator = (stage.digits, stage.other), stage.operator
    recoveries: dict[str, list[float]] = {}
    for strike, seconds in stage.recoveries():
        recoveries.setdefault(strike.kind, []).append(seconds)
    every = [seconds for found in recoveries.values() for seconds in found]
    longest = max(each.longest_s for each in asked[:1])
    inputs = whole(stage.folder / "digits1.onnx", len(images()))
    memory = {"server": 0, "agents and slots": 0}
    for role, size in stage.most_bytes.items():
        if role == "server":
            memory["server"] = size
        elif role.split()[0] not in ("server", "stream") and "grand" not in role:
            memory["agents and slots"] = max(size, memory["agents and slots"])
    return [
        Figure("processes killed or stopped", len(stage.strikes)),
        Figure("answers", sum(len(each.answers) for each in asked)),
        Figure("answers that are not those of the version that they name",
               sum(each.wrong for each in asked), at_most=0),
        Figure("attempts that failed, and were made again",
               sum(each.errors.total() + each.refusals for each in asked)),
        Figure("longest time from a request's first attempt to its answer", round(longest, 1), "s"),
        Figure("generations acknowledged", len(operator.acknowledged)),
        Figure("generations acknowledged and lost", len(operator.lost), at_most=0),
        Figure("changes without an answer", operator.unanswered),
        Figure("changes refused", len(operator.refused)),
        Figure("frames acknowledged by the journal", len(stage.kept.acknowledged)),
        Figure("frames acknowledged and lost", stage.kept.lost, at_most=0),
        Figure("frames acknowledged twice", stage.kept.doubled, at_most=0),
        Figure("frames acknowledged and wrong", stage.kept.wrong(inputs), at_most=0),
        Figure("from a strike to the next answer, median", round(float(np.median(every)), 2), "s"),
        *(Figure(f"longest after a strike at: {kind}", round(max(found), 2), "s",
                 at_most=ANSWERS_AGAIN_S, note=f"median {np.median(found):.2f} s of {len(found)}")
          for kind, found in sorted(recoveries.items())),
        Figure("longest life of a process whose parent was killed",
               round(stage.family.longest_orphan_s, 1), "s"),
        Figure("processes and files left in the end", len(stage.left), at_most=0),
        Figure("daemons that had to be killed in the end",
               list(stage.codes.values()).count(-signal.SIGKILL), at_most=0),
        *(Figure(f"most memory of {name}", round(size / 1e6), "MB", at_most=MOST_MB[name],
                 note="not of files") for name, size in memory.items()),
    ]  # fmt: skip


def _restarts(stage: Stage) -> str:
    starts = ", ".join(f"{each.name} {each.starts - 1}" for each in stage.family.daemons)
    return f"Started again: {starts}."


if __name__ == "__main__":
    sys.exit(main())
