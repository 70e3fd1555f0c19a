"""Lets one thread end the waits of another."""

from __future__ import annotations

import os
import select
import weakref


class Interrupt:
    """A flag that is set once, and that a wait for a descriptor notices at once."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        self.is_set = False

    def set(self) -> None:
        """End all waits, those that begin later too."""
        self.is_set = True
        os.eventfd_write(self._descriptor, 1)

    def wait_for(self, descriptor: int) -> bool:
        """Wait until `descriptor` can be read; returns False once the flag is set."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self._descriptor, select.POLLIN)
        while not self.is_set:
            if poll.poll() and not self.is_set:
                return True
        return False
