"""Prometheus' metrics of views, and the rules and the dashboard that are shipped for them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from launcher.serve.exposition import RunsCollector, exposition
from launcher.serve.tensors import ServedModel
from launcher.view.model import NodeState
from tests.serve.server import ROOT, WAIT_S, Serving
from tests.view import views

DEPLOY = ROOT / "deploy"
TOKEN = "a-token-of-some-length"

promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool, of Debian's package prometheus"
)


def run_of(model: str, version: str = "1", **changes: object):
    return views.run(models=(model,), versions=(version,), **changes)


def exposed(*runs, models=(), state_is_written=None) -> str:
    collector = RunsCollector(lambda: runs, lambda: models, "1.2", state_is_written)
    return exposition(collector, "")[0].decode()


def samples(text: str) -> dict[tuple[str, frozenset], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    (found,) = (
        value
        for (known, of), value in samples(text).items()
        if known == name and labels.items() <= dict(of).items()
    )
    return found


def everything() -> str:
    """All metrics that there are."""
    node = views.node(
        "left", energy_j_total=5.0, rss_bytes=9, predicted_bytes=8, limit_bytes=10, busy=0.5
    )
    lost = views.node("right", state=NodeState.LOST)
    channel = views.channel("left", "right", frames=3, capacity=4)
    served = ServedModel("digits", {}, {}, "2")
    served.statistics.add("success", 20_000_000)
    served.statistics.add("full", 1_000)
    run = run_of("digits", "2", nodes=(node, lost), channels=(channel,), frames_total=1234)
    return exposed(run, models=(served,), state_is_written=False)


def test_a_state_is_written_or_not_where_there_is_one() -> None:
    assert value(everything(), "csdf_edge_state_written") == 0
    assert value(exposed(state_is_written=True), "csdf_edge_state_written") == 1
    assert "csdf_edge_state_written" not in exposed()


def test_what_is_counted_is_exposed_with_model_version_and_node() -> None:
    text = everything()
    of = {"model": "digits", "version": "2"}
    assert value(text, "csdf_edge_frames_total", **of) == 1234
    assert value(text, "csdf_edge_node_energy_joules_total", node="left", **of) == 5
    assert value(text, "csdf_edge_node_state", node="right", state="lost", **of) == 1
    assert value(text, "csdf_edge_node_state", node="right", state="active", **of) == 0
    assert value(text, "csdf_edge_channel_frames", producer="left", consumer="right", **of) == 3
    assert value(text, "csdf_edge_requests_total", outcome="success", **of) == 1
    assert value(text, "csdf_edge_requests_total", outcome="full", **of) == 1
    assert value(text, "csdf_edge_request_duration_seconds_bucket", le="0.025", **of) == 1
    assert value(text, "csdf_edge_request_duration_seconds_bucket", le="0.01", **of) == 0
    assert value(text, "csdf_edge_request_duration_seconds_sum", **of) == 0.02


def test_what_is_not_measured_is_left_out_and_not_zero() -> None:
    text = exposed(run_of("digits", nodes=(views.node("left", energy_j_total=None, busy=None),)))
    assert not [key for key in samples(text) if "energy" in key[0] or "busy_ratio" in key[0]]


def test_runs_of_one_process_are_told_apart_by_model_and_version() -> None:
    text = exposed(run_of("a", "1"), run_of("a", "2"), run_of("b", "1"))
    runs = [labels for name, labels in samples(text) if name == "csdf_edge_frames_total"]
    assert len(runs) == 3


def test_neither_frames_nor_requests_nor_epochs_add_time_series() -> None:
    served = ServedModel("digits", {}, {}, "1")
    run = run_of("digits", nodes=(views.node("left"),))
    before = samples(exposed(run, models=(served,))).keys()
    for number in range(1000):
        served.statistics.add("success", 1000 * number**2)
    later = run_of("digits", nodes=run.nodes, epoch=99, frames_total=10**9, recoveries_total=500)
    assert samples(exposed(later, models=(served,))).keys() == before


@promtool
def test_names_and_units_are_prometheus_own() -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        check=False,
        input=everything(),
        text=True,
        capture_output=True,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@promtool
def test_each_alert_fires_when_it_should() -> None:
    folder = DEPLOY / "prometheus"
    tested = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    checked = ["promtool", "check", "config", "prometheus.yml"]
    assert (
        subprocess.run(checked, cwd=folder, stdout=subprocess.DEVNULL, check=False).returncode == 0
    )


@pytest.mark.parametrize("file", ["prometheus/alerts.yml", "grafana/csdf-edge.json"])
def test_rules_and_dashboard_use_metrics_that_there_are(file: str) -> None:
    text = (DEPLOY / file).read_text()
    used = set(re.findall(r"\bcsdf_edge_\w+", text))
    there = {name for name, _ in samples(everything())}
    assert used
    assert used <= there


def test_each_alert_has_a_test_and_a_remedy_in_the_documents() -> None:
    alerts = set(re.findall(r"alert: (\w+)", (DEPLOY / "prometheus/alerts.yml").read_text()))
    tests = (DEPLOY / "prometheus/alerts_test.yml").read_text()
    page = (ROOT / "docs/observing.md").read_text()
    assert len(alerts) > 5
    for alert in alerts:
        assert re.search(rf"alertname: {alert}\n\s+exp_alerts", tests), alert
        assert f"`{alert}`" in page, alert


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    dashboard = json.loads((DEPLOY / "grafana/csdf-edge.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        assert panel["targets"]
        assert panel["datasource"]["uid"] == "${datasource}"


# ---------------------------------------------------------------- over HTTP


def scrape(serving: Serving, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://{serving.http}/metrics", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


@pytest.mark.slow
def test_a_server_exposes_its_metrics_to_who_has_the_token_or_to_all(tmp_path: Path) -> None:
    serving = Serving("--token", TOKEN)
    assert scrape(serving)[0] == 401
    status, text = scrape(serving, TOKEN)
    assert serving.end() == 0
    assert status == 200
    for node in ("left", "middle", "right"):
        assert value(text, "csdf_edge_node_state", node=node, state="active") == 1
        assert value(text, "csdf_edge_node_resident_memory_bytes", node=node) > 1e6
    serving = Serving("--token", TOKEN, "--metrics", "open")
    assert scrape(serving)[0] == 200
    assert serving.end() == 0
