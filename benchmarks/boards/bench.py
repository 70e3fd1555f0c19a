"""Makes the boards of a cell, and launches on them: `Bench`, or `LocalBench` for local agents.

Boards and launcher keep measurements and plans in their users' caches between launches. Before a
first launch the caches are emptied. A copy of the caches after a profile is put on a shelf, and
restored before each launch that may use the profile. Agents restart before every launch but a
second one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

import cnn
from benchmarks.boards.cells import LOCAL_AGENTS, NETWORKS, SETTINGS, Cell, Kind, name_of
from benchmarks.boards.turn import Launched, Turn, launched_from
from benchmarks.lab import Lab
from benchmarks.lab.profiling import profile
from benchmarks.lab.turns import Whole, whole_on_every_board
from benchmarks.undisturbed import busy_cpu_s
from launcher.errors import RunFailedError

LONGEST_S = 420.0
"""The time after which a launch is interrupted."""

INTERRUPTED_S = 30.0
LEAST_FRAMES = 4
"""The least number of frames of each replica in a turn."""

LAUNCHER = "launcher"
SECONDS = "seconds"
"""The file that says how long a profile took."""


def command(cluster: Path, frames: int, options: Sequence[str], home: Path) -> Launched:
    """Launch in a separate process, whose user's cache is `home`; raises `RunFailedError`."""
    began_s = time.monotonic()
    words = (sys.executable, "-m", "benchmarks.boards.launched")
    process = subprocess.Popen(
        (*words, str(began_s), str(cluster), str(frames), *options),
        env={**os.environ, "XDG_CACHE_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, wrong = process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=INTERRUPTED_S)
        raise RunFailedError(f"the launch took longer than {LONGEST_S:.0f} s") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode:
        said = wrong.strip().splitlines() or [f"the launch has ended with {process.returncode}"]
        raise RunFailedError(said[-1])
    return launched_from(json.loads(output.splitlines()[-1]))


class Bench:
    """The emulated boards of a cell. `shelf` has its profile, and what was kept with it."""

    def __init__(
        self, cell: Cell, lab: Lab, folder: Path, shelf: Path, whole: Whole | None, seconds: float
    ) -> None:
        setting = SETTINGS[cell.setting]
        assert setting is not None
        self._cell, self._lab, self._whole = cell, lab, whole
        self._folder, self._shelf, self._seconds = folder, shelf, seconds
        self._turns = 0
        self._replicas = 0.0
        described = yaml.safe_load(lab.cluster_file.read_text("utf-8"))
        nodes = described["nodes"]
        plain = [{key: node[key] for key in ("name", "address")} for node in nodes]
        best = [node for node in nodes if node["name"] == setting.fastest]
        self._names = self._written("names.yaml", {**described, "nodes": plain})
        self._alone = self._written("alone.yaml", {**described, "nodes": best})

    def turn(self, kind: Kind, frames: int, quick: bool) -> Turn:
        """Launch once, between replicas; raises `LauncherError`."""
        profile_s = self._prepare(kind)
        before = self._replicas or self._look()
        load, noise = os.getloadavg()[0], Noise(self._lab)
        with self._lab.beside():
            launched = command(
                self._file(kind), frames, self._options(kind), self._caches[LAUNCHER]
            )
        others = noise.share()
        self._replicas = self._look()
        replicas = (before, self._replicas)
        return Turn(self._cell, kind, quick, launched, replicas, profile_s, others, load)

    def _written(self, name: str, data: Any) -> Path:
        path = self._folder / name
        path.write_text(yaml.safe_dump(data, sort_keys=False), "utf-8")
        return path

    def _look(self) -> float:
        return 0.0 if self._whole is None else self._whole.turn(self._seconds).rate

    def _file(self, kind: Kind) -> Path:
        return {"alone": self._alone, "first": self._names, "second": self._names}.get(
            kind.knowledge, self._lab.cluster_file
        )

    def _options(self, kind: Kind) -> tuple[str, ...]:
        strategy = ("--strategy", kind.strategy) if kind.strategy else ()
        known = ("--profile", str(self._profile)) if kind.knowledge == "profiled" else ()
        return (*strategy, *known)

    @property
    def _profile(self) -> Path:
        return self._shelf / "profile.json"

    def _prepare(self, kind: Kind) -> float:
        """Restart the agents with the caches that belong to a launch of this kind."""
        if kind.knowledge == "second":  # what the first one left
            return 0.0
        spared = frozenset[int]() if self._whole is None else self._whole.alone.processes
        is_kept = kind.knowledge == "profiled"
        if is_kept and not self._shelf.exists():
            self._lab.renew(spared, self._emptied)
            self._measure()
        self._lab.renew(spared, self._restored if is_kept else self._emptied)
        return float((self._shelf / SECONDS).read_text("ascii")) if is_kept else 0.0

    def _measure(self) -> None:
        draft, began_s = self._folder / "profile", time.monotonic()
        draft.mkdir()
        with self._lab.beside():
            profile(self._lab, draft / self._profile.name, self._caches[LAUNCHER])
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
        for name, place in self._lab.layout.places.items():
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


class LocalBench:
    """Four agents that the launcher starts on this machine."""

    def __init__(self, cell: Cell, folder: Path) -> None:
        self._cell, self._folder, self._turns = cell, folder, 0
        self._file = folder / "local.yaml"
        nodes = [{"name": name_of(number)} for number in range(LOCAL_AGENTS)]
        network = NETWORKS[cell.network]
        self._file.write_text(yaml.safe_dump({"model": network, "nodes": nodes}), "utf-8")

    def turn(self, kind: Kind, frames: int, quick: bool) -> Turn:
        """See `Bench.turn`."""
        if kind.knowledge != "second":
            self._turns += 1
        load = os.getloadavg()[0]
        options = ("--strategy", kind.strategy) if kind.strategy else ()
        home = self._folder / f"{LAUNCHER}.{self._turns}"
        launched = command(self._file, frames, options, home)
        return Turn(self._cell, kind, quick, launched, load=load)


class Noise:
    """The CPU time of other programs than boards and launcher, since this object was made."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._began_s = lab, time.monotonic()
        self._before = self._look()

    def share(self) -> float:
        """Return their share of all CPUs, 0 to 1."""
        spent_s = self._look() - self._before
        return max(0.0, spent_s / (time.monotonic() - self._began_s) / (os.cpu_count() or 1))

    def _look(self) -> float:
        used = (device.used for device in self._lab.status(over_s=0.0).devices)
        boards_s = sum(one.slice_cpu_s + one.other_cpu_s for one in used if one is not None)
        times = os.times()
        own_s = times.user + times.system + times.children_user + times.children_system
        return busy_cpu_s() - boards_s - own_s


@contextmanager
def opened(
    cell: Cell, folder: Path, shelf: Path, link: float, seconds: float
) -> Iterator[Bench | LocalBench]:
    """Make the boards of a cell. `folder` is for this cell only; `shelf` keeps its profile.

    Replicas of the whole network compute for `seconds` around each launch where all boards are
    equal, or longer if they are slow. Raises `LauncherError`.
    """
    setting = SETTINGS[cell.setting]
    if setting is None:
        yield LocalBench(cell, folder)
        return
    with Lab(setting.config(NETWORKS[cell.network], link)) as lab:
        if not setting.is_equal:
            yield Bench(cell, lab, folder, shelf, None, seconds)
            return
        model = cnn.read(NETWORKS[cell.network])
        with whole_on_every_board(lab, model, folder) as whole:
            slow_s = LEAST_FRAMES * len(setting.cores) / whole.turn(seconds).rate
            yield Bench(cell, lab, folder, shelf, whole, max(seconds, slow_s))
