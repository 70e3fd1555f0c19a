"""Implements the command `python -m benchmarks.lab`: up, down, status, fault.

Exit codes: 0 done, 1 the machine refused a change, 2 an argument or a file cannot be used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.lab import machine
from benchmarks.lab.config import load
from benchmarks.lab.lab import Lab, down
from benchmarks.lab.status import table
from launcher.config.units import parse_link
from launcher.console import print_json, run_command
from launcher.errors import BadInputError

app = typer.Typer(pretty_exceptions_enable=False, no_args_is_help=True)

Said = tuple[dict[str, Any], str]
"""What a command found: as JSON-like data, and for people."""

Name = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Which laboratory; needed if several are up")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else")]


@dataclass(frozen=True)
class Job:
    """What is to be done, once the command line has been read."""

    perform: Callable[[], Said]


@app.callback()
def lab() -> None:
    """A laboratory of emulated edge devices on this machine."""


@app.command()
def up(
    file: Annotated[Path, typer.Argument(metavar="LAB_YAML", help="The boards and their links")],
    plain: Annotated[
        bool, typer.Option("--plain", help="Processes on loopback, even where more is possible")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail where boards cannot be emulated")
    ] = False,
    as_json: Json = False,  # noqa: ARG001 - `run_command` looks for it
) -> Job:
    """Make the boards, start an agent on each, and write a cluster.yaml with their addresses."""
    return Job(lambda: _up(file, plain, strict))


@app.command(name="down")
def down_command(name: Name = None, as_json: Json = False) -> Job:  # noqa: ARG001
    """Remove every trace of a laboratory, also after a crash. Does no harm where there is none."""
    return Job(lambda: _down(name))


@app.command()
def status(
    name: Name = None,
    over: Annotated[float, typer.Option(min=0.05, help="Seconds in which use is looked at")] = 0.5,
    as_json: Json = False,  # noqa: ARG001
) -> Job:
    """Every board: alive, CPU quota and use, memory, link."""
    return Job(lambda: _status(name, over))


class Fault(str, Enum):
    """What can be done to a board."""

    cut = "cut"
    restore = "restore"
    slow = "slow"
    pause = "pause"
    resume = "resume"
    kill = "kill"
    restart = "restart"
    starve = "starve"
    fill_disk = "fill-disk"
    free_disk = "free-disk"


@app.command()
def fault(
    kind: Annotated[Fault, typer.Argument(help="What to do to it")],
    device: Annotated[str, typer.Argument(help="The board")],
    value: Annotated[
        str | None, typer.Argument(help="slow: a rate such as 10Mbit/s; starve: cores such as 0.05")
    ] = None,
    name: Annotated[str | None, typer.Option("--lab", help="Which laboratory")] = None,
    as_json: Json = False,  # noqa: ARG001
) -> Job:
    """Do something to one board; `restore` sets link and CPU quota right again."""
    return Job(lambda: _fault(kind, device, value, name))


def main(arguments: list[str] | None = None) -> None:
    """Entry point; never returns."""
    run_command(app, "lab", _perform, arguments, "interrupted; all that was made is removed")


def _perform(job: Job, as_json: bool) -> int:
    data, text = job.perform()
    if as_json:
        print_json(data)
    else:
        sys.stdout.write(text + "\n")
    return 0


def _up(file: Path, plain: bool, strict: bool) -> Said:
    config = load(file)
    if strict:
        missing = machine.look(config).missing
        if missing:
            raise BadInputError(f"{file}: boards cannot be emulated here: {'; '.join(missing)}")
    made = Lab(config, plain=plain, files=file.parent, say=_say)
    made.up()
    found = made.status(over_s=0.0)
    data = {**found.as_json(), "cluster": str(made.cluster_file)}
    return data, f"{table(found)}\nlaunch {made.cluster_file}"


def _down(name: str | None) -> Said:
    names = [name] if name is not None else _names()
    if len(names) > 1:
        raise BadInputError(f"several laboratories are there, say which: {', '.join(names)}")
    if not names:
        return {"removed": None}, "there is no laboratory"
    traces = down(names[0])
    if not traces:
        return {"removed": None}, f"there is no laboratory {names[0]!r}"
    counted = {
        key: len(getattr(traces, key))
        for key in ("processes", "namespaces", "groups", "mounts", "interfaces")
    }
    counts = ", ".join(f"{number} {key}" for key, number in counted.items() if number)
    return {"removed": names[0], **counted}, f"removed {names[0]!r}: {counts or 'its folder'}"


def _status(name: str | None, over_s: float) -> Said:
    found = _attached(name).status(over_s)
    return found.as_json(), table(found)


def _fault(kind: Fault, device: str, value: str | None, name: str | None) -> Said:
    attached = _attached(name)
    takes_value = kind in (Fault.slow, Fault.starve)
    if takes_value != (value is not None):
        raise BadInputError(
            f"{kind.value} {'needs a value after' if takes_value else 'takes no value after'} "
            f"the device's name"
        )
    if kind is Fault.slow:
        attached.slow(device, _rate(value))
    elif kind is Fault.starve:
        attached.starve(device, _cores(value))
    else:
        getattr(attached, kind.name)(device)
    return {"device": device, "fault": kind.value, "value": value}, f"{device}: {kind.value}"


def _rate(value: str | None) -> float:
    try:
        return parse_link(value)
    except ValueError as error:
        raise BadInputError(f"slow: {error}") from None


def _cores(value: str | None) -> float:
    try:
        cores = float(value or "")
    except ValueError:
        cores = 0.0
    if not 0 < cores < 1024:
        raise BadInputError(f"starve: must be a number of cores above 0, such as 0.05, not {value}")
    return cores


def _attached(name: str | None) -> Lab:
    names = [name] if name is not None else _names()
    if len(names) > 1:
        raise BadInputError(f"several laboratories are up, say which: {', '.join(names)}")
    return Lab.attach(names[0] if names else "lab")


def _names() -> list[str]:
    base = machine.base()
    return sorted(path.name for path in base.iterdir() if path.is_dir()) if base.exists() else []


def _say(what: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what}")
        sys.stderr.flush()


if __name__ == "__main__":
    main()
