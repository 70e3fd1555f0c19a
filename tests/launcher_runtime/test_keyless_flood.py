"""A host without keys opens connections to all guarded agents, while one agent is killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from launcher.commands.make_keys import make_keys
from launcher.config.access import Access
from tests.launcher_runtime.clusters import RandomFrames, daemons, make_cluster
from tests.launcher_runtime.test_recovery import Dealer, Strikes, options
from tests.nodes.test_floods import keyless

pytestmark = [pytest.mark.slow, pytest.mark.alone]

CONNECTIONS = 256


def data_port(control: str) -> str:
    """Where an agent takes its data unless told otherwise: one port above its control port."""
    host, _, port = control.rpartition(":")
    return f"{host}:{int(port) + 1}"


@pytest.mark.parametrize(
    ("how", "frames"), [((), 1200), (("--churn",), 500)], ids=["silent", "churning"]
)
def test_survivors_continue_despite_keyless_connections_to_all_their_ports(
    tmp_path: Path, how: tuple[str, ...], frames: int
) -> None:
    cluster = make_cluster(tmp_path, nodes=3)
    keys = tmp_path / "keys"
    make_keys(keys, dict.fromkeys(cluster.names))
    replan = Dealer(cluster, tmp_path / "again")
    with daemons(cluster.names, tmp_path / "cache", keys=keys) as running:
        controls = {name: address for name, (address, _) in running.items()}
        nodes = cluster.nodes(controls, Access(keys, is_named=True))
        take = Strikes({frames // 2: (running["n1"][1], signal.SIGKILL)})
        ports = (*controls.values(), *map(data_port, controls.values()))
        with keyless(ports, "--connections", str(CONNECTIONS), *how):
            found = cluster.run(
                RandomFrames(frames), take, options(replan, tmp_path / "cache"), nodes=nodes
            )
    cluster.check(take.results.outputs, frames)
    assert [past.nodes for past in found.recoveries] == [("n1",)]
    assert replan.asked == [("n0", "n2")]
