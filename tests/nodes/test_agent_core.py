"""The agent's core by itself: sessions, leases, the life of a deployment, broken protocols."""

import dataclasses
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.core.agent import Agent, Identity
from nodes.core.codec import encode
from nodes.core.lifecycle import ANSWER_TIMEOUT_S, Stage
from nodes.core.messages import (
    HOST,
    Attach,
    BlobInfo,
    Bye,
    ChannelSpec,
    Credit,
    Deploy,
    Deployed,
    Deployment,
    Failed,
    GetStats,
    Hello,
    Missing,
    PeerSpec,
    PhaseSpec,
    Ping,
    Pong,
    Progress,
    Put,
    Query,
    Refused,
    Shutdown,
    Start,
    Stats,
    Stop,
    Stopped,
    Stored,
    TensorHeader,
    Welcome,
)

ME, LAUNCHER, STRANGER, HOST_LINK = b"me", b"launcher", b"stranger", b"host"
BLOB = BlobInfo("a" * 64, 10)
USAGE = ev.Usage(100, 200, 50, 1.5)

PHASE = PhaseSpec("p", BLOB, None, ("x",), ("y",))
FROM_HOST = ChannelSpec(0, "x", "float32", (2,), HOST, None, "n0", (0,), 2)
TO_NEXT = ChannelSpec(1, "y", "float32", (2,), "n0", 0, "n1", (0,), 2)
HEADER = TensorHeader(7, 0, 0, "float32", (2,))
DEPLOYMENT = Deployment(
    7, "n0", "pipelined", (PHASE,), (FROM_HOST, TO_NEXT), (PeerSpec("n1", "tcp://n1:1"),)
)


class Told:
    """An agent and everything that it wanted done, with a clock of our own."""

    def __init__(self, *, obeys_shutdown: bool = False) -> None:
        self.core = Agent(
            Identity("n0", "1", "tcp://n0:2", "engine", "machine", 4, 100),
            obeys_shutdown=obeys_shutdown,
        )
        self.now_s = 0.0

    def happens(self, event: ev.Event) -> list[act.Action]:
        actions = self.core.handle(event, self.now_s)
        for action in actions:
            if isinstance(action, act.Reply | act.SendData):
                encode(action.message)
        return actions

    def says(self, message, peer=LAUNCHER) -> list[act.Action]:
        return self.happens(ev.ControlReceived(peer, message))

    def data(self, link, message, payload=None, size=0) -> list[act.Action]:
        return self.happens(ev.DataReceived(link, message, payload, size))

    def at(self, stage: Stage):
        """Bring a new agent to this stage of epoch 7."""
        self.says(Hello(1, "s", 5.0))
        if stage is Stage.EMPTY:
            return self
        self.says(Deploy(DEPLOYMENT))
        if stage is Stage.LOADING:
            return self
        self.happens(ev.Loaded(7, (0.1,), 100))
        if stage is Stage.READY:
            return self
        self.says(Start(7))
        self.happens(ev.Measured("start", USAGE))
        if stage is Stage.UNLOADING:
            self.says(Stop(7))
            self.happens(ev.Measured("stop", USAGE))
        assert self.core.life.stage is stage
        return self

    def streaming(self):
        """A running agent, attached on both sides."""
        self.at(Stage.RUNNING)
        self.data(HOST_LINK, Attach(7, HOST))
        self.data("n1", Credit(7, 1, 2))
        return self


def replies(actions: Iterable[act.Action], kind: type) -> list:
    return [a.message for a in actions if isinstance(a, act.Reply) and isinstance(a.message, kind)]


def only(actions: Iterable[act.Action], kind: type):
    (found,) = [action for action in actions if isinstance(action, kind)]
    return found


def has(actions: Iterable[act.Action], kind: type) -> bool:
    return any(isinstance(action, kind) for action in actions)


# ---------------------------------------------------------------- sessions


def test_hello_opens_a_session():
    agent = Told()
    (welcome,) = replies(agent.says(Hello(1, "s", 5.0)), Welcome)
    assert (welcome.name, welcome.cores, welcome.rss_bytes) == ("n0", 4, 100)
    assert replies(agent.says(Ping()), Pong)


