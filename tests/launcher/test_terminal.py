"""Nothing that somebody else named steers the terminal, whatever prints it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tests.launcher.models import write_branches

EVIL = (
    "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\u2028[red]x[/red][link=http://x]y\n"
    "launch: all is well\r"
)
"""Sets a title, clears the screen, turns the direction, forges a line, and is markup for Rich."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with such names of layers and tensors, and a cluster that runs it."""
    tmp_path = tmp_path_factory.mktemp("evil")
    model = onnx.load(write_branches(tmp_path / "branches.onnx"))
    for node in model.graph.node:
        node.name += EVIL
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == "stem_out":
                    names[index] = name + EVIL
    onnx.save(model, tmp_path / "branches.onnx")
    write_cluster(tmp_path, "cluster.yaml")
    return tmp_path


def write_cluster(folder: Path, name: str, **more: object) -> None:
    nodes = [{"name": "a"}, {"name": "b"}]
    pins = {"stem*": "a", "head*": "b"}
    data = {"model": "branches.onnx", "nodes": nodes, "pins": pins, "frames": 2}
    data |= {"strategy": "sequential", **more}
    (folder / name).write_text(json.dumps(data))


def command(module: str, *arguments: object) -> list[str]:
    code = f"from {module} import main; raise SystemExit(main())"
    return [sys.executable, "-c", code, *map(str, arguments)]


COMMANDS = {
    "plan": command(
        "launcher.commands.launch", "cluster.yaml", "--plan-only", "--strategy", "sequential"
    ),
    "run": command("launcher.commands.launch", "cluster.yaml", "--strategy", "sequential"),
    "json": command("launcher.commands.launch", "missing.yaml", "--plan-only", "--json"),
    "solve": command(
        "launcher.commands.partition",
        "solve",
        "--cluster",
        "cluster.yaml",
        "--strategy",
        "sequential",
    ),
    "missing input": command("launcher.commands.launch", "cluster.yaml", "--input", EVIL),
    "missing cluster": command("launcher.commands.launch", EVIL),
    "wrong use": command("launcher.commands.launch", f"--{EVIL}"),
    "pins": command("launcher.commands.launch", "pins.yaml", "--plan-only"),
    "model": command("launcher.commands.launch", "model.yaml", "--plan-only"),
    "labels": command("launcher.commands.launch", "labels.yaml"),
    "plan's layer": command("launcher.commands.launch", "plan", "--plan-only"),
    "csdf": command("csdf.cli.command", "analyze", "graph.json"),
    "csdf draw": command("csdf.cli.command", "draw", "graph.json"),
    "csdf missing": command("csdf.cli.command", "analyze", EVIL),
}


@pytest.fixture(scope="module")
def files(folder: Path) -> Path:
    """What the commands name."""
    write_cluster(folder, "missing.yaml", input=EVIL)
    write_cluster(folder, "pins.yaml", pins={EVIL: "a"})
    write_cluster(folder, "model.yaml", model=EVIL)
    write_cluster(folder, "labels.yaml", labels=EVIL)
    subprocess.run(
        command("launcher.commands.launch", "cluster.yaml", "--plan-only", "--save", "plan"),
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    data = json.loads((folder / "plan" / "plan.json").read_text())
    data["assignment"]["a"].append("no layer" + EVIL)
    (folder / "plan" / "plan.json").write_text(json.dumps(data))
    name = EVIL.replace("\n", " ")  # csdf refuses names of several lines
    actor = {"name": name, "execution_times": [1]}
    ring = {"source": name, "target": name, "production": [1], "consumption": [1]}
    graph = {"actors": [actor], "channels": [{"name": name, **ring, "initial_tokens": 1}]}
    (folder / "graph.json").write_text(json.dumps(graph))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_nothing_but_text(files: Path, name: str) -> None:
    ended = subprocess.run(COMMANDS[name], cwd=files, capture_output=True, timeout=120, check=False)
    for printed in (ended.stdout.decode(), ended.stderr.decode()):
        assert "Traceback" not in printed
        for line in printed.split("\n"):
            assert line.isprintable(), line
            assert not line.startswith("launch: all is well")
    both = ended.stdout + ended.stderr
    assert name in ("run", "solve") or (b"owned" in both and b"[red]" in both)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plan", "run", "plan's layer"])
def test_a_terminal_hears_only_our_own_sequences(files: Path, name: str) -> None:
    """Bars and colours are sequences too: those of the names must not be among them."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    with subprocess.Popen(
        COMMANDS[name], cwd=files, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ):
        os.close(theirs)
        printed = b""
        with contextlib.suppress(OSError):  # the command has ended
            while True:
                printed += os.read(ours, 1 << 16)
    os.close(ours)
    assert name == "run" or b"owned" in printed
    for sequence in ("\x1b]0;", "\x07", "\x1b[2J", "\x9b31m", "\u202e", "\u2066", "\u2028"):
        assert sequence.encode() not in printed
    assert b"http://x\x1b" not in printed
    assert b"\x1b]8;" not in printed, "a link"
