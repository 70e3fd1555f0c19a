"""Carries out actions on this machine, and reads its state."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.lab.actions import Action, MakeFolder, Run, Start, Write
from launcher.errors import LauncherError, RunFailedError

DETACH = '"$@" &'
LOOK_EVERY_S = 0.02


class LabError(RunFailedError):
    """The machine refused something that a laboratory needs, or a board did not come up."""


def perform(actions: Iterable[Action]) -> None:
    """Carry out actions in order; raises `LabError` at the first that is refused."""
    for action in actions:
        _perform(action)


def _perform(action: Action) -> None:
    try:
        match action:
            case Run():
                run(action.argv, required=action.required)
            case MakeFolder():
                action.path.mkdir(parents=True, exist_ok=True)
            case Write():
                try:
                    action.path.write_text(action.text, "ascii")
                except OSError:
                    if action.required:
                        raise
            case Start():
                _start(action)
    except OSError as error:
        raise LabError(f"{action}: {error.strerror}") from error


def run(argv: tuple[str, ...], *, required: bool = True) -> str:
    """What a command printed; raises `LabError` with what it complained of."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as error:
        if not required:
            return ""
        raise LabError(f"{argv[0]}: {error.strerror}") from error
    if done.returncode and required:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def read_json(*argv: str) -> list[dict[str, Any]]:
    """The list that `ip -j` or `tc -j` printed; empty where it printed nothing."""
    found = json.loads(run(argv) or "[]")
    return [one for one in found if one]


def _start(action: Start) -> None:
    """Through a shell that ends at once, so that the daemon is nobody's child but init's."""
    with action.log.open("ab") as log:
        subprocess.run(
            ("/bin/sh", "-c", DETACH, "sh", *action.argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=True,
        )


def wait_until(true: Callable[[], bool], seconds: float, otherwise: Callable[[], str]) -> None:
    """Look again and again; raises `LabError` with what `otherwise` says if it takes too long."""
    until_s = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until_s:
            raise LabError(otherwise())
        time.sleep(LOOK_EVERY_S)


def end(pids: Iterable[int], seconds: float = 10.0) -> None:
    """SIGKILL these processes, and wait until they have ended; raises `LabError` if they do not."""
    waiting: dict[int, int] = {}
    poll = select.poll()
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                waiting[descriptor] = pid
                poll.register(descriptor, select.POLLIN)
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        left, until_s = dict(waiting), time.monotonic() + seconds
        while left:
            for descriptor, _ in poll.poll(max(0.0, until_s - time.monotonic()) * 1000):
                poll.unregister(descriptor)
                del left[descriptor]
            if left and time.monotonic() >= until_s:
                raise LabError(f"process {next(iter(left.values()))} does not end")
    finally:
        for descriptor in waiting:
            os.close(descriptor)


def suppress_errors() -> contextlib.suppress:
    """For cleaning up, where one refusal must not keep the rest from being done."""
    return contextlib.suppress(LauncherError, OSError)
