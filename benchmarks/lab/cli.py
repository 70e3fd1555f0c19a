"""Implements the command `python -m benchmarks.lab`: up, down, status, fault.

Exit codes: 0 done, 1 the machine refused a change, 2 an argument or a file cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lab import machine
from benchmarks.lab.config import load
from benchmarks.lab.lab import Lab, down
from benchmarks.lab.status import table
from launcher.config.units import parse_link
from launcher.errors import BadInputError, LauncherError

FAULTS = (
    *("cut", "restore", "slow", "pause", "resume", "kill", "restart", "starve", "fill-disk"),
    "free-disk",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lab",
        description="A laboratory of emulated edge devices on this machine. Needs root.",
    )
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("up", help="make the boards, start an agent on each, write cluster.yaml")
    one.add_argument("file", type=Path, metavar="LAB_YAML", help="the boards and their links")
    one = parts.add_parser("down", help="remove every trace of a laboratory, also after a crash")
    one.add_argument("name", nargs="?", help="which one; needed if several are up")
    one = parts.add_parser("status", help="every board: alive, CPU quota and use, memory, link")
    one.add_argument("name", nargs="?", help="which one; needed if several are up")
    one = parts.add_parser("fault", help="do something to one board; restore mends link and quota")
    one.add_argument("kind", choices=FAULTS)
    one.add_argument("device", help="the board")
    one.add_argument("value", nargs="?", help="slow: a rate such as 10Mbit/s; starve: cores")
    one.add_argument("--lab", dest="name", help="which laboratory")
    given = parser.parse_args(arguments)
    try:
        print(_said(given))
    except LauncherError as error:
        print(f"lab: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _said(given: argparse.Namespace) -> str:
    """Carry out a command; return what it has to say."""
    if given.part == "up":
        made = Lab(load(given.file))
        made.up()
        return f"{table(made.status(over_s=0.0))}\nlaunch {made.cluster_file}"
    name = given.name or _only()
    if given.part == "down":
        traces = down(name)
        keys = ("processes", "namespaces", "groups", "mounts", "interfaces")
        counted = {key: len(getattr(traces, key)) for key in keys}
        counts = ", ".join(f"{number} {key}" for key, number in counted.items() if number)
        return f"removed {name!r}: {counts or 'its folder'}" if traces else _none(name)
    lab = Lab.attach(name)
    if given.part == "status":
        return table(lab.status())
    _fault(lab, given.kind, given.device, given.value)
    return f"{given.device}: {given.kind}"


def _fault(lab: Lab, kind: str, device: str, value: str | None) -> None:
    takes_value = kind in ("slow", "starve")
    if takes_value != (value is not None):
        raise BadInputError(
            f"{kind} {'needs a value' if takes_value else 'takes no value'} after the device's name"
        )
    try:
        if kind == "slow":
            lab.slow(device, parse_link(value))
        elif kind == "starve":
            lab.starve(device, float(value or ""))
        else:
            getattr(lab, kind.replace("-", "_"))(device)
    except ValueError as error:
        raise BadInputError(f"{kind}: {error}") from None


def _only() -> str:
    """The name of the laboratory that is there, or the usual one if there is none."""
    base = machine.base()
    names = sorted(p.name for p in base.iterdir() if p.is_dir()) if base.exists() else []
    if len(names) > 1:
        raise BadInputError(f"several laboratories are there, say which: {', '.join(names)}")
    return names[0] if names else "lab"


def _none(name: str) -> str:
    return f"there is no laboratory {name!r}"
