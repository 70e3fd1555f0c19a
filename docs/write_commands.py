"""Writes `docs/commands.md`: every command and its options, from the programs' own parsers.

    python -m docs.write_commands

A test compares the committed page with what this writes.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from csdf.cli.arguments import parser as csdf_parser
from csdf.cli.command import COMMANDS
from launcher.commands.discover import app as discover_app
from launcher.commands.doctor import app as doctor_app
from launcher.commands.ga import app as ga_app
from launcher.commands.launch import app as launch_app
from launcher.commands.partition import app as partition_app
from launcher.commands.serve import app as serve_app
from launcher.commands.service.commands import COMMANDS as SERVICE_COMMANDS
from launcher.commands.service.commands import app_of
from launcher.commands.top import app as top_app
from launcher.commands.upgrade import app as upgrade_app
from nodes.cli import _parser as agent_parser
from nodes.net.curve import _parser as keygen_parser

PAGE = Path(__file__).with_name("commands.md")

HEAD = """\
# Commands

This page has the text that every command prints with `--help`. `python -m docs.write_commands`
writes it from the commands themselves.
"""
LEFT_OUT = {"--help", "--install-completion", "--show-completion"}


def page() -> str:
    """The text of `docs/commands.md`."""
    sections = [
        *_of_typer("launch", launch_app),
        *_of_typer("launch serve", serve_app),
        *_of_typer("launch doctor", doctor_app),
        *_of_typer("launch discover", discover_app),
        *_of_typer("launch top", top_app),
        *chain.from_iterable(
            _of_typer(f"launch {name}", app_of(name)) for name in SERVICE_COMMANDS
        ),
        *_of_typer("launch upgrade", upgrade_app),
        *_of_argparse("node-agent", agent_parser()),
        *_of_argparse("node-agent keygen", keygen_parser()),
        *_of_typer("csdf-edge partition", partition_app),
        *_of_typer("ga", ga_app),
        *_of_argparse("csdf", csdf_parser(COMMANDS)),
    ]
    return "\n".join([HEAD, *sections])


def _of_typer(name: str, app: typer.Typer) -> Iterator[str]:
    command = typer.main.get_command(app)
    yield from _of_click(name, command)
    for inner in getattr(command, "commands", {}).values():
        yield from _of_click(f"{name} {inner.name}", inner)


def _of_click(name: str, command: Any) -> Iterator[str]:
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


def _of_argparse(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
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


def _section(name: str, text: str, rows: list[tuple[str, str, object]]) -> str:
    """A heading, a description and a table; the table is left out if there is nothing in it."""
    lines = [f"## {name}", "", _paragraphs(text), ""]
    if rows:
        lines += ["| argument or option | meaning |", "|---|---|"]
        for written, meaning, default in rows:
            end = f" (default: {default})" if default is not None else ""
            lines.append(f"| {_cell(written)} | {_cell(meaning + end)} |")
        lines.append("")
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
