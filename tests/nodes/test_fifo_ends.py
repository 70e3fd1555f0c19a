"""An outlet and an inlet: no interleaving of their operations breaks the bound or the order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nodes.core.fifo import Inlet, Outlet
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError


class Joined(RuleBasedStateMachine):
    """Both ends with messages under way between them, several readers at their own pace."""

    @initialize(capacity=st.integers(1, 4), readers=st.integers(1, 3), unsent=st.integers(0, 3))
    def open(self, capacity, readers, unsent):
        self.capacity = capacity
        self.outlet = Outlet(0, capacity, unsent)
        self.inlet = Inlet(0, capacity, readers)
        self.credits = [capacity]
        self.tokens = []
        self.read = [0] * readers

    @precondition(lambda self: self.credits)
    @rule()
    def credit_arrives(self):
        self.outlet.grant(self.credits.pop(0))

    @precondition(lambda self: self.outlet.places > 0)
    @rule()
    def claim(self):
        assert self.outlet.claim() == self.outlet.claimed - 1

    @precondition(lambda self: self.outlet.claimed > self.outlet.sent and self.outlet.may_send)
    @rule()
    def send(self):
        self.tokens.append(self.outlet.send())

    @precondition(lambda self: self.outlet.unsent and self.outlet.sent > self.outlet.left)
    @rule()
    def leave(self):
        self.outlet.leave()

    @precondition(lambda self: self.tokens)
    @rule()
    def token_arrives(self):
        frame = self.tokens.pop(0)
        self.inlet.put(frame, f"token {frame}")

    @rule(data=st.data())
    def read_one(self, data):
        able = [r for r, frame in enumerate(self.read) if self.inlet.has(frame)]
        if able:
            reader = data.draw(st.sampled_from(able))
            frame = self.read[reader]
            assert self.inlet.token(frame) == f"token {frame}"
            freed = self.inlet.end(reader, frame)
            self.read[reader] += 1
            assert freed == (1 if min(self.read) > frame else 0)
            if freed:
                self.credits.append(freed)

    @invariant()
    def every_place_is_accounted_for(self):
        granted = self.outlet.granted - self.outlet.sent
        under_way = len(self.tokens) + sum(self.credits)
        assert granted + under_way + self.inlet.held == self.capacity
        if self.outlet.unsent:
            held = self.outlet.claimed - self.outlet.left
            assert self.outlet.places + held == self.outlet.unsent
        else:
            claimed = self.outlet.claimed - self.outlet.sent
            assert self.outlet.places + claimed == granted


TestJoined = Joined.TestCase


def test_more_credits_than_places_break_the_protocol():
    outlet = Outlet(3, 2)
    outlet.grant(2)
    with pytest.raises(RemoteProtocolError, match="channel 3"):
        outlet.grant(1)
    outlet.claim()
    with pytest.raises(RemoteProtocolError):
        outlet.grant(1)
    outlet.send()
    outlet.grant(1)


@given(st.integers(-3, 10))
def test_a_frame_out_of_turn_breaks_the_protocol(frame):
    inlet = Inlet(3, 5)
    inlet.put(0, "a")
    inlet.put(1, "b")
    if frame == 2:
        inlet.put(frame, "c")
        return
    with pytest.raises(RemoteProtocolError, match=f"frame {frame} arrived instead of frame 2"):
        inlet.put(frame, "x")


def test_a_frame_without_a_place_breaks_the_protocol():
    inlet = Inlet(3, 1)
    inlet.put(0, "a")
    with pytest.raises(RemoteProtocolError, match="without a credit"):
        inlet.put(1, "b")


def test_our_own_mistakes_are_told_apart():
    outlet, inlet = Outlet(0, 1), Inlet(0, 1)
    for mistake in (
        outlet.claim,
        outlet.send,
        lambda: inlet.end(0, 0),
        lambda: inlet.token(0),
        lambda: Outlet(0, 0),
        lambda: Inlet(0, 1, 0),
    ):
        with pytest.raises(LocalProtocolError):
            mistake()


def test_a_freed_token_is_forgotten():
    inlet = Inlet(0, 2, readers=2)
    inlet.put(0, "a")
    inlet.end(0, 0)
    assert inlet.token(0) == "a"
    inlet.end(1, 0)
    assert not inlet.has(0)
    with pytest.raises(LocalProtocolError):
        inlet.token(0)
