"""Agents in network namespaces of their own: nothing but the network joins them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from launcher.commands.make_keys import make_keys
from launcher.config.access import Access
from launcher.config.run import RunConfig
from launcher.errors import RunFailedError
from launcher.run.runner import AgentRunner
from launcher.run.runtime import RunOptions
from tests.launcher_runtime.clusters import Cluster, RandomFrames, make_cluster, results
from tests.launcher_runtime.forwarders import forwarded
from tests.namespaces.lab import NETWORK, PORT, agent_in, ip, namespaces, why_not

pytestmark = [pytest.mark.namespaces, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab() -> Iterator[dict[str, str]]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with namespaces(3) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return make_cluster(tmp_path_factory.mktemp("cluster"), 3)


@pytest.fixture(scope="module")
def access(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Access:
    folder = tmp_path_factory.mktemp("keys")
    make_keys(folder, dict.fromkeys(cluster.names))
    return Access(folder)


@pytest.fixture
def agents(
    lab: dict[str, str], cluster: Cluster, access: Access, tmp_path: Path
) -> Iterator[dict[str, tuple[str, int, str]]]:
    """Node → (control address, process id, namespace); the first listens on every interface."""
    with ExitStack() as ending:
        running = {}
        for (namespace, host), name in zip(lab.items(), cluster.names, strict=True):
            listen = f"tcp://{'0.0.0.0' if name == 'n0' else host}:{PORT}"
            pid = ending.enter_context(
                agent_in(namespace, listen, name, tmp_path / name, access.keys)
            )
            running[name] = (f"tcp://{host}:{PORT}", pid, namespace)
        yield running


def test_three_machines_compute_what_the_whole_network_computes(
    cluster: Cluster, agents: dict[str, tuple[str, int, str]], access: Access
) -> None:
    nodes = cluster.nodes({name: address for name, (address, _, _) in agents.items()}, access)
    taken = results()
    outcome = cluster.run(RandomFrames(20), taken, RunOptions(), nodes=nodes)
    cluster.check(taken.outputs, 20)
    assert all(stats.bad_messages == 0 for stats in outcome.stats.values())


def test_a_started_agent_works_with_those_on_other_machines(
    cluster: Cluster, agents: dict[str, tuple[str, int, str]], access: Access, tmp_path: Path
) -> None:
    """The one without an address must be dialled by the others: it listens on the bridge."""
    nodes = cluster.nodes({name: agents[name][0] for name in ("n1", "n2")}, access)
    taken = results()
    cluster.run(RandomFrames(5), taken, RunOptions(cache=tmp_path / "here"), nodes=nodes)
    cluster.check(taken.outputs, 5)


def test_a_machine_whose_cable_is_pulled_is_given_up_after_the_silence_timeout(
    cluster: Cluster, agents: dict[str, tuple[str, int, str]], access: Access
) -> None:
    nodes = cluster.nodes({name: address for name, (address, _, _) in agents.items()}, access)
    namespace = agents["n1"][2]

    def take(frame: int, _: Mapping[str, np.ndarray]) -> None:
        if frame == 3:
            ip("-n", namespace, "link", "set", "eth0", "down")

    try:
        with pytest.raises(RunFailedError, match=f"node 'n1' at {agents['n1'][0]} was lost"):
            cluster.run(
                RandomFrames(10**6),
                take,
                RunOptions(RunConfig(silence_timeout_s=2.0, lease_s=3.0)),
                nodes=nodes,
            )
    finally:
        ip("-n", namespace, "link", "set", "eth0", "up")


def test_a_machine_that_dies_ends_the_run_with_its_name(
    cluster: Cluster, agents: dict[str, tuple[str, int, str]], access: Access
) -> None:
    nodes = cluster.nodes({name: address for name, (address, _, _) in agents.items()}, access)

    def take(frame: int, _: Mapping[str, np.ndarray]) -> None:
        if frame == 3:
            os.kill(agents["n2"][1], signal.SIGKILL)

    with pytest.raises(RunFailedError, match=f"node 'n2' at {agents['n2'][0]} was lost"):
        cluster.run(RandomFrames(10**6), take, RunOptions(), nodes=nodes)


def test_boards_behind_nat_compute_what_the_whole_network_computes(
    lab: dict[str, str], cluster: Cluster, access: Access, tmp_path: Path
) -> None:
    """All agents have the same ports inside; each is reached at two ports of the router alone."""
    router, others = f"{NETWORK}.254", {}
    with ExitStack() as ending:
        for number, ((namespace, host), name) in enumerate(
            zip(lab.items(), cluster.names, strict=True)
        ):
            ending.enter_context(
                agent_in(namespace, f"tcp://0.0.0.0:{PORT}", name, tmp_path / name, access.keys)
            )
            outside = 7740 + 2 * number
            ports = [((router, outside + k), (host, PORT + k)) for k in (0, 1)]
            ending.enter_context(forwarded(*ports))
            others[name] = f"tcp://{router}:{outside}"
        inside = {
            name: f"tcp://{host}:{PORT}" for name, host in zip(others, lab.values(), strict=True)
        }
        ready = AgentRunner({}).call_roll(cluster.nodes(inside, access), 30.0, 30.0)
        assert not ready.absent
        taken = results()
        outcome = cluster.run(
            RandomFrames(20), taken, RunOptions(), nodes=cluster.nodes(others, access)
        )
    cluster.check(taken.outputs, 20)
    assert all(stats.bad_messages == 0 for stats in outcome.stats.values())
