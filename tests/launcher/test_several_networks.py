"""Several networks in one run: each has its own inputs, results and comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from launcher.config.load import Cluster, load_cluster
from launcher.errors import BadInputError
from launcher.plan.files import read_plan
from launcher.results.report_text import report_text
from launcher.run.request import Request
from tests.cnn.models import run as alone
from tests.launcher.in_process import InProcess
from tests.launcher.launches import AGENTS, launched, reported
from tests.launcher.models import DIGITS, write_branches
from tests.launcher.test_report import printed

pytestmark = pytest.mark.usefixtures("quick_searches")


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Two networks: one of two inputs and outputs, and a classifier of digits."""
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "digits.onnx").write_bytes((DIGITS / "digits.onnx").read_bytes())
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "model:\n"
        "  - branches.onnx\n"
        "  - {path: digits.onnx, name: numbers}\n"
        "nodes: [{name: a}, {name: b}]\n"
        "strategy: sequential\n"
        "inputs:\n"
        "  branches: frames.npz\n"
        "frames: 5\n"
    )
    generator = np.random.default_rng(0)
    np.savez(
        tmp_path / "frames.npz",
        image=generator.standard_normal((3, 1, 3, 8, 8)).astype(np.float32),
        shift=generator.standard_normal((3, 1, 4, 8, 8)).astype(np.float32),
    )
    return path


def refused(path: Path, old: str = "", new: str = "") -> str:
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(BadInputError) as caught:
        launched(Request(path))
    return str(caught.value).removeprefix(str(path))


def test_both_networks_agree_with_the_whole_of_each(cluster: Path) -> None:
    report = reported(Request(cluster))
    assert report.network == "branches+numbers"
    assert list(report.networks) == ["branches", "numbers"]
    assert report.agreement is not None
    assert report.agreement.max_relative_error < 1e-5
    data = report.as_json()
    assert data["networks"]["numbers"]["max_relative_error"] < 1e-5
    assert "numbers: largest relative difference" in printed(report_text(report, verbose=True))


def test_a_network_that_strays_is_named(cluster: Path) -> None:
    def disturb(frame: int, outputs: dict[str, np.ndarray]) -> None:
        name = next(name for name in outputs if name.startswith("numbers/"))
        outputs[name] = outputs[name] + np.float32(frame == 2)

    report = reported(Request(cluster), InProcess(disturb))
    assert not report.agrees
    assert report.networks["numbers"].worst_input == 2
    assert report.networks["branches"].max_relative_error < 1e-5
    assert report.worst_output is not None
    assert report.worst_output.startswith("numbers/")


def test_results_lie_in_a_folder_for_each(cluster: Path, tmp_path: Path) -> None:
    launched(Request(cluster, output=tmp_path / "out"))
    branches = sorted(path.name for path in (tmp_path / "out" / "branches").iterdir())
    assert branches[:2] == ["000000.aux_map.npy", "000000.score.npy"]
    assert len(branches) == 10
    numbers = tmp_path / "out" / "numbers"
    assert sorted(path.name for path in numbers.iterdir())[-2:] == ["000004.npy", "classes.csv"]
    rows = (numbers / "classes.csv").read_text().splitlines()
    assert rows[1].startswith("0,random[0],1,")


@pytest.mark.slow
def test_a_network_with_fewer_inputs_repeats_them(cluster: Path, tmp_path: Path) -> None:
    launched(Request(cluster, output=tmp_path / "out"))
    results = [
        np.load(tmp_path / "out" / "branches" / f"{frame:06d}.score.npy") for frame in range(5)
    ]
    np.testing.assert_array_equal(results[0], results[3])
    assert not np.array_equal(results[0], results[1])


@pytest.mark.slow
def test_the_usual_input_is_for_all_networks_without_their_own(cluster: Path) -> None:
    cluster.write_text(cluster.read_text().replace("frames: 5\n", "input: random\n"))
    runtime = InProcess()
    launched(Request(cluster), runtime)
    (plan,) = runtime.plans
    fed = {c.tensor.name for c in plan.channels if c.source_device == "@host"}
    inputs = {name for name in fed if name.startswith("branches/")}
    assert inputs == {"branches/image", "branches/shift"}
    assert len(fed) == 3


@pytest.mark.slow
def test_pins_name_layers_with_their_network(cluster: Path) -> None:
    cluster.write_text(cluster.read_text() + "pins: {branches/stem: a, 'numbers/*': b}\n")
    plan = launched(Request(cluster, plan_only=True)).plan
    assert plan.assignment["branches/stem"] == "a"
    assert {plan.assignment[n] for n in plan.assignment if n.startswith("numbers/")} == {"b"}


@pytest.mark.slow
def test_a_saved_plan_runs_again(cluster: Path, tmp_path: Path) -> None:
    launched(Request(cluster, plan_only=True, save=tmp_path / "plan"))
    saved = yaml.safe_load((tmp_path / "plan" / "cluster.yaml").read_text())
    assert saved["model"][0] == {"path": str(tmp_path / "branches.onnx")}
    assert saved["model"][1] == {"path": str(tmp_path / "digits.onnx"), "name": "numbers"}
    assert saved["inputs"] == {"branches": {"files": [str(tmp_path / "frames.npz")]}}
    assert read_plan(tmp_path / "plan").model.endswith(f"+{tmp_path / 'digits.onnx'}")
    report = reported(Request(tmp_path / "plan"))
    assert report.agrees


