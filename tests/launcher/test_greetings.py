"""How often a launch greets each agent: once for the plan, and once for the session of the run."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from launcher.config.load import load_cluster
from launcher.plan.measuring import measure
from launcher.plan.profile.file import ProfileCache
from launcher.plan.settings import read_model
from launcher.progress import LineDisplay
from launcher.run.request import Request
from launcher.streaming.job import open_live
from tests.launcher.launches import AGENTS, reported
from tests.launcher.models import write_branches
from tests.launcher_runtime.clusters import stop

GREETED = "is using this agent"
"""What an agent logs of each greeting that it accepts."""


@contextmanager
def counting_agent(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """An agent that runs already; yields its address and its log."""
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "nodes.cli", "--listen", "tcp://127.0.0.1:0", "--name", name]
    options = ["--log-level", "info", "--cache", str(folder / name)]
    with log.open("wb") as stderr:
        process = subprocess.Popen([*command, *options], stdin=subprocess.DEVNULL, stderr=stderr)
    try:
        until_s = time.monotonic() + 20.0
        while " ready: control " not in log.read_text():
            assert process.poll() is None
            assert time.monotonic() < until_s
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        yield log.read_text().partition("control ")[2].partition(",")[0], log
    finally:
        stop(process)


Agents = dict[str, tuple[str, Path]]
MORE = (pytest.mark.slow, pytest.mark.further)


def greetings(agents: Agents) -> dict[str, int]:
    return {name: log.read_text().count(GREETED) for name, (_, log) in agents.items()}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    folder = tmp_path_factory.mktemp("agents")
    with ExitStack() as stack:
        yield {name: stack.enter_context(counting_agent(name, folder)) for name in ("a", "b")}


def write_cluster(folder: Path, agents: Agents, more: str = "") -> Path:
    write_branches(folder / "branches.onnx")
    nodes = ", ".join(
        f"{{name: {name}, address: '{address}', engine: onnxruntime}}"
        for name, (address, _) in agents.items()
    )
    path = folder / "cluster.yaml"
    path.write_text(
        f"model: branches.onnx\nnodes: [{nodes}]\ninput: random\nframes: 2\n"
        f"strategy: sequential\n{more}"
    )
    return path


@pytest.mark.parametrize(
    ("start", "way"),
    [
        ("available", "launch"),
        ("all", "open"),
        pytest.param("available", "open", marks=MORE),
        pytest.param("all", "launch", marks=MORE),
    ],
)
def test_a_launch_with_engines_a_profile_and_unknown_memory_greets_twice(
    agents: Agents, tmp_path: Path, start: str, way: str
) -> None:
    path = write_cluster(tmp_path, agents, f"run: {{start: {start}}}\n")
    cluster, progress = load_cluster(path), LineDisplay(io.StringIO())
    cache = ProfileCache(tmp_path / "cache")
    file, _, _ = measure(cluster, read_model(cluster), None, progress, cache, most_s=0.0)
    profile = tmp_path / "profile.json"
    profile.write_text(file.model_dump_json())
    before = greetings(agents)
    request = Request(path, profile=profile)
    if way == "launch":
        assert reported(request, AGENTS).agrees
    else:
        with open_live(request, progress, most=2):
            pass
    assert greetings(agents) == {name: count + 2 for name, count in before.items()}
