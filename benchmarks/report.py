"""Makes the object that every benchmark prints with `--json`, from which `docs/results.md` is made.

A benchmark reads its arguments with `arguments`, passes its figures to `report`, and prints the
object that it returns, as JSON or as text (`show`). The user saves the JSON as
`benchmarks/results/NAME.json`, or as `NAME-WHAT.json` where a benchmark ran in several ways, whose
titles then differ. A figure is a number with a required bound; whether the bound holds is always
computed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from nodes.host.usage import machine as processor

PACKAGES = ("onnxruntime", "numpy", "pyzmq", "onnx")
"""Whose versions may change a figure."""


@dataclass(frozen=True)
class Figure:
    """One number that was measured: a median, with the least and the largest beside it.

    `at_least` and `at_most` are what was asked of it, in its own `unit`; `note` is a few words.
    """

    what: str
    measured: float | int | str
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""

    @classmethod
    def of(
        cls, what: str, values: Iterable[float], unit: str = "", *, digits: int = 3, **more: Any
    ) -> Figure:
        """The median of at least one value, with the least and the largest, rounded; `more` are
        further fields."""
        found = list(values)
        middle, low, high = (
            round(value, digits) for value in (statistics.median(found), min(found), max(found))
        )
        return cls(what, middle, unit, **{"low": low, "high": high, **more})

    @property
    def bounds(self) -> str:
        """What was asked of it, in words; empty if nothing was."""
        asked = (("≥", self.at_least), ("≤", self.at_most))
        return " and ".join(f"{sign} {number(one)}" for sign, one in asked if one is not None)

    @property
    def spread(self) -> str:
        """The least and the largest, if they differ."""
        if self.low is None or self.high is None or self.low == self.high:
            return ""
        return f"{number(self.low)} to {number(self.high)}"

    @property
    def shown(self) -> str:
        """What was measured, with its unit."""
        value = self.measured if isinstance(self.measured, str) else number(self.measured)
        return f"{value} {self.unit}".strip()

    @property
    def holds(self) -> bool | None:
        """Whether it is within what was asked; None if nothing was."""
        if isinstance(self.measured, str) or (self.at_least is None and self.at_most is None):
            return None
        enough = self.at_least is None or self.measured >= self.at_least
        return enough and (self.at_most is None or self.measured <= self.at_most)


@dataclass(frozen=True)
class Table:
    """What is more than figures: columns and rows of text, each row as long as `columns`."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def report(
    benchmark: str,
    title: str,
    figures: Sequence[Figure],
    *,
    settings: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    tables: Sequence[Table] = (),
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The object. `settings` is what was chosen, `notes` are sentences that are needed to read the
    figures, `data` is raw. The page shows the figures with bounds and the first table, if short."""
    return {
        "benchmark": benchmark,
        "title": title,
        "command": command(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "version": _commit(),
        "machine": facts(),
        "settings": dict(settings or {}),
        "rows": [
            {key: value for key, value in asdict(one).items() if value not in (None, "")}
            for one in figures
        ],
        "notes": list(notes),
        "tables": [asdict(one) for one in tables],
        "data": dict(data or {}),
    }


def print_json(data: Mapping[str, Any]) -> None:
    """To standard output, one object and nothing else."""
    print(json.dumps(data, indent=1, ensure_ascii=False))


def show(data: Mapping[str, Any], *, as_json: bool) -> int:
    """Print a report, as JSON or as text; return 1 if a figure is not what was asked, else 0."""
    figures = [Figure(**row) for row in data["rows"]]
    if as_json:
        print_json(data)
    else:
        for one in data["tables"]:
            print(f"{one['title']}\n{columns([one['columns'], *one['rows']])}\n")
        print(columns([_line(one) for one in figures]))
        print("\n".join(data["notes"]))
    return int(any(one.holds is False for one in figures))


def _line(one: Figure) -> tuple[str, ...]:
    held = {None: "", True: "reached", False: "MISSED"}[one.holds]
    return one.what, one.shown, one.spread, one.bounds, held, one.note


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Lines of text, whose cells stand below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def number(value: float) -> str:
    """Four digits, or all of a whole number."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.4g}"


def arguments(module: str, text: str | None) -> argparse.ArgumentParser:
    """A parser for `python -m MODULE`, whose help is the module's docstring; it knows `--json`."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    return parser


def parts(
    module: str, text: str | None
) -> tuple[argparse.ArgumentParser, Callable[[str, str], argparse.ArgumentParser]]:
    """A parser for `python -m MODULE PART`, and a function that adds a part by its name and a
    sentence; every part knows `--json`."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=text)
    found = parser.add_subparsers(dest="part", required=True)

    def add(name: str, sentence: str) -> argparse.ArgumentParser:
        one = found.add_parser(name, help=sentence)
        one.add_argument("--json", action="store_true", help="print one JSON object and no more")
        return one

    return parser, add


def command() -> str:
    """As it was typed, whatever the interpreter is called and wherever files lie."""
    typed = sys.orig_argv
    program = typed[typed.index("-m") :] if "-m" in typed else [Path(sys.argv[0]).name]
    return shlex.join(("python", *program[:2], *map(without_folder, sys.argv[1:])))


def without_folder(word: str) -> str:
    """A word of a command line; of an absolute path, only the last part."""
    option, sign, value = word.rpartition("=")
    return option + sign + (Path(value).name if value.startswith("/") else value)


def facts() -> dict[str, Any]:
    """The machine's: nothing that says whose it is."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages * size / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "load": round(os.getloadavg()[0], 1),
    }


def _commit() -> str:
    """The commit of this checkout, with `-dirty` if files differ from it; else the version."""
    command = ("git", "describe", "--always", "--dirty", "--exclude=*")
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        said = subprocess.check_output(
            command, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL, text=True
        )
        return said.strip()
    return _version("csdf-edge")


def _version(package: str) -> str:
    for name in (f"{package}-gpu", package):  # a wheel for GPUs takes the usual one's place
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "not installed"