def test_a_list_of_one_network_is_that_network(cluster: Path) -> None:
    cluster.write_text(
        "model: [branches.onnx]\nnodes: [{name: a}]\ninputs: {branches: frames.npz}\n"
    )
    report = reported(Request(cluster))
    assert report.network == "branches"
    assert report.networks == {}
    assert report.frames == 3


def test_names_are_those_of_the_files_unless_given(cluster: Path) -> None:
    loaded: Cluster = load_cluster(cluster)
    assert [model.name for model in loaded.models] == ["branches", "numbers"]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "  - {path: digits.onnx, name: numbers}",
            "  - {path: digits.onnx, name: branches}",
            ", line 3, model[1].name: another network is already called 'branches'; give this one "
            "another name: {path: digits.onnx, name: …}",
        ),
        (
            "  - {path: digits.onnx, name: numbers}",
            "  - branches.onnx",
            ", line 3, model[1]: another network is already called 'branches'; give this one "
            "another name: {path: branches.onnx, name: …}",
        ),
        (
            "  branches: frames.npz",
            "  branch: frames.npz",
            ", line 7, inputs.branch: there is no network 'branch'; did you mean 'branches'?",
        ),
        (
            "  branches: frames.npz",
            "  numbers: {files: random, scal: 1}",
            ", line 7, inputs.numbers.scal: unknown key; did you mean 'scale'?",
        ),
        (
            "  branches: frames.npz",
            "  branches: 3",
            ", line 7, inputs.branches: must be files, not 3; write a constant input of "
            "the network as model: {path: …, inputs: {branches: 3}}",
        ),
        ("frames: 5", "labels: digits.onnx", "line 8, labels: is possible only with one network"),
        ("frames: 5", "task: detect", "line 8, task: is possible only with one network; write it"),
        ("frames: 5", "tasks: {branch: none}", "line 8, tasks.branch: there is no network"),
        ("frames: 5", "tasks: {branches: 7}", "line 8, tasks.branches: must be a kind such as"),
        ("frames: 5", "tasks: {branches: find}", "line 8, tasks.branches: must be 'auto', "),
        ("digits.onnx", "gone.onnx", "line 3, model[1].path: there is no file"),
        ("name: numbers", "name: a/b", "line 3, model[1].name: 'a/b' cannot be a network's name"),
        ("  - branches.onnx", "  - 7", "line 2, model[0]: must be a path, or a mapping"),
        ("  - branches.onnx", "  - {}", "line 2, model[0]: the key 'path' is missing"),
        ("frames.npz", "nothing/*.npz", "line 7, inputs.branches: no file matches"),
        ("  branches: frames.npz", "  numbers: frames.npz", "frames.npz: has the shape [3, 1, 3"),
    ],
)
def test_mistakes_end_in_a_sentence(cluster: Path, old: str, new: str, sentence: str) -> None:
    assert sentence in refused(cluster, old, new)


def test_one_bad_file_among_several_is_named(cluster: Path) -> None:
    (cluster.parent / "digits.onnx").write_bytes(b"\x00\x01 no model")
    assert refused(cluster).startswith(", line 3, model[1]: ")


def test_an_empty_list_of_networks_is_refused(cluster: Path) -> None:
    cluster.write_text("model: []\nnodes: [{name: a}]\n")
    assert refused(cluster) == ", line 1, model: must not be empty"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["horizontal", "tiles", "vertical", "k-stage", "exact"])
def test_every_strategy_divides_merged_networks(cluster: Path, strategy: str) -> None:
    text = cluster.read_text().replace("strategy: sequential", f"strategy: {strategy}")
    cluster.write_text(text)
    report = reported(Request(cluster))
    assert report.agrees
    assert set(report.networks) == {"branches", "numbers"}


@pytest.mark.slow
def test_two_networks_run_side_by_side_on_real_agents(cluster: Path, tmp_path: Path) -> None:
    images = np.load(DIGITS / "test_images.npy")[:5]
    np.save(tmp_path / "images.npy", images)
    text = cluster.read_text().replace("strategy: sequential", "strategy: co-deploy")
    text = text.replace("  branches: frames.npz", "  branches: frames.npz\n  numbers: images.npy")
    cluster.write_text(text + "pins: {branches/stem: a, branches/head: b, 'numbers/*': b}\n")
    report = reported(Request(cluster, output=tmp_path / "out"), AGENTS)
    assert report.agrees
    assert report.strategy == "co-deploy"
    assert all(node.layers > 0 for node in report.nodes)
    assert all(own.max_relative_error < 1e-5 for own in report.networks.values())
    frames = np.load(tmp_path / "frames.npz")
    for number in range(5):
        given = {name: frames[name][number % 3] for name in ("image", "shift")}
        score, aux = alone(tmp_path / "branches.onnx", given)
        (scores,) = alone(DIGITS / "digits.onnx", {"image": images[number].reshape(1, 1, 8, 8)})
        out = tmp_path / "out"
        for file, expected in (
            (out / "branches" / f"{number:06d}.score.npy", score),
            (out / "branches" / f"{number:06d}.aux_map.npy", aux),
            (out / "numbers" / f"{number:06d}.npy", scores),
        ):
            np.testing.assert_allclose(np.load(file), expected, rtol=1e-4, atol=1e-5)
