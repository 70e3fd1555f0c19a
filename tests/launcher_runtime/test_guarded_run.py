"""Runs over addresses that other machines can reach, with the right keys and with wrong ones."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from launcher.commands.make_keys import make_keys
from launcher.config.access import LAUNCHER, Access
from launcher.config.run import RunConfig
from launcher.core.events import NotAdmitted
from launcher.errors import BadInputError, BarredError, RunFailedError
from launcher.run.connections import Connections
from launcher.run.runtime import RunOptions
from nodes.net.curve import new_pair
from nodes.net.keys import KeyFolder, write_public
from nodes.protocol.messages import Bye
from tests.launcher_runtime.clusters import WAIT_S, Cluster, RandomFrames, daemons, results

pytestmark = pytest.mark.slow

OPTIONS = RunOptions(RunConfig(connect_timeout_s=20.0))


def own_address() -> str | None:
    """An address of this machine that others can reach; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.254", 9))  # looks up the route, sends nothing
        except OSError:
            return None
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def host() -> str:
    found = own_address()
    if found is None or found.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    return found


@pytest.fixture
def keys(two: Cluster, tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", dict.fromkeys(two.names))
    return tmp_path / "keys"


Agents = dict[str, tuple[str, int]]


@pytest.fixture
def agents(two: Cluster, cache: Path, host: str, keys: Path) -> Iterator[Agents]:
    with daemons(two.names, cache, host, keys) as running:
        yield running


def run(two: Cluster, agents: Agents, keys: Path, frames: int = 10) -> None:
    """Run over these agents; what comes must be what the whole network computes."""
    nodes = two.nodes({name: address for name, (address, _) in agents.items()}, Access(keys))
    taken = results()
    two.run(RandomFrames(frames), taken, OPTIONS, nodes=nodes)
    two.check(taken.outputs, frames)


def test_an_agent_that_is_started_here_has_keys_too(
    two: Cluster, cache: Path, agents: Agents, keys: Path
) -> None:
    nodes = two.nodes({"n0": agents["n0"][0]}, Access(keys))
    taken = results()
    two.run(RandomFrames(5), taken, RunOptions(cache=cache), nodes=nodes)
    two.check(taken.outputs, 5)


def refused(two: Cluster, agents: Agents, access: Access) -> str:
    """The sentence with which a run ends before anything was run, in time."""
    nodes = two.nodes({name: address for name, (address, _) in agents.items()}, access)
    began_s = time.monotonic()
    with pytest.raises(BadInputError) as caught:
        two.run(RandomFrames(5), results(), OPTIONS, nodes=nodes)
    assert time.monotonic() - began_s < OPTIONS.run.connect_timeout_s
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_wrong_keys_end_in_a_sentence_and_leave_the_agents_free(
    two: Cluster, agents: Agents, keys: Path, tmp_path: Path
) -> None:
    strangers = tmp_path / "strangers"
    make_keys(strangers, dict.fromkeys(two.names))
    for name in two.names:  # a launcher of another cluster that knows our nodes
        ours = keys / LAUNCHER / "nodes" / f"{name}.pub"
        (strangers / LAUNCHER / "nodes" / f"{name}.pub").write_bytes(ours.read_bytes())
    said = refused(two, agents, Access(strangers))
    assert "does not admit this launcher's key" in said
    assert agents["n0"][0] in said or agents["n1"][0] in said

    theirs = keys / LAUNCHER / "nodes" / "n1.pub"
    right = theirs.read_bytes()
    write_public(theirs, "n1", new_pair()[0])  # not the key of the agent at that address
    said = refused(two, agents, Access(keys))
    assert f"node 'n1' at {agents['n1'][0]} closes every connection" in said
    assert "its key is not" in said
    theirs.write_bytes(right)

    assert "requires a key" in refused(two, agents, Access(insecure=True))
    assert "there are no keys" in refused(two, agents, Access(tmp_path / "none"))
    run(two, agents, keys)


def test_nothing_waits_for_an_agent_that_has_turned_the_launcher_away(
    two: Cluster, agents: Agents, keys: Path, tmp_path: Path
) -> None:
    make_keys(tmp_path / "strangers", dict.fromkeys(two.names))
    pinned = tmp_path / "strangers" / LAUNCHER / "nodes" / "n0.pub"
    pinned.write_bytes((keys / LAUNCHER / "nodes" / "n0.pub").read_bytes())
    with Connections(KeyFolder(tmp_path / "strangers" / LAUNCHER), lambda _: True) as connections:
        connections.open_control("n0", agents["n0"][0])
        arrival = next(connections.wait(WAIT_S))
        assert isinstance(arrival, NotAdmitted)
        for _ in range(3):  # ZeroMQ gives the connection up soon after it has told of it
            connections.send("n0", Bye())
            list(connections.wait(0.1))


def test_a_launchers_keys_are_changed_while_the_agents_run(
    two: Cluster, agents: Agents, keys: Path
) -> None:
    run(two, agents, keys)
    (keys / LAUNCHER / "secret.key").unlink()
    make_keys(keys, dict.fromkeys(two.names))  # writes into the folders that the agents use
    run(two, agents, keys)


def test_an_agents_own_key_is_changed_while_it_runs(
    two: Cluster, agents: Agents, keys: Path
) -> None:
    run(two, agents, keys)
    (keys / "n1" / "secret.key").unlink()
    make_keys(keys, dict.fromkeys(two.names))
    for _, pid in agents.values():
        os.kill(pid, signal.SIGHUP)
    run(two, agents, keys)


def test_a_launcher_whose_key_is_withdrawn_is_thrown_out(
    two: Cluster, agents: Agents, keys: Path
) -> None:
    nodes = two.nodes({name: address for name, (address, _) in agents.items()}, Access(keys))

    def take(frame: int, _: Mapping[str, np.ndarray]) -> None:
        if frame == 3:
            (keys / "n1" / "launchers" / "launcher.pub").unlink()
            os.kill(agents["n1"][1], signal.SIGHUP)

    with pytest.raises(RunFailedError) as caught:
        two.run(RandomFrames(10**6), take, OPTIONS, nodes=nodes)
    assert "node 'n1'" in str(caught.value)


def test_a_node_that_another_does_not_admit_is_named(
    two: Cluster, agents: Agents, keys: Path
) -> None:
    (keys / "n1" / "nodes" / "n0.pub").unlink()
    with pytest.raises(
        BarredError, match=r"does not admit this node's key|key of node 'n0' is missing"
    ):
        run(two, agents, keys)


def test_a_node_that_knows_another_by_the_wrong_key_is_named_and_nothing_is_replaced(
    two: Cluster, agents: Agents, keys: Path
) -> None:
    """With recovery too: it is the user's mistake, no node is lost.

    Both notice it, and either may be the first to say so: n0 expects another key than n1 has,
    and n1's own key is not the one that n0 admits.
    """
    sentences = (
        "'n0'.* cannot connect to node 'n1': the other end closes every connection .*a wrong "
        "public key",
        r"'n1'.* cannot connect to node 'n0': the other end does not admit this node's key",
    )
    write_public(keys / "n0" / "nodes" / "n1.pub", "n1", new_pair()[0])
    nodes = two.nodes({name: address for name, (address, _) in agents.items()}, Access(keys))
    options = replace(OPTIONS, replan=lambda *_: pytest.fail("nothing is to be planned again"))
    with pytest.raises(BarredError, match=rf"({'|'.join(sentences)}).*--make-keys") as caught:
        two.run(RandomFrames(5), results(), options, nodes=nodes)
    assert caught.value.exit_code == 2
