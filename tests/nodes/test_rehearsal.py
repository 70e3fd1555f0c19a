"""Warming up over the wire, and what it tells of the wire."""

from __future__ import annotations

import _thread
import hashlib
import os
import queue
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from nodes.execution.rehearsal import (
    FEWEST_ROUNDS,
    MORE,
    MOST_ROUNDS,
    Rehearsal,
    RehearsedPhase,
    RunClock,
    WireCosts,
    fit,
)
from nodes.executors.base import ThreadTimes, binder
from nodes.host.usage import opened_waits, waited_s
from nodes.net.loopback import Loopback, loopback_address
from nodes.protocol.payload import as_array


class Doubles:
    """A subnet that keeps what it is given and returns its double."""

    def __init__(self) -> None:
        self.seen: list[dict[str, np.ndarray]] = []

    def run(self, inputs):
        self.seen.append(dict(inputs))
        return {"y": inputs["x"] * 2, "z": inputs["local"] * 2}


@pytest.mark.parametrize("data", ["ipc://{}/0.data", "tcp://127.0.0.1:5501"])
def test_what_is_sent_to_oneself_arrives(tmp_path: Path, data: str) -> None:
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(200_000, np.int8)]
    with Loopback(loopback_address(data.format(tmp_path))) as loopback:
        for _ in range(3):
            loopback.send(arrays)
            payloads = loopback.receive(2)
            came = [
                as_array(p, str(a.dtype), a.shape) for p, a in zip(payloads, arrays, strict=True)
            ]
            assert all(map(np.array_equal, came, arrays))


def synthetic_inputs() -> dict[str, np.ndarray]:
    return {"x": np.ones(40_000, np.float32), "local": np.zeros(3, np.float32)}


def test_tensors_move_while_a_subnet_runs(tmp_path: Path) -> None:
    part = RehearsedPhase(Doubles(), synthetic_inputs, ("x",), ("y",))
    with Loopback(f"ipc://{tmp_path}/self") as loopback:
        rehearsal = Rehearsal(loopback)
        rounds = list(rehearsal.perform([part]))
    assert rounds == list(range(1, len(rounds) + 1))
    assert FEWEST_ROUNDS <= len(part.subnet.seen) == len(rounds) <= MOST_ROUNDS
    assert rehearsal.costs().message_s > 0
    assert rehearsal.costs().byte_s > 0


def test_rounds_in_which_nothing_moves_are_not_timed() -> None:
    part, rehearsal = RehearsedPhase(Doubles(), synthetic_inputs, ("x",), ("y",)), Rehearsal()
    runs = list(rehearsal.perform([part, part]))
    assert len(part.seconds) == 2 * (max(runs) // 2 + 1)  # the second, fourth, fifth, sixth, …
    assert min(part.seconds) <= part.typical_s <= max(part.seconds)
    assert rehearsal.costs() == WireCosts(0.0, 0.0)  # it has no wire


def test_costs_are_those_that_the_rounds_were_made_of() -> None:
    rounds = [(n, size, 5e-5 * (1 + MORE * (n - 1)) + 2e-10 * size)
              for n, size in ((1, 10**6), (3, 10**5), (2, 5 * 10**6))]  # fmt: skip
    found = fit([9.0, 9.0, 9.0, 5e-5, 9e-5, 8e-5], [*rounds, (1, 100, 1.0)])
    assert found.message_s == pytest.approx(5e-5)
    assert found.byte_s == pytest.approx(2e-10)


def test_a_message_never_costs_more_than_a_round_of_messages() -> None:
    """On a slow board a single small message decides, which something else may have disturbed."""
    rounds = [(2, 10**5, 5e-5 * (1 + MORE)), (2, 10**5, 6e-5 * (1 + MORE)), (1, 10**5, 9e-5)]
    assert fit([1e-4, 2e-3], rounds).message_s == pytest.approx(5e-5)


class Elsewhere(Doubles):
    """A subnet that another thread computes, which the caller waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.times = ThreadTimes(0.0, 0.0)

    def engine_times(self) -> ThreadTimes:
        return self.times

    def run(self, inputs):
        found = []
        thread = Thread(target=lambda: found.append(self.compute(inputs)))
        thread.start()
        thread.join()
        return found[0]

    def compute(self, inputs):
        until_s = time.thread_time() + 0.003
        while time.thread_time() < until_s:
            outputs = super().run(inputs)
        spent, file = self.times.computed_s + time.thread_time(), opened_waits()
        self.times = ThreadTimes(spent, self.times.waited_s + (waited_s(file) or 0.0))
        if file is not None:
            os.close(file)
        return outputs


def test_what_an_engines_own_thread_computes_is_no_cost_of_messages(tmp_path: Path) -> None:
    part = RehearsedPhase(Elsewhere(), synthetic_inputs, ("x",), ("y",))
    with Loopback(f"ipc://{tmp_path}/self") as loopback:
        rehearsal = Rehearsal(loopback)
        list(rehearsal.perform([part]))
    assert part.typical_s >= 0.003
    assert rehearsal.costs().byte_s == 0.0, "not measured"


class Shared(Doubles):
    """A subnet whose work two threads share: whichever is free takes the next piece.

    The second thread is not Python's own, as an engine's threads are not.
    """

    PIECES, PIECE = 300, bytes(200_000)

    def __init__(self) -> None:
        super().__init__()
        self.begin: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.thread: queue.SimpleQueue[int] = queue.SimpleQueue()
        _thread.start_new_thread(self.help, ())
        self.helper = self.thread.get()

    def help(self) -> None:
        self.thread.put(_thread.get_native_id())
        while self.begin.get():
            self.ended.put(self.work())

    def work(self) -> float:
        began_s = time.thread_time()
        while self.left:
            self.left.pop()
            hashlib.sha256(self.PIECE).digest()  # other Python threads run meanwhile
        return time.thread_time() - began_s

    def run(self, inputs):
        self.left = [None] * self.PIECES
        self.begin.put(True)
        self.computed_s = self.work()
        self.computed_s += self.ended.get()
        return super().run(inputs)


HOG = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
print(flush=True)
while 1: pass
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_the_part_of_a_thread_that_waits_for_a_cpu_is_done_by_the_others() -> None:
    """So such a run takes as long as its processor time, divided by the threads: at least."""
    allowed = os.sched_getaffinity(0)
    mine, others = sorted(allowed)[:2]
    subnet = Shared()
    with subprocess.Popen([sys.executable, "-c", HOG, str(mine)], stdout=subprocess.PIPE) as hog:
        try:
            assert hog.stdout is not None
            hog.stdout.readline()
            os.sched_setaffinity(0, {mine})
            os.sched_setaffinity(subnet.helper, {others})
            clock = RunClock(2, 1.0)
            run = clock.timed(subnet, binder(subnet)(synthetic_inputs()))
            clock.close()
        finally:
            os.sched_setaffinity(0, allowed)
            subnet.begin.put(False)
            hog.kill()
    assert run.computed_s == pytest.approx(subnet.computed_s, rel=0.1)
    assert run.seconds >= subnet.computed_s / 2
    assert run.seconds <= run.passed_s * 1.01