def test_another_protocol_is_refused():
    (refused,) = replies(Told().says(Hello(2, "s", 5.0)), Refused)
    assert "protocol 1" in refused.reason
    assert "launcher 2" in refused.reason


def test_another_launcher_is_refused_and_told_how_long_to_wait():
    agent = Told().at(Stage.EMPTY)
    agent.now_s = 2.0
    (refused,) = replies(agent.says(Hello(1, "other", 5.0), STRANGER), Refused)
    assert "silent for 3 s" in refused.reason
    assert replies(agent.says(Ping()), Pong)


def test_the_same_session_may_move_to_a_new_connection():
    agent = Told().at(Stage.READY)
    assert replies(agent.says(Hello(1, "s", 5.0), b"again"), Welcome)
    assert agent.core.life.stage is Stage.READY
    assert replies(agent.says(Ping(), LAUNCHER), Refused)
    assert replies(agent.says(Ping(), b"again"), Pong)


@pytest.mark.parametrize(
    "message", [Ping(), Query(()), Deploy(DEPLOYMENT), Start(7), Stop(7), GetStats(), Bye()]
)
def test_without_a_session_everything_is_refused(message):
    agent = Told()
    assert replies(agent.says(message, STRANGER), Refused)
    assert agent.core.tally.stale_messages == 1
    assert agent.core.life.stage is Stage.EMPTY


def test_any_message_renews_the_lease_and_silence_ends_it():
    agent = Told().streaming()
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
    assert replies(agent.says(Hello(1, "next", 5.0), STRANGER), Welcome)


def test_a_launcher_may_come_as_soon_as_the_lease_is_over():
    agent = Told().at(Stage.RUNNING)
    agent.now_s = 5.0
    actions = agent.says(Hello(1, "next", 5.0), STRANGER)
    assert has(actions, act.Unload)
    assert replies(actions, Welcome)
    assert not has(agent.says(Deploy(DEPLOYMENT), STRANGER), act.Load)
    assert has(agent.happens(ev.Unloaded(7)), act.Load)


def test_blobs_are_looked_up_and_written():
    agent = Told().at(Stage.EMPTY)
    assert agent.says(Query(("a" * 64,))) == [act.LookUp(LAUNCHER, ("a" * 64,))]
    assert replies(agent.happens(ev.LookedUp(LAUNCHER, ("a" * 64,))), Missing)
    put = Put(BLOB, 0, b"12345")
    assert agent.says(put) == [act.WriteChunk(LAUNCHER, put)]
    stored = agent.happens(ev.ChunkWritten(LAUNCHER, BLOB.digest, 0, complete=False))
    assert replies(stored, Stored) == [Stored(BLOB.digest, 0, False)]
    assert replies(agent.happens(ev.ChunkFailed(LAUNCHER, "disk full")), Failed)


# ---------------------------------------------------------------- the life of a deployment


def test_from_deploy_to_stopped():
    agent = Told().at(Stage.EMPTY)
    assert agent.says(Deploy(DEPLOYMENT)) == [act.Load(DEPLOYMENT)]
    assert replies(agent.happens(ev.LoadProgress(7, 1, 1, "p")), Progress)
    assert replies(agent.happens(ev.Loaded(7, (0.1,), 123)), Deployed) == [Deployed(7, (0.1,), 123)]
    agent.now_s = 1.0
    started = agent.says(Start(7))
    assert only(started, act.Dial) == act.Dial("n1", "tcp://n1:1")
    assert only(started, act.SendData) == act.SendData("n1", Attach(7, "n0"))
    agent.happens(ev.Measured("start", USAGE))
    (credit,) = agent.data(HOST_LINK, Attach(7, HOST))
    assert credit == act.SendData(HOST_LINK, Credit(7, 0, 2))
    assert not agent.data("n1", Credit(7, 1, 2))
    header = TensorHeader(7, 0, 0, "float32", (2,))
    assert agent.data(HOST_LINK, header, b"12345678", 8) == [act.Fire(7, 0, 0, {"x": b"12345678"})]
    ended = agent.happens(ev.FiringEnded(7, 0, 0, {"y": b"abcdefgh"}, 0.25))
    assert ended == [
        act.SendData(HOST_LINK, Credit(7, 0, 1)),
        act.SendData("n1", TensorHeader(7, 1, 0, "float32", (2,)), b"abcdefgh"),
    ]
    agent.now_s = 3.0
    assert agent.says(Stop(7)) == [act.Measure("stop"), act.Unload(7)]
    agent.happens(ev.Measured("stop", ev.Usage(300, 400, 50, 2.5)))
    (stopped,) = replies(agent.happens(ev.Unloaded(7)), Stopped)
    assert stopped.stats == Stats(7, (1,), (0.25,), 2.0, 1.0, 8, 8, 300, 400, 50, 0, 0)
    assert agent.core.life.stage is Stage.EMPTY


