"""Random histories of faults, each from a seed: `python -m tests.launcher_runtime.fuzz --help`.

If a seed fails, its story is printed; the same seed always gives the same history.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from nodes.protocol.messages import HOST
from tests.launcher_runtime.outages import Outages
from tests.launcher_runtime.simulated_host import Program

LONGEST_S = 2000.0
PART = 100
"""Seeds that a process tries before it takes others."""

NODES_FAIL = (
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
FAULTS = (
    *NODES_FAIL,
    "cut late",
    "say again",
    "intrude",
    "kill launcher",
    "kill launcher unheard",
    *("silence of all", "silence of most", "switch", "stop launcher", "lie", "lie", "clock"),
)

LONG_GO_ON = (
    *("crash and restart", "crash and restart", "pause and resume", "partition", "cut"),
    *("slow", "slow", "slow", "consent", "consent"),
    *("silence of all", "switch", "stop launcher", "lie", "clock"),
)
"""What happens more often in histories that are long enough for plans to be improved."""


def history(seed: int, faults: Sequence[str] = FAULTS) -> Outages:
    """The world after everything has happened that the seed holds; raises `AssertionError`, with
    the story, if anything does not hold. With the same `faults` a seed gives the same history."""
    random = Random(seed)
    long = long_run(Random(f"length of {seed}"))
    pushed = () if long else programs(Random(f"program {seed}"))
    world = Outages(
        random,
        nodes=random.randint(1, 4),
        standby=random.choice((0, 0, 1, 2)),
        room=random.choice((None, None, 2, 3)),
        programs=pushed,
        keys=seed % 2 == 0,
        keeps=keeping(Random(f"state {seed}")),
        **long,
    )
    leave_out(world, Random(f"absent {seed}"))
    if seed % 5 == 0:
        world.cannot_prepare = set(list(world.nodes)[::2])
        world.without_room = set(list(world.nodes)[1::2])
    if long:
        world.gain = lambda: random.choice((1.1, 1.5, 3.0))
    pauses_s = (0.0, 5.0, 15.0, 40.0) if long else (0.0, 0.5, 2.0, 5.0)
    may_happen = [fault for fault in LONG_GO_ON if fault in faults] if long else []
    at_s = random.choice((0.5, 2.0, 2.0)) * random.random()
    for _ in range(random.choice((1, 1, 2, 2, 3, 4)) + bool(long)):
        plan_fault(world, random, at_s, [*faults, *3 * may_happen])
        at_s += random.choice(pauses_s) * random.random()
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


def leave_out(world: Outages, random: Random) -> None:
    """In a third of all histories, nodes are off at first and come at some time, or never."""
    if random.random() < 2 / 3 or world.started_by_us:
        return
    for name in random.sample(list(world.nodes), random.randint(1, len(world.nodes))):
        world.is_absent(name, random.choice((0.05, 0.5, 3.0, 11.0, 20.0, 60.0, None)))
        if random.random() < 0.5:
            world.supervisor._absent[name] = f"node {name!r} is off"


def long_run(random: Random) -> dict[str, Any]:
    """In a sixth of all histories: so many frames, of which the user takes so long for each, that
    nodes come back, and slow ones are noticed, before it is over. Empty for the others."""
    if random.random() < 5 / 6:
        return {}
    return {
        "frames": random.randint(80, 180),
        "take_s": random.choice((0.3, 0.5, 0.8)),
        "started_by_us": False,
    }


def keeping(random: Random) -> list[int]:
    """The phases that keep state from frame to frame: some in a third of all histories."""
    return [random.randrange(12) for _ in range(random.choice((0, 0, 0, 0, 1, 2)))]


def programs(random: Random) -> tuple[Program, ...]:
    """What pushes the frames in a third of all histories: at once, now and then, and rarely. In
    half of these there are several networks, each with its own program."""
    if random.random() < 2 / 3:
        return ()
    return tuple(program(random) for _ in range(random.choice((1, 1, 1, 2, 2, 3))))


def program(random: Random) -> Program:
    """Any program, whose frames come at its own rate."""
    pause_s = random.choice((0.0, 0.1, 2.0, 40.0))
    after_s = tuple(random.choice((0.0, 0.01, pause_s)) for _ in range(random.randint(1, 40)))
    withdrawn = frozenset(frame for frame in range(len(after_s)) if random.random() < 0.1)
    return Program(after_s, random.choice((0.0, 0.5, 60.0)), withdrawn)


def plan_fault(world: Outages, random: Random, at_s: float, faults: Sequence[str]) -> None:
    """Let one fault happen at a time, and perhaps another when the nodes recover from it."""
    name = random.choice(list(world.nodes))
    other = random.choice([HOST, *world.nodes])
    after_s = random.choice((0.01, 0.5, 1.5, 3.0, 20.0))
    number = random.randrange(1 << 16)
    fault = random.choice(faults)
    most = random.sample(list(world.nodes), (len(world.nodes) + 2) // 2)
    outage_s = random.choice((0.5, 3.0, 8.0, 20.0, 60.0))

    strikes: dict[str, Callable[[], None]] = {
        "crash": lambda: world.crash(name),
        "pause": lambda: world.pause(name),
        "hang": lambda: world.hang(name),
        "break": lambda: world.break_engine(name),
        "full disk": lambda: world.fill_disk(name),
        "partition": lambda: world.partition(name, other, random.choice((0.5, 3.0, 60.0))),
        "cut": lambda: world.cut_any(number),
        "slow": lambda: world.slow_down(name, random.choice((0.5, 2.0, 5.0, 20.0))),
        "consent": world.agree,
        "cut late": lambda: world.cut_late(number, after_s),
        "say again": lambda: world.say_again(number),
        "intrude": lambda: world.intrude(name),
        "silence of all": lambda: world.silence(world.nodes, outage_s),
        "silence of most": lambda: world.silence(most, outage_s),
        "switch": lambda: world.switch_fails(random.choice((most, world.nodes)), outage_s),
        "stop launcher": lambda: world.stop_launcher(outage_s),
        "lie": lambda: world.begin_to_lie(name, after_s),
        "clock": lambda: world.clock_jumps(random.choice((name, HOST)), outage_s),
        "kill launcher": lambda: world.kill_launcher(heard=True, after_s=after_s),
        "kill launcher unheard": lambda: world.kill_launcher(heard=False, after_s=after_s),
    }
    undone = {"restart": lambda: world.restart(name), "resume": lambda: world.resume(name)}

    def strike() -> None:
        if world.end is not None:
            return
        first, _, second = fault.partition(" and ")
        strikes[first]()
        if second:
            world.at(world.now_s + after_s, undone[second])

    world.at(at_s, strike)


WAYS = (
    "began without a node",
    "recovered",
    "used a node again",
    "used one by consent",
    "adapted",
    "corrected the plan before the first frame",
    "searched on",
    "ended well",
)
"""How a history may go; several of these may be."""


def try_seeds(seeds: range) -> Counter[str]:
    """How often they went which of the `WAYS`; raises `AssertionError` for the first that fails."""
    tried: Counter[str] = Counter()
    for seed in seeds:
        tried.update(ways(history(seed)))
    return tried


def ways(world: Outages) -> list[str]:
    """How a history went, of `WAYS`."""
    causes = {past.cause for past in world.supervisor.recoveries}
    by_itself = world.supervisor._limits.recovery.rebalance == "auto"
    happened = (
        bool(world.supervisor.absences) and world.supervisor.life.has_streamed,
        bool(causes),
        "return" in causes,
        "return" in causes and not by_itself,
        "slow" in causes,
        "rehearsal" in causes,
        "search" in causes,
        world.end is not None and world.end.error is None,
    )
    return [way for way, has in zip(WAYS, happened, strict=True) if has]


def _try_part(seeds: range) -> tuple[int, Counter[str]]:
    return len(seeds), try_seeds(seeds)


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
    tried: Counter[str] = Counter()
    done = 0
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        try:
            for part in pool.imap_unordered(_try_part, parts):
                done += part[0]
                tried.update(part[1])
                if time.monotonic() - began_s > given.seconds:
                    break
        except AssertionError as error:
            sys.exit(str(error))
    passed_s = time.monotonic() - began_s
    print(  # noqa: T201 - a command
        f"{done} histories in {passed_s:.1f} s: "
        + ", ".join(f"{tried[way]} {way}" for way in WAYS)
        + f", {done - tried['ended well']} with a sentence"
    )
    if given.within is not None and passed_s > given.within:
        sys.exit(f"that is more than {given.within:g} s")


if __name__ == "__main__":
    main()
