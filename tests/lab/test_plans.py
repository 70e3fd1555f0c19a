"""What is done to the machine, told without doing it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings

from benchmarks.lab import DeviceConfig, LabConfig, plans
from benchmarks.lab.actions import MakeFolder, Run, Start, Write
from benchmarks.lab.layout import Cpus, Layout, free_network, separate_cpus
from tests.lab.layouts import configs, layout

LINK = 12.5e6
TWO = LabConfig(
    name="two",
    devices=(
        DeviceConfig(name="fast", cpu=0.5, memory=10**9, link=LINK),
        DeviceConfig(name="small", board="cpu", cpu=0.05, disk=10**8),
    ),
)
ROOT = Path("/nowhere")


def commands(made: Layout) -> list[str]:
    return [str(action) for action in plans.up(made) if isinstance(action, Run)]


def test_a_link_is_shaped_at_both_ends() -> None:
    shaped = [line for line in commands(layout(TWO, ROOT)) if line.startswith("tc")]
    rate = "root tbf rate 100000000bit burst 25000 limit 337500"
    assert shaped == [
        f"tc -n csdflab-two-fast qdisc replace dev eth0 {rate}",
        f"tc -n csdflab-two.switch qdisc replace dev p1 {rate}",
    ]


def test_a_disk_is_a_separate_file_system_that_exists_before_the_agent() -> None:
    made = list(plans.up(layout(TWO, ROOT)))
    folder = ROOT / "files" / "small"
    mount = Run(("mount", "-o", "loop", str(folder / "disk.img"), str(folder / "cache")))
    agent = next(a for a in made if isinstance(a, Start) and "small" in a.argv)
    image = Run(("truncate", "--size", "100000000", str(folder / "disk.img")))
    assert made.index(image) < made.index(mount)
    assert made.index(mount) < made.index(agent)


def test_an_agent_is_the_shipped_daemon_and_joins_its_groups_first() -> None:
    agent = next(action for action in plans.up(layout(TWO, ROOT)) if isinstance(action, Start))
    joined = agent.argv[4 : agent.argv.index("--")]
    assert joined == tuple(
        f"/nowhere/cgroup/{controller}/csdflab-two/fast/cgroup.procs"
        for controller in ("cpu", "cpuacct", "memory")
    )
    assert agent.argv[agent.argv.index("--") + 1] == "nsenter"
    daemon = agent.argv[agent.argv.index("-m") :]
    assert daemon[:6] == ("-m", "nodes.cli", "--name", "fast", "--listen", "tcp://10.78.9.1:5500")


def test_on_an_accelerator_board_the_quota_holds_for_one_thread() -> None:
    made = layout(TWO, ROOT)
    compute = ROOT / "cgroup/cpu/csdflab-two/fast/compute"
    assert plans.settle(made, made.places["fast"], 77) == (
        Write(compute / "tasks", "77"),
        Write(ROOT / "cgroup/cpuacct/csdflab-two/fast/compute/tasks", "77"),
        Write(compute / "cpu.cfs_quota_us", "-1"),
        Write(compute / "cpu.cfs_period_us", "10000"),
        Write(compute / "cpu.cfs_quota_us", "5000"),
    )


def test_slices_that_fit_onto_fewer_cpus_have_them_to_themselves() -> None:
    config = LabConfig(
        undisturbed=True,
        devices=(DeviceConfig(name="a", cpu=0.5), DeviceConfig(name="b", cpu=0.6)),
    )
    cpus = separate_cpus(config, {0, 2, 3})
    assert cpus == Cpus((0, 2), (3,))
    made = replace(layout(config, ROOT), cpus=cpus)
    assert Run(("taskset", "--cpu-list", "--pid", "0,2", "77")) in plans.settle(
        made, made.places["a"], 77
    )
    started = next(action for action in plans.up(made) if isinstance(action, Start))
    at = started.argv.index("taskset")
    assert started.argv[at : at + 3] == ("taskset", "--cpu-list", "3")


@pytest.mark.parametrize(
    ("config", "allowed"),
    [
        (LabConfig(undisturbed=True, devices=(DeviceConfig(cpu=1.5),)), {0, 1}),
        (LabConfig(undisturbed=True, devices=(DeviceConfig(cpu=0.1, board="cpu"),)), {0, 1}),
        (LabConfig(devices=(DeviceConfig(cpu=0.1),)), {0, 1}),
    ],
)
def test_other_boards_share_all_cpus(config: LabConfig, allowed: set[int]) -> None:
    assert separate_cpus(config, allowed) is None


def test_on_a_cpu_board_the_quota_holds_for_the_whole_agent() -> None:
    made = layout(TWO, ROOT)
    whole = ROOT / "cgroup/cpu/csdflab-two/small"
    assert plans.settle(made, made.places["small"], 77) == (
        Write(whole / "cpu.cfs_quota_us", "-1"),
        Write(whole / "cpu.cfs_period_us", "80000"),
        Write(whole / "cpu.cfs_quota_us", "4000"),
    )


def test_in_version_2_the_thread_is_in_a_threaded_group() -> None:
    made = layout(TWO, ROOT, 2)
    own = ROOT / "cgroup/csdflab-two/fast"
    actions = list(plans.up(made))
    order = [
        Write(ROOT / "cgroup/csdflab-two/cgroup.subtree_control", "+cpu +memory"),
        Write(own / "memory.max", "1000000000"),
        Write(own / "compute/cgroup.type", "threaded"),
        Write(own / "cgroup.subtree_control", "+cpu"),
    ]
    assert [actions.index(action) for action in order] == sorted(map(actions.index, order))
    assert plans.settle(made, made.places["fast"], 77) == (
        Write(own / "compute/cgroup.threads", "77"),
        Write(own / "compute/cpu.max", "5000 10000"),
    )


@settings(max_examples=40)
@given(configs())
@pytest.mark.parametrize("version", [1, 2])
def test_whatever_is_made_carries_the_laboratorys_name(
    version: Literal[1, 2], config: LabConfig
) -> None:
    """So that it can be found without any file, and nothing of another's is touched."""
    made = layout(config, ROOT, version)
    own = (made.folder, *(root / made.group for root in made.found.trees))
    for action in plans.up(made):
        match action:
            case Run(argv=("ip", "netns", "add", name)):
                assert name.startswith((f"csdflab-{config.name}-", f"csdflab-{config.name}."))
            case Run(argv=("ip" | "tc", "-n", name, *_)):
                assert name.startswith((f"csdflab-{config.name}-", f"csdflab-{config.name}."))
            case Run(argv=("ip" | "tc", *rest)):
                assert f"csdflab{config.name}" in rest
            case Run(argv=(*_, last)):
                assert Path(last).is_relative_to(made.folder)
            case MakeFolder():
                assert any(action.path.is_relative_to(place) for place in own)
            case Write(path, text):
                opened_to_us = text == "+cpu +memory" and path.parent == ROOT / "cgroup"
                assert opened_to_us or any(path.is_relative_to(place) for place in own)
            case Start():
                assert action.log.is_relative_to(made.folder)
    assert len(made.host_interface) <= 15, "Linux allows no longer name"