def test_stop_of_an_epoch_that_is_gone_is_answered_at_once():
    agent = Told().at(Stage.UNLOADING)
    (first,) = replies(agent.happens(ev.Unloaded(7)), Stopped)
    (again,) = replies(agent.says(Stop(7)), Stopped)
    assert again == first
    (never,) = replies(agent.says(Stop(99)), Stopped)
    assert never.stats.firings == ()


def test_links_outlive_the_stop_until_the_session_ends():
    """Closed at Stop, they would look like a failure to peers that have not heard of it."""
    agent = Told().at(Stage.UNLOADING)
    assert not has(agent.happens(ev.Unloaded(7)), act.HangUp)
    assert has(agent.says(Bye()), act.HangUp)


def test_a_second_deployment_must_wait_for_the_stop_of_the_first():
    agent = Told().at(Stage.READY)
    (failed,) = replies(agent.says(Deploy(dataclasses.replace(DEPLOYMENT, epoch=8))), Failed)
    assert failed.epoch == 8
    assert "epoch 7 is ready to start: it must be stopped first" in failed.reason
    assert agent.core.life.epoch == 7


@pytest.mark.parametrize("stage", [Stage.LOADING, Stage.READY, Stage.RUNNING])
@pytest.mark.parametrize("message", [Stop(7), Bye()])
def test_every_stage_can_be_left(stage, message):
    agent = Told().at(stage)
    assert has(agent.says(message), act.Unload)
    assert not agent.happens(ev.Loaded(7, (0.1,), 1))
    assert not agent.happens(ev.FiringEnded(7, 0, 0, {}, 0.1))
    agent.happens(ev.Measured("stop", USAGE))
    actions = agent.happens(ev.Unloaded(7))
    assert bool(replies(actions, Stopped)) == isinstance(message, Stop)
    assert agent.core.life.stage is Stage.EMPTY


def test_a_load_that_fails_is_told_and_unloaded():
    agent = Told().at(Stage.LOADING)
    actions = agent.happens(ev.LoadFailed(7, "phase 'p': no such operator"))
    assert replies(actions, Failed) == [Failed(7, "phase 'p': no such operator")]
    assert has(actions, act.Unload)
    agent.happens(ev.Unloaded(7))
    assert has(agent.says(Deploy(DEPLOYMENT)), act.Load)


def test_a_firing_that_fails_is_told_and_unloaded():
    agent = Told().streaming()
    actions = agent.happens(ev.FiringFailed(7, 0, 0, "out of memory"))
    assert replies(actions, Failed) == [Failed(7, "out of memory")]
    assert has(actions, act.Unload)


def test_a_node_that_does_not_answer_is_named():
    agent = Told().at(Stage.RUNNING)
    agent.says(Hello(1, "s", 1000.0))
    assert agent.core.deadline_s == ANSWER_TIMEOUT_S
    agent.now_s = ANSWER_TIMEOUT_S
    (failed,) = replies(agent.happens(ev.Tick()), Failed)
    assert "'n1' at tcp://n1:1" in failed.reason


