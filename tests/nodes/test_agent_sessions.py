"""Which launcher may command an agent, and for how long."""

import pytest

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.core.lifecycle import Stage
from nodes.protocol.messages import (
    OLDEST_PROTOCOL,
    PROTOCOL,
    Bye,
    Deploy,
    Failed,
    GetStats,
    Hello,
    Missing,
    Ping,
    Pong,
    Put,
    Query,
    Refused,
    Start,
    Stop,
    Stored,
    Welcome,
)
from tests.nodes.lone_core import BLOB, DEPLOYMENT, LAUNCHER, STRANGER, LoneCore, has, only, replies


def test_hello_opens_a_session():
    agent = LoneCore()
    (welcome,) = replies(agent.says(Hello(PROTOCOL, "s", 5.0)), Welcome)
    assert (welcome.name, welcome.cores, welcome.rss_bytes) == ("n0", 4, 100)
    assert replies(agent.says(Ping()), Pong)


def test_a_launcher_of_the_version_before_is_answered_in_its_own():
    agent = LoneCore()
    hello = Hello(OLDEST_PROTOCOL, "s", 5.0)
    (welcome,) = [action for action in agent.says(hello) if isinstance(action, act.Reply)]
    assert (welcome.protocol, welcome.message.protocol) == (OLDEST_PROTOCOL, OLDEST_PROTOCOL)
    (pong,) = [action for action in agent.says(Ping()) if isinstance(action, act.Reply)]
    assert pong.protocol == OLDEST_PROTOCOL
    busy = agent.says(Hello(OLDEST_PROTOCOL, "other", 5.0), STRANGER)
    (refused,) = replies(busy, Refused)
    assert refused.protocol == OLDEST_PROTOCOL


@pytest.mark.parametrize("protocol", [OLDEST_PROTOCOL - 1, PROTOCOL + 1])
def test_another_protocol_is_refused(protocol):
    (refused,) = replies(LoneCore().says(Hello(protocol, "s", 5.0)), Refused)
    assert f"protocol {PROTOCOL}" in refused.reason
    assert f"launcher {protocol}" in refused.reason


def test_another_launcher_is_refused_and_reported_how_long_to_wait():
    agent = LoneCore().at(Stage.EMPTY)
    agent.now_s = 2.0
    (refused,) = replies(agent.says(Hello(PROTOCOL, "other", 5.0), STRANGER), Refused)
    assert "silent for 3 s" in refused.reason
    assert replies(agent.says(Ping()), Pong)


def test_the_same_session_may_move_to_a_new_connection():
    agent = LoneCore().at(Stage.READY)
    assert replies(agent.says(Hello(PROTOCOL, "s", 5.0), b"again"), Welcome)
    assert agent.core.life.stage is Stage.READY
    assert replies(agent.says(Ping(), LAUNCHER), Refused)
    assert replies(agent.says(Ping(), b"again"), Pong)


@pytest.mark.parametrize(
    "message", [Ping(), Query(()), Deploy(DEPLOYMENT), Start(7), Stop(7), GetStats(), Bye()]
)
def test_without_a_session_everything_is_refused(message):
    agent = LoneCore()
    assert replies(agent.says(message, STRANGER), Refused)
    assert agent.core.tally.stale_messages == 1
    assert agent.core.life.stage is Stage.EMPTY


def test_any_message_renews_the_lease_and_silence_ends_it():
    agent = LoneCore().streaming()
    agent.now_s = 4.0
    agent.says(GetStats())
    assert agent.core.deadline_s == 9.0
    agent.now_s = 8.9
    assert not agent.happens(ev.Tick())
    agent.now_s = 9.0
    actions = agent.happens(ev.Tick())
    assert has(actions, act.Unload)
    assert only(actions, act.HangUp) == act.HangUp("n1")
    agent.happens(ev.Unloaded(7))
    assert agent.core.deadline_s is None
    assert replies(agent.says(Hello(PROTOCOL, "next", 5.0), STRANGER), Welcome)


def test_a_launcher_may_come_as_soon_as_the_lease_is_over():
    agent = LoneCore().at(Stage.RUNNING)
    agent.now_s = 5.0
    actions = agent.says(Hello(PROTOCOL, "next", 5.0), STRANGER)
    assert has(actions, act.Unload)
    assert replies(actions, Welcome)
    assert not has(agent.says(Deploy(DEPLOYMENT), STRANGER), act.LoadPhases)
    assert has(agent.happens(ev.Unloaded(7)), act.LoadPhases)


@pytest.mark.parametrize("stage", [Stage.EMPTY, Stage.LOADING, Stage.RUNNING, Stage.UNLOADING])
def test_with_its_session_the_cache_is_released(stage):
    """However far it was: also blobs that were asked for and then not deployed."""
    assert has(LoneCore().at(stage).says(Bye()), act.Release)


def test_blobs_are_looked_up_and_written():
    agent = LoneCore().at(Stage.EMPTY)
    assert agent.says(Query(("a" * 64,))) == [act.LookUp(LAUNCHER, ("a" * 64,))]
    assert replies(agent.happens(ev.Answered(LAUNCHER, Missing(("a" * 64,)))), Missing)
    put = Put(BLOB, 0, b"12345")
    assert agent.says(put) == [act.WriteChunk(LAUNCHER, put)]
    stored = agent.happens(ev.Answered(LAUNCHER, Stored(BLOB.digest, 0, complete=False)))
    assert replies(stored, Stored) == [Stored(BLOB.digest, 0, False)]
    assert replies(agent.happens(ev.ChunkFailed(LAUNCHER, "disk full")), Failed)
