"""Profiles the boards of a laboratory, as a user does before searching for a plan."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.lab.lab import Lab
from benchmarks.lab.shell import LabError


def profile(lab: Lab, output: Path, home: Path | None = None) -> Path:
    """`partition profile` of the laboratory's cluster, written to `output`; raises `LabError`.

    Boards that are all equal are measured as such (`--alike`). `home` is the user's cache.
    """
    command = [sys.executable, "-m", "launcher.commands.partition", "profile", "--again"]
    boards = (place.slice.model_copy(update={"name": ""}) for place in lab.layout.places.values())
    if len(set(boards)) == 1:
        command.append("--alike")
    files = ["--cluster", str(lab.cluster_file), "--output", str(output)]
    env = None if home is None else {**os.environ, "XDG_CACHE_HOME": str(home)}
    done = subprocess.run([*command, *files], stdout=subprocess.DEVNULL, env=env, check=False)
    if done.returncode:
        raise LabError(f"partition profile has ended with {done.returncode}")
    return output