def test_a_node_that_has_answered_is_no_longer_waited_for():
    agent = Told().streaming()
    agent.says(Hello(1, "s", 1000.0))
    assert agent.core.deadline_s == 1000.0


@pytest.mark.parametrize("link", ["n1"])
def test_a_lost_link_fails_the_run(link):
    agent = Told().streaming()
    (failed,) = replies(agent.happens(ev.LinkLost(link, "pulled out")), Failed)
    assert "'n1' broke: pulled out" in failed.reason


@pytest.mark.parametrize("link", [HOST_LINK, b"somebody"])
def test_a_lost_link_of_the_host_or_a_stranger_does_not(link):
    assert not Told().streaming().happens(ev.LinkLost(link))


def test_shutdown_ends_an_agent_that_a_launcher_started():
    agent = Told(obeys_shutdown=True).at(Stage.RUNNING)
    actions = agent.says(Shutdown())
    assert has(actions, act.Unload)
    assert not has(actions, act.Exit)
    assert has(agent.happens(ev.Unloaded(7)), act.Exit)
    assert has(Told(obeys_shutdown=True).at(Stage.EMPTY).says(Shutdown()), act.Exit)


def test_a_daemon_refuses_shutdown():
    agent = Told().at(Stage.READY)
    actions = agent.says(Shutdown())
    assert replies(actions, Refused)
    assert agent.core.life.stage is Stage.READY


# ---------------------------------------------------------------- deployments that make no sense


def altered(channel: int, **fields) -> Deployment:
    channels = list(DEPLOYMENT.channels)
    channels[channel] = dataclasses.replace(channels[channel], **fields)
    return dataclasses.replace(DEPLOYMENT, channels=tuple(channels))


@pytest.mark.parametrize(
    ("deployment", "told"),
    [
        (dataclasses.replace(DEPLOYMENT, phases=()), "no phase"),
        (dataclasses.replace(DEPLOYMENT, dial=()), "no address"),
        (dataclasses.replace(DEPLOYMENT, channels=(TO_NEXT,)), "input 'x' from 0 channels"),
        (altered(0, number=1), "two channels have the number 1"),
        (altered(0, target_phases=(1,)), "goes to phase 1"),
        (altered(0, target_phases=(0, 0)), "goes to the phases"),
        (altered(0, target_phases=()), "goes to the phases"),
        (altered(0, tensor="z"), "carries no input"),
        (altered(0, tensor="z" * 4096, target_phases=tuple(range(4096))), "carries no input"),
        (altered(0, target_phases=(0,) * 4096), "goes to the phases"),
        (altered(0, target_node="n9"), "does not touch node 'n0'"),
        (altered(0, shape=(1 << 20, 1 << 20)), "bytes"),
        (altered(1, source_phase=1), "comes from phase 1 of 1"),
        (altered(1, source_phase=None), "comes from phase None"),
        (altered(1, tensor="z"), "carries no output"),
    ],
)
def test_a_deployment_that_contradicts_itself_is_refused(deployment, told):
    agent = Told().at(Stage.EMPTY)
    (failed,) = replies(agent.says(Deploy(deployment)), Failed)
    assert told in failed.reason
    assert agent.core.life.stage is Stage.EMPTY


# ---------------------------------------------------------------- stale and broken


@pytest.mark.parametrize(
    "message",
    [Attach(6, HOST), Credit(6, 1, 1), TensorHeader(8, 0, 0, "float32", (2,)), Attach(0, "n1")],
)
@pytest.mark.parametrize("stage", [Stage.EMPTY, Stage.RUNNING])
def test_another_epoch_is_ignored_and_counted(stage, message):
    agent = Told().at(stage)
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
    agent = Told().at(Stage.UNLOADING)
    payload, size = (b"12345678", 8) if message is HEADER else (None, 0)
    assert not agent.data(STRANGER, message, payload, size)
    assert agent.core.tally.stale_messages == 1


