"""The front of a search: its points are plans to choose from, and each can be launched by name."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from launcher.commands.launch import main as launch
from launcher.commands.partition import main
from tests.launcher.launches import done, ended
from tests.launcher.models import write_classifier

BOARDS = ("--cluster", "cluster.yaml")
QUICK = "strategy: vertical\nga: {vertical: {budget: 0.01}}\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    write_classifier(path)
    return path


@pytest.fixture(scope="module")
def folder(model: Path) -> Path:
    """The model's folder, with a cluster of three boards and one of three agents here."""
    boards = [f"- {{name: b{n}, address: 'tcp://192.0.2.{n}:5500'}}\n" for n in (1, 2, 3)]
    (model.parent / "cluster.yaml").write_text(
        f"model: {model.name}\nnodes:\n{''.join(boards)}{QUICK}"
    )
    (model.parent / "local.yaml").write_text(
        f"model: {model.name}\nnodes: [{{name: a}}, {{name: b}}, {{name: c}}]\nframes: 4\n{QUICK}"
    )
    return model.parent


@pytest.fixture(scope="module")
def saved(folder: Path) -> dict[str, Any]:
    """The figures of the boards' front, which is saved in the folder's `front`."""
    with pytest.raises(SystemExit) as ended:
        main(["front", "--cluster", f"{folder}/cluster.yaml", "--output", f"{folder}/front"])
    assert ended.value.code == 0
    data = json.loads((folder / "front" / "front.json").read_text())
    assert isinstance(data, dict)
    return data


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_each_point_is_slower_and_smaller_than_the_one_before(saved: dict[str, Any]) -> None:
    points, alone = saved["points"], saved["alone"]
    assert len(points) > 1
    for one, other in pairwise(points):
        assert one["period_s"] < other["period_s"]
        assert one["memory_bytes"] > other["memory_bytes"]
    for point in points:
        assert point["speedup"] == pytest.approx(alone["period_s"] / point["period_s"])
        assert point["memory_saving_percent"] == pytest.approx(
            100 * (1 - point["memory_bytes"] / alone["memory_bytes"])
        )


def test_the_same_seed_gives_the_same_points_under_the_same_names(
    saved: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    again = done(main, capsys, "front", *BOARDS)
    assert again["points"] == saved["points"]
    assert [point["name"] for point in saved["points"]] == [
        f"p{number:02}" for number in range(1, len(saved["points"]) + 1)
    ]


def test_the_objective_both_takes_the_smallest_point_that_is_fast_enough(
    saved: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = ended(main, capsys, "front", *BOARDS, "--within", "100%")
    points = saved["points"]
    fast = [point for point in points if point["period_s"] <= 2 * points[0]["period_s"]]
    assert code == 0
    assert len(fast) > 1
    assert f"the objective both takes {fast[-1]['name']}" in out
    assert "one device alone, b1" in out
    assert max(map(len, out.splitlines())) <= 110


@pytest.mark.slow
def test_auto_offers_what_every_strategy_found_under_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    points = done(main, capsys, "front", *BOARDS, "--strategy", "auto")["points"]
    assert points[0]["strategy"] == "batch-split"
    assert {"batch-split"} < {point["strategy"] for point in points}


def test_the_folder_has_a_picture_the_figures_and_a_plan_for_each_point(
    folder: Path, saved: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    names = [point["name"] for point in saved["points"]]
    held = {path.name for path in (folder / "front").iterdir()}
    assert held == {"front.svg", "front.json", *names}
    text = (folder / "front" / "front.svg").read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert all(f"<!-- {name} -->" in text for name in names)
    last = saved["points"][-1]
    code, out, err = ended(launch, capsys, f"front/{names[-1]}", "--plan-only", "--json")
    assert code == 0, err
    again = json.loads(out)
    assert again["period_planned_s"] == pytest.approx(last["period_s"])
    assert max(n["memory_predicted_bytes"] for n in again["nodes"]) == last["memory_bytes"]


def test_points_for_equal_devices_can_be_launched_too(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--strategy", "sequential", "--memory", "2GB", "--link", "100Mbit/s")
    data = done(main, capsys, "front", "net.onnx", "--devices", "3", *given, "--output", "equal")
    last = data["points"][-1]["name"]
    code, out, err = ended(launch, capsys, f"equal/{last}", "--plan-only", "--json")
    assert code == 0, err
    nodes = json.loads(out)["nodes"]
    assert [node["name"] for node in nodes] == ["device1", "device2", "device3"]
    assert all(node["memory_limit_bytes"] == 2_000_000_000 for node in nodes)


@pytest.mark.slow
def test_a_point_runs_on_agents_under_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    data = done(main, capsys, "front", "--cluster", "local.yaml", "--output", "local")
    last = data["points"][-1]
    code, out, err = ended(launch, capsys, f"local/{last['name']}", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["agrees"]
    assert report["frames"] == 4
    assert "available to nodes without `memory`, as their agents report: a " in err
    assert sum(node["phases"] for node in report["nodes"]) == last["phases"]


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("front", "holds a front; name one of its points (p01"),
        ("front/p77", "has no point 'p77'; it has p01"),
    ],
)
def test_a_front_is_launched_by_the_name_of_a_point(
    saved: dict[str, Any], capsys: pytest.CaptureFixture[str], target: str, sentence: str
) -> None:
    code, _, err = ended(launch, capsys, target, "--plan-only")
    assert code == 2
    assert sentence in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--cluster", "cluster.yaml"), "either --devices"),
        (("--within", "much"), "--within must be a share such as 10% or 0.1"),
        (("--within", "10"), "from 0 to 1, such as 10% or 0.1, not '10'"),
        (("--output", "."), "the folder is not empty"),
        (("--output", "cluster.yaml"), "is a file; name a folder"),
        (("--memory", "57MB"), "may hold only 57.0 MB"),
    ],
)
def test_mistakes_end_in_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    given = ("net.onnx", "--devices", "2", "--strategy", "sequential", *arguments)
    code, _, err = ended(main, capsys, "front", *given)
    assert code == 2
    assert sentence in err.splitlines()[-1]
