"""The command `launch discover`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from launcher.commands.options import AsJson
from launcher.console import print_json, print_text
from launcher.errors import EXIT_FAILED, EXIT_FINE, BadInputError

if TYPE_CHECKING:
    from nodes.protocol.announcements import Announcement

MOST_S = 600.0


@dataclass(frozen=True)
class DiscoverOptions:
    """Find agents on this network that announce themselves (node-agent --announce).

    Lists them. With --write, adds those that a cluster.yaml lacks, and keeps its comments. Anybody
    on the network can announce anything: keys decide to whom a launcher talks.

    Exit code 0: agents were found. 1: none was heard. 2: something given cannot be used.
    130: Ctrl-C.
    """

    seconds: Annotated[
        float, typer.Option(min=0.1, max=MOST_S, help="How long to listen for announcements")
    ] = 3.0
    write: Annotated[
        Path | None,
        typer.Option(metavar="CLUSTER", help="cluster.yaml to add the nodes to, or to create"),
    ] = None
    as_json: AsJson = False


def perform(options: DiscoverOptions, as_json: bool) -> int:
    """Perform `launch discover`; return its exit code."""
    from launcher.discover.listening import listen  # noqa: PLC0415 - slow to import

    found = listen(options.seconds)
    added: list[dict[str, str]] = []
    if options.write is not None and found:
        added = write_nodes(options.write, found)
    code = EXIT_FINE if found else EXIT_FAILED
    if as_json:
        print_json(
            {"agents": [_as_json(each) for each in found], "added": added, "exit_code": code}
        )
        return code
    print_text(_text(found, options.seconds))
    if options.write is not None and found:
        names = ", ".join(node["name"] for node in added) or "none; it has all of them already"
        print_text(f"{options.write}: added {names}\n")
    return code


def write_nodes(path: Path, found: list[Announcement]) -> list[dict[str, str]]:
    """Add the agents that are missing to a cluster.yaml, or create it; return what was added.

    Raises `BadInputError` if the file cannot be read, extended or written.
    """
    from launcher.config.source import parse_source  # noqa: PLC0415 - slow to import
    from launcher.discover.writing import new_file, new_nodes, with_nodes  # noqa: PLC0415
    from launcher.files import read_small, write_text  # noqa: PLC0415

    try:
        text = read_small(path).decode("utf-8-sig")
    except FileNotFoundError:
        added = new_nodes({}, found)
        write_text(path, new_file(added), str(path))
        return added
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: cannot be read: {error}") from None
    added = new_nodes(parse_source(text, str(path)).data, found)
    if added:
        write_text(path, with_nodes(text, added, str(path)), str(path))
    return added


def _as_json(agent: Announcement) -> dict[str, Any]:
    return {
        "name": agent.name,
        "address": agent.address,
        "hosts": list(agent.hosts),
        "port": agent.port,
        "version": agent.version,
        "protocol": agent.protocol,
        "engine": agent.engine,
        "machine": agent.machine,
        "cores": agent.cores,
        "memory_bytes": agent.memory_bytes,
        "keys": agent.guarded,
    }


def _text(found: list[Announcement], seconds: float) -> str:
    if not found:
        return (
            f"no agent announced itself within {seconds:g} s: start agents with --announce, and "
            "check whether a firewall or the WLAN drops multicast (UDP port 5353)\n"
        )
    rows = [("name", "address", "engine", "cores", "memory", "version", "keys")]
    for each in found:
        memory = "?" if each.memory_bytes is None else f"{each.memory_bytes / 1e9:.1f} GB"
        cores, keys = str(each.cores or "?"), "yes" if each.guarded else "no"
        rows.append((each.name, each.address, each.engine, cores, memory, each.version, keys))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        + "\n"
        for row in rows
    )
