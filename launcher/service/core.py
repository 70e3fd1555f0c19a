"""Decides which releases of which models are loaded, checked, served and closed, without I/O.

A *generation* says which release of each model is wanted. The core compares that with what there
is, and after every event takes the next step for each model, until both are the same:

    LOADING ──loaded──▶ CHECKING ──agrees──▶ SERVING ──another takes over──▶ DRAINING
       │                   │                    │                               │ drained
       │ failed            │ disagrees          │ its run ended                 ▼
       ▼                   ▼                    ▼                            CLOSING ──▶ gone
     FAILED ◀──closed── CLOSING ◀───────────────┘

It promises, for every history of events (`tests/service/test_core.py`):

- At most two releases of a model hold anything at a time.
- A release gets requests only after its check, and a model's requests go to one release.
- The release that serves is closed only once it has answered all its requests, unless its run has
  ended; and it serves until another one can take over, unless the user allowed a gap.
- A release that fails leaves the former one in place. Where nothing serves a model, the last
  release that was good is loaded instead, while the wanted one is tried again.
- A release that failed is tried again, at growing intervals; one that disagreed with its whole
  model is not. A release that could not be compared with it has failed. One that cannot fit before
  another release is closed is tried again then.
- A generation has served once the releases that it wants serve at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

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
from nodes.core.pauses import pause_s

MOST_RELEASES = 2
"""Releases of one model that may hold something at the same time."""

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
"""How long a release that failed waits before it is tried again: twice as long each time."""

PROVEN_S = 60.0
"""A release that has served for this time has no failures counted against it."""

_S = ReleaseState


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """The state that is wanted of a model, and its progress."""

    name: str
    version: str
    """The version that is wanted; empty if the model is being removed."""
    state: str
    """The state of the wanted release (`ReleaseState`), or `waiting`, or `removed`."""
    reason: str
    """Why it has failed, or last failed."""
    since_s: float
    """When it came into this state, on the clock of the events."""
    serving: str | None
    """The version that answers requests."""
    previous: str | None
    """Another version that still holds memory on the nodes."""
    lacks_room: bool
    """Whether it has failed because the version that serves takes the room that it needs."""


@dataclass(slots=True)
class _Life:
    """One release from `Open` on."""

    release: ModelRelease
    state: ReleaseState
    since_s: float
    reason: str = ""
    failures: int = 0
    retry_s: float | None = None
    """When it is tried again after a failure; None for never."""
    lacks_room: bool = False
    must_wait: bool = False
    """Whether it cannot be loaded before another release is closed."""
    closings: int = 0
    """How many others had been closed when it was opened last."""
    has_failed: bool = False
    """Whether it becomes FAILED, instead of being forgotten, once it is closed."""

    def enter(self, state: ReleaseState, now_s: float) -> None:
        """Come into a state."""
        self.state, self.since_s = state, now_s


@dataclass(slots=True)
class _Model:
    """The wanted release of a model, and those that exist."""

    name: str
    since_s: float
    wanted: ModelRelease | None = None
    good: ModelRelease | None = None
    current: ModelRelease | None = None
    """The release that new requests go to."""
    may_gap: bool = False
    makes_room: bool = False
    """Whether the wanted release waits until no other one holds anything."""
    lives: dict[ModelRelease, _Life] = field(default_factory=dict)

    @property
    def alive(self) -> list[_Life]:
        """The releases that may hold something."""
        return [life for life in self.lives.values() if life.state in ALIVE]


class ServiceCore:
    """The core of the service; see the module."""

    def __init__(self, good: Iterable[ModelRelease] = ()) -> None:
        """`good` are the releases that served last, of an earlier process."""
        self.generation = 0
        self.is_stopping = False
        self._closings = 0
        """Releases that have been closed."""
        self._served = 0
        """The last generation that has served."""
        self._good = {release.model: release for release in good}
        self._models: dict[str, _Model] = {}
        self._actions: list[Action] = []
        self._has_stopped = False
        self._now_s = 0.0

    # ------------------------------------------------------------ what is shown

    @property
    def deadline_s(self) -> float | None:
        """When a `Tick` is due; None for never."""
        waiting = [
            life.retry_s
            for model in self._models.values()
            for life in model.lives.values()
            if life.state is _S.FAILED and life.retry_s is not None
        ]  # work that is already due waits for another event
        later = (retry_s for retry_s in waiting if retry_s > self._now_s)
        return None if self.is_stopping else min(later, default=None)

    @property
    def models(self) -> tuple[ModelStatus, ...]:
        """All models, in the order in which they were added."""
        return tuple(map(_status, self._models.values()))

    @property
    def state(self) -> str:
        """`ok`, `degraded`, `starting` or `stopping`."""
        if self.is_stopping:
            return "stopping"
        wanted = [
            (model, model.lives.get(model.wanted))
            for model in self._models.values()
            if model.wanted is not None
        ]
        if any(life is not None and life.failures and life.state is not _S.SERVING
               for _, life in wanted):  # fmt: skip
            return "degraded"
        return "starting" if any(model.current is None for model, _ in wanted) else "ok"

    @property
    def serving(self) -> Mapping[str, ModelRelease]:
        """The release of each model that answers requests."""
        return {
            name: model.current for name, model in self._models.items() if model.current is not None
        }

    def states(self) -> Mapping[ModelRelease, ReleaseState]:
        """The state of every release that the core knows."""
        return {
            life.release: life.state
            for model in self._models.values()
            for life in model.lives.values()
        }

    # ------------------------------------------------------------ events

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Return the actions that an event causes."""
        self._actions, self._now_s = [], now_s
        match event:
            case Applied():
                self._apply(event, now_s)
            case Renewed(models):
                for name in models:
                    self._renew(name)
            case StopService():
                self.is_stopping = True
                for each in self._models.values():
                    for alive in each.alive:
                        self._close(each, alive, now_s)
            case Tick():
                pass
            case _:
                of = self._models.get(event.release.model)
                life = None if of is None else of.lives.get(event.release)
                if of is not None and life is not None:
                    self._happened(event, of, life, now_s)
        for model in list(self._models.values()):
            self._settle(model, now_s)
        self._note_served()
        is_left = any(model.alive for model in self._models.values())
        if self.is_stopping and not is_left and not self._has_stopped:
            self._has_stopped = True
            self._actions.append(ServiceStopped())
        return self._actions

    def _apply(self, event: Applied, now_s: float) -> None:
        self.generation = event.generation
        wanted = {release.model: release for release in event.releases}
        for name in wanted.keys() - self._models.keys():
            self._models[name] = _Model(name, now_s, good=self._good.get(name))
        for name, model in self._models.items():
            release = wanted.get(name)
            former = model.wanted
            if release is not None and former is not None and release.digest == former.digest:
                release = former  # it may have been renewed
            model.wanted = release
            model.may_gap, model.makes_room = event.may_gap, False
            if release is None:
                model.since_s = now_s
            elif (life := model.lives.get(release)) is not None and life.has_failed:
                life.failures = 0  # applying it again asks for another try
                makes_room_first = life.must_wait and event.may_gap and model.current is not None
                life.retry_s = None if makes_room_first else now_s

    def _note_served(self) -> None:
        wanted = [model for model in self._models.values() if model.wanted is not None]
        if (
            wanted
            and self.generation != self._served
            and all(model.current == model.wanted for model in wanted)
        ):
            self._served = self.generation
            self._actions.append(NoteServed(self.generation))

    def _made_room(self, now_s: float) -> None:
        """A release is closed: try releases again that wait for that."""
        self._closings += 1
        for model in self._models.values():
            for life in model.lives.values():
                if life.state is _S.FAILED and life.must_wait:
                    life.retry_s = now_s

    def _renew(self, name: str) -> None:
        model = self._models.get(name)
        if model is not None and model.wanted is not None:
            model.wanted = replace(model.wanted, renewal=model.wanted.renewal + 1)

    def _happened(
        self,
        event: ReleaseLoaded | ReleaseFailed | ReleaseChecked | RunEnded | Drained | Closed,
        model: _Model,
        life: _Life,
        now_s: float,
    ) -> None:
        """Note a release's report; late reports are ignored."""
        match event, life.state:
            case ReleaseLoaded(), _S.LOADING:
                life.enter(_S.CHECKING, now_s)
                self._actions.append(CheckRelease(life.release))
            case ReleaseFailed(reason=reason), _S.LOADING:
                life.lacks_room = event.lacks_room
                life.must_wait = event.must_wait and life.closings == self._closings
                self._fail(life, reason, now_s)
                life.enter(_S.FAILED, now_s)
            case ((ReleaseFailed() | Closed()), _S.CLOSING):
                self._made_room(now_s)
                self._note("info", f"{life.release} is closed")
                if life.has_failed:
                    life.enter(_S.FAILED, now_s)
                else:
                    del model.lives[life.release]
            case ReleaseChecked(problem=""), _S.CHECKING:
                self._take_over(model, life, now_s)
            case ReleaseChecked(problem=problem, was_compared=was_compared), _S.CHECKING:
                self._fail(life, problem, now_s)
                life.retry_s = None if was_compared else life.retry_s
                self._close(model, life, now_s)
            case ReleaseFailed(reason=reason), (_S.CHECKING | _S.SERVING | _S.DRAINING):
                self._made_room(now_s)
                self._fail(life, reason, now_s)
                self._unroute(model, life)
                life.enter(_S.FAILED, now_s)
            case RunEnded(reason=reason), (_S.CHECKING | _S.SERVING | _S.DRAINING):
                if life.state is _S.SERVING and now_s - life.since_s >= PROVEN_S:
                    life.failures = 0
                self._fail(life, reason, now_s)
                self._close(model, life, now_s)
            case Drained(), _S.DRAINING:
                self._close(model, life, now_s)
            case _:
                pass

    # ------------------------------------------------------------ steps

    def _settle(self, model: _Model, now_s: float) -> None:
        """Take the next steps for a model."""
        if self.is_stopping:
            return
        self._give_up_unwanted(model, now_s)
        wanted = model.wanted
        if wanted is None:
            if model.current is not None:
                self._drain(model, now_s)
            elif not model.alive:
                del self._models[model.name]
                self._good.pop(model.name, None)
                self._actions.append(Forget(model.name))
            return
        life = model.lives.get(wanted)
        if life is not None and life.state is _S.DRAINING:  # it is wanted again
            self._take_over(model, life, now_s)
        elif _is_due(life, now_s):
            self._open(model, wanted, now_s)
        elif life is not None and life.state is _S.FAILED:
            self._do_without(model, life, now_s)

    def _give_up_unwanted(self, model: _Model, now_s: float) -> None:
        """Close releases that load but are not wanted; forget failures that no longer matter."""
        for life in list(model.lives.values()):
            release = life.release
            stands_in = release == model.good and model.current is None and model.wanted is not None
            if release == model.wanted or stands_in:
                continue
            if life.state in (_S.LOADING, _S.CHECKING):
                self._close(model, life, now_s)
            elif life.state is _S.FAILED:
                del model.lives[release]
            elif life.state is _S.CLOSING:
                life.has_failed = False

    def _do_without(self, model: _Model, failed: _Life, now_s: float) -> None:
        """Make room for the wanted release, which has failed, or load the last good one."""
        if model.current is not None:
            if failed.lacks_room and model.may_gap and model.current != model.wanted:
                model.may_gap, model.makes_room = False, True
                failed.retry_s = now_s
                self._note("warning", f"{failed.release} replaces {model.current}: requests wait")
                self._drain(model, now_s)
            return
        good = model.good
        if good is None or good == model.wanted or model.makes_room:
            return
        if _is_due(model.lives.get(good), now_s):
            self._open(model, good, now_s)

    def _open(self, model: _Model, release: ModelRelease, now_s: float) -> None:
        alive = model.alive
        if len(alive) >= MOST_RELEASES or (model.makes_room and alive):
            return  # it is tried again when one of them is closed
        if release == model.wanted:
            model.makes_room = False
        life = model.lives.get(release)
        if life is None:
            life = model.lives[release] = _Life(release, _S.LOADING, now_s)
        life.enter(_S.LOADING, now_s)
        life.lacks_room = life.must_wait = life.has_failed = False
        life.closings = self._closings
        self._note("info", f"{release} is being loaded")
        self._actions.append(Open(release))

    def _take_over(self, model: _Model, life: _Life, now_s: float) -> None:
        """Let a release that was checked serve; the former one gets no more requests."""
        former = model.current
        if former is not None and former != life.release:
            model.lives[former].enter(_S.DRAINING, now_s)
        life.enter(_S.SERVING, now_s)
        model.current = model.good = life.release
        self._good[model.name] = life.release
        # The route changes before the former release is drained: no request finds both absent.
        self._actions.append(Route(model.name, life.release))
        if former is not None and former != life.release:
            self._actions.append(Drain(former))
        self._actions.append(NoteGood(life.release))
        self._note("info", f"{life.release} serves")

    def _drain(self, model: _Model, now_s: float) -> None:
        """Let nothing serve a model."""
        former = model.current
        if former is None:
            return
        model.current = None
        model.lives[former].enter(_S.DRAINING, now_s)
        self._actions += [Route(model.name, None), Drain(former)]

    def _close(self, model: _Model, life: _Life, now_s: float) -> None:
        if life.state is _S.CLOSING:
            return
        self._unroute(model, life)
        life.enter(_S.CLOSING, now_s)
        self._actions.append(Close(life.release))

    def _unroute(self, model: _Model, life: _Life) -> None:
        if model.current == life.release:
            model.current = None
            self._actions.append(Route(model.name, None))

    def _fail(self, life: _Life, reason: str, now_s: float) -> None:
        life.reason, life.has_failed = reason, True
        life.failures += 1
        pause = pause_s(life.failures, FIRST_RETRY_S, LONGEST_RETRY_S)
        life.retry_s = None if life.must_wait else now_s + pause
        self._note("error", f"{life.release} has failed: {reason}")

    def _note(self, level: str, text: str) -> None:
        self._actions.append(Note(level, text))


def _is_due(life: _Life | None, now_s: float) -> bool:
    """Whether a release is to be opened, if there is room: it is new, or its wait is over."""
    if life is None:
        return True
    return life.state is _S.FAILED and life.retry_s is not None and now_s >= life.retry_s


def _status(model: _Model) -> ModelStatus:
    wanted, current = model.wanted, model.current
    life = None if wanted is None else model.lives.get(wanted)
    if wanted is None:
        state = "removed"
    elif life is None or model.makes_room:
        state = "waiting"
    else:
        state = life.state.value
    return ModelStatus(
        name=model.name,
        version="" if wanted is None else wanted.version,
        state=state,
        reason="" if life is None or life.state is _S.SERVING else life.reason,
        since_s=model.since_s if life is None else life.since_s,
        serving=None if current is None else current.version,
        previous=next(
            (each.release.version for each in model.alive if each.release != wanted), None
        ),
        lacks_room=life is not None and life.lacks_room and current is not None,
    )
