"""The command: what stands on standard output, and the exit codes."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launcher.commands import launch as cli
from launcher.streaming import job
from tests.launcher.in_process import InProcess
from tests.launcher.launches import ended
from tests.launcher.models import write_branches


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    write_branches(tmp_path / "branches.onnx")
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "model: branches.onnx\nnodes: [{name: a}, {name: b}]\nstrategy: sequential\nframes: 2\n"
    )
    return path


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """The command runs subnets in this process; everything else is as it is."""
    found = InProcess()
    monkeypatch.setattr(job, "launch", functools.partial(job.launch, runtime=found.runtime))
    return found


launch = functools.partial(ended, cli.main)


def only_object(out: str) -> dict[str, Any]:
    """The one JSON object that is all of standard output."""
    data = json.loads(out)
    assert isinstance(data, dict)
    return data


def test_a_run_that_agrees_ends_with_0(
    capsys: pytest.CaptureFixture[str], runtime: InProcess, cluster: Path
) -> None:
    code, out, err = launch(capsys, cluster)
    assert code == 0
    assert "agrees with ONNX Runtime on the whole model" in out
    assert "proof: " not in out
    assert "streaming: 2 of 2" in err
    verbose = launch(capsys, cluster, "--verbose")[1]
    assert "proof: " in verbose
    assert "memory: Eq. 2" in verbose


def test_json_is_one_object_and_nothing_else(
    capsys: pytest.CaptureFixture[str], runtime: InProcess, cluster: Path
) -> None:
    code, out, _ = launch(capsys, cluster, "--json", "--frames", 3)
    assert code == 0
    assert only_object(out)["frames"] == 3


def test_a_run_that_differs_ends_with_1(
    capsys: pytest.CaptureFixture[str], runtime: InProcess, cluster: Path
) -> None:
    def spoil(frame: int, outputs: dict[str, np.ndarray]) -> None:
        outputs["score"] = outputs["score"] * 2

    runtime.disturb = spoil
    code, out, err = launch(capsys, cluster, "--json")
    assert code == 1
    assert only_object(out)["agrees"] is False
    assert only_object(out)["exit_code"] == 1
    assert "the results differ from the whole model's, most at output 'score' of frame" in err
    assert launch(capsys, cluster, "--no-verify")[0] == 0
    told = only_object(out)
    assert told["rule"] == "precision"
    assert "the engine or the memory" in told["begins"]["sentence"]
    assert told["begins"]["tensor"] == "score"
    assert told["begins"]["sentence"] in err


def test_a_tolerance_of_the_users_own_is_the_only_rule(
    capsys: pytest.CaptureFixture[str], runtime: InProcess, cluster: Path
) -> None:
    def spoil(frame: int, outputs: dict[str, np.ndarray]) -> None:
        outputs["score"] = outputs["score"] * 2

    runtime.disturb = spoil
    code, out, _ = launch(capsys, cluster, "--tolerance", 2, "--verbose")
    assert code == 0
    assert "(the tolerance given)" in " ".join(out.split())
    cluster.write_text(cluster.read_text() + "tolerance: 2\n")
    code, out, _ = launch(capsys, cluster, "--json")
    assert (code, only_object(out)["rule"], only_object(out)["tolerance"]) == (0, "given", 2.0)
    assert launch(capsys, cluster, "--tolerance", 0.5)[0] == 1


def test_a_users_mistake_ends_with_2_and_a_sentence(
    capsys: pytest.CaptureFixture[str], runtime: InProcess, cluster: Path
) -> None:
    cluster.write_text(cluster.read_text() + "nods: 3\n")
    code, out, err = launch(capsys, cluster)
    assert (code, out) == (2, "")
    assert err == f"launch: {cluster}, line 5, nods: unknown key; did you mean 'nodes'?\n"


@pytest.mark.parametrize("more", [(), ("--plan-only",)])
def test_a_plan_is_made_for_inputs_only_that_can_be_run(
    capsys: pytest.CaptureFixture[str], runtime: InProcess, cluster: Path, more: tuple[str, ...]
) -> None:
    np.save(cluster.parent / "one.npy", np.zeros((1, 2, 3), np.float32))
    code, _, err = launch(capsys, cluster, "--input", cluster.parent / "one.npy", *more)
    assert code == 2
    assert "one.npy" in err


@pytest.mark.parametrize(
    ("command", "typed", "completed"),
    [
        ("launch", "launch --fra", "--frames"),
        ("ga", "ga sw", "sweep"),
    ],
)
def test_a_shell_can_complete_what_is_typed(command: str, typed: str, completed: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", f"from csdf_edge.entry import {command}; {command}()"],
        env={**os.environ, **words, f"_{command.upper()}_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == [completed]


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_an_interrupted_run_says_so(
    capsys: pytest.CaptureFixture[str],
    runtime: InProcess,
    cluster: Path,
    end: BaseException,
    code: int,
) -> None:
    def interrupt(frame: int, outputs: dict[str, np.ndarray]) -> None:
        raise end

    runtime.disturb = interrupt
    found, out, err = launch(capsys, cluster, "--json")
    assert found == code
    assert only_object(out)["exit_code"] == code
    assert "everything that was started has been stopped" in err


def test_a_plan_is_shown_saved_and_run(
    capsys: pytest.CaptureFixture[str], runtime: InProcess, cluster: Path, tmp_path: Path
) -> None:
    code, out, _ = launch(capsys, cluster, "--show")
    assert code == 0
    assert "phase" in out
    assert "proof: " in out
    code, out, err = launch(capsys, cluster, "--plan-only", "--save", tmp_path / "plan", "--json")
    assert code == 0
    assert {node["name"] for node in only_object(out)["nodes"]} == {"a", "b"}
    assert "saved in" in err
    assert not runtime.plans
    code, out, _ = launch(capsys, tmp_path / "plan", "--json")
    assert code == 0
    assert only_object(out)["agrees"] is True


@pytest.mark.parametrize("given", [(), ("--help",), ("-h",)])
def test_every_command_is_listed_in_groups(
    capsys: pytest.CaptureFixture[str], given: tuple[str, ...]
) -> None:
    code, out, err = launch(capsys, *given)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    groups = [line.rstrip(":") for line in lines if line in ("run:", "serve:", "boards:", "plan:")]
    assert groups == ["run", "serve", "boards", "plan"]
    for name in cli.SUBCOMMANDS:
        assert sum(line.startswith(f"  launch {name} ") for line in lines) == 1, name
    assert any(line.startswith("  csdf-edge partition show ") for line in lines)
    assert ("--plan-only" in out) == bool(given)


def test_a_mistyped_command_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = launch(capsys, "statsu", "--state", tmp_path)
    assert (code, out) == (2, "")
    assert err == (
        "launch: there is no command 'statsu', and no file of that name; did you mean status?\n"
    )
    assert "launch --help lists the commands" in launch(capsys, "xylophone")[2]
    assert only_object(launch(capsys, "statsu", "--json")[1])["exit_code"] == 2
    monkeypatch.chdir(tmp_path)
    (tmp_path / "statsu").mkdir()  # a folder of a plan may have any name
    assert "no command" not in launch(capsys, "statsu")[2]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = launch(capsys, "--version")
    assert code == 0
    assert out.startswith("csdf-edge ")


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from launcher.commands import launch as cli\n"
        "try:\n    cli.main(['--help'])\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "heavy = {'numpy', 'onnx', 'scipy', 'deap', 'zmq', 'pydantic', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "--plan-only" in ran.stdout


@pytest.mark.slow
def test_a_reader_that_has_gone_causes_no_traceback(cluster: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "launcher.commands.launch", str(cluster), "--show", "--json"]
    ran = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert ran.returncode == 1
    assert "planned" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "BrokenPipe" not in ran.stderr


@pytest.mark.slow
def test_a_search_leaves_nothing_in_the_users_home(cluster: Path, tmp_path: Path) -> None:
    """ONNX Runtime, which simplifying imports, would note for its maker what it did."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home)}
    for name in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "launcher.commands.launch", str(cluster), "--plan-only"]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    own = home / ".cache" / "csdf-edge-profiles"  # has the plan if the machine took long to find it
    left = [path for path in home.rglob("*") if own not in path.parents]
    assert set(left) <= {own, own.parent}
