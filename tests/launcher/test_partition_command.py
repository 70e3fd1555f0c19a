"""`partition` as users call it: a plan's figures, and one sentence for each mistake."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ga.strategies import STRATEGIES
from launcher.commands.launch import main as launch
from launcher.commands.partition import main
from tests.launcher.launches import done, ended
from tests.launcher.models import write_branches
from tests.quick_searches import GENERATIONS, INDIVIDUALS


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(
        "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\npins: {stem: a, head: b}\n"
    )
    return "branches.onnx"


run = partial(ended, main)


def solved(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return done(main, capsys, "solve", *arguments)


@pytest.mark.parametrize("strategy", ["sequential", "horizontal", "batch-split"])
def test_equal_devices(model: str, capsys: pytest.CaptureFixture[str], strategy: str) -> None:
    data = solved(capsys, model, "--devices", "2", "--strategy", strategy)
    assert data["strategy"] == strategy
    assert data["objective"] == "both"
    assert [device["name"] for device in data["devices"]] == ["device1", "device2"]
    busiest = max(device["compute_s"] for device in data["devices"])
    assert 0 < busiest <= data["period_s"] <= data["latency_s"]
    assert 1 <= data["speedup_bound"] <= 2 + 1e-9
    assert data["bytes_per_frame"] > 0
    assert data["seconds"] >= 0
    assert {"optimal", "gap", "memory_saving_percent"} <= data.keys()


@pytest.mark.usefixtures("quick_searches")
def test_the_json_has_the_figures_and_the_logbook_of_a_genetic_algorithm(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = solved(capsys, model, "--devices", "2", "--strategy", "vertical-paper")
    check_figures(data, "vertical-paper", "both")
    generations = data["generations"]
    assert generations[0]["generation"] == 0
    assert generations[0]["evaluations"] == INDIVIDUALS
    assert generations[-1]["least"] <= generations[0]["least"] <= generations[0]["mean"]


KEYS = {
    "strategy",
    "objective",
    "devices",
    "period_s",
    "speedup_bound",
    "memory_saving_percent",
    "memory_eq2_saving_percent",
    "bytes_per_frame",
    "optimal",
    "gap",
    "seconds",
}
OBJECTIVES = ("memory", "latency", "energy")


@pytest.mark.slow
@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize(
    ("strategy", "objective"),
    [(name, "both") for name in STRATEGIES if name not in ("manual", "vertical-paper")]
    + [
        (name, objective) for name in ("sequential", "k-stage", "tiles") for objective in OBJECTIVES
    ],
)
def test_the_figures_of_every_strategy_have_the_same_keys(
    model: str, capsys: pytest.CaptureFixture[str], strategy: str, objective: str
) -> None:
    given = ("--devices", "2", "--strategy", strategy, "--objective", objective)
    check_figures(solved(capsys, model, *given), strategy, objective)


def check_figures(data: dict[str, Any], strategy: str, objective: str) -> None:
    assert data.keys() >= KEYS
    assert data["strategy"] == strategy
    assert data["objective"] == objective
    assert data["optimal"] in (True, False, None)
    for device in data["devices"]:
        assert list(device) == [
            "name",
            "layers",
            "weight_bytes",
            "memory_bytes",
            "memory_eq2_bytes",
            "compute_s",
            "joules_per_frame_predicted",
        ]
    joules = sum(device["joules_per_frame_predicted"] for device in data["devices"])
    assert data["joules_per_frame_predicted"] == pytest.approx(joules)
    assert data["watts_predicted"] == pytest.approx(joules / data["period_s"])
    assert joules > 0


def test_one_device_saves_nothing(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = solved(capsys, model, "--devices", "1")
    assert data["speedup_bound"] == pytest.approx(1)
    assert data["memory_saving_percent"] == data["memory_eq2_saving_percent"] == 0


def test_a_clusters_devices_and_pins(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = solved(capsys, model, "--cluster", "cluster.yaml", "--strategy", "sequential")
    assert [device["name"] for device in data["devices"]] == ["a", "b"]
    assert all(device["layers"] for device in data["devices"])


def test_what_is_not_said_is_as_the_cluster_has_it(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(cluster.read_text() + "strategy: sequential\nobjective: memory\n")
    data = solved(capsys, "--cluster", "cluster.yaml")
    assert (data["network"], data["strategy"], data["objective"]) == (
        "branches",
        "sequential",
        "memory",
    )
    data = solved(capsys, model, "--cluster", "cluster.yaml", "--objective", "latency")
    assert (data["strategy"], data["objective"]) == ("sequential", "latency")


def test_a_saved_plan_is_what_launch_takes(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--cluster", "cluster.yaml", "--strategy", "sequential", "--save", "plan")
    data = solved(capsys, model, *given)
    with pytest.raises(SystemExit) as ended:
        launch(["plan", "--plan-only", "--json"])
    assert ended.value.code == 0
    again = json.loads(capsys.readouterr().out)
    assert [n["layers"] for n in again["nodes"]] == [d["layers"] for d in data["devices"]]
    assert again["period_planned_s"] == pytest.approx(data["period_s"])


def test_people_get_a_table(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "solve", model, "--devices", "3", "--strategy", "sequential")
    assert code == 0
    assert "device3" in out
    assert "times as fast" in out


def test_without_a_subcommand_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert code == 2
    assert "solve" in out + err


def test_a_comparison_has_a_row_for_each_strategy_and_number(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "pages" / "all.html"
    named = "sequential,batch-split,manual"
    options = ("--devices", "2..3", "--strategies", named, "--html", str(page), "--json")
    code, out, err = run(capsys, "compare", model, *options)
    assert code == 0, err
    data = json.loads(out)
    rows = {(row["devices_count"], row["strategy"]): row for row in data["rows"]}
    assert len(rows) == 6
    assert rows[3, "batch-split"]["speedup_bound"] == pytest.approx(3)
    assert "needs a device for every layer" in rows[2, "manual"]["error"]
    text = page.read_text()
    assert text.count("<svg") == 4
    assert "manual has no plan for 2 devices: " in text
    assert "<script" not in text
    assert "<link" not in text
    assert data["page"] == str(page)


def test_a_comparison_for_people_is_one_table(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(
        capsys, "compare", model, "--devices", "2", "--strategies", "sequential,manual"
    )
    assert code == 0
    assert "no plan" in out
    assert "×" in out


def test_a_plan_is_drawn_with_every_layer_and_channel(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    solved(
        capsys,
        model,
        "--cluster",
        "cluster.yaml",
        "--strategy",
        "sequential",
        "--save",
        "plan",
    )
    code, out, err = run(capsys, "show", "plan", "--output", "plan.svg", "--json")
    assert code == 0, err
    drawn = json.loads(out)
    picture = ElementTree.parse(tmp_path / "plan.svg")
    titles = [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}title")]
    layers = json.loads((tmp_path / "plan" / "plan.json").read_text())["assignment"]
    for layer in (name for names in layers.values() for name in names):
        assert any(title.startswith(f"{layer}: ") for title in titles), layer
    assert sum(" per frame, " in title for title in titles) >= 3
    assert drawn["picture"] == "plan.svg"
    assert run(capsys, "show", "plan", "--output", "plan.html")[0] == 0
    assert "<svg" in (tmp_path / "plan.html").read_text()
    code, out, _ = run(capsys, "show", "plan")
    assert "proof" in out


def test_a_picture_is_svg_or_html(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    solved(
        capsys,
        model,
        "--cluster",
        "cluster.yaml",
        "--strategy",
        "sequential",
        "--save",
        "plan",
    )
    code, _, err = run(capsys, "show", "plan", "--output", "plan.png")
    assert code == 2
    assert ".svg or .html" in err


@pytest.mark.usefixtures("quick_searches")
def test_the_generations_of_a_search_are_drawn(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--devices", "2", "--convergence", "grown.svg")
    data = solved(capsys, model, *options, "--strategy", "vertical")
    assert [row["generation"] for row in data["generations"]] == [*range(1, 1 + GENERATIONS)]
    assert all(0 <= row["hypervolume"] <= 1 for row in data["generations"])
    text = Path("grown.svg").read_text("utf-8")
    ElementTree.fromstring(text)
    assert "least period s" in text or text.count('<g id="axes_') == 5
    code, _, err = run(capsys, "solve", model, *options, "--strategy", "sequential")
    assert code == 2
    assert "the plan of sequential has no generations to plot; choose --strategy vertical" in err
    code, _, err = run(capsys, "solve", model, "--devices", "2", "--convergence", "grown.png")
    assert (code, "'grown.png': must end in .svg" in err) == (2, True)
