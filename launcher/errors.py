"""The launcher's errors and the exit codes that they end with."""

EXIT_FINE = 0
EXIT_FAILED = 1
"""The run was started and did not end well: a node was lost, results are missing or disagree."""
EXIT_BAD_INPUT = 2
"""Something that the user wrote or named cannot be used; nothing was run."""


LONGEST_REASON = 200
"""Characters of somebody else's words in a sentence of ours."""


class LauncherError(Exception):
    """The root: a sentence that says what happened, where, and what the user can do."""

    exit_code = EXIT_FAILED


class BadInputError(LauncherError):
    """A user's mistake: file, key, layer or node named in the message."""

    exit_code = EXIT_BAD_INPUT


class RunFailedError(LauncherError):
    """A run that began and could not be completed."""


class BarredError(BadInputError):
    """Two nodes do not agree on who they are, so that no frame can pass between them."""


def reason(error: Exception) -> str:
    """Why a library could not read a file: its own words, or what they would say, on one line."""
    words = "there is not enough memory" if isinstance(error, MemoryError) else str(error)
    return shortened(words) or type(error).__name__


def shortened(words: str) -> str:
    """Somebody else's words as a sentence quotes them: on one line, and not for ever."""
    line = " ".join(words.split())
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}…"
