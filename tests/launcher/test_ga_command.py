"""`ga` as users call it: a sweep's outcome, and one sentence for each mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from ga.sweep.storage import open_storage, storage_url
from launcher.commands.ga import main
from tests.launcher.launches import done, ended, wait_for_a_trial
from tests.launcher.models import write_branches

QUICK = ("--strategy", "vertical-paper", "--repeats", "1", "--budget", "0.01")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(
        "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\n"
    )
    return "cluster.yaml"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return ended(main, capsys, "sweep", *arguments)


def swept(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return done(main, capsys, "sweep", *arguments, *QUICK)


@pytest.mark.slow
def test_a_sweep_continues_where_the_last_ended(
    cluster: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = swept(capsys, cluster, "--trials", "6", "--seed", "0")
    assert first["trials"]["before"] == 0
    assert first["trials"]["finished"] + first["trials"]["pruned"] == 6
    assert Path(first["storage"]) == tmp_path / "ga-sweep.db"
    assert first["best"]["values"]["cost"] <= 1
    assert {"individuals", "mutation"} <= first["best"]["parameters"].keys()
    assert "generations" in first["best"]["settings"]
    page = Path(first["page"]).read_text(encoding="utf-8")
    assert Path(first["page"]) == Path("ga-sweep") / "sweep.html"
    assert page.count("<svg") == (3 if first["importance"] else 2)
    second = swept(capsys, cluster, "--trials", "1", "--output", "elsewhere")
    assert second["study"] == first["study"]
    assert second["trials"]["before"] == 6
    assert (tmp_path / "elsewhere" / "sweep.html").is_file()


@pytest.mark.slow
def test_people_get_a_table_and_how_far_it_is(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--trials", "2", "--budget", "0.01", "--repeats", "1")
    code, out, err = run(capsys, cluster, *arguments)
    assert code == 0
    assert "tuning: 2 of 2" in err
    assert "best trials of" in out
    assert "2 trials, 0 of them from before" in out
    assert "usual parameters" in out or "nothing to tune" in out
    (Path(cluster)).write_text(Path(cluster).read_text() + "  - name: c\n")
    code, _, err = run(capsys, cluster, *arguments)
    assert code == 2
    assert "not the same devices" in err


def begin(cluster: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a sweep in a process, and return when its first trial is finished."""
    command = [sys.executable, "-m", "launcher.commands.ga", "sweep", cluster, "--trials", "20"]
    sweep = subprocess.Popen(
        [*command, *QUICK, *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    wait_for_a_trial(Path("ga-sweep.db"), sweep)
    return sweep


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished(cluster: str) -> None:
    before = Path(cluster).read_bytes()
    with begin(cluster, "--save") as sweep:
        sweep.send_signal(signal.SIGINT)
        out, err = sweep.communicate(timeout=60)
    assert sweep.returncode == 130, err
    data = json.loads(out)
    assert data["interrupted"]
    assert data["trials"]["finished"] >= 1
    assert data["trials"]["running"] == 0
    assert data["saved"] is None
    assert Path(cluster).read_bytes() == before
    assert Path(data["page"]).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_worker_that_is_stopped_leaves_no_trial_running(
    cluster: str, number: signal.Signals
) -> None:
    with begin(cluster, "--study", "mine") as sweep:
        sweep.send_signal(number)
        out, err = sweep.communicate(timeout=60)
    assert sweep.returncode == 128 + number, err
    assert json.loads(out) == {"error": "stopped by a signal", "exit_code": 128 + number}
    storage = open_storage(storage_url("ga-sweep.db"))
    states = {
        each.state for each in optuna.load_study(study_name="mine", storage=storage).get_trials()
    }
    assert TrialState.RUNNING not in states
    assert TrialState.COMPLETE in states


@pytest.mark.slow
def test_several_networks_are_tuned_together_and_two_objectives_have_a_front(
    cluster: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_branches(tmp_path / "other.onnx", seed=1)
    models = ("--model", "branches.onnx", "--model", "other.onnx")
    options = ("--strategy", "vertical", "--repeats", "1", "--budget", "0.01", "--trials", "3")
    code, out, err = run(capsys, cluster, *models, *options, "--front", "--json")
    assert code == 0, err
    data = json.loads(out)
    assert data["study"] == "branches and other, vertical, period and memory"
    assert {"period", "memory"} == data["front"][0]["values"].keys()
    assert data["hypervolume"] >= 0.01 - 1e-9  # the usual parameters' own
    page = Path(data["page"]).read_text(encoding="utf-8")
    assert page.count("<svg") == (4 if data["importance"] else 3)
    code, _, err = run(capsys, cluster, "--trials", "1", "--front", *QUICK)
    assert code == 2
    assert "--front: vertical-paper minimises Eq. 1 alone" in err


def test_one_node_leaves_nothing_to_tune(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(cluster).write_text("model: branches.onnx\nnodes: [{name: a}]\n")
    code, _, err = run(capsys, cluster, "--trials", "1")
    assert code == 2
    assert "nothing to tune" in err
