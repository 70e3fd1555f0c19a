"""The errors of `csdf`, which all derive from `CsdfError`."""

from __future__ import annotations

from fractions import Fraction


class CsdfError(Exception):
    """The root of all errors of `csdf`; the message says what, where and what to do."""


class GraphError(CsdfError):
    """The graph is malformed: a channel without an actor, or rates that do not match phases."""


class ConversionError(CsdfError):
    """The partition does not fit its network: a layer has no device, or is unknown."""


class InconsistentGraphError(CsdfError):
    """No repetition vector exists: tokens pile up or run out in any order of firing.

    `channels` are the names of the channels whose rates contradict each other: one, two, or a
    cycle.
    """

    def __init__(self, message: str, channels: tuple[str, ...]) -> None:
        super().__init__(message)
        self.channels = channels


class DeadlockError(CsdfError):
    """The analysis needs a live graph, and this one deadlocks; the message is the diagnosis."""


class NotProvedError(CsdfError):
    """A dataflow with these skews and capacities cannot be proved free of deadlock."""


class TooLargeError(CsdfError):
    """An exact answer would take more steps than allowed; the message says how many."""


class OvertakingError(CsdfError):
    """The analysis needs firings that end in the order in which they start."""


class PeriodBoundsError(TooLargeError):
    """The exact period would take more steps than allowed.

    The bounds `at_least` and `at_most` (None: not known) are proved.
    """

    def __init__(self, message: str, at_least: Fraction, at_most: Fraction | None) -> None:
        super().__init__(message)
        self.at_least, self.at_most = at_least, at_most
