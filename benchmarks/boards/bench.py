"""Makes the boards of a cell, and launches on them.

Boards and launcher keep measurements and plans in their users' caches between launches. Before a
first launch the caches are emptied. A copy of the caches after a profile is put on a shelf, and
restored before each launch that may use the profile. Agents restart before every launch but a
second one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

import cnn
from benchmarks.boards.cells import LOCAL_AGENTS, Cell, Kind, name_of
from benchmarks.boards.turn import Launched, Turn, launched_from
from benchmarks.lab import Lab
from benchmarks.lab.replica import reference
from benchmarks.lab.replicas import Replicas, replicas
from benchmarks.programs import finished
from benchmarks.undisturbed import Others
from launcher.errors import RunFailedError

LONGEST_S = 420.0
"""The time after which a launch is interrupted."""

LEAST_FRAMES = 4
"""The least number of frames of each replica in a turn."""

LAUNCHER = "launcher"
SECONDS = "seconds"
"""The file that says how long a profile took."""


def command(cluster: Path, frames: int, home: Path) -> Launched:
    """Launch in a separate process, whose user's cache is `home`; raises `RunFailedError`."""
    words = (sys.executable, "-m", "benchmarks.boards.launched", str(time.monotonic()))
    environment = {"XDG_CACHE_HOME": str(home)}
    ended = finished((*words, str(cluster), str(frames)), LONGEST_S, environment)
    if ended.code is None:
        raise RunFailedError(f"the launch took longer than {LONGEST_S:.0f} s")
    if ended.code:
        raise RunFailedError(ended.last_words)
    return launched_from(json.loads(ended.output.splitlines()[-1]))


