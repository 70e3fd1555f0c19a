"""Lists every command in groups, for `launch` without arguments and `launch --help`."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Collection, Mapping
from pathlib import Path

GROUPS: Mapping[str, tuple[str, ...]] = {
    "run": ("CLUSTER_OR_PLAN", "top"),
    "serve": ("serve", "up", "status", "apply", "rollback", "restart", "logs", "down"),
    "boards": ("node-agent", "node-agent keygen", "discover", "doctor", "upgrade"),
    "plan": (
        *(f"csdf-edge partition {name}" for name in ("solve", "compare", "front")),
        *(f"csdf-edge partition {name}" for name in ("show", "profile")),
        "ga sweep",
        "csdf",
    ),
}
"""The commands of each group; those of `launch` by their name alone."""

_OTHERS: Mapping[str, str] = {
    "CLUSTER_OR_PLAN": "Stream frames through the nodes of a cluster.yaml or of a saved plan.",
    "node-agent": "Run the agent of a device, on the device.",
    "node-agent keygen": "Make the keys of a machine.",
    "csdf-edge partition solve": "Find a plan and print its predicted figures.",
    "csdf-edge partition compare": "Compare strategies for 2, 3, … devices.",
    "csdf-edge partition front": "Find the plans among which speed and memory can be traded.",
    "csdf-edge partition show": "Show or draw a saved plan.",
    "csdf-edge partition profile": "Measure layers and links on the nodes.",
    "ga sweep": "Tune the genetic strategies for a network and devices.",
    "csdf": "Analyse dataflow graphs.",
}
"""The commands that have their own parsers, whose import is slow."""

_WORD = re.compile(r"[a-z][a-z-]*")


def overview(subcommands: Mapping[str, type]) -> str:
    """Return the list of all commands; `subcommands` are those of `launch`, with their options."""
    lines = ["Run CNNs over several devices. Each command explains itself with --help."]
    width = max(len(_written(name, subcommands)) for names in GROUPS.values() for name in names)
    for group, names in GROUPS.items():
        lines += ["", f"{group}:"]
        for name in names:
            what = _OTHERS.get(name) or _first_line(subcommands[name])
            lines.append(f"  {_written(name, subcommands):<{width}}  {what}")
    return "\n".join(lines) + "\n"


def _written(name: str, subcommands: Collection[str]) -> str:
    return f"launch {name}" if name in subcommands or name.isupper() else name


def _first_line(options: type) -> str:
    return (inspect.getdoc(options) or "").partition("\n")[0]


def mistaken_command(word: str, subcommands: Collection[str]) -> str | None:
    """Return a sentence if a word stands where a command, a cluster.yaml or a plan may, and is
    none of them; None if it is one, or may be the name of a file."""
    if not _WORD.fullmatch(word) or Path(word).exists():
        return None
    hint = nearest_command(word, subcommands) or "launch --help lists the commands"
    return f"there is no command {word!r}, and no file of that name; {hint}"


def nearest_command(word: str, known: Collection[str]) -> str:
    """Return `did you mean status?`, or "" where no command is close."""
    close = difflib.get_close_matches(word, sorted(known), n=1)
    return f"did you mean {close[0]}?" if close else ""
