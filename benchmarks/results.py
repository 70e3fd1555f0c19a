"""Draws `docs/results.md` from what benchmarks have measured (`benchmarks/results/*.json`).

    python -m benchmarks.results

Each file is what a benchmark printed with `--json` (`benchmarks.report`). It has the benchmark's
name, followed by another word (`table3-memory.json`) where a benchmark ran in several ways. A
benchmark gets a section, with the first sentence of its docstring; each of its files gets the
command, the date, the figures of which something was asked and one table. Everything else stays in
the file.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, Table
from benchmarks.table3.table import both_columns

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "results.md"

HEAD = """# Results

Drawn by `python -m benchmarks.results` from the files in `benchmarks/results`, which the benchmarks
wrote with `--json`; nothing here is typed by hand. A section shows the figures of which something
is asked; its file has all others, the settings and the longer tables. A figure is a median, with
the least and the largest in brackets where it was measured more than once. Of figures of one kind,
with the same bound, that hold, a row shows the one nearest to the bound, with the least and the
largest of all. Measurements whose date is **bold** are older than those of {newest}, and the code
has changed since.

Machine: {machine}. Its kernel and load are in the files. Boards are emulated
([the laboratory](laboratory.md)).
"""

COLUMNS = ("what", "asked", "measured", "holds")
MOST_ALIKE = 6
"""How many figures of one unit and bound have a row each, if their names end differently."""
MOST_ROWS = 15
"""Of a table; a longer one stays in its file."""
HELD = {True: "yes", False: "**no**"}
PASSING = ("kernel", "load")
"""What may differ from one measurement to the next on the same machine."""
FILES = re.compile(r" --(?:json|resume|(?:log|output|out|keep) \S+)")
"""Options that say only where a result goes."""
REQUIRED = ("benchmark", "title", "command", "date", "machine", "rows")


class ResultError(ValueError):
    """A file that is no result of a benchmark; it says which and why."""


def read_all(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Name of the file without its end → the result, in order; raises `ResultError`."""
    return {path.stem: _read(path) for path in sorted(folder.glob("*.json"), key=_stem)}


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


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of `docs/results.md`, of results by the names of their files; raises `ResultError`
    for two of one title, and for a benchmark that does not exist."""
    titles = Counter(result["title"] for result in results.values())
    twice = sorted(title for title, count in titles.items() if count > 1)
    if twice:
        raise ResultError(f"several results are called {', '.join(map(repr, twice))}")
    same = _same([result["machine"] for result in results.values()])
    newest = max((_day(result) for result in results.values()), default="")
    parts = [HEAD.format(newest=newest, machine=", ".join(_each(same)))]
    for _, runs in groupby(results.items(), lambda item: item[1]["benchmark"]):
        parts.append(_section(dict(runs), newest, same))
    return "\n".join(parts)


def _same(machines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, *others = machines or [{}]
    return {key: value for key, value in first.items() if all(m.get(key) == value for m in others)}


def _each(facts: Mapping[str, Any]) -> list[str]:
    return [f"{key.replace('_gib', ' (GiB)')} {value}" for key, value in facts.items()]


def _day(result: Mapping[str, Any]) -> str:
    return str(result["date"])[:10]


def _section(runs: Mapping[str, Mapping[str, Any]], newest: str, same: Mapping[str, Any]) -> str:
    """A benchmark: what it measures, and each of its results."""
    first, *others = runs.values()
    subject = first["title"].partition(": ")[0] if others else first["title"]
    parts = [f"## {subject}", _purpose(first["command"])]
    for name, result in runs.items():
        if (way := result["title"].removeprefix(f"{subject}: ")) != subject:
            parts.append(f"### {way}")
        parts.append(_ran(name, result, newest, same))
        if asked := _asked(figures_of(result)):
            parts.append(_table(COLUMNS, asked))
        if shown := _shown(result):
            if f"{shown.title}:" not in parts:
                parts.append(f"{shown.title}:")
            parts.append(_table(shown.columns, shown.rows))
    return "\n\n".join(parts) + "\n"


def _purpose(command: str) -> str:
    """The first sentence of the docstring of a benchmark's module, or of its part's; raises
    `ResultError` if there is no such module."""
    words = command.split()
    module, *rest = words[words.index("-m") + 1 :] if "-m" in words else words
    place = ROOT.joinpath(*module.split("."))
    part = place / f"{rest[0] if rest else ''}.py"
    for path in (part, place / "__main__.py", place.with_suffix(".py")):
        if path.is_file():
            text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
            return re.sub(r":( `.*)?$", "", text.partition("\n")[0]).rstrip(".") + "."
    raise ResultError(f"{command}: there is no such benchmark, so its result goes too")


def _ran(name: str, result: Mapping[str, Any], newest: str, same: Mapping[str, Any]) -> str:
    date = result["date"] if _day(result) == newest else f"**{result['date']}**"
    own = {key: value for key, value in result["machine"].items() if key not in {*same, *PASSING}}
    version = (f"version {result['version']}",) if "version" in result else ()
    said = ", ".join((f"`{FILES.sub('', result['command'])}`", date, *version, *_each(own)))
    return f"{said}: `{name}.json`."


def _asked(figures: Sequence[Figure]) -> list[tuple[str, ...]]:
    """A row for each figure of which something was asked; of those alike that hold, one row."""
    alike: dict[tuple[str, ...], list[Figure]] = {}
    for one in figures:
        if one.holds:
            alike.setdefault(_kind(one), []).append(one)
    rows = []
    for one in (one for one in figures if one.holds is not None):
        group = alike[_kind(one)] if one.holds else []
        if len(group) <= (1 if _kind(one)[0] else MOST_ALIKE):
            rows.append(one)
        elif one is group[0]:
            rows.append(_nearest(group))
    return list(map(_row, rows))


def _kind(one: Figure) -> tuple[str, ...]:
    """Of `network, boards: quantity` the quantity, its unit and its bound."""
    subject, _, quantity = one.what.rpartition(": ")
    return (quantity if subject else "", one.unit, one.bounds)


def _nearest(group: Sequence[Figure]) -> Figure:
    """The figure that is nearest to its bound, with the least and the largest of all."""
    first = min(group, key=_room)
    return dataclasses.replace(
        first,
        what=f"{first.what}, nearest of {len(group)}",
        low=min(float(one.measured if one.low is None else one.low) for one in group),
        high=max(float(one.measured if one.high is None else one.high) for one in group),
        note=first.note if all(one.note == first.note for one in group) else "",
    )


def _room(one: Figure) -> float:
    """How far it is from its bound."""
    bounds = (one.at_least, one.at_most)
    return min(abs(float(one.measured) - bound) for bound in bounds if bound is not None)


def _row(one: Figure) -> tuple[str, str, str, str]:
    note, spread = (f" ({text})" if text else "" for text in (one.note, one.spread))
    return one.what + note, one.bounds, one.shown + spread, HELD[bool(one.holds)]


def _shown(result: Mapping[str, Any]) -> Table | None:
    """The table that is the result itself, if it is short."""
    tables = result.get("tables", ())
    if result["benchmark"] == "table3":
        return both_columns(result["data"]["cells"], MOST_ROWS)
    if any(table["columns"][-1] == "verdict" for table in tables):
        return _verdicts(tables)
    if not tables or len(tables[0]["rows"]) > MOST_ROWS:
        return None
    first = tables[0]
    return Table(first["title"], tuple(first["columns"]), tuple(map(tuple, first["rows"])))


def _verdicts(tables: Sequence[Mapping[str, Any]]) -> Table:
    """How often each verdict was given in each table of a paper, for all strategies together."""
    found: dict[str, Counter[str]] = {}
    for table in tables:
        counts = Counter(re.split(r" because | \(", row[-1])[0] for row in table["rows"])
        paper, what = table["title"].split(": ")[:2]
        found.setdefault(f"{paper.partition(' (')[0]}: {what}", Counter()).update(counts)
    rows = [
        (title, ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
        for title, counts in found.items()
    ]
    title = "Rows by their verdict ([papers](papers.md#ours-beside-theirs))"
    return Table(title, ("table", "verdicts"), tuple(rows))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head, *lines = (f"| {' | '.join(map(_cell, line))} |" for line in (columns, *rows))
    return "\n".join((head, "|" + "---|" * len(columns), *lines))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> int:
    """Write the page."""
    try:
        PAGE.write_text(page(read_all()), "utf-8")
    except ResultError as error:
        print(f"results: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
