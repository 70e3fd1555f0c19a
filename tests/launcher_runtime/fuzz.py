"""Random histories of faults, each from a seed: `python -m tests.launcher_runtime.fuzz --help`.

A seed that fails prints its story, and gives the same history whenever it is tried again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass
from random import Random

from launcher.core import events as lev
from launcher.core.intake import Pace
from nodes.core.messages import HOST
from tests.launcher_runtime.faults import FaultyWorld

LONGEST_S = 2000.0
PART = 100
"""Seeds that a process tries before it takes others."""

FAULTS = (
    "crash",
    "crash and restart",
    "pause",
    "pause and resume",
    "hang",
    "break",
    "full disk",
    "partition",
    "cut",
    "consent",
    "slow",
)


def history(seed: int) -> FaultyWorld:
    """The world after everything has happened that the seed holds; raises `AssertionError`, with
    the story, if anything does not hold."""
    random = Random(seed)
    world = FaultyWorld(
        random,
        nodes=random.randint(1, 4),
        standby=random.choice((0, 0, 1, 2)),
        room=random.choice((None, None, 2, 3)),
        pace=own_pace(Random(f"pace {seed}")),
    )
    at_s = random.choice((0.5, 2.0, 2.0)) * random.random()
    for _ in range(random.choice((1, 1, 2, 2, 3, 4))):
        plan_fault(world, random, at_s)
        at_s += random.choice((0.0, 0.5, 2.0, 5.0)) * random.random()
    if random.random() < 0.3:
        world.blows.append(
            (random.choice(list(world.nodes)), random.choice((0.1, 0.5)) * random.random())
        )
    try:
        world.run(LONGEST_S)
        world.check_end()
    except Exception as error:
        story = "\n".join(world.story)
        raise AssertionError(f"seed {seed}: {error!r}\n{story}") from error
    return world


def own_pace(random: Random) -> Pace | None:
    """Of the source, in a third of all histories: from too fast to very slow, any policy."""
    if random.random() < 2 / 3:
        return None
    policy = random.choice(("block", "drop-oldest", "drop-newest"))
    return Pace(random.choice((0.05, 1.0, 8.0, 100.0)), policy, random.randint(1, 4))


def plan_fault(world: FaultyWorld, random: Random, at_s: float) -> None:
    """Let one fault happen at a time, and perhaps another when the nodes recover from it."""
    name = random.choice(list(world.nodes))
    other = random.choice([HOST, *world.nodes])
    after_s = random.choice((0.01, 0.5, 1.5, 3.0, 20.0))
    number = random.randrange(1 << 16)
    fault = random.choice(FAULTS)

    def strike() -> None:
        if world.end is not None:
            return
        match fault:
            case "crash":
                world.crash(name)
            case "crash and restart":
                world.crash(name)
                world.at(world.now_s + after_s, lambda: world.restart(name))
            case "pause":
                world.pause(name)
            case "pause and resume":
                world.pause(name)
                world.at(world.now_s + after_s, lambda: world.resume(name))
            case "hang":
                world.hang(name)
            case "break":
                world.break_engine(name)
            case "full disk":
                world.fill_disk(name)
            case "partition":
                world.partition(name, other, random.choice((0.5, 3.0, 60.0)))
            case "cut":
                world.cut_any(number)
            case "slow":
                world.slow_down(name, random.choice((0.5, 2.0, 5.0, 20.0)))
            case "consent":
                world.tell_story("the user agrees")
                world.event(lev.Consented())

    world.at(at_s, strike)


@dataclass(frozen=True)
class Tried:
    """How many histories were tried, and how they went."""

    done: int = 0
    recovered: int = 0
    good: int = 0

    def __add__(self, other: Tried) -> Tried:
        return Tried(
            self.done + other.done, self.recovered + other.recovered, self.good + other.good
        )


def try_seeds(seeds: range) -> Tried:
    """Raises `AssertionError` for the first that fails."""
    worlds = [history(seed) for seed in seeds]
    return Tried(
        len(worlds),
        sum(bool(world.supervisor.recoveries) for world in worlds),
        sum(world.end is not None and world.end.error is None for world in worlds),
    )


def main() -> None:
    """Try seeds until one fails, the number is reached or the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--histories", type=int, default=10_000, help="how many to try")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most so long")
    parser.add_argument("--within", type=float, metavar="SECONDS", help="fail if it takes longer")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    began_s = time.monotonic()
    last = given.first + given.histories
    parts = [range(at, min(at + PART, last)) for at in range(given.first, last, PART)]
    tried = Tried()
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        try:
            for part in pool.imap_unordered(try_seeds, parts):
                tried += part
                if time.monotonic() - began_s > given.seconds:
                    break
        except AssertionError as error:
            sys.exit(str(error))
    passed_s = time.monotonic() - began_s
    print(  # noqa: T201 - a command
        f"{tried.done} histories in {passed_s:.1f} s: {tried.recovered} with a recovery, "
        f"{tried.good} ended well, {tried.done - tried.good} with a sentence"
    )
    if given.within is not None and passed_s > given.within:
        sys.exit(f"that is more than {given.within:g} s")


if __name__ == "__main__":
    main()
