"""A port that closes connections before the handshake costs no node, and is dialled again."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.commands.make_keys import make_keys
from launcher.config.access import Access
from launcher.config.run import RecoveryConfig, RunConfig
from launcher.core.events import ClosedEarly, PlanRequest
from launcher.errors import BadInputError
from launcher.run.background import IsWanted
from launcher.run.connections import Connections
from launcher.run.runtime import CutPlan, RunOptions
from nodes.net.sockets import MAX_FAILED_HANDSHAKES
from partition.plan import Plan
from tests.launcher_runtime.clusters import WAIT_S, Cluster, RandomFrames, daemons, results

FRAMES = 10
ENDLESS = 10**9
OPTIONS = RunOptions(RunConfig(connect_timeout_s=5.0))


class Door:
    """A port that closes the first `closes` connections at once and connects later ones with
    another port."""

    def __init__(self, closes: int, behind: str | None = None) -> None:
        self.closed = 0
        self._closes = closes
        self._behind = behind
        self._open = ExitStack()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"

    def end(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(WAIT_S)
        self._open.close()
        for thread in self._threads:
            thread.join(WAIT_S)
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._server.accept()
            except OSError:
                return  # `end`
            if self.closed < self._closes:
                self.closed += 1
                caller.close()
                continue
            assert self._behind is not None
            agent = _connected(self._behind)
            for one, other in ((caller, agent), (agent, caller)):
                self._open.callback(one.close)
                self._open.callback(_hang_up, one)
                self._threads.append(threading.Thread(target=_carry, args=(one, other)))
                self._threads[-1].start()


def _connected(address: str) -> socket.socket:
    """A connection to an agent that may still be starting."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        with suppress(ConnectionRefusedError):
            return socket.create_connection((host, int(port)))
    raise TimeoutError(f"no agent listens at {address}")


def _carry(one: socket.socket, other: socket.socket) -> None:
    """Pass on what comes from one connection to the other, until either ends."""
    with suppress(OSError):
        while some := one.recv(1 << 16):
            other.sendall(some)
    _hang_up(other)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):  # the other end has
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def door(closes: int, behind: str | None = None) -> Iterator[Door]:
    found = Door(closes, behind)
    try:
        yield found
    finally:
        found.end()


def never_asked(_: PlanRequest, __: Plan | None, ___: IsWanted) -> CutPlan:
    pytest.fail("no node is lost, so nothing is to be planned again")


@pytest.mark.slow
@pytest.mark.parametrize("is_guarded", [True, False], ids=["with keys", "without keys"])
def test_a_connection_that_closes_before_its_handshake_is_dialled_again_and_no_node_is_lost(
    two: Cluster, tmp_path: Path, is_guarded: bool
) -> None:
    keys = tmp_path / "keys" if is_guarded else None
    if keys is not None:
        make_keys(keys, dict.fromkeys(two.names))
    access = Access() if keys is None else Access(keys, is_named=True)
    with daemons(two.names, tmp_path / "cache", keys=keys) as running, ExitStack() as stack:
        for address, _ in running.values():
            _connected(address).close()  # it has started, so no time of the launch is spent on that
        doors = {
            name: stack.enter_context(door(MAX_FAILED_HANDSHAKES - 1, address))
            for name, (address, _) in running.items()
        }
        nodes = two.nodes({name: one.address for name, one in doors.items()}, access)
        taken = results()
        options = replace(
            OPTIONS, recovery=RecoveryConfig(heartbeat_s=1.0, adapt=False), replan=never_asked
        )
        found = two.run(RandomFrames(FRAMES), taken, options, nodes=nodes)
    two.check(taken.outputs, FRAMES)
    assert not found.recoveries
    assert [one.closed for one in doors.values()] == [MAX_FAILED_HANDSHAKES - 1] * len(doors)


@pytest.mark.slow
@pytest.mark.parametrize("is_guarded", [True, False], ids=["with keys", "without keys"])
def test_a_port_that_closes_every_connection_ends_the_launch_with_one_sentence(
    two: Cluster, tmp_path: Path, is_guarded: bool
) -> None:
    keys = tmp_path / "keys"
    make_keys(keys, dict.fromkeys(two.names))
    access = Access(keys, is_named=True) if is_guarded else Access()
    with (
        daemons(two.names, tmp_path / "cache", keys=keys if is_guarded else None) as running,
        door(ENDLESS) as shut,
    ):
        _connected(running["n0"][0]).close()  # it has started
        nodes = two.nodes({"n0": running["n0"][0], "n1": shut.address}, access)
        options = RunOptions(RunConfig(connect_timeout_s=2.0))
        began_s = time.monotonic()
        with pytest.raises(BadInputError) as caught:
            two.run(RandomFrames(FRAMES), results(), options, nodes=nodes)
        took_s = time.monotonic() - began_s
    said = str(caught.value)
    assert caught.value.exit_code == 2
    assert f"node 'n1' at {shut.address}" in said
    assert "closes every connection during the handshake" in said
    assert "another program than" in said
    assert ("its key is not" in said) == is_guarded
    assert took_s < 2.0 + WAIT_S / 2
    assert shut.closed >= MAX_FAILED_HANDSHAKES


def test_a_connection_that_never_stood_is_not_told_as_closed() -> None:
    """Each attempt is reported as closed early."""
    with door(ENDLESS) as shut, Connections() as connections:
        connections.open_control("n0", shut.address)
        connections.open_data("n0", shut.address, 1000)
        until_s = time.monotonic() + WAIT_S
        arrivals: list[object] = []
        while (
            len(arrivals) <= MAX_FAILED_HANDSHAKES
            or shut.closed < len(arrivals) + MAX_FAILED_HANDSHAKES
        ) and time.monotonic() < until_s:
            arrivals += connections.wait(0.1)
        closed = shut.closed
    found = [type(arrival) for arrival in arrivals]
    assert set(found) == {ClosedEarly}
    assert closed >= len(found) + MAX_FAILED_HANDSHAKES, "both are dialled again"
