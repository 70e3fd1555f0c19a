"""Limits of a port's connections: a new one is always accepted, and strangers' displace others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nodes.core.admission import Admission, origin_of


def filled(port: Admission, count: int, origin: str = "attacker") -> Admission:
    for connection in range(count):
        port.opened(connection, origin)
    return port


def shed(port: Admission) -> list[int]:
    """Those who have to go, in order."""
    gone = []
    while (connection := port.next_to_close()) is not None:
        gone.append(connection)
        port.closed(connection)
    return gone


def test_while_there_is_room_nobody_has_to_go() -> None:
    assert shed(filled(Admission(4, 8), 8)) == []


def test_the_oldest_silent_connection_makes_room_for_a_new_one() -> None:
    port = filled(Admission(4, 8), 10)
    assert shed(port) == [0, 1]
    assert 9 in port


def test_it_is_one_of_the_address_with_the_most_of_them() -> None:
    port = Admission(4, 8)
    port.opened(100, "launcher")
    for connection in range(1000, 2000):
        port.opened(connection, "attacker")
        assert 100 not in shed(port)


def test_whoever_has_made_itself_known_makes_room_for_no_stranger() -> None:
    port = Admission(4, 8)
    port.opened(100, "attacker")
    port.identified(100, "key")
    for connection in range(1000, 2000):
        port.opened(connection, "attacker")
        assert 100 not in shed(port)


def test_a_newcomer_of_the_same_address_has_as_many_others_time_as_there_is_room_for() -> None:
    port = filled(Admission(4, 8), 8)
    port.opened(100, "attacker")
    for connection in range(200, 207):
        port.opened(connection, "attacker")
        assert 100 not in shed(port)
    port.opened(300, "attacker")
    assert shed(port) == [100]


def test_who_has_most_known_connections_loses_its_newest() -> None:
    port = Admission(4, 8)
    for connection, owner in enumerate(["board", "launcher", "board", "other", "board"]):
        port.opened(connection, "network")
        port.identified(connection, owner)
    assert shed(port) == [4]


def test_a_number_that_is_used_again_is_another_connection() -> None:
    port = Admission(4, 8)
    port.opened(1, "a")
    port.identified(1, "key")
    port.opened(1, "b")
    assert port.origin(1) == "b"
    assert not port.is_known(1)


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1:2:3", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("nonsense", "nonsense"),
    ],
)
def test_an_ipv6_network_counts_as_one_address(host: str, origin: str) -> None:
    assert origin_of(host) == origin


numbers = st.integers(0, 20)
origins = st.sampled_from(["a", "b", "c"])


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens in whatever order, the table stays consistent and within its bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.port = Admission(3, 5)
        self.here: dict[int, bool] = {}

    @rule(number=numbers, origin=origins)
    def comes(self, number: int, origin: str) -> None:
        self.port.opened(number, origin)
        self.here[number] = False
        self.shed()
        assert number in self.port, "a newcomer is never the one that has to go"

    @rule(number=numbers, owner=origins)
    def speaks(self, number: int, owner: str) -> None:
        self.port.identified(number, owner)
        if number in self.here:
            self.here[number] = True
        self.shed()

    @rule(number=numbers)
    def leaves(self, number: int) -> None:
        self.port.closed(number)
        self.here.pop(number, None)

    def shed(self) -> None:
        for number in shed(self.port):
            del self.here[number]

    @invariant()
    def agrees(self) -> None:
        assert len(self.port) == len(self.here)
        assert self.port.unknown == sum(not known for known in self.here.values()) <= 5
        assert sum(self.here.values()) <= 3
        assert all(self.port.is_known(number) == known for number, known in self.here.items())


AnyHistory.TestCase.settings = settings(max_examples=60)
test_any_history = AnyHistory.TestCase


@given(st.text())
def test_any_text_has_an_origin(host: str) -> None:
    assert isinstance(origin_of(host), str)
