"""Writes `docs/commands.md`: every command and its options, from the programs' own parsers.

    python -m docs.write_commands

A test compares the committed page with what this writes.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from csdf.cli.arguments import parser as csdf_parser
from csdf.cli.command import COMMANDS
from launcher.commands.ga import app as ga_app
from launcher.commands.launch import SUBCOMMANDS, app_of
from launcher.commands.overview import overview
from launcher.commands.partition import app as partition_app
from nodes.cli import _parser as agent_parser
from nodes.net.curve import _parser as keygen_parser

PAGE = Path(__file__).with_name("commands.md")

HEAD = """\
# Commands

This page has the text that every command prints with `--help`. `python -m docs.write_commands`
writes it from the commands themselves. An option that several commands describe in the same words
is explained at the first of them.
"""
LEFT_OUT = {"--help", "--install-completion", "--show-completion"}


@dataclass(frozen=True)
class Section:
    """A command: its description, and a row for each argument and option."""

    name: str
    text: str
    rows: tuple[tuple[str, str], ...]


def page() -> str:
    """The text of `docs/commands.md`."""
    sections = [
        *_of_typer("launch", app_of()),
        *chain.from_iterable(_of_typer(f"launch {name}", app_of(name)) for name in SUBCOMMANDS),
        *_of_argparse("node-agent", agent_parser()),
        *_of_argparse("node-agent keygen", keygen_parser()),
        *_of_typer("csdf-edge partition", partition_app),
        *_of_typer("ga", ga_app),
        *_of_argparse("csdf", csdf_parser(COMMANDS)),
    ]
    first: dict[tuple[str, str], str] = {}
    commands = overview({name: options for name, (options, _) in SUBCOMMANDS.items()})
    listed = f"`launch` without arguments lists all commands:\n\n```text\n{commands}```\n"
    return "\n".join([HEAD, listed, *(_written(section, first) for section in sections)])


def _of_typer(name: str, app: typer.Typer) -> Iterator[Section]:
    command = typer.main.get_command(app)
    yield from _of_click(name, command)
    for inner in getattr(command, "commands", {}).values():
        yield from _of_click(f"{name} {inner.name}", inner)


def _of_click(name: str, command: Any) -> Iterator[Section]:
    rows = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            rows.append((f"`{_shown(parameter)}`", parameter.help or "", None))
        elif parameter.opts[-1] not in LEFT_OUT:
            written = " / ".join(f"`{option}`" for option in _both(parameter))
            default = None if parameter.is_flag else parameter.default
            text = parameter.help + _choices(parameter.type_descriptor.annotation)
            rows.append((written, text, default))
    yield _section(name, inspect.cleandoc(command.help or ""), rows)


def _shown(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _both(parameter: Any) -> list[str]:
    return [*parameter.opts, *parameter.secondary_opts]


def _choices(annotation: Any) -> str:
    """What an option may be set to, if that is a list: ` (one, other)`."""
    for kind in (annotation, *get_args(annotation)):
        if get_origin(kind) is Literal:
            return f" ({', '.join(get_args(kind))})"
    return ""


def _of_argparse(name: str, parser: argparse.ArgumentParser) -> Iterator[Section]:
    inner: dict[str, argparse.ArgumentParser] = {}
    rows = []
    for action in sorted(parser._actions, key=lambda action: bool(action.option_strings)):
        if isinstance(action, argparse._SubParsersAction):
            inner = action.choices
        elif not LEFT_OUT & set(action.option_strings):
            rows.append(_argparse_row(parser, action))
    text = "\n\n".join(filter(None, (parser.description, parser.epilog)))
    yield _section(name, text, rows)
    for command, its_parser in inner.items():
        yield from _of_argparse(f"{name} {command}", its_parser)


def _argparse_row(
    parser: argparse.ArgumentParser, action: argparse.Action
) -> tuple[str, str, object]:
    value = "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    words = [*action.option_strings[-1:], *([] if action.nargs == 0 else [action.metavar or value])]
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    for cache in (os.environ.get("XDG_CACHE_HOME"), str(Path.home() / ".cache")):
        text = text.replace(cache, "~/.cache") if cache else text
    text = text.replace(str(Path.home()), "~")
    return f"`{' '.join(map(str, words))}`", text[:1].upper() + text[1:], None


def _section(name: str, text: str, rows: Sequence[tuple[str, str, object]]) -> Section:
    cells = []
    for written, meaning, default in rows:
        end = f" (default: {default})" if default is not None else ""
        cells.append((_cell(written), _cell(meaning + end)))
    return Section(name, _paragraphs(text), tuple(cells))


def _written(section: Section, first: dict[tuple[str, str], str]) -> str:
    """Write a section: a table of the rows that no earlier one explains, and links for the others.

    `first` maps each row to the section that explains it.
    """
    lines = [f"## {section.name}", "", section.text, ""]
    new = [row for row in section.rows if row not in first]
    if new:
        lines += ["| argument or option | meaning |", "|---|---|"]
        lines += [f"| {written} | {meaning} |" for written, meaning in new]
        lines.append("")
    earlier: dict[str, list[str]] = {}
    for row in section.rows:
        if row in first:
            earlier.setdefault(first[row], []).append(row[0])
    if earlier:
        seen = (
            f"{', '.join(written)} as for [{name}](#{name.replace(' ', '-')})"
            for name, written in earlier.items()
        )
        lines += [f"Also {'; '.join(seen)}.", ""]
    first |= dict.fromkeys(new, section.name)
    return "\n".join(lines)


def _paragraphs(text: str) -> str:
    """Paragraphs on one line each; what Markdown would take for markup is escaped."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    return "\n\n".join(_escaped(part) for part in paragraphs)


def _cell(text: str) -> str:
    return " ".join(_escaped(text).replace("|", "\\|").split())


def _escaped(text: str) -> str:
    """Escapes brackets and asterisks outside of code."""
    parts = text.split("`")
    return "`".join(
        re.sub(r"([*\[\]<>_])", r"\\\1", part) if number % 2 == 0 else part
        for number, part in enumerate(parts)
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
