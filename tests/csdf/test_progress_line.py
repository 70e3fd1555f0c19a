"""A long search reports its progress; a short one does not."""

from __future__ import annotations

from fractions import Fraction
from io import StringIO

from csdf.buffers.capacities import CapacityProgress
from csdf.buffers.conflicts import PeriodGoal
from csdf.cli.output import EVERY_S, FIRST_S, ProgressLine
from csdf.cli.report import progress_text


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_is_over_at_once_says_nothing() -> None:
    stream, clock = StringIO(), Clock()
    line = ProgressLine(stream, clock)
    clock.now_s = FIRST_S / 2
    line.update(lambda: "half")
    line.clear()
    assert stream.getvalue() == ""


def test_lines_come_now_and_then() -> None:
    stream, clock = StringIO(), Clock()
    line = ProgressLine(stream, clock)
    for second in range(30):
        clock.now_s = float(second)
        line.update(lambda: "on")
    line.clear()
    assert stream.getvalue() == "on\n" * (1 + int((29 - FIRST_S) // EVERY_S))


def test_a_terminal_has_one_line_which_goes() -> None:
    stream, clock = Terminal(), Clock()
    line = ProgressLine(stream, clock)
    for text in ("longer", "short"):
        clock.now_s += FIRST_S
        line.update(lambda text=text: text)  # type: ignore[misc]
    line.clear()
    assert stream.getvalue() == "\rlonger\rshort \r     \r"


def test_what_a_search_says() -> None:
    on_the_way = CapacityProgress(PeriodGoal(Fraction(23, 2), strict=True), 12, 20, 0.25)
    expected = (
        "csdf: period below 23/2 ≈ 11.5: at least 12 tokens, at most 20; 25% of the effort spent"
    )
    assert progress_text(on_the_way, "tokens") == expected
    begun = CapacityProgress(PeriodGoal(None), 3, None, 0.0)
    assert progress_text(begun, "bytes") == "csdf: live: at least 3 bytes; 0% of the effort spent"