class Bench:
    """The boards of a cell: those of `lab`, or without one agents that the launcher starts.

    `described` is the `cluster.yaml` that says all of them. `shelf` has their profile, and what was
    kept with it. Where the boards are equal, `alone` are replicas of the whole network on them,
    which compute for `seconds` around each launch."""

    def __init__(
        self,
        cell: Cell,
        described: Mapping[str, Any],
        folder: Path,
        shelf: Path,
        lab: Lab | None = None,
        alone: Replicas | None = None,
        seconds: float = 0.0,
    ) -> None:
        self._cell, self._described, self._lab = cell, described, lab
        self._alone, self._seconds = alone, seconds
        self._folder, self._shelf = folder, shelf
        self._turns = 0
        self._replicas = 0.0

    def turn(self, kind: Kind, frames: int, quick: bool) -> Turn:
        """Launch once, between replicas; raises `LauncherError`."""
        profile_s = self._prepare(kind)
        before = self._replicas or self._look()
        load = os.getloadavg()[0]
        others = Others() if self._lab is None else Others(self._lab.cpu_s)
        with self._beside():
            launched = command(self._written(kind), frames, self._caches[LAUNCHER])
        share = others.share()
        self._replicas = self._look()
        replicas = (before, self._replicas)
        return Turn(self._cell, kind, quick, launched, replicas, profile_s, share, load)

    def _look(self) -> float:
        return 0.0 if self._alone is None else sum(self._alone.run(self._seconds).values())

    @contextmanager
    def _beside(self) -> Iterator[None]:
        with contextlib.nullcontext() if self._lab is None else self._lab.beside():
            yield

    def _written(self, kind: Kind) -> Path:
        """Write the `cluster.yaml` of a launch."""
        nodes: list[dict[str, Any]] = self._described["nodes"]
        if kind.knowledge in ("first", "second"):
            nodes = [{k: node[k] for k in ("name", "address") if k in node} for node in nodes]
        boards = self._cell.boards
        if kind.knowledge == "alone" and boards is not None:
            nodes = [node for node in nodes if node["name"] == boards.fastest]
        known = {"profile": str(self._profile)} if kind.knowledge == "profiled" else {}
        data = {**self._described, "nodes": nodes, **kind.keys, **known}
        path = self._folder / "cluster.yaml"
        path.write_text(yaml.safe_dump(data, sort_keys=False), "utf-8")
        return path

    @property
    def _profile(self) -> Path:
        return self._shelf / "profile.json"

    def _prepare(self, kind: Kind) -> float:
        """Restart the agents with the caches that belong to a launch of this kind; return the
        seconds of its profile."""
        if kind.knowledge == "second":  # what the first one left
            return 0.0
        if kind.knowledge != "profiled":
            self._renew(self._emptied)
            return 0.0
        if not self._shelf.exists():
            self._renew(self._emptied)
            self._measure()
        self._renew(self._restored)
        return float((self._shelf / SECONDS).read_text("ascii"))

    def _renew(self, change: Any) -> None:
        if self._lab is None:
            change()
        else:
            self._lab.renew(() if self._alone is None else self._alone.processes, change)

    def _measure(self) -> None:
        """Profile the boards, and put the result with all caches on the shelf."""
        draft = Path(tempfile.mkdtemp(dir=self._folder, prefix="profile-"))  # earlier ones failed
        began_s = time.monotonic()
        words = [sys.executable, "-m", "launcher.commands.partition", "profile", "--again"]
        boards = self._cell.boards
        if boards is not None and boards.is_equal:
            words.append("--alike")
        files = ["--cluster", str(self._written(Kind("described")))]
        files += ["--output", str(draft / self._profile.name)]
        env = {**os.environ, "XDG_CACHE_HOME": str(self._caches[LAUNCHER])}
        with self._beside():
            done = subprocess.run([*words, *files], stdout=subprocess.DEVNULL, env=env, check=False)
        if done.returncode:
            raise RunFailedError(f"partition profile has ended with {done.returncode}")
        (draft / SECONDS).write_text(f"{time.monotonic() - began_s:.1f}", "ascii")
        for name, cache in self._caches.items():
            shutil.copytree(cache, draft / name)
        self._shelf.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(draft, part := self._shelf.with_suffix(f".{os.getpid()}"))
        part.rename(self._shelf)  # now it is complete

    @property
    def _caches(self) -> dict[str, Path]:
        """The caches of launcher and boards, by their names on the shelf."""
        found = {LAUNCHER: self._folder / LAUNCHER}
        for name, place in {} if self._lab is None else self._lab.layout.places.items():
            found |= {f"{name}-cache": place.cache, f"{name}-home": place.home}
        return found

    def _emptied(self) -> None:
        """Move the caches away, and make empty ones; the laboratory's end deletes all of them."""
        self._turns += 1
        for cache in self._caches.values():
            if cache.exists():
                cache.rename(cache.with_suffix(f".{self._turns}"))
            cache.mkdir()

    def _restored(self) -> None:
        self._emptied()
        for name, cache in self._caches.items():
            shutil.copytree(self._shelf / name, cache, dirs_exist_ok=True)


@contextmanager
def opened(
    cell: Cell, keys: Mapping[str, Any], folder: Path, shelf: Path, link: float, seconds: float
) -> Iterator[Bench]:
    """Make the boards of a cell; `keys` are further ones of all its `cluster.yaml`.

    `folder` is for this cell only; `shelf` keeps its profile. Replicas of the whole network compute
    for `seconds` around each launch where all boards are equal, or longer if they are slow. Raises
    `LauncherError`.
    """
    boards = cell.boards
    if boards is None:
        nodes = [{"name": name_of(number)} for number in range(LOCAL_AGENTS)]
        yield Bench(cell, {"model": cell.model, "nodes": nodes, **keys}, folder, shelf)
        return
    with Lab(boards.config(cell.model, link)) as lab:
        described = {**yaml.safe_load(lab.cluster_file.read_text("utf-8")), **keys}
        if not boards.is_equal:
            yield Bench(cell, described, folder, shelf, lab)
            return
        whole = reference(cnn.read(cell.model), folder)
        with lab.beside(), replicas(lab, whole.graph, folder / "cache") as alone:
            slow_s = LEAST_FRAMES * len(boards.cores) / sum(alone.run(seconds).values())
            yield Bench(cell, described, folder, shelf, lab, alone, max(seconds, slow_s))
