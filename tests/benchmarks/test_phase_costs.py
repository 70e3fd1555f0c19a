"""What phases cost is taken apart without a remainder."""

from __future__ import annotations

from pathlib import Path

import pytest

import cnn
from benchmarks.phase_costs import as_report, measure
from partition.devices import Device
from partition.planner import make_plan

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def test_the_parts_of_each_phase_add_up_to_its_run(tmp_path: Path) -> None:
    model = cnn.read(DIGITS)
    network, devices = model.network, (Device("a"), Device("b"))
    half = len(network.layers) // 2
    assignment = {layer.name: "ab"[n >= half] for n, layer in enumerate(network.layers)}
    plan = make_plan(network, model.digest, devices, assignment, strategy="by hand", explanation="")
    costs, whole = measure(model, plan, 3, tmp_path)
    assert [each.phase for each in costs] == [phase.name for phase in plan.phases]
    for each in costs:
        parts = each.whole_s + each.conversions_s + each.unfused_s + each.kernels_s
        assert parts + each.session_s == pytest.approx(each.run_s)
        assert each.wire_s > 0
    figures = {row["what"]: row for row in as_report("", plan, 1.0, costs, whole, 3)["rows"]}
    ratio = sum(each.run_s for each in costs) / whole.run_s
    assert figures["all phases ÷ the whole network"]["measured"] == pytest.approx(ratio, abs=1e-4)
