"""Performs what the service's core decides, and answers the operator's commands.

One event loop has both servers, the core and the commands; each release has its own thread
(`launcher.service.opened`), and one more thread writes the database. Events of all of them arrive
in one queue, and the loop handles them one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hmac
import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from launcher.clock import now_s
from launcher.config.units import brief
from launcher.errors import BadInputError, LauncherError
from launcher.progress import ProgressDisplay
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.routes import Routes, ServedVersion, served_version
from launcher.service.core import ServiceCore
from launcher.service.ends import ServiceEnds, end_changes
from launcher.service.events import (
    Action,
    Applied,
    CheckRelease,
    Close,
    Drain,
    Drained,
    Event,
    Forget,
    ModelRelease,
    Note,
    NoteGood,
    NoteServed,
    Open,
    ReleaseLoaded,
    Renewed,
    Route,
    ServiceStopped,
    StopService,
)
from launcher.service.generations import (
    cluster_of,
    picture_cluster,
    read_generation,
    release_cluster,
    rollback_target,
)
from launcher.service.nodes import node_statuses, restart_there
from launcher.service.opened import OpenedRelease, Turns
from launcher.service.store import Generation, Store, StoredEvent
from launcher.tasks.opening import Task, open_task
from launcher.threads import in_thread
from launcher.view.model import NodeState, RunView
from nodes.core.events import Tick
from nodes.host.systemd import ServiceManager

if TYPE_CHECKING:
    from cnn.model import Model

EVENTS_SHOWN = 20
EVENTS_KEPT = 1000
"""In memory; the database has more."""

WRITE_AGAIN_S = 5.0
"""The time between two attempts to write the state after a failure."""

FOLLOWED_S = 20.0
"""How long a command waits for the next event before it asks again."""

T = TypeVar("T")


class RunningService:
    """The service of one state folder, inside an event loop; see the module."""

    def __init__(
        self,
        store: Store,
        token: str,
        progress: ProgressDisplay,
        manager: ServiceManager | None = None,
    ) -> None:
        """`token` is an operator's; `progress` shows the history as it happens."""
        self.routes = Routes()
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Is done once an operator has asked for the end."""
        self._store = store
        self._token = token
        self._progress = progress
        self._manager = manager or ServiceManager({})
        self._core = ServiceCore(store.good())
        self._known = store.generations()
        self._history: deque[StoredEvent] = deque(
            store.events(most=EVENTS_KEPT), maxlen=EVENTS_KEPT
        )
        self._noted = asyncio.Event()
        self._write_s: float | None = None
        """When to try again to write the state; None if all of it is written."""
        self.state_problem = ""
        """See `launcher.serve.control.Control`."""
        self._opened: dict[ModelRelease, OpenedRelease] = {}
        self._served: dict[ModelRelease, ServedVersion] = {}
        self.ends = ServiceEnds(self.report)
        """The sources and the sinks of the models."""
        self._turns = Turns()
        self._changing = asyncio.Lock()
        self._has_stopped = asyncio.Event()
        self._has_loaded = False
        self._writer = ThreadPoolExecutor(1, "csdf-edge state")
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | Note] = asyncio.Queue()

    def views(self) -> tuple[RunView, ...]:
        """Return the present view of each open release's run; for any thread."""
        lives = [opened.live for opened in tuple(self._opened.values())]
        return tuple(live.view() for live in lives if live is not None)

    # ------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Handle events until all releases are closed after `stop`."""
        while not self._has_stopped.is_set():
            event = await self._next()
            at_s = time.monotonic()
            if isinstance(event, ReleaseLoaded) and not self._has_loaded:
                self._has_loaded = True
                _exempt_from_collection()
            actions = [event] if isinstance(event, Note) else self._core.handle(event, at_s)
            for action in actions:
                await self._perform(action)
            await self._look_at_state()
            # The watchdog is notified only after the core has handled something.
            self._manager.alive(at_s)
            self._manager.status(self._summary())
        self._writer.shutdown()

    async def _next(self) -> Event | Note:
        deadlines = [
            deadline_s
            for deadline_s in (self._core.deadline_s, self._manager.deadline_s, self._write_s)
            if deadline_s is not None
        ]
        wait_s = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
        try:
            return await asyncio.wait_for(self._events.get(), wait_s)
        except asyncio.TimeoutError:
            return Tick()

    def report(self, event: Event | Note) -> None:
        """Take an event, or a note for the history; may be called from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def start(self) -> None:
        """Want the generation that was applied last."""
        self._open_ends(self._known[-1])
        self.report(_applied(self._known[-1]))

    async def stop(self) -> None:
        """Close all releases; no further request comes."""
        self._manager.stopping()
        await self.ends.close()
        self.report(StopService())
        await self._has_stopped.wait()

    def _summary(self) -> str:
        models = ", ".join(f"{model.name} {model.serving or '-'}" for model in self._core.models)
        return f"{self._core.state}, generation {self._core.generation}: {models}"

    async def _stored(self, call: Callable[..., T], *arguments: Any) -> T:
        return await self._loop.run_in_executor(self._writer, call, *arguments)

    async def _look_at_state(self) -> None:
        """Write waiting changes, if it is time; report once that it fails, or works again."""
        if self._write_s is not None and time.monotonic() >= self._write_s:
            await self._stored(self._store.write)
            self._write_s = time.monotonic() + WRITE_AGAIN_S
        problem = self._store.problem
        if bool(problem) == bool(self.state_problem):
            return
        self.state_problem = problem
        if problem:
            self._write_s = time.monotonic() + WRITE_AGAIN_S
            await self._note(Note("error", f"{problem}; until then, changes are refused"))
        else:
            self._write_s = None
            await self._note(Note("info", "the state is written again"))

    async def _perform(self, action: Action) -> None:
        match action:
            case Open(release):
                self._open(release)
            case CheckRelease(release):
                self._opened[release].check()
            case Route(model, release):
                version = None if release is None else self._version(release)
                self.routes.route(model, version)
                self._route_ends(model, release)
            case Drain(release):
                drained = Drained(release)
                self._served[release].when_idle(lambda: self.report(drained))
            case Close(release):
                self._served.pop(release, None)
                if release in self._opened:  # else its loading has failed just now
                    self._opened[release].close()
            case Forget(model):
                self.routes.forget(model)
                await self._stored(self._store.forget_good, model)
            case NoteGood(release):
                await self._stored(self._store.note_good, release)
            case NoteServed(number):
                await self._stored(self._store.note_served, number)
                self._known = await self._stored(self._store.generations)
            case Note():
                await self._note(action)
            case ServiceStopped():
                self._has_stopped.set()

    def _open(self, release: ModelRelease) -> None:
        self.routes.expect(release.model)
        known = list(self._known)
        self._opened = {other: opened for other, opened in self._opened.items() if opened.is_alive}
        self._opened[release] = OpenedRelease(
            release,
            lambda: release_cluster(self._store, known, release),
            turns=self._turns,
            held=lambda: self._held(release),
            report=self.report,
        )

    def _held(self, release: ModelRelease) -> dict[str, list[int]]:
        """The bytes of each other release that has a node, by node."""
        held: dict[str, list[int]] = {}
        for other, opened in list(self._opened.items()):
            if other != release:
                for node, size in opened.held_bytes().items():
                    held.setdefault(node, []).append(size)
        return held

    def _version(self, release: ModelRelease) -> ServedVersion:
        if release not in self._served:
            live = self._opened[release].live
            if live is None:
                raise AssertionError(f"{release} should serve but is not open")
            network = live.model(release.model)
            task = self._task(release, network.feed.part.model)
            self._served[release] = served_version(network, release.version, task)
        return self._served[release]

    def _task(self, release: ModelRelease, model: Model) -> Task | None:
        """Return what reads the pictures of requests; None if what the user wrote does not suit."""
        try:
            return open_task(picture_cluster(self._store, self._known, release), model)
        except LauncherError as error:
            self.report(Note("warning", f"{release}: takes no pictures: {error}"))
            return None

    def _open_ends(self, generation: Generation) -> None:
        """Open the sources and sinks of a generation, for the releases that serve now."""
        for model in self.ends.open(cluster_of(self._store, generation)):
            self._route_ends(model, self._core.serving.get(model))

    def _route_ends(self, model: str, release: ModelRelease | None) -> None:
        opened = None if release is None else self._opened.get(release)
        live = None if opened is None else opened.live
        version = None if release is None else self._served.get(release)
        self.ends.route(model, version, None if live is None else live.plan)

    async def _note(self, note: Note) -> None:
        self._progress.name_run(note.run)
        self._progress.say(note.text, note.level, note.nodes)
        self._progress.name_run("")
        event = await self._stored(self._store.add_event, now_s(), note.level, note.text)
        self._history.append(event)
        noted, self._noted = self._noted, asyncio.Event()
        noted.set()

    # ------------------------------------------------------------ changes

    async def apply(self, path: Path, *, may_gap: bool) -> dict[str, Any]:
        """Apply a cluster.yaml; raises `BadInputError` for a mistake in it."""
        async with self._changing:
            known = list(self._known)
            # The files may be on a disk that does not answer; such a thread is left behind.
            read = in_thread(lambda: read_generation(path, self._store, known), "change")
            candidate = await asyncio.wrap_future(read)
            before, generation = known[-1], candidate.generation
            is_same = (generation.models, generation.text) == (before.models, before.text)
            changes = await self._want(before if is_same else generation, may_gap=may_gap)
            return {**changes, "notes": list(candidate.notes)}

    async def roll_back(self, to: int | None, *, may_gap: bool) -> dict[str, Any]:
        """Want an earlier generation again, as a new one; raises `BadInputError`."""
        async with self._changing:
            before = self._known[-1]
            target = rollback_target(self._known, to)
            if target != before:
                target = replace(
                    target,
                    number=before.number + 1,
                    applied_s=now_s(),
                    origin=f"rollback to generation {target.number}",
                )
            return {**await self._want(target, may_gap=may_gap), "notes": []}

    async def _want(self, generation: Generation, *, may_gap: bool) -> dict[str, Any]:
        """Want a generation, and keep it if it is a new one; failed releases are tried again."""
        before = self._known[-1]
        changes = _changes(before, self._core.serving, generation)
        changes += end_changes(cluster_of(self._store, before), cluster_of(self._store, generation))
        if generation != before:
            await self._keep(generation)
        await self.ends.want(cluster_of(self._store, generation))
        self._open_ends(generation)
        self.report(_applied(generation, may_gap=may_gap))
        return {"generation": generation.number, "changes": changes}

    async def _keep(self, generation: Generation) -> None:
        await self._stored(self._store.add, generation)
        self._known = await self._stored(self._store.generations)
        for release, version in self._served.items():
            version.task = self._task(release, version.feed.part.model)
        await self._note(Note("info", f"generation {generation.number}: {generation.origin}"))

    async def apply_again(self) -> None:
        """Apply the file of the present generation, as SIGHUP asks for."""
        path = Path(self._known[-1].path)
        try:
            await self.apply(path, may_gap=False)
        except LauncherError as error:
            await self._note(Note("error", f"{path} was not applied: {error}"))

    async def restart(self, node: str) -> dict[str, Any]:
        """Open the releases on a node again, with their own agents; raises `BadInputError`."""
        nodes = self._known[-1].nodes
        if node not in nodes:
            raise BadInputError(f"there is no node {node!r}; there are {', '.join(nodes)}")
        if nodes[node] is not None:
            raise BadInputError(restart_there(cluster_of(self._store, self._known[-1]), node))
        models = tuple(
            release.model
            for release, opened in self._opened.items()
            if (live := opened.live) is not None
            and any(phase.device == node for phase in live.plan.phases)
        )
        await self._note(Note("info", f"the agents on {node} are restarted"))
        self.report(Renewed(models))
        return {"models": list(models)}

    # ------------------------------------------------------------ the API

    def is_operator(self, authorization: str | bytes | None) -> bool:
        """See `launcher.serve.control.Control`."""
        given = authorization or ""
        if isinstance(given, str):
            given = given.encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, b"Bearer " + self._token.encode())

    async def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        """See `launcher.serve.control.Control`."""
        what, _, name = path.partition("/")
        match method, what:
            case "GET", "status" if not name:
                return 200, await self.status()
            case "GET", "events":
                return 200, await self._events_after(name)
            case "POST", "apply" if not name:
                file, may_gap = _apply_body(body)
                return 200, await self.apply(file, may_gap=may_gap)
            case "POST", "rollback" if not name:
                to, may_gap = _rollback_body(body)
                return 200, await self.roll_back(to, may_gap=may_gap)
            case "POST", "restart":
                return 200, await self.restart(name)
            case "POST", "down" if not name:
                if not self.is_over.done():
                    self.is_over.set_result(None)
                return 200, {"state": "stopping"}
            case _:
                raise RequestError(
                    f"nothing is served at {method} {path[:100]!r}", Refusal.NOT_FOUND
                )

    async def status(self) -> dict[str, Any]:
        """Return the present state of the service, as JSON data."""
        nodes = node_statuses(self._known[-1].nodes, await asyncio.to_thread(self.views))
        monotonic_s, now = time.monotonic(), now_s()
        state = self._core.state
        lost = any(node.state in (NodeState.LOST, NodeState.ABSENT) for node in nodes)
        if state == "ok" and (lost or self.state_problem):
            state = "degraded"
        models = [asdict(model) for model in self._core.models]
        for model in models:
            model["since_s"] = round(now - (monotonic_s - model["since_s"]), 3)
            model["stage"] = self._stage(model["name"])
        return {
            "state": state,
            "problem": self.state_problem,
            "generation": self._core.generation,
            "origin": self._known[-1].origin,
            "path": self._known[-1].path,
            "models": models,
            "streams": [asdict(stream.status()) for stream in self.ends.streams],
            "nodes": [
                {"name": node.name, "state": node.state.value, "reason": node.reason}
                for node in nodes
            ],
            "events": [event.as_json() for event in list(self._history)[-EVENTS_SHOWN:]],
        }

    def _stage(self, model: str) -> str:
        """The step of loading a release of a model."""
        return next(
            (
                opened.stage
                for release, opened in self._opened.items()
                if release.model == model and opened.is_alive and opened.live is None
            ),
            "",
        )

    async def _events_after(self, after: str) -> dict[str, Any]:
        """The events after that number; if there are none, wait a while for one."""
        if not after.isdecimal() or len(after) > 18:
            raise RequestError("name the number of an event: events/17")
        noted = self._noted
        found = [event for event in self._history if event.number > int(after)]
        if not found:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(noted.wait(), FOLLOWED_S)
            found = [event for event in self._history if event.number > int(after)]
        return {"events": [event.as_json() for event in found]}


def _applied(generation: Generation, *, may_gap: bool = False) -> Applied:
    releases = tuple(model.release for model in generation.models)
    return Applied(generation.number, releases, may_gap)


def _changes(
    before: Generation, serving: Mapping[str, ModelRelease], after: Generation
) -> list[str]:
    """Describe the differences, model by model, in sentences.

    It is compared with what serves, even if something else was wanted last and has failed; where
    nothing serves a model, with what was wanted.
    """
    former = {model.name: model.release for model in before.models} | dict(serving)
    found = []
    for model in after.models:
        old = former.pop(model.name, None)
        if old is None:
            found.append(f"{model.name}: version {model.version} is added")
        elif old.version != model.version:
            found.append(f"{model.name}: version {model.version} replaces {old.version}")
        elif old.digest != model.digest:
            found.append(f"{model.name}: version {model.version} is deployed again")
    return [*found, *(f"{name} is removed" for name in former)]


def _exempt_from_collection() -> None:
    """Let later garbage collections skip all present objects.

    All modules that planning needs are imported once a first release is loaded, and stay. Scanning
    them takes 0.1 s, in which no request is answered, and planning triggers collections.
    """
    gc.collect()
    gc.freeze()


def _body(body: bytes, *keys: str) -> tuple[dict[str, Any], bool]:
    """Return the data of a command's body, which has these keys, and whether a gap is allowed."""
    try:
        data = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise RequestError("the body is not valid JSON") from None
    if not isinstance(data, dict):
        raise RequestError("the body must be a JSON object")
    known = (*keys, "allow_gap")
    if unknown := sorted(data.keys() - {*known}):
        raise RequestError(
            f"unknown key {brief(unknown[0])}; the keys known here are {', '.join(known)}"
        )
    may_gap = data.get("allow_gap", False)
    if not isinstance(may_gap, bool):
        raise RequestError(f"allow_gap: must be true or false, not {brief(may_gap)}")
    return data, may_gap


def _apply_body(body: bytes) -> tuple[Path, bool]:
    data, may_gap = _body(body, "path")
    path = data.get("path")
    if not isinstance(path, str) or not path.startswith("/") or not _is_name(path):
        raise RequestError("path: must be the absolute path of a cluster.yaml")
    return Path(path), may_gap


def _is_name(path: str) -> bool:
    """Whether a file can have this name; JSON can hold a lone surrogate."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def _rollback_body(body: bytes) -> tuple[int | None, bool]:
    data, may_gap = _body(body, "to")
    to = data.get("to")
    if to is not None and (not isinstance(to, int) or isinstance(to, bool)):
        raise RequestError("to: must be the number of a generation")
    return to, may_gap
