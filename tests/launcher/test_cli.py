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


def launch(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return ended.value.code, out, err


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
    assert "streaming: 2 of 2" in err


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
    code, out, _ = launch(capsys, cluster, "--tolerance", 2)
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


def test_a_mistake_is_told_in_json_too(
    capsys: pytest.CaptureFixture[str], runtime: InProcess, tmp_path: Path
) -> None:
    code, out, err = launch(capsys, tmp_path / "none.yaml", "--json")
    assert code == 2
    assert only_object(out) == {
        "error": f"{tmp_path / 'none.yaml'}: there is no such file",
        "exit_code": 2,
    }
    assert err == f"launch: {tmp_path / 'none.yaml'}: there is no such file\n"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "CLUSTER_OR_PLAN"),
        (("c.yaml", "--frmes", "3"), "--frmes"),
        (("c.yaml", "--frames", "0"), "--frames"),
        (("c.yaml", "--order", "random"), "--order"),
        (("show", "c.yaml"), "c.yaml"),
    ],
)
def test_wrong_use_ends_with_2_and_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], part: str
) -> None:
    code, out, err = launch(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("launch: ")
    assert part in err
    code, out, _ = launch(capsys, *arguments, "--json")
    assert code == 2
    assert part in only_object(out)["error"]


def test_there_can_be_only_one_source(
    capsys: pytest.CaptureFixture[str], runtime: InProcess, cluster: Path
) -> None:
    inputs = ("--input", "rtsp://me:secret@camera/stream", "--input", "x.png")
    code, _, err = launch(capsys, cluster, *inputs)
    assert code == 2
    assert "--input: 'rtsp://camera/stream' is a source, of which there can be only one" in err


def test_a_model_in_the_place_of_a_cluster_is_recognised(
    capsys: pytest.CaptureFixture[str], runtime: InProcess, cluster: Path
) -> None:
    code, _, err = launch(capsys, cluster.parent / "branches.onnx")
    assert code == 2
    assert "branches.onnx: is a model; name a cluster.yaml instead" in err


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
def test_a_reader_that_has_gone_is_no_reason_for_a_traceback(cluster: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "launcher.commands.launch", str(cluster), "--show", "--json"]
    ran = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert ran.returncode == 1
    assert "planned" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "BrokenPipe" not in ran.stderr


@pytest.mark.parametrize("option", [("--frames", 10**22), ("--seed", 2**32)])
def test_numbers_beyond_all_measure_are_refused(
    capsys: pytest.CaptureFixture[str], cluster: Path, option: tuple[str, int]
) -> None:
    code, _, err = launch(capsys, cluster, *option)
    assert code == 2
    assert option[0] in err
    assert "must be at most" in err


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
    assert list(home.rglob("*")) == []
