"""Stale messages are ignored, peers that break the protocol are cut off, and the agent goes on."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.core.lifecycle import Stage
from nodes.protocol.messages import (
    HOST,
    PROTOCOL,
    Attach,
    Bye,
    Credit,
    Deploy,
    Deployed,
    Failed,
    GetStats,
    Hello,
    Ping,
    Pong,
    Put,
    Query,
    Shutdown,
    Start,
    Stop,
    TensorHeader,
    Welcome,
)
from tests.nodes.lone_core import (
    BLOB,
    DEPLOYMENT,
    HEADER,
    HOST_LINK,
    LAUNCHER,
    STRANGER,
    USAGE,
    LoneCore,
    has,
    only,
    replies,
)


@pytest.mark.parametrize(
    "message",
    [Attach(6, HOST), Credit(6, 1, 1), TensorHeader(8, 0, 0, "float32", (2,)), Attach(0, "n1")],
)
@pytest.mark.parametrize("stage", [Stage.EMPTY, Stage.RUNNING])
def test_another_epoch_is_ignored_and_counted(stage, message):
    agent = LoneCore().at(stage)
    payload, size = (b"12345678", 8) if isinstance(message, TensorHeader) else (None, 0)
    assert not agent.data(b"somebody", message, payload, size)
    assert agent.core.tally.stale_messages == 1
    assert agent.core.tally.bad_messages == 0


@pytest.mark.parametrize(
    "message",
    [HEADER, Credit(7, 1, 1), Attach(7, "n9")],
    ids=lambda message: type(message).__name__,
)
def test_what_still_comes_while_unloading_is_ignored_and_counted(message):
    agent = LoneCore().at(Stage.UNLOADING)
    payload, size = (b"12345678", 8) if message is HEADER else (None, 0)
    assert not agent.data(STRANGER, message, payload, size)
    assert agent.core.tally.stale_messages == 1


def test_start_of_another_epoch_is_ignored_and_counted():
    agent = LoneCore().at(Stage.READY)
    assert not agent.says(Start(6))
    assert agent.core.tally.stale_messages == 1


@pytest.mark.parametrize(
    ("link", "message", "payload", "size"),
    [
        (HOST_LINK, dataclasses.replace(HEADER, frame=1), b"12345678", 8),
        (HOST_LINK, dataclasses.replace(HEADER, dtype="int32"), b"12345678", 8),
        (HOST_LINK, dataclasses.replace(HEADER, shape=(1, 2)), b"12345678", 8),
        (HOST_LINK, dataclasses.replace(HEADER, channel=1), b"12345678", 8),
        (HOST_LINK, dataclasses.replace(HEADER, channel=9), b"12345678", 8),
        (HOST_LINK, HEADER, b"1234", 4),
        (HOST_LINK, HEADER, None, 0),
        (HOST_LINK, Credit(7, 0, 1), None, 0),
        (HOST_LINK, Credit(7, 1, 1), None, 0),
        (HOST_LINK, Attach(7, HOST), None, 0),
        (HOST_LINK, Ping(), None, 0),
        ("n1", HEADER, b"12345678", 8),
        ("n1", Credit(7, 1, 1), None, 0),
        ("n1", Credit(7, 9, 1), None, 0),
        ("n1", Attach(7, "n1"), None, 0),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_cut_off_and_fails_the_run(link, message, payload, size):
    agent = LoneCore().streaming()
    actions = agent.data(link, message, payload, size)
    assert only(actions, act.CutOffLink) == act.CutOffLink(link)
    assert replies(actions, Failed)
    assert has(actions, act.Unload)
    assert agent.core.tally.bad_messages == 1


@pytest.mark.parametrize("message", [HEADER, Credit(7, 1, 1), Attach(7, "n9"), Attach(7, "n0")])
def test_a_stranger_is_cut_off_and_the_run_continues(message):
    agent = LoneCore().streaming()
    payload, size = (b"12345678", 8) if message is HEADER else (None, 0)
    actions = agent.data(STRANGER, message, payload, size)
    assert only(actions, act.CutOffLink) == act.CutOffLink(STRANGER)
    assert agent.core.life.stage is Stage.RUNNING
    assert agent.core.tally.bad_messages == 1


def test_malformed_messages_are_counted_and_cost_the_connection():
    agent = LoneCore().at(Stage.EMPTY)
    assert has(agent.happens(ev.DataMalformed(STRANGER, "garbage")), act.CutOffLink)
    assert has(agent.happens(ev.ControlMalformed(STRANGER, "garbage")), act.CutOffPeer)
    assert not has(agent.happens(ev.Rejected("no handshake")), act.CutOffPeer)
    assert agent.core.tally.bad_messages == 3
    assert replies(agent.says(Ping()), Pong)


@pytest.mark.parametrize("message", [Pong(), Welcome(1, "a", "b", "c", "d", "e", 1, 1), HEADER])
def test_a_launcher_that_breaks_the_protocol_loses_its_session(message):
    agent = LoneCore().at(Stage.RUNNING)
    actions = agent.says(message)
    assert only(actions, act.CutOffPeer) == act.CutOffPeer(LAUNCHER)
    assert has(actions, act.Unload)
    assert agent.core.session is None


def test_a_chunk_beyond_its_blob_breaks_the_protocol():
    agent = LoneCore().at(Stage.EMPTY)
    assert has(agent.says(Put(BLOB, 8, b"123")), act.CutOffPeer)


def test_a_bug_of_ours_tells_its_story_and_the_agent_lives():
    agent = LoneCore().streaming()
    actions = agent.happens(ev.FiringEnded(7, 0, 5, {}, 0.1))
    (failed,) = replies(actions, Failed)
    assert "a bug of the agent" in failed.reason
    assert "phase 0 ended frame 5" in failed.reason
    assert "Hello" in failed.reason
    agent.happens(ev.Unloaded(7))
    assert replies(agent.says(Ping()), Pong)


peers = st.sampled_from([LAUNCHER, STRANGER])
links = st.sampled_from([HOST_LINK, STRANGER, "n1"])
epochs = st.sampled_from([6, 7])
control = st.one_of(
    st.builds(Hello, st.sampled_from([1, 2]), st.sampled_from(["s", "t"]), st.just(5.0)),
    st.sampled_from([Deploy(DEPLOYMENT), GetStats(), Ping(), Pong(), Bye(), Query(()), Shutdown()]),
    st.builds(Start, epochs),
    st.builds(Stop, epochs),
)
data = st.one_of(
    st.builds(Attach, epochs, st.sampled_from([HOST, "n1"])),
    st.builds(Credit, epochs, st.integers(0, 2), st.integers(1, 3)),
)
anything = st.one_of(
    st.builds(ev.ControlReceived, peers, control),
    st.builds(ev.DataReceived, links, data),
    st.builds(
        lambda link, frame: ev.DataReceived(
            link, TensorHeader(7, 0, frame, "float32", (2,)), b"12345678", 8
        ),
        links,
        st.integers(0, 2),
    ),
    st.builds(ev.LinkLost, links),
    st.builds(ev.ControlMalformed, peers, st.just("garbage")),
    st.builds(ev.DataMalformed, links, st.just("garbage")),
    st.just(ev.Tick()),
    st.sampled_from(["executor"]),
)


@settings(max_examples=300)
@given(st.lists(anything, max_size=40), st.booleans())
def test_nothing_that_peers_do_brings_an_agent_down(happening, obeys_shutdown):
    """The shell's answers come when it is the executor's turn; peers do as they like."""
    agent = LoneCore(obeys_shutdown=obeys_shutdown)
    agent.at(Stage.EMPTY)
    jobs: list[act.Action] = []

    def take(event: ev.Event) -> None:
        for action in agent.happens(event):
            if isinstance(action, act.Measure):
                take(ev.Measured(action.purpose, USAGE))
            elif isinstance(action, act.LoadPhases | act.Fire | act.Unload):
                jobs.append(action)
            elif isinstance(action, act.Reply) and isinstance(action.message, Failed):
                assert "bug" not in action.message.reason

    for event in happening:
        agent.now_s += 0.5
        if event != "executor":
            take(event)
        elif jobs:
            job = jobs.pop(0)
            if isinstance(job, act.LoadPhases):
                take(Deployed(7, (0.1,), 1))
            elif isinstance(job, act.Fire):
                take(ev.FiringEnded(7, 0, job.frame, {"y": b"abcdefgh"}, 0.1))
            else:
                jobs = [j for j in jobs if not isinstance(j, act.Fire)]
                take(ev.Unloaded(7))
    agent.now_s += 100.0
    take(ev.Tick())
    assert replies(agent.says(Hello(PROTOCOL, "fresh", 5.0), b"fresh"), Welcome)
