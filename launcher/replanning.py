"""Another plan for a run that goes on: for the nodes that are left, soon.

The strategy that the user chose has a part of `recovery_s` for its search; if it takes longer, or
finds no plan on these nodes, the dynamic program `sequential` takes its place, which is quick. What
the user pinned stays pinned, and memory limits hold.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

from cnn.errors import CnnError
from cnn.model import Model
from launcher.config_load import Cluster
from launcher.errors import BadInputError, LauncherError, RunFailedError
from launcher.planning import search_plan
from launcher.runtime import SubnetFiles
from launcher.subnet_files import cut_subnets
from partition.plan import Plan

QUICK = "sequential"
"""The strategy that takes the place of one that is too slow."""

SEARCH_SHARE = 0.5
"""The part of `recovery_s` that the chosen strategy may search for."""


CLOSING_S = 5.0
"""How long the end of a run waits for a search to break off."""


class TooLateError(LauncherError):
    """The search took too long."""


class RunIsOverError(LauncherError):
    """Nobody wants a plan any more."""


def _check(is_over: threading.Event) -> None:
    if is_over.is_set():
        raise RunIsOverError("the run is over")


class Hurry:
    """A `Progress` that shows nothing, and breaks off a search that is at it after `until_s`, or
    when the run `is_over`."""

    def __init__(self, until_s: float, is_over: threading.Event) -> None:
        self._until_s = until_s
        self._is_over = is_over

    def __enter__(self) -> Hurry:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def say(self, text: str) -> None:
        """See `launcher.progress.Progress`."""

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:  # noqa: ARG002
        """See `launcher.progress.Progress`; raises `TooLateError`, `RunIsOverError`."""
        _check(self._is_over)
        if time.monotonic() > self._until_s:
            raise TooLateError


class Replanner:
    """Plans for a cluster whose model was read and cuts the subnets into `folder`."""

    def __init__(self, cluster: Cluster, model: Model, folder: Path) -> None:
        self._cluster = cluster
        self._model = model
        self._folder = folder
        self._lock = threading.Lock()
        self._count = 0
        self._is_over = threading.Event()

    def close(self) -> None:
        """The run is over and its folder about to go: break off a search, await what is cut."""
        self._is_over.set()
        if self._lock.acquire(timeout=CLOSING_S):
            self._lock.release()

    def __call__(self, nodes: tuple[str, ...]) -> tuple[Plan, Mapping[str, SubnetFiles]]:
        """A plan on some of these nodes, and its subnets; raises `LauncherError`."""
        with self._lock:
            _check(self._is_over)
            self._count += 1
            folder = self._folder / f"replanned-{self._count}"
            try:
                plan = self._plan(nodes)
                _check(self._is_over)
                return plan, cut_subnets(self._model, plan, folder, lambda _done, _total: None)
            except (CnnError, OSError) as error:
                raise RunFailedError(str(error)) from error

    def _plan(self, nodes: tuple[str, ...]) -> Plan:
        until_s = time.monotonic() + SEARCH_SHARE * self._cluster.config.recovery.recovery_s
        failed: LauncherError | None = None
        try:
            return search_plan(
                self._cluster, self._model, Hurry(until_s, self._is_over), nodes=nodes
            )
        except TooLateError:
            pass
        except BadInputError as error:
            failed = error
        quick = self._cluster.changed(strategy=QUICK)
        try:
            return search_plan(quick, self._model, Hurry(float("inf"), self._is_over), nodes=nodes)
        except BadInputError as error:
            raise failed or error from error
