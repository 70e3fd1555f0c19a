"""Draws `docs/results.md` from what benchmarks have measured (`benchmarks/results/*.json`).

    python -m benchmarks.results [--check] [--json]

Each file is what a benchmark printed with `--json` (`benchmarks.report`). It has the benchmark's
name, followed by another word (`table3-memory.json`) where a benchmark ran in several ways. Each
gets a section: its command, when and where it ran, every figure with its spread and its required
bound, and its tables and pictures. With `--check` nothing is written, and the exit code is 1 if the
page differs from the files. `--json` prints the bounds and whether they hold, and writes nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, Table

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "results.md"

HEAD = """# Results

Drawn by `python -m benchmarks.results` from the files in `benchmarks/results`, which the benchmarks
wrote with `--json`; nothing here is typed by hand. A measured figure is a median, with the least
and the largest beside it where it was measured more than once.
"""

COLUMNS = ("what", "measured", "spread", "asked", "held")
NOTHING = "–"
HELD = {True: "yes", False: "**no**", None: NOTHING}
REQUIRED = ("benchmark", "title", "command", "date", "machine", "rows")


class ResultError(ValueError):
    """A file that is no result of a benchmark; it says which and why."""


def read_all(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """All results by name; raises `ResultError`."""
    return [_read(path) for path in sorted(folder.glob("*.json"), key=_stem)]


def _stem(path: Path) -> str:
    return path.stem


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ResultError(f"{path.name} is not JSON: {error}") from error
    lacks = [key for key in REQUIRED if not isinstance(data, dict) or key not in data]
    if lacks:
        raise ResultError(f"{path.name} lacks {', '.join(lacks)}: see benchmarks/report.py")
    name = data["benchmark"]
    if path.stem != name and not path.stem.startswith(f"{name}-"):
        raise ResultError(f"{path.name} says that it is {name!r}: name it so, or {name}-WHAT.json")
    return dict(data)


def figures_of(result: Mapping[str, Any]) -> list[Figure]:
    """The figures of a result; raises `ResultError` for keys that a figure does not have."""
    known = {field.name for field in dataclasses.fields(Figure)}
    for row in result["rows"]:
        if not {"what", "measured"} <= set(row) <= known:
            raise ResultError(f"{result['benchmark']}: {row} is no figure")
    return [Figure(**row) for row in result["rows"]]


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """The text of `docs/results.md`; raises `ResultError` for two sections of one title."""
    titles = [result["title"] for result in results]
    twice = sorted({title for title in titles if titles.count(title) > 1})
    if twice:
        raise ResultError(f"several results are called {', '.join(map(repr, twice))}")
    return "\n".join([HEAD, *map(_section, results)])


def _section(result: Mapping[str, Any]) -> str:
    parts = [f"## {result['title']}", _ran(result)]
    parts += [f"{note}" for note in result.get("notes", ())]
    figures = figures_of(result)
    if figures:
        parts.append(_table(COLUMNS, [_row(one) for one in figures]))
    for name, seen in result.get("pictures", {}).items():
        parts.append(f"![{seen}](../benchmarks/results/{name})")
    for data in result.get("tables", ()):
        table = Table(data["title"], tuple(data["columns"]), tuple(map(tuple, data["rows"])))
        parts.append(f"### {table.title}")
        parts.append(_table(table.columns, table.rows))
    return "\n\n".join(parts) + "\n"


def _ran(result: Mapping[str, Any]) -> str:
    machine, settings = result["machine"], result.get("settings", {})
    where = ", ".join(f"{key} {value}" for key, value in machine.items())
    text = f"`{result['command']}`, {result['date']}. Machine: {where}."
    if settings:
        text += f" Settings: {', '.join(f'{key} {value}' for key, value in settings.items())}."
    return text


def _row(one: Figure) -> tuple[str, ...]:
    note = f" ({one.note})" if one.note else ""
    cells = (one.what + note, one.shown, one.spread or NOTHING, one.bounds or NOTHING)
    return (*cells, HELD[one.holds])


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.results", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="compare the page, write nothing")
    parser.add_argument(
        "--json", action="store_true", help="what was asked, and whether it is held"
    )
    chosen = parser.parse_args(arguments)
    try:
        results = read_all()
        text = page(results)
    except ResultError as error:
        print(f"results: {error}", file=sys.stderr)
        return 2
    if chosen.json:
        asked = [
            {"benchmark": result["benchmark"], **row, "holds": one.holds}
            for result in results
            for row, one in zip(result["rows"], figures_of(result), strict=True)
            if one.holds is not None
        ]
        print(json.dumps(asked, indent=1, ensure_ascii=False))
        return 0
    if chosen.check:
        is_same = PAGE.is_file() and PAGE.read_text("utf-8") == text
        if not is_same:
            print(f"{PAGE.name} is not what the results say: run without --check", file=sys.stderr)
        return 0 if is_same else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
