"""Finds the figures of this board for a launcher: reads the kept ones, or else measures.

Figures are kept in the agent's cache, under a key of the conditions that they depend on
(`nodes.measuring.conditions`). They are an entry like those of prepared subnets: within the cache's
quota, published whole, and checked when it is read. Agents that share a cache measure one after the
other, so that they do not disturb each other, and the second agent finds the figures of the first.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock, Thread

from nodes.core.events import FiguresFound
from nodes.executors.base import ExecutorError
from nodes.executors.preparing.entries import PreparedFiles
from nodes.host.control_groups import core_share, room_bytes
from nodes.host.process import python_command
from nodes.measuring.conditions import conditions, threads_of_board
from nodes.measuring.derivation import under_share
from nodes.protocol.errors import NodeError
from nodes.protocol.fields import printable
from nodes.protocol.messages import BoardFigures
from nodes.protocol.schema import FIGURES

CHILD = "nodes.measuring.process"

LONGEST_S = 60.0
"""How long the child may take; on a board with a core it takes less than two seconds."""

CHILD_BYTES = 80_000_000
"""The memory that must be free for the child: it had 60 MB at its peak."""

BEFORE_LAUNCHERS = ""
"""The session of what an agent measures at its start, before a launcher has asked: a launcher that
asks meanwhile gets the same result, and nobody waits for a slow board."""

_FORMAT = 1
"""A number to increase whenever figures would be measured or derived in another way."""

_FILE = "figures.json"

log = logging.getLogger("node-agent")


class MeasuringError(NodeError):
    """The board could not be measured; the message is a clause that says why."""


@dataclass(frozen=True, slots=True)
class MeasuredEngine:
    """The engine and device that an agent computes with, and how the engine describes itself."""

    engine: str
    device: str
    description: str


class BoardMeasuring:
    """Finds figures in background threads, and reports each result as `FiguresFound`.

    `loopback` is an address at which the measuring process may reach itself, encrypted if it is
    `guarded`. `computing_thread` returns the entry in /proc of the thread that computes, whose
    quota may differ from that of the process.
    """

    def __init__(
        self,
        engine: MeasuredEngine,
        kept: PreparedFiles,
        report: Callable[[FiguresFound], None],
        *,
        loopback: str,
        guarded: bool,
        computing_thread: Callable[[], str],
    ) -> None:
        self._engine = engine
        self._kept = kept
        self._report = report
        self._loopback = loopback
        self._guarded = guarded
        self._computing_thread = computing_thread
        self._lock = Lock()
        self._child: subprocess.Popen[str] | None = None
        self._yields = False
        self._is_closed = False

    def find(self, session: str, threads: int, *, may_measure: bool, again: bool = False) -> None:
        """Find the figures for `threads` (0: as many as the board has); report them for `session`.

        Without `may_measure`, only kept figures are reported. With `again`, they are replaced.
        """

        def find() -> None:
            figures, reason = None, ""
            try:
                threads_here = threads or threads_of_board(self._computing_thread())
                self._yields = session == BEFORE_LAUNCHERS
                figures = self._found(threads_here, may_measure=may_measure, again=again)
            except Exception as error:  # noqa: BLE001 - the launcher waits for an answer
                reason = printable(str(error))
                log.info("this board was not measured: %s", reason)
            self._report(FiguresFound(session, figures, reason))

        Thread(target=find, name="measuring", daemon=True).start()

    def yield_to_deployment(self) -> None:
        """End a measurement that no launcher has asked for: it would disturb what is deployed."""
        with self._lock:
            if self._yields and self._child is not None:
                self._child.kill()

    def close(self) -> None:
        """End the measuring process if there is one, and start no other."""
        with self._lock:
            self._is_closed = True
            if self._child is not None:
                self._child.kill()

    def _found(self, threads: int, *, may_measure: bool, again: bool) -> BoardFigures:
        threads = min(threads, len(os.sched_getaffinity(0)))
        key = self._key(threads)
        found = self._read(key)
        if found is None and not may_measure:
            raise MeasuringError("it computes for a launcher, so its board is not measured now")
        if found is None or (again and may_measure):
            with self._alone():
                found = None if again else self._read(key)
                if found is None:
                    found = self._measured(threads)
                    self._kept.discard(key)
                    self._keep(key, found)
        computing = core_share(self._computing_thread(), threads)
        return under_share(found, computing or 1.0, core_share("self") or 1.0)

    def _key(self, threads: int) -> str:
        facts = (_FORMAT, self._engine, threads, self._guarded, conditions())
        return f"figures-{sha256(repr(facts).encode()).hexdigest()}"

    def _read(self, key: str) -> BoardFigures | None:
        entry = self._kept.find(key)
        if entry is None:
            return None
        try:
            found: BoardFigures = FIGURES.unpack(json.loads((entry / _FILE).read_text("utf-8")))
        except (OSError, ValueError, RecursionError):
            self._kept.discard(key)
            return None
        return found

    def _keep(self, key: str, figures: BoardFigures) -> None:
        try:
            with self._kept.making(key) as folder:
                (folder / _FILE).write_text(json.dumps(FIGURES.pack(figures)), "utf-8")
        except ExecutorError as error:
            log.warning("the measurements of this board could not be saved: %s", error)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other agent with this cache measures, and make others wait.

        The kernel releases the lock if this process ends.
        """
        try:
            folder = os.open(self._kept.root, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise MeasuringError(
                f"its cache {self._kept.root} cannot be opened: {error.strerror}; restart the "
                "agent, or give it another --cache"
            ) from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _measured(self, threads: int) -> BoardFigures:
        if room_bytes() < CHILD_BYTES:
            raise MeasuringError(
                f"measuring takes {CHILD_BYTES / 1e6:.0f} MB of memory, and "
                f"{room_bytes() / 1e6:.0f} MB are free"
            )
        asked = {
            "engine": self._engine.engine,
            "device": self._engine.device,
            "cache": str(self._kept.root.resolve()),
            "threads": threads,
            "loopback": self._loopback,
            "guarded": self._guarded,
        }
        answer = self._asked(json.dumps(asked))
        if "figures" not in answer:
            raise MeasuringError(f"its board could not be measured: {answer.get('reason')}")
        log.info(
            "measured this board with %d threads; that took %.0f MB",
            threads,
            float(str(answer.get("peak_bytes", 0))) / 1e6,
        )
        try:
            found: BoardFigures = FIGURES.unpack(answer["figures"])
        except ValueError as error:
            raise MeasuringError(f"its board measured implausible figures: {error}") from error
        return found

    def _asked(self, request: str) -> dict[str, object]:
        """Return the answer of a child; raises `MeasuringError` if it ends without one."""
        with self._lock:
            if self._is_closed:
                raise MeasuringError("the agent ends")
            child = self._child = subprocess.Popen(
                python_command(CHILD),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        try:
            written, _ = child.communicate(request, timeout=LONGEST_S)
        except subprocess.TimeoutExpired as error:
            raise MeasuringError(f"its board was not measured within {LONGEST_S:.0f} s") from error
        finally:
            with self._lock:
                self._child = None
            child.kill()
            with contextlib.suppress(OSError):
                child.wait()
        try:
            answer: dict[str, object] = json.loads(written)
        except ValueError as error:
            how = f"ended unexpectedly (exit code {child.returncode})"
            if child.returncode < 0:
                how = f"was killed by signal {-child.returncode}; it may have lacked memory"
            raise MeasuringError(f"the process that measures its board {how}") from error
        return answer
