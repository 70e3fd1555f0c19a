"""Defines the faults that boards suffer while frames stream.

Each fault names the boards that it affects, so that they can be repaired afterwards. `wait` lets
time pass as long as the stream continues."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.chaos.bed import STANDBY, Bed, Fault, Wait
from benchmarks.lab.lab import Lab
from benchmarks.lab.readings import processes
from benchmarks.programs import Program
from launcher.config.access import LAUNCHER
from nodes.net.curve import new_pair
from nodes.net.keys import SECRET, write_secret

VICTIM = "node2"
OTHER = "node3"
LESS_BYTES = 8_000_000
YEAR_S, HOUR_S = 365 * 24 * 3600, 3600
EATER = """
import sys
held = []
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[1]) >> 22):
    held.append(b"x" * (1 << 22))
sys.stdin.readline()
"""
"""Takes so many bytes once there is a line."""


def kill(*boards: str, apart_s: float = 0.0) -> Fault:
    """SIGKILL to the agents of these boards, one after the other."""

    def strike(bed: Bed, wait: Wait) -> None:
        for board in boards:
            bed.harmed.add(board)
            bed.lab.kill(board)
            if apart_s and not wait(apart_s):
                return

    return strike


def silence(seconds: float, *boards: str) -> Fault:
    """Send SIGSTOP to all of these at once, and SIGCONT `seconds` later."""
    return _all_at_once(seconds, boards, Lab.pause, Lab.resume)


def switch_off(seconds: float, *boards: str) -> Fault:
    """Pull the cables of all of these, as a switch without power does, for so many seconds."""
    return _all_at_once(seconds, boards, Lab.cut, Lab.restore)


def _all_at_once(
    seconds: float,
    boards: tuple[str, ...],
    harm: Callable[[Lab, str], object],
    mend: Callable[[Lab, str], object],
) -> Fault:
    def strike(bed: Bed, wait: Wait) -> None:
        bed.harmed.update(boards)
        for board in boards:
            harm(bed.lab, board)
        try:
            wait(seconds)
        finally:
            for board in boards:
                mend(bed.lab, board)
        wait(1.0)

    return strike


def stop_launcher(seconds: float) -> Fault:
    """Send SIGSTOP to the launcher, which is this process, and SIGCONT `seconds` later."""

    def strike(_: Bed, wait: Wait) -> None:
        me = os.getpid()
        script = f"kill -STOP {me}; sleep {seconds}; kill -CONT {me}"
        with subprocess.Popen(("sh", "-c", script)):
            wait(1.0)

    return strike


def impatient(bed: Bed) -> None:
    """The run waits but a moment for boards that are gone."""
    bed.tools.callback(setattr, bed, "cluster", bed.cluster)
    recovery = bed.cluster.config.recovery.model_copy(update={"wait_s": 2.0})
    bed.cluster = bed.cluster.changed(recovery=recovery)


def vanish(bed: Bed, wait: Wait) -> None:
    """Let a peer disappear without a FIN: its cable is pulled before it is killed.

    The cable is connected again later, without an agent at its end.
    """
    bed.harmed.add(VICTIM)
    bed.lab.cut(VICTIM)
    bed.lab.kill(VICTIM)
    wait(5.0)
    bed.lab.restore(VICTIM)


def slow(seconds: float) -> Fault:
    """A board's link has a hundredth of its rate for so many seconds."""
    return _all_at_once(seconds, (VICTIM,), lambda lab, board: lab.slow(board, 1.25e6), Lab.restore)


def starve(seconds: float) -> Fault:
    """A board has a tenth of its CPU time for so many seconds."""
    return _all_at_once(seconds, (VICTIM,), lambda lab, board: lab.starve(board, 0.02), Lab.restore)


def kill_with_full_standby(bed: Bed, wait: Wait) -> None:
    """A node is lost, and the one that stood by for it has no room to cache its part."""
    bed.lab.fill_disk(STANDBY)
    bed.tools.callback(bed.lab.free_disk, STANDBY)
    kill(VICTIM)(bed, wait)


def start_eater(bed: Bed) -> None:
    """Start another program on the board, which takes memory when it is signalled to.

    The kernel is set to kill the agent first.
    """
    bed.harmed.add(VICTIM)
    place = bed.lab.place(VICTIM)
    limit_bytes = place.slice.memory or 0
    for pid in processes(bed.lab.layout, place):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
    eater = bed.lab.popen(
        VICTIM,
        (sys.executable, "-c", EATER, str(limit_bytes - LESS_BYTES)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    bed.help_by(Program(eater, "what takes memory"))


def exhaust(bed: Bed, wait: Wait) -> None:
    """It takes the board's memory, until the kernel kills the agent."""
    bed.set_off()
    while bed.agent(VICTIM) is not None:
        assert wait(0.05), "the kernel did not kill it"


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
