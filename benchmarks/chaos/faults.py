"""What happens to boards while frames stream. Each fault names the boards that it harms, so that
they are mended afterwards; `wait` lets time pass as long as the stream goes on."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

from benchmarks.chaos.bed import STANDBY, Bed, Fault, Wait
from launcher.access import LAUNCHER
from nodes.curve import new_pair
from nodes.keys import SECRET, write_secret

VICTIM = "node2"
OTHER = "node3"
LESS_BYTES = 20_000_000
GONE_S = 15.0
YEAR_S, HOUR_S = 365 * 24 * 3600, 3600
EATER = """
import sys
open("/proc/self/oom_score_adj", "w").write("-1000")
held = []
for _ in range(int(sys.argv[1]) >> 22):
    held.append(b"x" * (1 << 22))
    if sys.stdin.readline() == "":
        break
"""
"""Takes 4 MiB for every line, and is not what the kernel kills for it."""


def kill(*boards: str, apart_s: float = 0.0) -> Fault:
    """SIGKILL to the agents of these boards, one after the other."""

    def strike(bed: Bed, wait: Wait) -> None:
        for board in boards:
            bed.harmed.add(board)
            bed.lab.kill(board)
            if apart_s and not wait(apart_s):
                return

    return strike


def pause(seconds: float, board: str = VICTIM) -> Fault:
    """SIGSTOP, and SIGCONT after so many seconds."""

    def strike(bed: Bed, wait: Wait) -> None:
        bed.harmed.add(board)
        bed.lab.pause(board)
        try:
            wait(seconds)
        finally:
            bed.lab.resume(board)
        wait(1.0)

    return strike


def cut(seconds: float, board: str = VICTIM) -> Fault:
    """Pull a board's cable, and put it back after so many seconds."""

    def strike(bed: Bed, wait: Wait) -> None:
        bed.harmed.add(board)
        bed.lab.cut(board)
        try:
            wait(seconds)
        finally:
            bed.lab.restore(board)
        wait(1.0)

    return strike


def vanish(bed: Bed, wait: Wait) -> None:
    """The peer is gone and no FIN tells of it: its cable is pulled before it is killed, and is put
    back, with nobody at its end, later."""
    bed.harmed.add(VICTIM)
    bed.lab.cut(VICTIM)
    bed.lab.kill(VICTIM)
    wait(5.0)
    bed.lab.restore(VICTIM)


def slow(bed: Bed, wait: Wait) -> None:
    """A board's link has a hundredth of its rate for three seconds."""
    bed.harmed.add(VICTIM)
    bed.lab.slow(VICTIM, 1.25e6)
    wait(3.0)
    bed.lab.restore(VICTIM)


def starve(bed: Bed, wait: Wait) -> None:
    """A board has a tenth of its CPU time for three seconds."""
    bed.harmed.add(VICTIM)
    bed.lab.starve(VICTIM, 0.02)
    wait(3.0)
    bed.lab.restore(VICTIM)


def kill_with_full_standby(bed: Bed, wait: Wait) -> None:
    """A node is lost, and the one that stood by for it has no room to cache its part."""
    bed.lab.fill_disk(STANDBY)
    bed.tools.callback(bed.lab.free_disk, STANDBY)
    kill(VICTIM)(bed, wait)


def exhaust(bed: Bed, wait: Wait) -> None:
    """Something else on the board takes its memory, until the kernel kills the agent."""
    bed.harmed.add(VICTIM)
    limit_bytes = bed.lab.place(VICTIM).slice.memory or 0
    eater = bed.lab.popen(
        VICTIM, (sys.executable, "-c", EATER, str(limit_bytes - LESS_BYTES)), stdin=subprocess.PIPE
    )
    try:
        assert eater.stdin is not None
        with suppress(BrokenPipeError):
            while _oom_kills(bed) == 0 and wait(0.0):
                eater.stdin.write("\n")
                eater.stdin.flush()
                wait(0.02)
    finally:
        eater.kill()
        eater.communicate()
    assert _oom_kills(bed), "the kernel did not kill it"


def _oom_kills(bed: Bed) -> int:
    used = bed.lab.status(0.0)[VICTIM].used
    return 0 if used is None else used.oom_kills


# ---------------------------------------------------------------- before the stream


def other_clocks(bed: Bed) -> None:
    """Agents whose monotonic clocks are a year, and an hour, ahead of the others'."""
    for board, ahead_s in ((VICTIM, YEAR_S), (OTHER, HOUR_S)):
        bed.harmed.add(board)
        bed.lab.kill(board)
        clock = ("--monotonic", str(ahead_s), "--boottime", str(ahead_s))
        bed.start_as(board, ("unshare", "--time", *clock, "--"))


def forget_standby(bed: Bed) -> None:
    """What stands by has nothing cached."""
    bed.harmed.add(STANDBY)
    bed.empty_cache(STANDBY)


def deploy_to_full_disk(bed: Bed) -> None:
    """A board of the plan has nothing cached, and no room to cache its part."""
    bed.plan_without(VICTIM)
    bed.harmed.add(STANDBY)
    bed.empty_cache(STANDBY)
    bed.lab.fill_disk(STANDBY)
    bed.tools.callback(bed.lab.free_disk, STANDBY)


def other_launcher_key(bed: Bed) -> None:
    """The launcher has a key that no agent admits."""
    folder = bed.lab.layout.keys / LAUNCHER
    secret, kept = folder / SECRET, folder / "kept"
    secret.rename(kept)
    bed.tools.callback(kept.replace, secret)
    public, other = new_pair()
    write_secret(folder, LAUNCHER, other, public)
