"""Defines the launcher's errors and the exit code of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

EXIT_FINE = 0
EXIT_FAILED = 1
"""The run started and failed: a node was lost, or results are missing or disagree."""
EXIT_BAD_INPUT = 2
"""Something that the user wrote or named cannot be used; nothing was run."""


LONGEST_REASON = 200
"""Characters of a foreign message (a library's, an agent's) that a sentence quotes."""


class LauncherError(Exception):
    """The root of the launcher's errors: a sentence with what happened, where, and what to do."""

    exit_code = EXIT_FAILED


class BadInputError(LauncherError):
    """A user's mistake; the message names the file, key, layer or node."""

    exit_code = EXIT_BAD_INPUT


class RunFailedError(LauncherError):
    """A run that began and could not be completed."""


class UncertifiedError(LauncherError):
    """The checker refuses a plan's certificate, which is a defect of this program."""


class UnfitFrameError(BadInputError):
    """A frame has other names, shapes or dtypes than the network's inputs; others may fit."""


class BarredError(BadInputError):
    """Two nodes cannot authenticate each other, so no frame can pass between them."""


class UnreachableError(BadInputError):
    """Agents did not answer a greeting in time; `absent` has a sentence about each, by node."""

    def __init__(self, sentence: str, absent: Mapping[str, str]) -> None:
        super().__init__(sentence)
        self.absent = absent


class LacksRoomError(BadInputError):
    """The nodes have no room for the plan; it may fit once something else ends."""


class FullError(LauncherError):
    """The agreed number of frames is in flight; the same frame may be tried again later."""


def reason(error: BaseException, path: Path | None = None) -> str:
    """A library's message for an error on one line; the error's type where it has no message.

    The system's message about the file `path`, which the sentence names, does not repeat it.
    """
    words = "there is not enough memory" if isinstance(error, MemoryError) else str(error)
    if path is not None and isinstance(error, OSError) and str(error.filename) == str(path):
        words = error.strerror or words
    return shortened(words) or type(error).__name__


def shortened(words: str) -> str:
    """A foreign message as a sentence quotes it: on one line, and of bounded length."""
    line = " ".join(words.split())
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}…"
