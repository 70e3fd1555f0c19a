"""Runs random load and faults for minutes: `make soak`, or `python -m benchmarks.soak --help`.

Streams of random length run over the boards of `benchmarks.chaos`, some with a slow sink. During
each, one to three faults hit boards drawn at random: a board is killed, paused, cut off, slowed
down, starved or attacked by strangers; or all boards are silent or cut off together, or the
launcher is stopped. One board is spared from faults of single boards. Every frame is accounted for.
Agents that survive are not restarted, so leaks add up: the report gives the growth of memory, file
descriptors and threads of the launcher and of each agent.

The seed is printed first; `--seed` draws the same faults again. Ends with exit code 1 if a frame
was lost, doubled or wrong, or a run ended that could have gone on.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import onnxruntime as ort

from benchmarks.chaos import faults, intruders
from benchmarks.chaos.bed import Bed, Fault, Streamed, Wait
from benchmarks.report import Figure, print_json, report
from launcher.errors import LauncherError

MODEL = "onnx-wheel:squeezenet"
FREE_S = 6.0
"""Until an agent whose launcher was cut off is free: its lease and a little."""

SETTLED = 3

MOST_MB, MOST_DESCRIPTORS, MOST_THREADS = 64.0, 16, 4
"""How much the launcher or an agent may grow."""


@dataclass(frozen=True)
class Held:
    """What a process holds: resident memory without that of files (bytes), the kinds of its
    descriptors, the names of its threads."""

    anonymous_bytes: int
    descriptor_kinds: Counter[str]
    thread_names: Counter[str]

    @property
    def descriptors(self) -> int:
        """How many."""
        return self.descriptor_kinds.total()

    @property
    def threads(self) -> int:
        """How many."""
        return self.thread_names.total()

    @classmethod
    def by(cls, pid: int) -> Held:
        """Look now."""
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        return cls(
            int(status["RssAnon"].split()[0]) * 1024,
            Counter(_kinds(Path(f"/proc/{pid}/fd"))),
            Counter(_names(Path(f"/proc/{pid}/task"))),
        )


def _kinds(descriptors: Path) -> Iterator[str]:
    """What each is: socket, pipe, anon_inode:[eventpoll], file."""
    for link in descriptors.iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile, as the one that lists them is
            target = os.readlink(link)
            kind, _, number = target.partition(":[")
            yield "file" if target.startswith("/") else kind if number[:-1].isdigit() else target


def _names(threads: Path) -> Iterator[str]:
    for thread in threads.iterdir():
        with contextlib.suppress(OSError):  # ended meanwhile
            yield (thread / "comm").read_text().strip()


@dataclass
class Growth:
    """First and last readings of processes, by who they are and their process id."""

    first: dict[tuple[str, int], Held] = field(default_factory=dict)
    last: dict[tuple[str, int], Held] = field(default_factory=dict)
    streams: dict[tuple[str, int], int] = field(default_factory=dict)

    def look(self, who: str, pid: int) -> None:
        """What a process holds counts from after its `SETTLED`th stream: the first ones fill its
        heap, and start threads that stay."""
        key, held = (who, pid), Held.by(pid)
        self.streams[key] = self.streams.get(key, 0) + 1
        if self.streams[key] >= SETTLED:
            self.first.setdefault(key, held)
            self.last[key] = held

    def most(self, who: str, of: Callable[[Held], float]) -> float:
        """By how much the one of these that has grown most has grown."""
        grown = [
            of(self.last[key]) - of(first) for key, first in self.first.items() if key[0] == who
        ]
        return max(grown, default=0.0)

    def change(self, who: str, of: Callable[[Held], Counter[str]]) -> str:
        """What the one of these that has grown most held more or fewer of; empty if none grew."""
        keys = [key for key in self.first if key[0] == who]
        if not keys or self.most(who, lambda held: of(held).total()) <= 0:
            return ""
        key = max(keys, key=lambda k: of(self.last[k]).total() - of(self.first[k]).total())
        before, after = of(self.first[key]), of(self.last[key])
        return ", ".join(
            f"{name} {before[name]} to {after[name]}"
            for name in sorted(before | after)
            if before[name] != after[name]
        )


def mixed(draw: random.Random, boards: tuple[str, ...]) -> tuple[Fault, str]:
    """One to three faults, one after the other; and what they are. One board is spared."""
    harmed = draw.sample(boards, len(boards) - 1)
    steps: list[tuple[float, Fault, str]] = []
    for _ in range(draw.randint(1, 3)):
        board, seconds = draw.choice(harmed), round(draw.choice((0.3, 1.0, 2.5, 4.0)), 1)
        kind, fault = draw.choice(
            (
                (f"kill {board}", faults.kill(board)),
                (f"kill {board}", faults.kill(board)),
                (f"pause {board} {seconds} s", faults.pause(seconds, board)),
                (f"cut {board} {seconds} s", faults.cut(seconds, board)),
                (f"slow {board} {seconds} s", faults.slow(seconds, board)),
                (f"starve {board} {seconds} s", faults.starve(seconds, board)),
                (f"silence of all {seconds} s", faults.silence(seconds, *boards)),
                (f"switch off {seconds} s", faults.switch_off(seconds, *boards)),
                (f"launcher stopped {seconds} s", faults.stop_launcher(seconds)),
                ("garbage", intruders.garbage),
                ("strangers", intruders.messages),
                ("wrong keys", intruders.wrong_keys),
            )
        )
        steps.append((draw.choice((0.0, 0.3, 1.5)), fault, kind))

    def strike(bed: Bed, wait: Wait) -> None:
        for gap_s, fault, _ in steps:
            if not wait(gap_s):
                return
            fault(bed, wait)

    return strike, ", ".join(kind for _, _, kind in steps)


def soak(bed: Bed, minutes: float, draw: random.Random) -> tuple[list[Streamed], Growth, list[str]]:
    """Stream until the time is over; what came, what has grown, and what went wrong."""
    until_s, streams, growth, wrong = time.monotonic() + 60 * minutes, [], Growth(), []
    while time.monotonic() < until_s:
        fault, what = mixed(draw, bed.boards)
        sink_s = draw.choice((0.0, 0.0, 0.0, 0.1))
        found = bed.stream(draw.uniform(4.0, 10.0) / (1 + 3 * (sink_s > 0)), fault, sink_s=sink_s)
        streams.append(found)
        bed.mend(anew=False)
        time.sleep(FREE_S)
        growth.look("launcher", os.getpid())
        for board in bed.boards:
            agent = bed.agent(board)
            if agent is not None:
                growth.look("agent", agent)
        fine = found.is_whole and found.ended is None
        text = f"{len(streams):4} {found.results:5} frames {len(found.recoveries)} losses  {what}"
        text += "" if fine else f"  LOST {found.lost} DOUBLED {found.doubled} WRONG {found.wrong}"
        text += f"  {found.ended}" if found.ended else ""
        if not fine:
            wrong.append(text)
        print(text, file=sys.stderr, flush=True)
    return streams, growth, wrong


def figures(streams: list[Streamed], growth: Growth, minutes: float) -> list[Figure]:
    """For the table of results."""
    every = [seconds for one in streams if one.recoveries for seconds in one.recover_s]
    rows = [
        Figure("time", minutes, "min"),
        Figure("streams", len(streams)),
        Figure("frames", sum(one.frames for one in streams)),
        *(
            Figure(f"{key} frames", sum(getattr(one, key) for one in streams), at_most=0)
            for key in ("lost", "doubled", "wrong")
        ),
        Figure("streams that ended early", sum(s.ended is not None for s in streams), at_most=0),
        Figure("losses of nodes that were got over", sum(len(s.recoveries) for s in streams)),
        Figure("frames sent again", sum(one.replayed for one in streams)),
        Figure("longest recovery", round(max(every, default=0.0), 1), "s"),
    ]
    for who in ("launcher", "agent"):
        lived = max((n for key, n in growth.streams.items() if key[0] == who), default=0)
        rows += [
            Figure(
                f"{who}: growth of memory", round(growth.most(who, _megabytes), 1), "MB",
                at_most=MOST_MB, note=f"not of files; over {lived} streams at most",
            ),
            Figure(
                f"{who}: growth of file descriptors", growth.most(who, lambda h: h.descriptors),
                at_most=MOST_DESCRIPTORS, note=growth.change(who, lambda h: h.descriptor_kinds),
            ),
            Figure(
                f"{who}: growth of threads", growth.most(who, lambda h: h.threads),
                at_most=MOST_THREADS, note=growth.change(who, lambda h: h.thread_names),
            ),
        ]  # fmt: skip
    return rows


def _megabytes(held: Held) -> float:
    return held.anonymous_bytes / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    ort.set_default_logger_severity(4)
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    try:
        with Bed(MODEL, name="soak") as bed:
            if not bed.is_emulated:
                missing = "; ".join(bed.lab.missing)
                print(f"soak: boards cannot be emulated here: {missing}", file=sys.stderr)
                return 2
            bed.calibrate()
            streams, growth, wrong = soak(bed, options.minutes, random.Random(options.seed))
    except LauncherError as error:
        print(f"soak: {error}", file=sys.stderr)
        return error.exit_code
    rows = figures(streams, growth, options.minutes)
    if options.json:
        data = report(
            "soak",
            f"Load and faults at random for {options.minutes:g} minutes",
            rows,
            settings={"minutes": options.minutes, "seed": options.seed, "model": MODEL},
            data={"streams": [one.as_json() for one in streams]},
        )
        print_json(data)
    else:
        for row in rows:
            print(f"{row.what:<40}{row.measured:>10} {row.unit:<4}{row.note}".rstrip())
    return int(bool(wrong) or any(row.holds is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
