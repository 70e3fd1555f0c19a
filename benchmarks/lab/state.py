"""Stores a laboratory's layout in a file in its folder while it is up.

Removing a laboratory does not need it (`benchmarks.lab.traces`); faults and `status` do.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.lab.cgroups import Hierarchies
from benchmarks.lab.config import LabConfig
from benchmarks.lab.layout import Cpus, Layout
from launcher.errors import BadInputError

FILE = "state.json"


def write(layout: Layout) -> None:
    """Into the laboratory's folder."""
    data = {
        "config": layout.config.model_dump(mode="json"),
        "network": layout.network,
        "cpus": layout.cpus and asdict(layout.cpus),
        "version": layout.found.version,
        "roots": {name: str(root) for name, root in layout.found.roots.items()},
    }
    (layout.folder / FILE).write_text(json.dumps(data, indent=1), "utf-8")


def read(folder: Path) -> Layout:
    """From a laboratory's folder; raises `BadInputError` if it is not up."""
    try:
        data = json.loads((folder / FILE).read_text("utf-8"))
        roots = {name: Path(root) for name, root in data["roots"].items()}
        config = LabConfig.model_validate_json(json.dumps(data["config"]))
        cpus = data["cpus"] and Cpus(*(tuple(data["cpus"][key]) for key in ("compute", "rest")))
        return Layout(config, folder, data["network"], Hierarchies(data["version"], roots), cpus)
    except FileNotFoundError:
        raise BadInputError(
            f"no laboratory {folder.name!r} is up; `python -m benchmarks.lab up lab.yaml` makes one"
        ) from None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(
            f"{folder / FILE} cannot be read ({error}): "
            f"`python -m benchmarks.lab down {folder.name}` removes what there is"
        ) from None
