"""Notifications of systemd over a real socket; `test_hanging_engine` has those of real agents."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from nodes.host.systemd import ServiceManager

PERIOD_S = 30.0
EVERY_MINUTE = {"WATCHDOG_USEC": "60000000"}


@pytest.fixture
def heard() -> Iterator[socket.socket]:
    """At an abstract address, as systemd's may be."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(b"\0csdf-test-%d" % os.getpid())
        heard.setblocking(False)
        yield heard


def address(heard: socket.socket) -> str:
    return heard.getsockname().replace(b"\0", b"@", 1).decode()


def test_it_hears_twice_in_each_period_that_it_asks_for(heard: socket.socket) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": address(heard), **EVERY_MINUTE})
    manager.ready()
    assert heard.recv(100) == b"READY=1"
    for now_s in (1000.0, 1000.0 + PERIOD_S):
        manager.alive(now_s)
        assert heard.recv(100) == b"WATCHDOG=1"
        assert manager.deadline_s == now_s + PERIOD_S
        manager.alive(now_s + PERIOD_S - 1.0)
        with pytest.raises(BlockingIOError):
            heard.recv(100)


@pytest.mark.parametrize(
    "environment", [{}, {"WATCHDOG_USEC": "0x10"}, {**EVERY_MINUTE, "WATCHDOG_PID": "1"}]
)
def test_nobody_wakes_up_for_one_that_does_not_watch(
    heard: socket.socket, environment: dict[str, str]
) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": address(heard), **environment})
    assert manager.deadline_s is None
    manager.alive(1000.0)
    with pytest.raises(BlockingIOError):
        heard.recv(100)


def test_one_that_is_gone_costs_nothing() -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": "/nonexistent/notify", **EVERY_MINUTE})
    manager.ready()
    manager.alive(1000.0)
    assert manager.deadline_s == 1000.0 + PERIOD_S
