"""Whatever was applied, rolled back and failed before, a rollback goes to what has served."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from launcher.errors import BadInputError
from launcher.service.core import ServiceCore
from launcher.service.events import ModelRelease
from launcher.service.generations import rollback_target
from launcher.service.store import APPLIED, Generation, KeptModel, open_state
from nodes.core.events import Tick
from tests.service.test_core import World


class Operator(RuleBasedStateMachine):
    """Somebody changes a service on boards of one slot: what is new fits only after a gap."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.stack = ExitStack()
        self.store = self.stack.enter_context(open_state(Path(self.folder.name)))
        self.world = World()
        self.sound: dict[str, bool] = {}
        self.has_served: list[str] = []
        """Versions that have served, by the eyes of a client."""
        self.tried: str | None = None
        """The version that the last rollback, which has not served yet, goes to."""
        self.apply(True, True)

    def teardown(self) -> None:
        self.stack.close()
        self.folder.cleanup()

    @property
    def known(self) -> list[Generation]:
        return self.store.generations()

    @property
    def served(self) -> str | None:
        given = self.world.routes.get("digits")
        return None if given is None else given.version

    def want(self, generation: Generation, may_gap: bool) -> None:
        if generation not in self.known[-1:]:
            self.store.add(generation)
        (model,) = generation.models
        self.world.apply(generation.number, model.release, may_gap=may_gap)
        self.settle()

    def settle(self) -> None:
        """The releases do what they are asked to; what is new has no room beside another one."""
        world = self.world
        while world.loading or world.checking or world.closing or world.draining:
            if world.loading:
                given = world.loading[0]
                others = world.opened - {given}
                if others and given not in world.closing:
                    world.load(lacks_room=True, must_wait=True)
                else:
                    world.load(None if self.sound[given.version] else False)
            if world.checking:
                world.finish_check()
            world.under_way.clear()
            world.drain()
            if world.closing:
                world.close()
        for number in world.served:
            self.store.note_served(number)
        for good in world.good:
            assert isinstance(good, ModelRelease)
            self.store.note_good(good)
            self.has_served.append(good.version)
        world.served.clear()
        world.good.clear()
        if self.tried == self.served:
            self.tried = None

    @rule(is_sound=st.booleans(), may_gap=st.booleans())
    def apply(self, is_sound: bool, may_gap: bool) -> None:
        number = self.known[-1].number + 1 if self.known else 1
        version = str(number)
        self.sound[version] = is_sound
        self.tried = None
        model = KeptModel("digits", version, f"digest {version}", version, "")
        self.want(Generation(number, 0.0, "/c", f"text {number}", (model,), {}), may_gap)

    @rule(may_gap=st.booleans())
    def roll_back(self, may_gap: bool) -> None:
        known, before = self.known, self.served
        try:
            target = rollback_target(known, None)
        except BadInputError:
            assert self.tried is None, "what was being tried can be tried again"
            return
        (model,) = target.models
        assert model.version in self.has_served, "a failed version is never what is gone back to"
        if self.tried is not None:
            assert model.version == self.tried, "whoever asks once more wants the same"
        elif known[-1].origin != APPLIED or known[-1].has_served:
            assert model.version != before, "it goes back, and does not stay"
        if target != known[-1]:
            origin = f"rollback to generation {target.number}"
            target = replace(target, number=known[-1].number + 1, origin=origin)
        self.tried = model.version
        self.want(target, may_gap)
        if may_gap:
            assert self.served == model.version, "it has served before, and there is room"

    @rule()
    def wait(self) -> None:
        self.world.now_s += 100.0
        self.world.do(Tick())
        self.settle()

    @precondition(lambda self: self.served is not None)
    @rule()
    def kill(self) -> None:
        """The process ends and begins again with what was kept."""
        self.stack.close()
        self.store = self.stack.enter_context(open_state(Path(self.folder.name)))
        self.world = World(ServiceCore(self.store.good()))
        last = self.known[-1]
        self.world.apply(last.number, last.models[0].release)
        self.settle()


TestOperator = Operator.TestCase
TestOperator.settings = settings(max_examples=60, stateful_step_count=20)
