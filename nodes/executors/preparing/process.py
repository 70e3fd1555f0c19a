"""Prepares subnets in a child process, which takes its memory and its crashes with it.

Optimising a subnet or building an engine holds the weights again, and memory that it leaves in the
heap is not returned to the system: an agent that did this itself would keep it. One child prepares
any number of subnets, one after the other, so its peak is that of the largest. Where memory runs
out, the child reports that or is killed; another child then does its work in a way that needs less
(`Job.lighter`).

A child's output is bounded. Before each entry, room for it is reserved under the cache's quota
(`Room.reserve`). The size of an entry is not known in advance, because optimisers compute whatever
is constant. So an estimate is reserved first and, if that does not suffice, all the room there is.
The child's side is `nodes.executors.preparing.child`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO

from nodes.cache.room import Room
from nodes.executors.base import EngineFailedError, ExecutorError, LoadOptions
from nodes.executors.preparing.entries import Job, NoRoomError, PreparedFiles
from nodes.host.process import python_command
from nodes.protocol.fields import printable

CHILD = tuple(python_command("nodes.executors.preparing.child"))
"""The child's command."""

_ESTIMATE, _ESTIMATE_BYTES = 2, 8 << 20
"""The room that is reserved first: `_ESTIMATE` times the subnet's size, plus `_ESTIMATE_BYTES`. An
entry is about as large as its subnet, and larger where weights are packed in addition to the
originals.
"""

_LAST_BYTES = 500
"""The end of a child's standard error, of which an error quotes the last line."""

log = logging.getLogger("node-agent")


class NoMemoryError(ExecutorError):
    """The child had too little memory: it was killed, or reported it."""


_LACKING: Mapping[str, type[ExecutorError]] = {
    "room": NoRoomError,
    "memory": NoMemoryError,
    "engine": EngineFailedError,
}


