"""Lets the user agree to the use of nodes that returned, by sending SIGUSR1 to the launcher.

A signal works with and without a terminal, from scripts and over ssh, and does not consume standard
input. Its default action would kill the process, so it is ignored while no run waits for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


class Consent:
    """The user's consent; `descriptor` becomes readable when it is given.

    `command` is the command by which the user gives it; empty if there is none.
    """

    def __init__(self, command: str = "") -> None:
        self.command = command
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def give(self) -> None:
        """Note that the user agrees."""
        os.eventfd_write(self.descriptor, 1)

    def take(self) -> None:
        """Consume the consent, which the caller acts upon."""
        os.eventfd_read(self.descriptor)


def how_to_consent() -> str:
    """Return the command by which a user agrees; empty outside the main thread, where Python
    cannot handle signals."""
    here = threading.current_thread() is threading.main_thread()
    return f"kill -USR1 {os.getpid()}" if here else ""


def ignore_consent() -> None:
    """Ignore SIGUSR1 outside of `hearing_consent` from now on, unless it has a handler already.

    It may come before the run begins, or just after the last result.
    """
    if how_to_consent() and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


@contextlib.contextmanager
def hearing_consent() -> Iterator[Consent]:
    """Take SIGUSR1 as the user's consent inside of the context (in the main thread only)."""
    consent = Consent(how_to_consent())
    former = None
    if consent.command:
        former = signal.signal(signal.SIGUSR1, lambda _number, _frame: consent.give())
    try:
        yield consent
    finally:
        try:
            if former is not None:  # it is None for a handler that was not set by Python
                signal.signal(signal.SIGUSR1, former)
        except ValueError:  # another thread closes the cluster, and cannot change the handler
            pass
        else:
            os.close(consent.descriptor)
