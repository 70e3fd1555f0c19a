"""Starts threads whose end somebody owns: each is a future with what its call returns or raises.

They are daemons. One that hangs in a library or a file system holds up neither the end of the
process nor other threads, and is left behind. In a forked child, where no thread runs, all futures
are done, as threads can be joined there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")

_STARTED: WeakSet[Future[Any]] = WeakSet()


def _after_fork() -> None:
    for future in tuple(_STARTED):
        if not future.done():
            future.set_result(None)


os.register_at_fork(after_in_child=_after_fork)


def in_thread(call: Callable[[], T], name: str) -> Future[T]:
    """Start a thread called `name` that makes a call; its future cannot be cancelled."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    _STARTED.add(future)

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
            future.set_exception(error)

    threading.Thread(target=run, name=f"csdf-edge {name}", daemon=True).start()
    return future


class Repeated:
    """Repeats a call in a thread while its context lasts, `every_s()` seconds after each return.

    The end of the context waits for a call in progress, at most `patience_s` if that is given. An
    error of the call ends the repetition, and is raised then.
    """

    def __init__(
        self,
        call: Callable[[], None],
        every_s: Callable[[], float],
        name: str,
        *,
        patience_s: float | None = None,
    ) -> None:
        self._call = call
        self._every_s = every_s
        self._name = name
        self._patience_s = patience_s
        self._ended = threading.Event()

    def __enter__(self) -> None:
        self._repeating = in_thread(self._repeat, self._name)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        wait([self._repeating], self._patience_s)
        if self._repeating.done():
            self._repeating.result()

    def _repeat(self) -> None:
        while not self._ended.is_set():
            self._call()
            self._ended.wait(self._every_s())