def test_faults_are_undone_by_what_lab_yaml_says() -> None:
    made = layout(TWO, ROOT)
    place = made.places["fast"]
    assert str(plans.cable(made, place, "down")) == "ip -n csdflab-two.switch link set p1 down"
    slow, back = plans.shape(made, place, LINK / 10), plans.restore(made, place)
    assert all(" rate 10000000bit " in str(action) for action in slow)
    assert [str(action) for action in back] == [
        "ip -n csdflab-two.switch link set p1 up",
        *map(str, plans.shape(made, place, LINK)),
        *map(str, made.group_of(place).set_cpu(0.5)),
    ]
    unshaped = list(plans.restore(made, made.places["small"]))
    assert [action.argv[3:5] for action in unshaped[1:] if isinstance(action, Run)] == [
        ("qdisc", "delete")
    ] * 2


def test_a_network_is_taken_that_this_machine_does_not_use() -> None:
    free = free_network(["192.168.1.7/24", "fe80::1/64"], "lab")
    assert free.startswith("10.78.")
    assert free_network([free.replace("0/24", "254/24")], "lab") != free
    assert free_network([], "other") != free, "so that two at a time do not find the same"
    with pytest.raises(ValueError, match="no network"):
        free_network(["10.64.0.1/10"], "lab")
