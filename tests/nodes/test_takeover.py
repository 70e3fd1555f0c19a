"""The launcher after one that died is let in at once; one that may be alive is never displaced."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.core.lifecycle import Stage
from nodes.core.session import OpenSession, admit
from nodes.host import owner
from nodes.host.owner import has_ended, process_id
from nodes.protocol.messages import PROTOCOL, Deploy, Deployed, Hello, Ping, Pong, Refused, Welcome
from tests.nodes.lone_core import DEPLOYMENT, LAUNCHER, STRANGER, LoneCore, has, replies

MINE, THEIRS = b"m" * 32, b"t" * 32
FIRST = Hello(PROTOCOL, "s", 5.0, "ana@desk, process 7", "boot/ns-7-1")
SECOND = Hello(PROTOCOL, "t", 5.0, "ana@desk, process 9", "boot/ns-9-5")


def held(key: bytes = MINE) -> LoneCore:
    """An agent with a deployment that runs, of the launcher `FIRST`."""
    agent = LoneCore()
    agent.happens(ev.ControlReceived(LAUNCHER, FIRST, key))
    agent.says(Deploy(DEPLOYMENT))
    agent.happens(Deployed(7, (0.1,), 100))
    return agent


def greeted(agent: LoneCore, hello: Hello = SECOND, key: bytes = MINE) -> list[act.Action]:
    return agent.happens(ev.ControlReceived(STRANGER, hello, key))


def test_a_live_launcher_is_named_to_whoever_is_refused_on_its_account() -> None:
    agent = held()
    agent.now_s = 2.0
    (refused,) = replies(greeted(agent), Refused)
    assert refused.reason.startswith(
        "launcher 'ana@desk, process 7' is using this agent; it becomes free"
    )
    assert refused.holder == FIRST.process
    assert agent.core.life.stage is Stage.READY


def test_with_another_key_nobody_learns_which_process_it_is() -> None:
    (refused,) = replies(greeted(held(), key=THEIRS), Refused)
    assert refused.holder == ""


@pytest.mark.parametrize("key", [MINE, b""], ids=["keys", "no keys"])
def test_once_its_connection_is_closed_the_same_owner_comes_in_at_once(key: bytes) -> None:
    agent = held(key)
    agent.happens(ev.PeerLost(LAUNCHER))
    assert agent.core.life.stage is Stage.READY
    actions = greeted(agent, key=key)
    assert replies(actions, Welcome)
    assert has(actions, act.Unload)
    assert has(actions, act.Release)
    assert not has(greeted_deploy(agent), act.LoadPhases)
    assert has(agent.happens(ev.Unloaded(7)), act.LoadPhases)


def greeted_deploy(agent: LoneCore) -> list[act.Action]:
    return agent.says(Deploy(replace(DEPLOYMENT, epoch=3)), STRANGER)


def test_another_owner_has_to_wait_until_the_lease_is_over() -> None:
    agent = held()
    agent.happens(ev.PeerLost(LAUNCHER))
    agent.now_s = 2.0
    (refused,) = replies(greeted(agent, key=THEIRS), Refused)
    assert "lost its connection" in refused.reason
    assert "in 3 s" in refused.reason
    agent.now_s = 5.0
    assert replies(greeted(agent, key=THEIRS), Welcome)


def test_over_a_link_that_is_half_open_the_process_that_ended_is_named() -> None:
    agent = held()
    assert replies(greeted(agent, replace(SECOND, succeeds="boot/ns-8-1")), Refused)
    assert replies(greeted(agent, replace(SECOND, succeeds=FIRST.process), THEIRS), Refused)
    assert replies(greeted(agent, replace(SECOND, succeeds=FIRST.process)), Welcome)


def test_a_launcher_that_does_not_tell_its_process_is_not_succeeded_by_naming_none() -> None:
    agent = LoneCore()
    agent.happens(ev.ControlReceived(LAUNCHER, replace(FIRST, process=""), MINE))
    assert replies(greeted(agent, replace(SECOND, succeeds="")), Refused)


def test_the_same_session_comes_back_to_what_it_deployed_but_not_with_another_key() -> None:
    agent = held()
    agent.happens(ev.PeerLost(LAUNCHER))
    assert replies(greeted(agent, FIRST, THEIRS), Refused)
    assert replies(greeted(agent, FIRST), Welcome)
    assert agent.core.life.stage is Stage.READY
    assert not replies(greeted(agent, SECOND, THEIRS), Welcome), "it is connected again"
    assert replies(agent.says(Ping(), STRANGER), Pong)


def test_without_a_launcher_it_stops_when_the_lease_is_over() -> None:
    agent = held()
    agent.happens(ev.PeerLost(LAUNCHER))
    assert agent.core.deadline_s == 5.0
    agent.now_s = 5.0
    assert has(agent.happens(ev.Tick()), act.Unload)
    agent.happens(ev.Unloaded(7))
    assert agent.core.life.stage is Stage.EMPTY
    assert agent.core.session is None


def test_a_greeting_that_is_read_after_its_connection_closed_opens_nothing() -> None:
    agent = LoneCore()
    agent.happens(ev.PeerLost(LAUNCHER))
    assert not agent.says(FIRST)
    assert agent.core.session is None


def test_an_old_connection_that_closes_after_the_session_moved_does_no_harm() -> None:
    agent = held()
    greeted(agent, FIRST)
    agent.happens(ev.PeerLost(LAUNCHER))
    assert agent.core.session is not None
    assert not agent.core.session.is_lost


def test_a_launcher_cannot_keep_an_agent_for_longer_than_that_allows() -> None:
    session = admit(replace(FIRST, lease_s=1e6), LAUNCHER, None, 0.0, longest_lease_s=30.0)
    assert isinstance(session, OpenSession)
    assert session.lease_s == 30.0


def test_a_process_that_proc_hides_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `hidepid` nothing is seen there of other users' processes, not even that they live."""
    me = process_id()
    monkeypatch.setattr(owner, "_started", lambda _: "")
    assert not has_ended(me)
    boot, _, rest = me.partition("/")
    assert not has_ended(f"{boot}/{rest.split('-')[0]}-{'9' * 30}-1")


