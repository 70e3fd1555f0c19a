"""Reads what exporters write into a model's metadata: its task, its classes and its key points.

ultralytics writes `task`, `names`, `kpt_shape`, `imgsz` and `head` as Python literals. A model
comes from anywhere, so that a text is compared with a grammar without nesting, and bounded, before
Python parses it; what does not fit counts as not written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cnn.reading.inputs import image_size

LONGEST_TEXT = 1 << 20
"""Characters of an entry that are read."""

MOST_CLASSES = 65_535
"""Classes that have names; their numbers fit 16 bits (`launcher.tasks.predictions`)."""

LONGEST_NAME = 100
"""Characters of a class's name that are kept."""

MOST_POINTS = 10_000

_TEXT = r"""(?:'(?:[^'\\\n\r]|\\[^\n\r])*'|"(?:[^"\\\n\r]|\\[^\n\r])*")"""
_NAMES = re.compile(rf"\{{(?:[ ,]*[0-9]{{1,5}} ?: ?{_TEXT})*[ ,]*\}}|\[(?:[ ,]*{_TEXT})*[ ,]*\]")
_PAIR = re.compile(r"[\[(] ?([0-9]{1,5}), ?([0-9]{1,5}) ?[\])]")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model's metadata; `task` and `head` are "" if it has none."""

    task: str = ""
    head: str = ""
    names: tuple[str, ...] = ()
    points: tuple[int, int] | None = None
    """How many key points an object has, and the values of each: 2, or 3 with a score."""
    size: tuple[int, int] | None = None
    """The height and width of the images that the exporter had in mind."""
    is_ultralytics: bool = False


def model_facts(metadata: Mapping[str, str]) -> ModelFacts:
    """Return what `metadata` say; entries that cannot be read are left out."""
    short = {key: text for key, text in metadata.items() if len(text) <= LONGEST_TEXT}
    return ModelFacts(
        task=short.get("task", "").strip().lower()[:LONGEST_NAME],
        head=short.get("head", "").strip()[:LONGEST_NAME],
        names=_names(short.get("names", "")),
        points=_points(short.get("kpt_shape", "")),
        size=image_size(short.get("imgsz", "")),
        is_ultralytics=short.get("author", "") == "Ultralytics",
    )


def _names(text: str) -> tuple[str, ...]:
    """Return the names by class from a dict or list as Python writes it; () if it is none."""
    if not _NAMES.fullmatch(text.strip()):
        return ()
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    by_number = value if isinstance(value, dict) else dict(enumerate(value))
    if not by_number or max(by_number) >= MOST_CLASSES:
        return ()
    return tuple(printable(by_number.get(number, "")) for number in range(max(by_number) + 1))


def printable(name: str) -> str:
    """Return a class's name without control characters, and of bounded length."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in name)[
        :LONGEST_NAME
    ]


def _points(text: str) -> tuple[int, int] | None:
    match = _PAIR.fullmatch(text.strip())
    if match is None:
        return None
    count, values = int(match[1]), int(match[2])
    return (count, values) if 1 <= count <= MOST_POINTS and values in (2, 3) else None
