"""Which phase fires next: the ready one of the oldest frame, the last of several; or in turn."""

import pytest

from nodes.core.actor import Ports, RunningActor
from nodes.core.fifo import Inlet, Outlet
from nodes.protocol.errors import LocalProtocolError


def actor_of(order="pipelined", capacity=4):
    """Two phases without a channel between them: inlets 0 and 1, outlets 2 and 3."""
    inlets = [Inlet(i, capacity) for i in range(2)]
    outlets = [Outlet(2 + i, capacity) for i in range(2)]
    actor = RunningActor(order, [Ports(((inlets[i], 0),), (outlets[i],)) for i in range(2)])
    return actor, inlets, outlets


def fill(actor, inlets, outlets, frames):
    for end, count in zip((*inlets, *outlets), frames, strict=True):
        for frame in range(count):
            if isinstance(end, Inlet):
                end.put(frame, None)
            else:
                end.grant(1)
        actor.changed(end.number)


def fire(actor, busy_s=0.0):
    """Dispatch what is chosen and let it end; None if nothing is ready."""
    phase = actor.choose()
    if phase is None:
        return None
    frame = actor.dispatch(phase)
    actor.ended(phase, frame, busy_s)
    return phase, frame


def test_nothing_fires_without_its_tokens_and_credits():
    for frames in [(1, 1, 0, 0), (0, 0, 1, 1), (1, 0, 0, 1)]:
        actor, inlets, outlets = actor_of()
        fill(actor, inlets, outlets, frames)
        assert actor.choose() is None


def test_the_oldest_frame_goes_first_and_of_one_frame_the_later_phase():
    actor, inlets, outlets = actor_of()
    fill(actor, inlets, outlets, (3, 2, 3, 2))
    fired = [fire(actor) for _ in range(6)]
    assert fired == [(1, 0), (0, 0), (1, 1), (0, 1), (0, 2), None]


def test_a_network_that_has_counted_less_has_no_precedence_over_another():
    """Phase 0 of one network is at frame 40 when phase 1 of another begins."""
    inlets = [Inlet(i, 100) for i in range(2)]
    outlets = [Outlet(2 + i, 100) for i in range(2)]
    ports = [Ports(((inlets[i], 0),), (outlets[i],)) for i in range(2)]
    actor = RunningActor("pipelined", ports, networks=[0, 1])
    fill(actor, inlets, outlets, (80, 0, 80, 0))
    fired = [fire(actor, busy_s=1.0) for _ in range(40)]
    assert {phase for phase, _ in fired} == {0}
    fill(actor, inlets, outlets, (0, 40, 0, 40))
    fired = [fire(actor, busy_s=1.0)[0] for _ in range(20)]
    assert fired.count(0) == pytest.approx(10, abs=1)


def test_a_phase_that_is_held_up_does_not_hold_up_another():
    actor, inlets, outlets = actor_of()
    fill(actor, inlets, outlets, (3, 0, 3, 3))
    assert [fire(actor) for _ in range(4)] == [(0, 0), (0, 1), (0, 2), None]


def test_strict_order_waits_for_its_turn():
    actor, inlets, outlets = actor_of("strict")
    fill(actor, inlets, outlets, (3, 0, 3, 3))
    assert [fire(actor) for _ in range(2)] == [(0, 0), None]
    inlets[1].put(0, None)
    actor.changed(1)
    assert [fire(actor) for _ in range(3)] == [(1, 0), (0, 1), None]


def test_at_most_two_firings_are_dispatched():
    actor, inlets, outlets = actor_of()
    fill(actor, inlets, outlets, (4, 4, 4, 4))
    dispatched = []
    for _ in range(2):
        phase = actor.choose()
        dispatched.append((phase, actor.dispatch(phase)))
    assert actor.choose() is None
    actor.ended(*dispatched[0])
    assert actor.choose() is not None


def test_a_firing_may_be_dispatched_after_the_one_that_makes_its_input():
    """The executor runs them in that order; so the frame will be there when it begins."""
    start, middle, end = Inlet(0, 1), (Outlet(1, 1), Inlet(1, 1)), Outlet(2, 1)
    ports = [Ports(((start, 0),), (middle[0],)), Ports(((middle[1], 0),), (end,))]
    actor = RunningActor("pipelined", ports, [middle])
    start.put(0, None)
    end.grant(1)
    actor.changed(0)
    actor.changed(2)
    assert actor.choose() == 0
    actor.dispatch(0)
    assert actor.choose() == 1
    actor.dispatch(1)
    assert list(actor.dispatched) == [(0, 0), (1, 0)]


def test_one_place_between_two_phases_makes_them_take_turns():
    start, middle, end = Inlet(0, 3), (Outlet(1, 1), Inlet(1, 1)), Outlet(2, 3)
    ports = [Ports(((start, 0),), (middle[0],)), Ports(((middle[1], 0),), (end,))]
    actor = RunningActor("pipelined", ports, [middle])
    fill(actor, [start], [end], (3, 3))
    assert [fire(actor) for _ in range(7)] == [*[(p, k) for k in range(3) for p in range(2)], None]


def test_our_own_mistakes_are_reported():
    actor, inlets, outlets = actor_of()
    with pytest.raises(LocalProtocolError, match="without being ready"):
        actor.dispatch(0)
    fill(actor, inlets, outlets, (2, 2, 2, 2))
    actor.dispatch(1)
    actor.dispatch(0)
    with pytest.raises(LocalProtocolError, match="phase 0 for frame 0 ended"):
        actor.ended(0, 0)