def test_start_of_another_epoch_is_ignored_and_counted():
    agent = Told().at(Stage.READY)
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
    agent = Told().streaming()
    actions = agent.data(link, message, payload, size)
    assert only(actions, act.CutOffLink) == act.CutOffLink(link)
    assert replies(actions, Failed)
    assert has(actions, act.Unload)
    assert agent.core.tally.bad_messages == 1


@pytest.mark.parametrize("message", [HEADER, Credit(7, 1, 1), Attach(7, "n9"), Attach(7, "n0")])
def test_a_stranger_is_cut_off_and_the_run_goes_on(message):
    agent = Told().streaming()
    payload, size = (b"12345678", 8) if message is HEADER else (None, 0)
    actions = agent.data(STRANGER, message, payload, size)
    assert only(actions, act.CutOffLink) == act.CutOffLink(STRANGER)
    assert agent.core.life.stage is Stage.RUNNING
    assert agent.core.tally.bad_messages == 1


def test_malformed_messages_are_counted_and_cost_the_connection():
    agent = Told().at(Stage.EMPTY)
    assert has(agent.happens(ev.DataMalformed(STRANGER, "garbage")), act.CutOffLink)
    assert has(agent.happens(ev.ControlMalformed(STRANGER, "garbage")), act.CutOffPeer)
    assert not has(agent.happens(ev.Rejected("no handshake")), act.CutOffPeer)
    assert agent.core.tally.bad_messages == 3
    assert replies(agent.says(Ping()), Pong)


@pytest.mark.parametrize("message", [Pong(), Welcome(1, "a", "b", "c", "d", "e", 1, 1), HEADER])
def test_a_launcher_that_breaks_the_protocol_loses_its_session(message):
    agent = Told().at(Stage.RUNNING)
    actions = agent.says(message)
    assert only(actions, act.CutOffPeer) == act.CutOffPeer(LAUNCHER)
    assert has(actions, act.Unload)
    assert agent.core.session is None


def test_a_chunk_beyond_its_blob_breaks_the_protocol():
    agent = Told().at(Stage.EMPTY)
    assert has(agent.says(Put(BLOB, 8, b"123")), act.CutOffPeer)


def test_a_bug_of_ours_tells_its_story_and_the_agent_lives():
    agent = Told().streaming()
    actions = agent.happens(ev.FiringEnded(7, 0, 5, {}, 0.1))
    (failed,) = replies(actions, Failed)
    assert "a bug of the agent" in failed.reason
    assert "phase 0 ended frame 5" in failed.reason
    assert "Hello" in failed.reason
    agent.happens(ev.Unloaded(7))
    assert replies(agent.says(Ping()), Pong)


# ---------------------------------------------------------------- whatever happens, in any order

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


@settings(max_examples=300, deadline=None)
@given(st.lists(anything, max_size=40), st.booleans())
def test_nothing_that_peers_do_brings_an_agent_down(happening, obeys_shutdown):
    """The shell's answers come when it is the executor's turn; peers do as they like."""
    agent = Told(obeys_shutdown=obeys_shutdown)
    agent.at(Stage.EMPTY)
    jobs: list[act.Action] = []

    def take(event: ev.Event) -> None:
        for action in agent.happens(event):
            if isinstance(action, act.Measure):
                take(ev.Measured(action.purpose, USAGE))
            elif isinstance(action, act.Load | act.Fire | act.Unload):
                jobs.append(action)
            elif isinstance(action, act.Reply) and isinstance(action.message, Failed):
                assert "bug" not in action.message.reason

    for event in happening:
        agent.now_s += 0.5
        if event != "executor":
            take(event)
        elif jobs:
            job = jobs.pop(0)
            if isinstance(job, act.Load):
                take(ev.Loaded(7, (0.1,), 1))
            elif isinstance(job, act.Fire):
                take(ev.FiringEnded(7, 0, job.frame, {"y": b"abcdefgh"}, 0.1))
            else:
                jobs = [j for j in jobs if not isinstance(j, act.Fire)]
                take(ev.Unloaded(7))
    agent.now_s += 100.0
    take(ev.Tick())
    assert replies(agent.says(Hello(1, "fresh", 5.0), b"fresh"), Welcome)
