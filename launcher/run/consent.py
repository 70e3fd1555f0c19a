"""How a user agrees to the use of nodes that came back: SIGUSR1 to the launcher.

A signal reaches a run with and without a terminal, from scripts and over ssh, and takes no line of
input from anybody else. Where nobody waits for it, it must do nothing: by default it would kill.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


class Consent:
    """`descriptor` can be read once the user has agreed."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def give(self) -> None:
        """The user agrees."""
        os.eventfd_write(self.descriptor, 1)

    def take(self) -> None:
        """It was heard."""
        os.eventfd_read(self.descriptor)


def how_to_consent() -> str:
    """What a user does to agree; empty where signals cannot be heard (outside the main thread)."""
    here = threading.current_thread() is threading.main_thread()
    return f"kill -USR1 {os.getpid()}" if here else ""


def ignore_consent() -> None:
    """Outside of `hearing_consent`, SIGUSR1 does nothing from now on to a process that it would
    kill: it may come early, or when the last result has just arrived."""
    if how_to_consent() and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


@contextlib.contextmanager
def hearing_consent() -> Iterator[Consent]:
    """While inside, SIGUSR1 means that the user agrees (only where called in the main thread)."""
    consent = Consent()
    former = None
    if how_to_consent():
        former = signal.signal(signal.SIGUSR1, lambda _number, _frame: consent.give())
    try:
        yield consent
    finally:
        if former is not None:  # None also for one that was not set by Python
            signal.signal(signal.SIGUSR1, former)
        os.close(consent.descriptor)
