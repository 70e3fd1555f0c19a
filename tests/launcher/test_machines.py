"""Which nodes are parts of one machine, for everything that asks: one rule."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.config.load import Cluster, load_cluster
from launcher.config.node import NodeConfig
from launcher.plan.devices import devices_of
from launcher.plan.machines import THIS_MACHINE, machine_of
from launcher.plan.measuring import kinds
from launcher.plan.profile.links import identities
from launcher.plan.reported_memory import reported_limits
from nodes.protocol.messages import PROTOCOL, Welcome
from partition.pricing.memory_budget import CODE_BYTES
from tests.launcher.models import write_branches


def is_here(address: str | None, host: str | None = None) -> bool:
    return machine_of(NodeConfig(name="a", address=address, host=host)) == THIS_MACHINE


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost", "127.0.0.1", "127.3.2.1", "[::1]", socket.gethostname()]
)
def test_loopback_and_this_machines_name_are_here(host: str) -> None:
    assert is_here(f"tcp://{host}:5500")


def test_an_agent_that_the_launcher_starts_is_here() -> None:
    assert is_here(None)


def test_one_of_this_machines_own_addresses_is_here() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.9", 1))  # chooses a route and sends nothing
        except OSError:
            pytest.skip("this machine has no network")
        own = probe.getsockname()[0]
    assert is_here(f"tcp://{own}:5500")


def test_any_address_is_this_machine_itself() -> None:
    assert is_here("tcp://0.0.0.0:5500")


def test_a_machine_that_may_bind_any_address_does_not_take_all_for_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with net.ipv4.ip_nonlocal_bind, on machines that stand in for one another."""

    class Nonlocal(socket.socket):
        def bind(self, _: object) -> None:
            """Whatever the address."""

    monkeypatch.setattr(socket, "socket", Nonlocal)
    assert not is_here("tcp://203.0.113.9:5500")


@pytest.mark.parametrize(
    "host", ["203.0.113.9", "[2001:db8::9]", "pi", "localhost.example", "127.example"]
)
def test_other_addresses_and_names_are_elsewhere(host: str) -> None:
    assert not is_here(f"tcp://{host}:5500")


def test_a_board_behind_a_tunnel_is_elsewhere_and_a_container_may_be_here() -> None:
    assert not is_here("tcp://127.0.0.1:5740", host="board1")
    assert is_here("tcp://203.0.113.9:5500", host=socket.gethostname())


# ---------------------------------------------------------------- random clusters

SPELLINGS = {
    THIS_MACHINE: ["127.0.0.1", "[::1]", "localhost", socket.gethostname()],
    "pi.local": ["pi.local", "PI.local", "Pi.Local"],
    "203.0.113.9": ["203.0.113.9", "[::ffff:203.0.113.9]"],
    "2001:db8::9": ["[2001:db8::9]", "[2001:DB8:0:0::9]", "[2001:0db8::0009]"],
}
FREE_BYTES = 6 * 10**11
TUNNELS = ["127.0.0.1", "localhost", "203.0.113.77"]


@dataclass(frozen=True)
class Told:
    """A node's line in `cluster.yaml`, and the machine that it is a part of."""

    machine: str
    line: str


@st.composite
def nodes_told(draw: st.DrawFn) -> list[Told]:
    found = []
    for number in range(draw(st.integers(2, 6))):
        machine = draw(st.sampled_from([*SPELLINGS, "board1", "board2"]))
        host = "" if machine in SPELLINGS else f", host: {machine}"
        at = draw(st.sampled_from(SPELLINGS.get(machine, TUNNELS)))
        if host == "" and draw(st.booleans()):  # said besides, or of a forwarded port
            named = draw(st.sampled_from(SPELLINGS[machine])).strip("[]")
            at, host = draw(st.sampled_from(TUNNELS)), f", host: '{named}'"
        where = f", address: 'tcp://{at}:{5500 + 2 * number}'{host}"
        if machine == THIS_MACHINE and draw(st.booleans()):
            where = ""
        found.append(Told(machine, f"{{name: n{number}{where}}}"))
    return found


def grouped(of_node: dict[str, object]) -> set[frozenset[str]]:
    return {
        frozenset(n for n, other in of_node.items() if other == machine)
        for machine in of_node.values()
    }


def welcome(name: str) -> Welcome:
    return Welcome(
        PROTOCOL, name, "1", "tcp://0.0.0.0:1", "ORT", "pi", 4, 0, available_bytes=FREE_BYTES
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_branches(tmp_path_factory.mktemp("model") / "branches.onnx").parent


def cluster_of(folder: Path, told: list[Told]) -> Cluster:
    path = folder / "cluster.yaml"
    nodes = ", ".join(each.line for each in told)
    path.write_text(f"model: branches.onnx\ninsecure: true\nnodes: [{nodes}]\n")
    return load_cluster(path)


@settings(deadline=None)
@given(told=nodes_told())
def test_everything_that_asks_knows_the_same_machines(model: Path, told: list[Told]) -> None:
    cluster = cluster_of(model, told)
    nodes = cluster.config.nodes
    wanted = grouped({node.name: each.machine for node, each in zip(nodes, told, strict=True)})
    assert grouped({node.name: machine_of(node) for node in nodes}) == wanted

    def alone(device: str, host: str | None) -> str:
        return device if host is None else host

    on_device = {d.name: alone(d.name, d.host) for d in devices_of(cluster)}
    assert grouped(dict(on_device)) == wanted, "the cost model"
    welcomes = {node.name: welcome(node.name) for node in nodes}
    kind = kinds(identities(nodes, welcomes), alike=False)
    measured = {
        node.name: node.name if node.address and node.host is None else each.machine
        for node, each in zip(nodes, told, strict=True)
    }
    assert grouped(dict(kind)) == grouped(measured), "once for each machine that the user names"
    limits = reported_limits(nodes, welcomes)
    shares = {name: len(group) for group in wanted for name in group}
    even = {name: FREE_BYTES // shares[name] + CODE_BYTES for name in shares}
    assert limits == even, "free memory is shared"
