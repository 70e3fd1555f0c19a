"""Which agents share this machine with the launcher."""

from __future__ import annotations

import socket

import pytest

from launcher.run.this_machine import is_here


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
