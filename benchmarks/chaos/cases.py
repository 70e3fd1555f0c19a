"""Lists the cases of `python -m benchmarks.chaos`: the faults of each, and its required outcome."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks.chaos import faults, intruders
from benchmarks.chaos.bed import STANDBY, Bed, Fault, Streamed
from benchmarks.chaos.faults import OTHER, VICTIM, kill, silence, switch_off
from benchmarks.chaos.intruders import CONTROL, DATA, interpose

Outcome = Literal["rides", "recovers", "either", "ends"]
"""It goes on as if nothing had happened; without a node, on another plan; one of both; or there is
an end in a sentence, because nothing else is possible."""


@dataclass(frozen=True)
class Case:
    """`before` is done before the stream and `fault` during it, which takes about `seconds`.

    `sentence` is what the end must say, a regular expression. `keys`: whether connections are
    encrypted. `long`: left out by `--quick`. For `lasts_s` nothing can go on whatever is done, and
    that is not counted as time to recover.
    """

    name: str
    what: str
    outcome: Outcome
    fault: Fault | None = None
    before: Callable[[Bed], None] | None = None
    seconds: float = 7.0
    sentence: str = ""
    keys: bool = True
    long: bool = False
    lasts_s: float = 0.0

    def met(self, found: Streamed) -> bool:
        """Whether what must come of it came."""
        if not found.is_whole:
            return False
        if self.outcome == "ends":
            return found.ended is not None and re.search(self.sentence, found.ended) is not None
        if found.ended is not None:
            return False
        recovered = bool(found.recoveries)
        return self.outcome == "either" or recovered is (self.outcome == "recovers")


ALL = ("node1", VICTIM, OTHER, STANDBY)

LONG_S = 60
OUTAGES: tuple[tuple[int, Outcome], ...] = ((3, "rides"), (20, "recovers"), (LONG_S, "recovers"))
"""Seconds in which all boards are away, and what must come of it."""

CASES: tuple[Case, ...] = (
    Case("none", "no fault", "rides"),
    Case("kill", "kill -9", "recovers", kill(VICTIM)),
    Case("kill-first", "kill -9 of the first board", "recovers", kill("node1")),
    Case(
        "kill-two", "kill -9 of a second board while the first is being replaced", "recovers",
        kill(VICTIM, OTHER, apart_s=0.6),
    ),
    Case(
        "kill-all", "kill -9 of every board", "ends", kill(*ALL), faults.impatient,
        sentence="no node is left",
    ),
    *(
        Case(
            f"{name}-{seconds}", f"{what} for {seconds} s", outcome, harm(seconds, *ALL),
            lasts_s=seconds, long=seconds == LONG_S,
        )
        for name, what, harm in (
            ("silence", "SIGSTOP of every board", silence), ("switch", "switch off", switch_off),
        )
        for seconds, outcome in OUTAGES
    ),
    Case(
        "launcher-60", "SIGSTOP of the launcher for 60 s", "recovers",
        faults.stop_launcher(LONG_S), lasts_s=LONG_S, long=True,
    ),
    Case("pause-1", "SIGSTOP for 1 s", "rides", silence(1.0, VICTIM)),
    Case("pause-5", "SIGSTOP for 5 s, then SIGCONT", "recovers", silence(5.0, VICTIM)),
    Case("cut-1", "link cut for 1 s", "either", switch_off(1.0, VICTIM)),
    Case("cut-5", "link cut for 5 s", "recovers", switch_off(5.0, VICTIM), seconds=9.0),
    Case(
        "cut-60", "link cut for 60 s", "recovers", switch_off(LONG_S, VICTIM),
        seconds=LONG_S + 6, long=True,
    ),
    Case("half-open", "peer vanishes without a FIN", "recovers", faults.vanish),
    Case("slow-link", "link at a hundredth of its rate for 3 s", "either", faults.slow(3.0)),
    Case("starved", "board with a tenth of its CPU for 3 s", "either", faults.starve(3.0)),
    Case(
        "disk-standby", "kill -9, and the standby's disk is full", "recovers",
        faults.kill_with_full_standby, faults.forget_standby,
    ),
    Case(
        "disk-deploy", "disk full at the first deployment", "ends",
        before=faults.deploy_to_full_disk, sentence=f"{STANDBY}.*space",
    ),
    Case(
        "memory", "memory limit: killed by the kernel", "recovers", faults.exhaust,
        faults.start_eater, seconds=12.0,
    ),
    Case(
        "clocks", "clocks a year and an hour apart, then kill -9", "recovers", kill(VICTIM),
        faults.other_clocks,
    ),
    *(
        Case(
            f"{harm}-{name}", f"{what} on the {name} port", "recovers", intruders.switch_on,
            interpose(harm, port),
        )
        for name, port in (("data", DATA), ("control", CONTROL))
        for harm, what in (
            ("flip", "bits flipped"), ("drop", "bytes missing"), ("add", "bytes added"),
            ("cut", "messages cut in the middle"),
        )
    ),
    Case("garbage", "garbage on every port", "rides", intruders.garbage),
    Case(
        "strangers", "floods without keys on every port", "rides", intruders.messages,

    ),
    Case(
        "wrong-keys", "floods under a wrong key on every port", "rides", intruders.wrong_keys,

    ),
    Case(
        "wrong-launcher", "the launcher's key is not admitted", "ends",
        before=faults.other_launcher_key, sentence="does not admit this launcher's key",

    ),
    Case("open-kill", "no keys: kill -9", "recovers", kill(VICTIM), keys=False),
    Case(
        "open-garbage", "no keys: garbage on every port", "rides", intruders.garbage,
        keys=False,
    ),
    Case(
        "open-strangers", "no keys: floods out of turn on every port", "rides", intruders.messages,
        keys=False,
    ),
)  # fmt: skip