def test_a_process_is_seen_to_have_ended_only_on_its_own_machine() -> None:
    assert not has_ended(process_id())
    with subprocess.Popen(
        [sys.executable, "-c", "from nodes.host.owner import process_id; print(process_id())"],
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        process = other.communicate()[0].strip()
    assert has_ended(process)
    boot, _, rest = process.partition("/")
    assert not has_ended(f"{'0' * len(boot)}/{rest}")
    assert not any(map(has_ended, ("", "/", f"{boot}/1-2")))
    assert str(os.getpid()) in process_id()


HELLOS = [
    replace(hello, succeeds=succeeds)
    for hello in (FIRST, SECOND)
    for succeeds in ("", FIRST.process, SECOND.process)
]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(HELLOS), st.integers(0, 3), st.sampled_from([MINE, THEIRS])),
        st.tuples(st.just("lost"), st.integers(0, 3)),
        st.tuples(st.just("passes"), st.sampled_from([0.5, 4.0, 5.0])),
    ),
    max_size=12,
)


@given(STEPS)
def test_whatever_is_said_a_live_launcher_keeps_its_agent_and_a_dead_one_does_not(
    steps: list[tuple],
) -> None:
    agent = LoneCore()
    for step in steps:
        before = agent.core.session
        is_held = before is not None and not before.is_over(agent.now_s)
        if step[0] == "passes":
            agent.now_s += step[1]
            agent.happens(ev.Tick())
        elif step[0] == "lost":
            agent.happens(ev.PeerLost(b"peer %d" % step[1]))
        else:
            hello, number, key = step
            peer = b"peer %d" % number
            is_new = peer not in agent.core._closed_peers
            welcome = replies(agent.happens(ev.ControlReceived(peer, hello, key)), Welcome)
            if not is_new:
                assert not welcome
            elif not is_held:
                assert welcome
            else:
                may = hello.session == before.name or before.is_lost
                may = may or hello.succeeds == before.process
                assert bool(welcome) == (may and key == before.key)
        after = agent.core.session
        if after is not before and after is not None:
            assert replies(agent.says(Ping(), after.peer), Pong)
