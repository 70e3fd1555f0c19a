"""What the cost model is told of the nodes, and plans that survive being saved."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnn.model import Model, read
from launcher.config.load import Cluster, load_cluster
from launcher.plan.devices import devices_of
from launcher.plan.files import read_plan, save_plan
from launcher.plan.machines import THIS_MACHINE
from launcher.plan.planner import MARGIN, Planner
from launcher.plan.profile.file import ProfileFile
from partition.planner import as_run, make_plan
from tests.launcher.models import write_branches


def cluster_of(folder: Path, nodes: str) -> Cluster:
    write_branches(folder / "branches.onnx")
    path = folder / "cluster.yaml"
    path.write_text(f"model: branches.onnx\nnodes: [{nodes}]\n")
    return load_cluster(path)


def test_nodes_without_an_address_share_this_machines_cores(tmp_path: Path) -> None:
    devices = devices_of(cluster_of(tmp_path, "{name: a}, {name: b}"))
    assert {device.host for device in devices} == {THIS_MACHINE}
    assert {device.host_cores for device in devices} <= set(
        range(1, len(os.sched_getaffinity(0)) + 1)
    )


def test_nodes_bound_to_one_cpu_share_one_core(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    devices = devices_of(
        cluster_of(tmp_path, f"{{name: a, cpus: [{cpu}]}}, {{name: b, cpus: [{cpu}]}}")
    )
    assert [device.host_cores for device in devices] == [1, 1]


def test_a_node_elsewhere_has_its_machine_to_itself(tmp_path: Path) -> None:
    here, near, far = devices_of(
        cluster_of(
            tmp_path,
            "{name: a}, {name: b, address: 'tcp://127.0.0.1:1'}, {name: c, address: 'tcp://pi:1'}",
        )
    )
    assert here.host == near.host == THIS_MACHINE
    assert far.host is None


def test_what_the_user_says_of_a_node_is_what_the_cost_model_hears(tmp_path: Path) -> None:
    cluster = cluster_of(
        tmp_path,
        "{name: a, memory: 1GB, macs_per_s: 1T, link: 100Mbit/s, accelerator: true, threads: 2, "
        "cache: 8MiB, cache_spill: layers, busy_w: 15, idle_w: 1.5}, {name: b, threads: 2}",
    )
    a, b = devices_of(cluster)
    assert (a.memory_bytes, a.macs_per_s) == (10**9, 1e12)
    assert a.link_bytes_per_s == pytest.approx(0.94 * 12.5e6)
    assert a.wire_is_free
    assert (a.cache_bytes, a.busy_w, a.idle_w) == (8 << 20, 15.0, 1.5)
    assert (a.cache_spill, b.cache_spill) == ("layers", "bytes")
    assert b.macs_per_s == 4e10
    assert b.cache_bytes is None
    assert (a.launcher_bytes_per_s, b.launcher_bytes_per_s) == (None, None)
    assert (a.threads, b.threads) == (2, 2)


def test_a_gpu_that_nobody_has_measured_counts_as_several_threads(tmp_path: Path) -> None:
    gpu, second, known, cpu = devices_of(
        cluster_of(
            tmp_path,
            "{name: a, device: gpu}, {name: b, device: 'gpu:1', threads: 99}, "
            "{name: c, device: gpu, macs_per_s: 1T}, {name: d, device: cpu}",
        )
    )
    assert gpu.macs_per_s == 16 * cpu.macs_per_s
    assert second.macs_per_s == 99 * cpu.macs_per_s
    assert known.macs_per_s == 1e12


def test_a_slow_processor_is_slow_at_all_that_it_does(tmp_path: Path) -> None:
    slow, usual = devices_of(cluster_of(tmp_path, "{name: a, macs_per_s: 5G}, {name: b}"))
    for cost in ("cut_s_per_byte", "firing_s", "wire_s_per_message", "wire_s_per_byte"):
        assert getattr(slow, cost) == pytest.approx(4 * getattr(usual, cost)), cost


def test_the_launchers_link_is_that_of_all_nodes_elsewhere(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "{name: a, address: 'tcp://10.0.0.1:5500'}, {name: here}")
    far, here = devices_of(cluster.changed(launcher_link=1.25e6))
    assert far.launcher_bytes_per_s == pytest.approx(0.94 * 1.25e6)
    assert here.launcher_bytes_per_s is None


def test_part_of_the_tolerance_is_kept_for_errors_unless_the_user_gives_it_or_a_profile(
    tmp_path: Path,
) -> None:
    cluster = cluster_of(tmp_path, "{name: a}, {name: b}")
    model = read(tmp_path / "branches.onnx")
    given = cluster.changed(within=0.1)
    for asked, file, margin in (
        (cluster, None, MARGIN),
        (given, None, 0.0),
        (cluster, ProfileFile(model="m", model_digest="", energy="", nodes={}), 0.0),
    ):
        problem = Planner(asked, model, file).problem()
        assert (problem.within, problem.within_margin) == (0.1, margin)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return read(write_branches(tmp_path_factory.mktemp("model") / "branches.onnx"))


@settings(max_examples=15, deadline=None)
@given(choice=st.lists(st.sampled_from("abc"), min_size=7, max_size=7))
def test_any_plan_comes_back_as_it_was_saved(
    tmp_path_factory: pytest.TempPathFactory, model: Model, choice: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("plan")
    cluster = cluster_of(folder, "{name: a}, {name: b}, {name: c}")
    layers = [layer.name for layer in model.network.layers]
    plan = make_plan(
        model.network,
        model.digest,
        devices_of(cluster),
        dict(zip(layers, choice, strict=True)),
        strategy="manual",
        explanation="drawn",
    )
    save_plan(folder / "plan", plan, cluster)
    saved = read_plan(folder / "plan")
    assert not saved.edited
    text = (folder / "plan" / "plan.json").read_text().splitlines()
    assert all(f'"{layer}"' in text[saved.lines[layer] - 1] for layer in layers)
    planner = Planner(load_cluster(folder / "plan" / "cluster.yaml"), model)
    assert planner.saved(saved) == as_run(planner.problem(), plan)
