"""Months of a service's life in a simulated world: `python -m tests.service.months`, `make months`.

A history is thirty days of one service, from a seed. Versions of two models are applied and rolled
back; some do not load, and some disagree with their whole model. Boards come and go, so runs end
and releases cannot be opened for a while. Disks fill, keys are rotated, the process is killed.
Clients ask all the time. The core of the service decides, the releases do what it says after some
time, and every promise of `tests.service.test_core` is checked at every step. Besides:

- A model serves the version that is wanted, if that one is sound, once nothing has been wrong for
  `RECOVERY_S`; whatever happened before.
- Memory and disk are bounded: the core knows few releases, and the database keeps few generations
  and events, on any day of the month. Every `STORED`-th history has a real database.

Runs, nodes and their recoveries are not simulated here; `make histories` does that.
"""

from __future__ import annotations

import argparse
import heapq
import multiprocessing
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from launcher.errors import BadInputError
from launcher.service.core import LONGEST_RETRY_S, ServiceCore
from launcher.service.events import ModelRelease, Renewed, RunEnded
from launcher.service.generations import rollback_target
from launcher.service.store import (
    APPLIED,
    KEPT_EVENTS,
    KEPT_GENERATIONS,
    Generation,
    KeptModel,
    Store,
    open_state,
)
from nodes.core.events import Tick
from tests.service.test_core import World

HOUR_S, DAY_S = 3600.0, 86_400.0
DAYS = 30
RECOVERY_S = 2 * LONGEST_RETRY_S + 180.0
"""Two tries, each of which may take a minute to load and half a minute to check and to close."""

STORED = 50
MODELS = ("cats", "digits")
MOST_KNOWN = 16
"""Releases that the core may know at a time, whatever has happened."""

EVERY_S = {
    "apply": 2 * HOUR_S,
    "rollback": 9 * HOUR_S,
    "board leaves": 5 * HOUR_S,
    "disk fills": 5 * DAY_S,
    "keys change": 7 * DAY_S,
    "killed": 3 * DAY_S,
    "look": 0.25 * HOUR_S,
}
"""The mean time between two events of each kind."""