class PreparingProcess:
    """Prepares subnets for one engine, in child processes.

    `maker` is the place of the function that prepares one, `module:name`; it takes a `Job`,
    `LoadOptions` and `PreparedFiles`, and only the child imports it. Errors name the `engine`. A
    child that `uses_driver` can open every file of its user, and its memory is not bounded: drivers
    open files as they choose, and map far more memory than they use.
    """

    def __init__(
        self, engine: str, maker: str, cache: PreparedFiles, *, uses_driver: bool = False
    ) -> None:
        self._engine = engine
        self._maker = maker
        self._uses_driver = uses_driver
        self._cache = cache
        self._children: dict[subprocess.Popen[str], IO[bytes]] = {}
        """The children that run, each with the file that its standard error goes to."""
        self._is_interrupted = False
        self._is_closed = False

    def prepare(
        self, jobs: Iterable[Job], options: LoadOptions, on_done: Callable[[Job], None]
    ) -> None:
        """Make the entries that the cache lacks.

        Calls `on_done` for each job, in order, as soon as its entry and all earlier ones exist.
        Raises ExecutorError for the first that fails.
        """
        waiting = list(jobs)
        missing = {job.key: job for job in waiting if self._cache.find(job.key) is None}

        def report_ready() -> None:
            while waiting and waiting[0].key not in missing:
                on_done(waiting.pop(0))

        def made(job: Job) -> None:
            del missing[job.key]
            report_ready()

        report_ready()
        if missing:
            self.make(list(missing.values()), options, made)

    def make(
        self, jobs: Sequence[Job], options: LoadOptions, on_done: Callable[[Job], None]
    ) -> None:
        """Make the entries of `jobs` in order in one child, whatever the cache holds.

        If memory runs out, the remaining jobs are done in their lighter variants. If the engine
        crashes, or cannot load what it has written, only this job is. Raises ExecutorError for the
        first job that fails in all variants, and if the child dies for another reason.
        """
        left = list(jobs)

        def made(_: Job) -> None:
            on_done(left.pop(0))

        try:
            self._make(left.copy(), options, made)
        except NoMemoryError as error:
            if any(job.lighter is None for job in left):
                raise
            log.warning("%s; prepared with less memory instead, which computes more slowly", error)
            lighter = [job.lighter for job in left if job.lighter is not None]
            self.make(lighter, options, made)
        except EngineFailedError as error:
            if self._is_interrupted or left[0].lighter is None:
                raise
            try:
                self.make([left[0].lighter], options, lambda _: None)
            except ExecutorError:
                raise error from None  # the usual way's error says most
            log.warning("%s; optimised less instead, which computes more slowly", error)
            made(left[0])
            if left:
                self.make(left.copy(), options, made)

    def _make(
        self, jobs: Sequence[Job], options: LoadOptions, on_done: Callable[[Job], None]
    ) -> None:
        child = self._begin()
        if self._is_interrupted:  # `interrupt` kills every child that was added before
            child.kill()
        try:
            self._send_places(child, jobs)
            for job in jobs:
                self._make_one(child, job, options)
                on_done(job)
        finally:
            self._children.pop(child).close()
            _end(child)
            with contextlib.suppress(OSError):
                self._cache.clear_leftovers()

    def _make_one(self, child: subprocess.Popen[str], job: Job, options: LoadOptions) -> None:
        """Let the child make one entry, in the room that it probably needs, or else in all."""
        room = self._cache.room
        if room is None:
            self._request(child, job, options, None)
            return
        estimate_bytes = _ESTIMATE * job.source_bytes + _ESTIMATE_BYTES
        for wanted_bytes in (estimate_bytes, room.quota_bytes):
            with _reserved(room, wanted_bytes) as limit_bytes:
                try:
                    self._request(child, job, options, limit_bytes)
                except NoRoomError as error:
                    if limit_bytes < wanted_bytes or wanted_bytes == room.quota_bytes:
                        raise _too_large(error, room) from error
                else:
                    return

    def _begin(self) -> subprocess.Popen[str]:
        try:
            # The sandbox allows no other place; `_make` closes it.
            errors = tempfile.TemporaryFile(dir=self._cache.root)  # noqa: SIM115
        except OSError as error:
            raise ExecutorError(
                f"nothing can be written under {self._cache.root}: {error.strerror}; make room or "
                "choose another cache directory"
            ) from error
        try:
            child = subprocess.Popen(
                CHILD,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        except BaseException:
            errors.close()
            raise
        self._children[child] = errors
        return child

    def _send_places(self, child: subprocess.Popen[str], jobs: Sequence[Job]) -> None:
        """Send the child, once, the only folders that it may open (`nodes.host.sandbox`)."""
        assert child.stdin is not None  # noqa: S101 - it is a pipe
        folders = sorted({str(job.graph.resolve().parent) for job in jobs})
        places = {
            "cache": str(self._cache.root.resolve()),
            "folders": folders,
            "uses_driver": self._uses_driver,
        }
        with contextlib.suppress(BrokenPipeError):  # it has died, which is noticed later
            child.stdin.write(json.dumps(places) + "\n")

    def _request(
        self,
        child: subprocess.Popen[str],
        job: Job,
        options: LoadOptions,
        limit_bytes: int | None,
    ) -> None:
        """Let the child make one entry of at most `limit_bytes`, and wait; raises ExecutorError."""
        assert child.stdin is not None  # noqa: S101 - they are pipes
        assert child.stdout is not None  # noqa: S101
        request = {
            "maker": self._maker,
            "cache": str(self._cache.root.resolve()),
            "options": asdict(options),
            "job": {**asdict(job), "graph": str(job.graph.resolve())},
            "limit_bytes": limit_bytes,
        }
        with contextlib.suppress(BrokenPipeError):  # it has died, which is noticed below
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
        line = child.stdout.readline()
        if not line:
            raise self._end_of(child, job)
        answer = json.loads(line)
        if "failed" in answer:
            raise _LACKING.get(answer["lacks"], ExecutorError)(answer["reason"])

    def _end_of(self, child: subprocess.Popen[str], job: Job) -> ExecutorError:
        """Return the error for a child that ended before it had done `job`."""
        what = f"subnet {job.subnet}: the process that prepares it"
        if self._is_interrupted:
            return ExecutorError(f"{what} was stopped")
        code, said = child.wait(), _last_words(self._children[child])
        if code == -signal.SIGKILL:
            return NoMemoryError(
                f"{what} was killed, most likely for want of memory; give the node a smaller subnet"
            )
        if code < 0:
            name = signal.Signals(-code).name
            return EngineFailedError(
                f"subnet {job.subnet}: {self._engine} crashed ({name}) while it prepared or first "
                f"ran {job.graph}; another version of it may not{said}"
            )
        return ExecutorError(f"{what} ended unexpectedly (exit code {code}){said}")

    def interrupt(self) -> None:
        """End the children that run, and those that start before `resume`; from any thread.

        Calls that wait for them raise ExecutorError.
        """
        self._is_interrupted = True
        for child in tuple(self._children):
            child.kill()

    def resume(self) -> None:
        """Allow children again, unless this is closed."""
        self._is_interrupted = self._is_closed

    def close(self) -> None:
        """Interrupt permanently."""
        self._is_closed = True
        self.interrupt()


def _too_large(error: NoRoomError, room: Room) -> NoRoomError:
    return NoRoomError(
        f"{error}, which is all that the cache under {room.root} has left of its quota of "
        f"{room.quota_bytes / 1e6:.1f} MB; raise the quota (node-agent --cache-bytes) or give the "
        "node a smaller subnet"
    )


@contextmanager
def _reserved(room: Room, size_bytes: int) -> Iterator[int]:
    """Reserve room as `Room.reserve` does; raises ExecutorError if the disk fails."""
    try:
        with room.reserve(size_bytes) as granted:
            yield granted
    except OSError as error:
        raise ExecutorError(
            f"no room can be reserved in the cache under {room.root}: {error.strerror}; make room "
            "there or choose another cache directory"
        ) from error


def _last_words(errors: IO[bytes]) -> str:
    """Return the last line that a child wrote to its standard error, as the end of a sentence."""
    size_bytes = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size_bytes - _LAST_BYTES))
    lines = errors.read().decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {printable(last)}" if last else ""


def _end(child: subprocess.Popen[str]) -> None:
    """Kill the child, wait for its end and close its pipes, even with unsent data in them."""
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
