"""Stores a laboratory's state in a file in its folder while it is up.

Removing a laboratory does not need it (`benchmarks.lab.traces`); faults and `status` do.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.lab.cgroups import Hierarchies
from benchmarks.lab.config import LabConfig
from benchmarks.lab.layout import Cpus, Layout
from launcher.errors import BadInputError

FILE = "state.json"
VERSION = 2


@dataclass(frozen=True)
class State:
    """A layout, and what was missing for one of emulated boards."""

    layout: Layout
    missing: tuple[str, ...]


def write(state: State) -> None:
    """Into the laboratory's folder."""
    layout, found = state.layout, state.layout.found
    data = {
        "version": VERSION,
        "config": layout.config.model_dump(mode="json"),
        "network": layout.network,
        "ports": layout.ports,
        "cpus": layout.cpus and asdict(layout.cpus),
        "groups": None
        if found is None
        else {
            "version": found.version,
            "roots": {name: str(root) for name, root in found.roots.items()},
        },
        "missing": state.missing,
    }
    (layout.folder / FILE).write_text(json.dumps(data, indent=1), "utf-8")


def read(folder: Path) -> State:
    """From a laboratory's folder; raises `BadInputError` if it is not up."""
    try:
        data = json.loads((folder / FILE).read_text("utf-8"))
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']}")
        groups = data["groups"]
        found = groups and Hierarchies(
            groups["version"], {name: Path(root) for name, root in groups["roots"].items()}
        )
        config = LabConfig.model_validate_json(json.dumps(data["config"]))
        cpus = data["cpus"] and Cpus(*(tuple(data["cpus"][key]) for key in ("compute", "rest")))
        layout = Layout(config, folder, data["network"], found, tuple(data["ports"]), cpus)
        return State(layout, tuple(data["missing"]))
    except FileNotFoundError:
        raise BadInputError(
            f"no laboratory {folder.name!r} is up; `python -m benchmarks.lab up lab.yaml` makes one"
        ) from None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(
            f"{folder / FILE} cannot be read ({error}): "
            f"`python -m benchmarks.lab down {folder.name}` removes what there is"
        ) from None
