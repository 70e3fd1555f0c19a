"""Read the lists of rates and times in SDF3 XML: `1,2,1`, or `18*32` for eighteen times 32.

The entries of all lists of a file together are bounded, however briefly they are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from csdf.errors import CsdfError
from csdf.formats.safe_xml import Element

MAX_ENTRIES = 2_000_000
"""Entries of all lists of a file, run lengths and single values written out."""

COUNT = re.compile(r"\d{1,18}", re.ASCII)
_TIME = re.compile(
    r"(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,2})?|\d{1,30}/0*[1-9]\d{0,29}", re.ASCII
)

_Number = TypeVar("_Number", int, Fraction)


class ReadError(CsdfError):
    """What is wrong with an element of the file; the message names its line."""

    def __init__(self, element: Element, message: str) -> None:
        super().__init__(f"line {element.line}: {message}")


class Lists:
    """Reads the lists of one file. All methods raise `ReadError`."""

    def __init__(self) -> None:
        self._entries = 0

    def rates(self, port: Element) -> tuple[int, ...]:
        """Of a `port` element."""
        return self._read(port, "rate", COUNT, int)

    def times(self, execution_time: Element) -> tuple[Fraction, ...]:
        """Of an `executionTime` element."""
        return self._read(execution_time, "time", _TIME, Fraction)

    def spread(
        self, values: tuple[_Number, ...], phases: int, element: Element, what: str, actor: str
    ) -> tuple[_Number, ...]:
        """As many values as the `phases` of `actor`: one stands for all."""
        if len(values) == phases:
            return values
        if len(values) != 1:
            raise ReadError(
                element, f"{len(values)} {what} for the {phases} phases of actor {actor!r}"
            )
        self._count(element, phases)
        return values * phases

    def _read(
        self,
        element: Element,
        attribute: str,
        pattern: re.Pattern[str],
        number: Callable[[str], _Number],
    ) -> tuple[_Number, ...]:
        text = get(element, attribute)
        if ";" in text:
            raise ReadError(
                element,
                f"{attribute} {short(text)} has initial phases, which are not supported; "
                "give only those after the semicolon, and the tokens that the others leave",
            )
        if text.count(",") >= MAX_ENTRIES:  # before all of them are looked at
            self._count(element, MAX_ENTRIES + 1)
        found: list[_Number] = []
        for entry in text.split(","):
            times, star, value = entry.strip().rpartition("*")
            repeat = times.strip() if star else "1"
            if not (COUNT.fullmatch(repeat) and pattern.fullmatch(value.strip())):
                kind = (
                    "a whole number ≥ 0 of at most 18 digits" if number is int else "a number ≥ 0"
                )
                raise ReadError(
                    element,
                    f"{attribute} {short(text)} is no list of numbers: "
                    f"{short(entry.strip())} is not {kind}",
                )
            self._count(element, int(repeat))
            found.extend([number(value.strip())] * int(repeat))
        if not found:
            raise ReadError(element, f"{attribute} {short(text)} gives no phase")
        return tuple(found)

    def _count(self, element: Element, entries: int) -> None:
        self._entries += entries
        if self._entries > MAX_ENTRIES:
            raise ReadError(element, f"the lists have more than {MAX_ENTRIES} entries together")


def get(element: Element, attribute: str) -> str:
    """An attribute that has to be there. Raises `ReadError`."""
    if attribute not in element.attributes:
        raise ReadError(element, f"element {element.tag!r} has no attribute {attribute!r}")
    return element.attributes[attribute]


def short(text: str) -> str:
    """`text` in quotes, cut where it is long."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
