"""The promises of the service's core, in single histories and in random ones."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace

import pytest

from launcher.service.core import LONGEST_RETRY_S, MOST_RELEASES, ModelStatus, ServiceCore
from launcher.service.events import (
    ALIVE,
    Action,
    Applied,
    CheckRelease,
    Close,
    Closed,
    Drain,
    Drained,
    Event,
    Forget,
    ModelRelease,
    Note,
    NoteGood,
    NoteServed,
    Open,
    ReleaseChecked,
    ReleaseFailed,
    ReleaseLoaded,
    ReleaseState,
    Renewed,
    Route,
    RunEnded,
    ServiceStopped,
    StopService,
)
from nodes.core.events import Tick


def release(version: int, model: str = "digits") -> ModelRelease:
    return ModelRelease(model, str(version), f"{model} {version}")


ONE, TWO, THREE = release(1), release(2), release(3)


@dataclass
class World:
    """Releases that do what the core says, after some time; and clients, who ask all the time.

    Every promise is checked at every step.
    """

    core: ServiceCore = field(default_factory=ServiceCore)
    now_s: float = 0.0
    opened: set[ModelRelease] = field(default_factory=set)
    """What holds memory: from `Open` until `Closed` or `ReleaseFailed` is handled."""
    checked: set[ModelRelease] = field(default_factory=set)
    routes: dict[str, ModelRelease] = field(default_factory=dict)
    under_way: dict[ModelRelease, int] = field(default_factory=dict)
    draining: set[ModelRelease] = field(default_factory=set)
    broken: set[ModelRelease] = field(default_factory=set)
    """Those whose run has ended with an error."""
    loading: deque[ModelRelease] = field(default_factory=deque)
    checking: deque[ModelRelease] = field(default_factory=deque)
    closing: deque[ModelRelease] = field(default_factory=deque)
    notes: list[str] = field(default_factory=list)
    good: list[ModelRelease | str] = field(default_factory=list)
    """The releases that were found good, and the models that were forgotten, in this order."""
    served: list[int] = field(default_factory=list)
    """The generations that have served."""
    gap_allowed: bool = False
    wanted: dict[str, ModelRelease] = field(default_factory=dict)
    has_stopped: bool = False

    def do(self, event: Event) -> None:
        if isinstance(event, Applied):
            self.gap_allowed = event.may_gap
            self.wanted = {each.model: each for each in event.releases}
        if isinstance(event, ReleaseFailed | Closed):
            self.opened.discard(event.release)
            self.checked.discard(event.release)
        before = dict(self.routes)
        for action in self.core.handle(event, self.now_s):
            self.perform(action)
        self.check(event, before)

    def perform(self, action: Action) -> None:
        match action:
            case Open(given):
                assert given not in self.opened
                self.opened.add(given)
                self.broken.discard(given)
                self.loading.append(given)
                alive = [each for each in self.opened if each.model == given.model]
                assert len(alive) <= MOST_RELEASES
            case CheckRelease(given):
                assert given in self.opened
                self.checking.append(given)
            case Route(model, None):
                del self.routes[model]
            case Route(model, given) if given is not None:
                assert given in self.checked, "a release serves only after its check"
                assert given in self.opened
                self.draining.discard(given)
                self.routes[model] = given
            case Drain(given):
                assert self.routes.get(given.model) != given
                self.draining.add(given)
            case Close(given):
                assert self.routes.get(given.model) != given
                idle = not self.under_way.get(given)
                assert idle or given in self.broken or self.core.is_stopping, "nothing is cut"
                self.draining.discard(given)
                self.closing.append(given)
            case Note(_, text):
                self.notes.append(text)
            case NoteGood(given):
                assert self.routes[given.model] == given
                self.good.append(given)
            case NoteServed(generation):
                assert generation == self.core.generation
                served = {model: given.digest for model, given in self.routes.items()}
                assert all(served[model] == each.digest for model, each in self.wanted.items())
                self.served.append(generation)
            case Forget(model):
                self.good.append(model)
            case ServiceStopped():
                assert not self.opened
                self.has_stopped = True

    def check(self, event: Event, before: dict[str, ModelRelease]) -> None:
        states = self.core.states()
        assert {given for given, state in states.items() if state in ALIVE} == self.opened
        deadline_s = self.core.deadline_s
        assert deadline_s is None or deadline_s > self.now_s, "no busy waiting"
        for model, former in before.items():
            if model in self.routes or former in self.broken or self.core.is_stopping:
                continue
            assert self.gap_allowed or model not in self.wanted, "it serves until another can"
            assert isinstance(event, Applied | ReleaseFailed | Closed | Drained | Tick)

    # What the releases do

    def load(self, lacks_room: bool | None = None, *, must_wait: bool = False) -> None:
        """The oldest one is loaded, or cannot be."""
        given = self.loading.popleft()
        if given in self.closing:
            self.closing.remove(given)
            self.do(Closed(given))
        elif lacks_room is None:
            self.do(ReleaseLoaded(given))
        else:
            self.do(ReleaseFailed(given, "no", lacks_room, must_wait))

    def fail(self, given: ModelRelease) -> None:
        """The thread of a release ends with an error that nobody has thought of."""
        self.broken.add(given)
        self.draining.discard(given)
        self.under_way.pop(given, None)
        for asked in (self.checking, self.closing):
            if given in asked:
                asked.remove(given)
        self.do(ReleaseFailed(given, "KeyError: 'left'"))

    def finish_check(self, problem: str = "", *, was_compared: bool = True) -> None:
        given = self.checking.popleft()
        if given in self.opened and not problem:
            self.checked.add(given)
        self.do(ReleaseChecked(given, problem, was_compared))

    def close(self) -> None:
        given = self.closing.popleft()
        if given in self.loading:
            self.loading.remove(given)
        if given in self.checking:
            self.checking.remove(given)
        self.under_way.pop(given, None)
        self.do(Closed(given))

    def drain(self) -> None:
        for given in [each for each in self.draining if not self.under_way.get(each)]:
            self.draining.discard(given)
            self.do(Drained(given))

    def serve(self) -> None:
        """All steps that are under way succeed."""
        while self.loading or self.checking or self.closing or self.draining:
            if self.loading:
                self.load()
            if self.checking:
                self.finish_check()
            self.under_way.clear()
            self.drain()
            if self.closing:
                self.close()

    def apply(self, generation: int, *releases: ModelRelease, may_gap: bool = False) -> None:
        self.do(Applied(generation, releases, may_gap))

    def status(self, model: str = "digits") -> ModelStatus:
        return next(each for each in self.core.models if each.name == model)


@pytest.fixture
def world() -> World:
    world = World()
    world.apply(1, ONE)
    world.serve()
    assert world.routes == {"digits": ONE}
    assert world.core.state == "ok"
    return world


def test_the_old_version_serves_until_the_new_one_is_checked(world: World) -> None:
    world.under_way[ONE] = 3
    world.apply(2, TWO)
    world.load()
    assert world.routes == {"digits": ONE}
    world.finish_check()
    assert world.routes == {"digits": TWO}
    world.drain()
    assert not world.closing, "three requests are under way in the old version"
    world.under_way[ONE] = 0
    world.drain()
    assert list(world.closing) == [ONE]
    world.close()
    assert world.opened == {TWO}


def test_a_version_that_disagrees_with_its_whole_model_is_closed_and_not_tried_again(
    world: World,
) -> None:
    world.apply(2, TWO)
    world.load()
    world.finish_check("output 'scores' differs")
    world.close()
    assert world.routes == {"digits": ONE}
    assert (world.status().state, world.status().serving) == ("failed", "1")
    assert world.core.state == "degraded"
    assert world.core.deadline_s is None


def test_a_version_that_could_not_be_compared_is_tried_again(world: World) -> None:
    world.apply(2, TWO)
    world.load()
    world.finish_check("the whole model could not be run: killed", was_compared=False)
    world.close()
    assert (world.status().state, world.status().serving) == ("failed", "1")
    world.now_s = world.core.deadline_s or 0.0
    world.do(Tick())
    world.serve()
    assert world.status().serving == "2"


@pytest.mark.parametrize("step", ["checking", "serving", "draining"])
def test_whatever_ends_a_release_it_is_replaced(world: World, step: str) -> None:
    if step != "serving":
        world.apply(2, TWO)
        world.load()
    if step == "draining":
        world.under_way[ONE] = 1
        world.finish_check()
    world.fail(TWO if step == "checking" else ONE)
    world.now_s += LONGEST_RETRY_S
    world.do(Tick())
    world.serve()
    assert world.status().state == "serving"
    assert world.core.state == "ok"


def test_a_version_that_cannot_be_loaded_is_tried_again_later_and_later(world: World) -> None:
    world.apply(2, TWO)
    waits = []
    for _ in range(12):
        world.load(lacks_room=False)
        assert world.core.deadline_s is not None
        waits.append(world.core.deadline_s - world.now_s)
        world.now_s = world.core.deadline_s
        world.do(Tick())
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (1.0, LONGEST_RETRY_S)
    assert world.routes == {"digits": ONE}


def test_a_version_that_fails_for_days_is_tried_again_all_the_time(world: World) -> None:
    world.apply(2, TWO)
    for _ in range(3000):
        world.load(lacks_room=False)
        assert world.core.deadline_s is not None
        assert world.core.deadline_s <= world.now_s + LONGEST_RETRY_S
        world.now_s = world.core.deadline_s
        world.do(Tick())
    world.serve()
    assert world.status().serving == "2"


def test_where_two_versions_do_not_fit_the_old_one_stays_unless_a_gap_is_allowed(
    world: World,
) -> None:
    world.apply(2, TWO)
    world.load(lacks_room=True)
    assert world.routes == {"digits": ONE}
    world.apply(3, TWO, may_gap=True)
    world.load(lacks_room=True)
    assert world.routes == {}
    world.serve()
    assert world.routes == {"digits": TWO}


def test_what_cannot_fit_before_another_is_closed_is_not_tried_before(world: World) -> None:
    world.apply(2, TWO)
    world.load(lacks_room=True, must_wait=True)
    assert world.core.deadline_s is None
    world.now_s += LONGEST_RETRY_S
    world.do(Tick())
    assert not world.loading
    world.apply(3, TWO, may_gap=True)
    assert world.routes == {}, "the gap begins at once: it is known that nothing else helps"
    world.serve()
    assert world.routes == {"digits": TWO}


def test_what_waits_for_room_is_tried_once_another_model_is_closed(world: World) -> None:
    other = release(1, "cats")
    world.apply(2, ONE, other)
    world.load(lacks_room=True, must_wait=True)
    world.broken.add(ONE)
    world.do(RunEnded(ONE, "all nodes are lost"))
    world.close()
    assert other in world.loading


def test_a_generation_has_served_once_all_that_it_wants_serves(world: World) -> None:
    assert world.served == [1]
    world.apply(2, TWO, release(1, "cats"))
    world.load()
    world.finish_check()
    world.load(lacks_room=False)
    assert world.served == [1]
    world.now_s = world.core.deadline_s or 0.0
    world.do(Tick())
    world.serve()
    assert world.served == [1, 2]


def test_after_a_gap_for_nothing_the_old_version_serves_again(world: World) -> None:
    world.apply(2, TWO, may_gap=True)
    world.load(lacks_room=True)
    world.drain()
    world.close()
    world.load(lacks_room=False)
    assert list(world.loading) == [ONE]
    world.serve()
    assert world.routes == {"digits": ONE}
    assert world.status().state == "failed"


def test_a_rollback_takes_back_a_version_that_is_not_closed_yet(world: World) -> None:
    world.under_way[ONE] = 1
    world.apply(2, TWO)
    world.load()
    world.finish_check()
    world.apply(3, ONE)
    assert world.routes == {"digits": ONE}
    world.serve()
    assert world.opened == {ONE}


def test_a_run_that_ends_is_opened_again(world: World) -> None:
    world.broken.add(ONE)
    world.do(RunEnded(ONE, "all nodes are lost"))
    assert world.routes == {}
    world.close()
    assert world.status().reason == "all nodes are lost"
    assert world.core.state == "degraded"
    world.now_s = world.core.deadline_s or 0.0
    world.do(Tick())
    world.serve()
    assert world.routes == {"digits": ONE}


def test_after_a_restart_the_last_good_version_stands_in_for_one_that_fails() -> None:
    world = World(ServiceCore([ONE]))
    world.apply(2, TWO)
    world.load(lacks_room=False)
    world.serve()
    assert world.routes == {"digits": ONE}
    world.now_s = world.core.deadline_s or 0.0
    world.do(Tick())
    world.serve()
    assert world.routes == {"digits": TWO}
    assert world.opened == {TWO}


def test_models_come_and_go_beside_each_other(world: World) -> None:
    other = release(1, "cats")
    world.apply(2, ONE, other)
    world.serve()
    assert world.routes == {"digits": ONE, "cats": other}
    world.apply(3, ONE)
    world.serve()
    assert world.routes == {"digits": ONE}
    assert [each.name for each in world.core.models] == ["digits"]


def test_a_renewed_release_is_opened_beside_the_present_one(world: World) -> None:
    world.do(Renewed(("digits",)))
    assert world.routes == {"digits": ONE}
    world.serve()
    assert world.routes == {"digits": replace(ONE, renewal=1)}
    assert world.opened == {replace(ONE, renewal=1)}


def test_stopping_closes_everything_whatever_it_does(world: World) -> None:
    world.apply(2, TWO, release(1, "cats"))
    world.do(StopService())
    while world.closing:
        world.close()
    assert world.has_stopped


def wander(world: World, chance: random.Random) -> None:
    """One step of a random history."""
    releases = [release(number, model) for model in ("digits", "cats") for number in (1, 2, 3)]
    steps = ["apply", "tick", "request", "answer", "drain"]
    steps += ["load"] * 3 * bool(world.loading) + ["check"] * 3 * bool(world.checking)
    steps += ["close"] * 3 * bool(world.closing) + ["end"] * bool(world.routes)
    match chance.choice(steps):
        case "apply" if chance.random() < 0.5:
            chosen = {each.model: each for each in chance.sample(releases, 3)}
            kept = [each for each in chosen.values() if chance.random() < 0.9]
            world.apply(world.core.generation + 1, *kept, may_gap=chance.random() < 0.3)
        case "apply" if chance.random() < 0.3:
            world.do(Renewed(("digits",)))
        case "tick":
            world.now_s += chance.choice([0.1, 1.0, 100.0])
            world.do(Tick())
        case "request":
            for given in world.routes.values():
                world.under_way[given] = world.under_way.get(given, 0) + 1
        case "answer":
            world.under_way.clear()
        case "drain":
            world.drain()
        case "load":
            lacks_room = chance.choice([None, None, None, False, True])
            world.load(lacks_room, must_wait=lacks_room is True and len(world.opened) > 1)
        case "check":
            problem = chance.choice(["", "", "", "it differs"])
            world.finish_check(problem, was_compared=not problem or chance.random() < 0.5)
        case "close":
            world.close()
        case "end":
            end_one(world, chance)


def end_one(world: World, chance: random.Random) -> None:
    """A release that is loaded ends by itself."""
    loaded = sorted(world.opened - set(world.loading) - set(world.closing), key=str)
    if not loaded:
        return
    given = chance.choice(loaded)
    if chance.random() < 0.3:
        world.fail(given)
    elif given in world.checked:
        world.broken.add(given)
        world.do(RunEnded(given, "all nodes are lost"))


@pytest.mark.parametrize("seed", range(200))
def test_no_random_history_breaks_a_promise(seed: int) -> None:
    """And once everything succeeds, what is wanted serves, and nothing else is left."""
    chance, world = random.Random(seed), World()
    for _ in range(150):
        wander(world, chance)
    last = [release(chance.choice([1, 2, 3])), release(1, "cats")][: chance.choice([1, 2])]
    world.apply(world.core.generation + 1, *last)
    for _ in range(20):
        world.serve()
        world.now_s += LONGEST_RETRY_S
        world.do(Tick())
    served = {(each.model, each.digest) for each in world.routes.values()}
    assert served == {(each.model, each.digest) for each in last}
    assert world.opened == set(world.routes.values())
    assert world.core.state == "ok"
    assert all(state is ReleaseState.SERVING for state in world.core.states().values())