class Month:
    """One history; `run` raises `AssertionError` for a broken promise."""

    def __init__(self, seed: int, store: Store | None) -> None:
        self.chance = random.Random(seed)
        self.world = World()
        self.store = store
        self.generations: list[Generation] = []
        self.fates: dict[ModelRelease, str] = {}
        self.trouble_until_s = 0.0
        self.calm_since_s = 0.0
        self.done = 0
        self._due: list[tuple[float, int, str]] = []
        self._number = 0

    # ------------------------------------------------------------ time

    def later(self, mean_s: float, what: str) -> None:
        self._number += 1
        at_s = self.world.now_s + self.chance.expovariate(1 / mean_s)
        heapq.heappush(self._due, (at_s, self._number, what))

    def run(self, days: float = DAYS) -> None:
        for what, mean_s in EVERY_S.items():
            self.later(mean_s, what)
        self.apply()
        while self.world.now_s < days * DAY_S:
            at_s, _, what = heapq.heappop(self._due)
            self.pass_time(at_s)
            self.happen(what)
            if what in EVERY_S:
                self.later(EVERY_S[what], what)
            self.done += 1

    def pass_time(self, until_s: float) -> None:
        """Hand in the ticks that are due, and let releases do what they were asked to."""
        world = self.world
        while True:
            self.work()
            due_s = world.core.deadline_s
            if due_s is None or due_s > until_s:
                break
            world.now_s = max(world.now_s, due_s)
            world.do(Tick())
        world.now_s = until_s

    def work(self) -> None:
        """Do what the core has asked for; each step takes some seconds."""
        world = self.world
        while world.loading or world.checking or world.closing or world.draining:
            world.now_s += self.chance.uniform(0.1, 20.0)
            if world.loading:
                self.load()
            if world.checking:
                differs = self.fates.get(world.checking[0]) == "differs"
                if world.now_s < self.trouble_until_s and self.chance.random() < 0.2:
                    world.finish_check("no memory to compare", was_compared=False)
                else:
                    world.finish_check("it differs" if differs else "")
            if world.draining:
                world.under_way.clear()
                world.drain()
            if world.closing:
                world.close()
            self.store_notes()

    def load(self) -> None:
        given = self.world.loading[0]
        is_sound = self.fates.get(ModelRelease(given.model, given.version, given.digest)) != "fails"
        if is_sound and self.world.now_s >= self.trouble_until_s:
            self.world.load()
        else:
            self.world.load(lacks_room=self.chance.random() < 0.3)

    # ------------------------------------------------------------ what happens

    def happen(self, what: str) -> None:
        match what:
            case "apply":
                self.apply()
            case "rollback":
                self.roll_back()
            case "board leaves":
                self.trouble(self.chance.uniform(10.0, HOUR_S))
                self.end_a_run("all nodes are lost")
            case "disk fills":
                self.trouble(self.chance.uniform(HOUR_S, 6 * HOUR_S))
            case "keys change":
                self.disturb()
                self.world.do(Renewed(MODELS))
            case "killed":
                self.kill()
            case "look":
                self.look()
        for given in self.world.routes.values():
            self.world.under_way[given] = self.world.under_way.get(given, 0) + 1

    def apply(self) -> None:
        wanted = []
        for model in MODELS:
            if self.chance.random() < 0.15:
                continue
            version = str(self.chance.randint(1, 6))
            fate = {5: "differs", 6: "fails"}.get(int(version), "sound")
            given = ModelRelease(model, version, f"{model} {version}")
            self.fates[given] = fate
            wanted.append(given)
        self.want(_generation(self.next_number, self.world.now_s, tuple(wanted)))

    @property
    def next_number(self) -> int:
        return self.generations[-1].number + 1 if self.generations else 1

    def want(self, generation: Generation) -> None:
        self.disturb()
        if generation not in self.generations[-1:]:
            self.generations = [*self.generations[1 - KEPT_GENERATIONS :], generation]
            if self.store is not None:
                self.store.add(generation)
        may_gap = self.chance.random() < 0.5
        self.world.apply(generation.number, *_releases(generation), may_gap=may_gap)

    def roll_back(self) -> None:
        present = self.generations[-1]
        try:
            target = rollback_target(self.generations, None)
        except BadInputError:
            return
        if target == present:
            assert present.origin != APPLIED, "only a rollback is tried again"
            self.want(target)
            return
        assert target.has_served
        assert target.models != present.models
        origin = f"rollback to generation {target.number}"
        again = replace(target, number=self.next_number, origin=origin, has_served=False)
        self.want(again)

    def disturb(self) -> None:
        self.calm_since_s = max(self.calm_since_s, self.world.now_s)

    def trouble(self, lasting_s: float) -> None:
        self.trouble_until_s = max(self.trouble_until_s, self.world.now_s + lasting_s)
        self.calm_since_s = self.trouble_until_s

    def end_a_run(self, why: str) -> None:
        world = self.world
        running = [each for each in world.routes.values() if each not in world.closing]
        if running:
            given = self.chance.choice(running)
            world.broken.add(given)
            world.do(RunEnded(given, why))

    def kill(self) -> None:
        """The process is killed; its successor knows what the database has."""
        self.disturb()
        good = self.world.routes.values() if self.store is None else self.store.good()
        former, self.world = self.world, World(ServiceCore(good))
        self.world.now_s = former.now_s
        last = self.generations[-1]
        self.world.apply(last.number, *_releases(last), may_gap=True)

    # ------------------------------------------------------------ promises

    def look(self) -> None:
        world = self.world
        assert len(world.core.states()) <= MOST_KNOWN, world.core.states()
        if world.now_s < self.calm_since_s + RECOVERY_S or world.now_s < self.trouble_until_s:
            return
        for given in _releases(self.generations[-1]):
            if self.fates[given] == "sound":
                served = world.routes.get(given.model)
                assert served is not None, f"{given} does not serve, and nothing is wrong"
                assert served.digest == given.digest, f"{served} serves instead of {given}"
        assert set(world.routes) <= {given.name for given in self.generations[-1].models}

    def store_notes(self) -> None:
        """Keep the history as the service does."""
        if self.store is not None:
            for text in self.world.notes:
                self.store.add_event(self.world.now_s, "info", text)
            for given in self.world.good:
                if isinstance(given, str):
                    self.store.forget_good(given)
                else:
                    self.store.note_good(given)
            for number in self.world.served:
                self.store.note_served(number)
        self.generations = [
            replace(each, has_served=each.has_served or each.number in self.world.served)
            for each in self.generations
        ]
        self.world.notes.clear()
        self.world.good.clear()
        self.world.served.clear()


def _releases(generation: Generation) -> tuple[ModelRelease, ...]:
    return tuple(model.release for model in generation.models)


def _generation(number: int, now_s: float, wanted: tuple[ModelRelease, ...]) -> Generation:
    models = tuple(
        KeptModel(each.model, each.version, each.digest, each.digest, "") for each in wanted
    )
    return Generation(number, now_s, "/cluster.yaml", "nodes: []\n", models, {"a": None})


def history(seed: int, days: float = DAYS) -> int:
    """Run one history; return how many events it had."""
    with ExitStack() as stack:
        store = None
        if seed % STORED == 0:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="month-")))
            store = stack.enter_context(open_state(folder))
        month = Month(seed, store)
        try:
            month.run(days)
        except AssertionError as error:
            day = month.world.now_s / DAY_S
            raise AssertionError(f"seed {seed}, day {day:.3f}: {error}") from error
        if store is not None:
            assert len(store.generations()) <= KEPT_GENERATIONS + len(MODELS) + 1
            assert len(store.events()) <= KEPT_EVENTS
        return month.done


def main() -> None:
    """Try seeds until one fails or all are done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--histories", type=int, default=1000, help="how many months to try")
    given = parser.parse_args()
    began_s = time.monotonic()
    seeds = range(given.first, given.first + given.histories)
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        try:
            events = sum(pool.imap_unordered(history, seeds, chunksize=4))
        except AssertionError as error:
            sys.exit(str(error))
    passed_s = time.monotonic() - began_s
    print(  # noqa: T201 - a command
        f"{given.histories} months of {DAYS} days, {events} events, in {passed_s:.0f} s: "
        "every promise kept"
    )


if __name__ == "__main__":
    main()
