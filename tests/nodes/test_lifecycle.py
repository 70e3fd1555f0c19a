"""The states of a deployment, from Deploy to Stopped, and deployments that are refused."""

import dataclasses

import pytest

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.core.dataplane import FEWEST_FIRINGS, MOST_FIRINGS, SETTLED
from nodes.core.lifecycle import ANSWER_TIMEOUT_S, Stage
from nodes.protocol.messages import (
    HOST,
    PROTOCOL,
    Attach,
    Bye,
    Credit,
    Deploy,
    Deployed,
    Deployment,
    Failed,
    GetStats,
    Hello,
    Prepare,
    Progress,
    Refused,
    Shutdown,
    Start,
    Stats,
    Stop,
    Stopped,
    TensorHeader,
)
from tests.nodes.lone_core import (
    DEPLOYMENT,
    HEADER,
    HOST_LINK,
    TO_NEXT,
    USAGE,
    LoneCore,
    has,
    only,
    replies,
)


def test_from_deploy_to_stopped():
    agent = LoneCore().at(Stage.EMPTY)
    assert agent.says(Deploy(DEPLOYMENT)) == [act.LoadPhases(DEPLOYMENT)]
    assert replies(agent.happens(Progress(7, 1, 1, "p")), Progress)
    assert replies(agent.happens(Deployed(7, (0.1,), 123)), Deployed) == [Deployed(7, (0.1,), 123)]
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
    ended = agent.happens(ev.FiringEnded(7, 0, 0, {"y": b"abcdefgh"}, 0.25, 0.125))
    assert ended == [
        act.SendData(HOST_LINK, Credit(7, 0, 1)),
        act.SendData("n1", TensorHeader(7, 1, 0, "float32", (2,)), b"abcdefgh"),
    ]
    agent.now_s = 3.0
    assert agent.says(Stop(7)) == [act.Measure("stop"), act.Unload(7)]
    agent.happens(ev.Measured("stop", ev.Usage(300, 400, 50, 2.5)))
    (stopped,) = replies(agent.happens(ev.Unloaded(7)), Stopped)
    assert stopped.stats == Stats(
        *(7, (1,), (0.25,), 2.0, 1.0, 8, 8, 300, 400, 50, 0, 0, 8, (0.125,), None, (0, 1)),
        waited_s=(0.0,),
        phase_s=(0.0,),
    )
    assert agent.core.life.stage is Stage.EMPTY


def test_stop_of_an_epoch_that_is_gone_is_answered_at_once():
    agent = LoneCore().at(Stage.UNLOADING)
    (first,) = replies(agent.happens(ev.Unloaded(7)), Stopped)
    (again,) = replies(agent.says(Stop(7)), Stopped)
    assert again == first
    (never,) = replies(agent.says(Stop(99)), Stopped)
    assert never.stats.firings == ()


def test_links_outlive_the_stop_until_the_session_ends():
    """Closed at Stop, they would look like a failure to peers that have not heard of it."""
    agent = LoneCore().at(Stage.UNLOADING)
    assert not has(agent.happens(ev.Unloaded(7)), act.HangUp)
    assert has(agent.says(Bye()), act.HangUp)


def renewed(epoch: int) -> Deployment:
    return dataclasses.replace(DEPLOYMENT, epoch=epoch)


@pytest.mark.parametrize("stage", [Stage.LOADING, Stage.READY, Stage.RUNNING, Stage.UNLOADING])
def test_a_deployment_of_a_higher_epoch_takes_the_place_of_the_one_that_is_there(stage):
    agent = LoneCore().at(stage)
    actions = agent.says(Deploy(renewed(8)))
    assert has(actions, act.Unload) == (stage is not Stage.UNLOADING)
    assert not has(actions, act.LoadPhases)
    assert not agent.data(HOST_LINK, TensorHeader(7, 0, 0, "float32", (2,)), b"12345678", 8)
    assert not agent.happens(ev.FiringEnded(7, 0, 0, {}, 0.1))
    agent.happens(ev.Measured("stop", USAGE))
    assert only(agent.happens(ev.Unloaded(7)), act.LoadPhases) == act.LoadPhases(renewed(8))
    assert agent.core.life.epoch == 8


@pytest.mark.parametrize("epoch", [6, 7])
@pytest.mark.parametrize("stage", [Stage.LOADING, Stage.READY, Stage.RUNNING, Stage.UNLOADING])
def test_a_deployment_of_a_lower_epoch_is_stale(stage, epoch):
    agent = LoneCore().at(stage)
    assert not agent.says(Deploy(renewed(epoch)))
    assert agent.core.life.stage is stage
    assert agent.core.tally.stale_messages == 1


def test_of_two_deployments_that_wait_the_higher_epoch_is_loaded():
    agent = LoneCore().at(Stage.RUNNING)
    agent.says(Deploy(renewed(8)))
    agent.says(Deploy(renewed(9)))
    agent.happens(ev.Measured("stop", USAGE))
    assert only(agent.happens(ev.Unloaded(7)), act.LoadPhases) == act.LoadPhases(renewed(9))


def test_a_deployment_that_waits_is_dropped_when_it_is_stopped():
    agent = LoneCore().at(Stage.RUNNING)
    agent.says(Deploy(renewed(8)))
    assert replies(agent.says(Stop(8)), Stopped)
    agent.happens(ev.Measured("stop", USAGE))
    assert not has(agent.happens(ev.Unloaded(7)), act.LoadPhases)
    assert agent.core.life.stage is Stage.EMPTY


def test_epochs_of_another_session_do_not_count():
    agent = LoneCore().at(Stage.RUNNING)
    agent.says(Bye())
    agent.happens(ev.Measured("stop", USAGE))
    agent.happens(ev.Unloaded(7))
    agent.says(Hello(PROTOCOL, "next", 5.0))
    assert has(agent.says(Deploy(renewed(3))), act.LoadPhases)


@pytest.mark.parametrize("stage", [Stage.LOADING, Stage.READY, Stage.RUNNING])
@pytest.mark.parametrize("message", [Stop(7), Bye()])
def test_every_stage_can_be_left(stage, message):
    agent = LoneCore().at(stage)
    assert has(agent.says(message), act.Unload)
    assert not agent.happens(Deployed(7, (0.1,), 1))
    assert not agent.happens(ev.FiringEnded(7, 0, 0, {}, 0.1))
    agent.happens(ev.Measured("stop", USAGE))
    actions = agent.happens(ev.Unloaded(7))
    assert bool(replies(actions, Stopped)) == isinstance(message, Stop)
    assert agent.core.life.stage is Stage.EMPTY


def test_a_load_that_fails_is_reported_and_unloaded():
    agent = LoneCore().at(Stage.LOADING)
    actions = agent.happens(ev.LoadFailed(7, "phase 'p': no such operator"))
    assert replies(actions, Failed) == [Failed(7, "phase 'p': no such operator")]
    assert has(actions, act.Unload)
    agent.happens(ev.Unloaded(7))
    assert has(agent.says(Deploy(renewed(8))), act.LoadPhases)


def test_a_firing_that_fails_is_reported_and_unloaded():
    agent = LoneCore().streaming()
    actions = agent.happens(ev.FiringFailed(7, 0, 0, "out of memory"))
    assert replies(actions, Failed) == [Failed(7, "out of memory")]
    assert has(actions, act.Unload)


def test_a_node_that_does_not_answer_is_named():
    agent = LoneCore().at(Stage.RUNNING)
    agent.says(Hello(PROTOCOL, "s", 200.0))
    assert agent.core.deadline_s == ANSWER_TIMEOUT_S
    agent.now_s = ANSWER_TIMEOUT_S
    (failed,) = replies(agent.happens(ev.Tick()), Failed)
    assert "'n1' at tcp://n1:1" in failed.reason
    assert failed.peer == "n1"


def test_a_node_that_has_answered_is_no_longer_waited_for():
    agent = LoneCore().streaming()
    agent.says(Hello(PROTOCOL, "s", 200.0))
    assert agent.core.deadline_s == 200.0


@pytest.mark.parametrize("link", ["n1"])
def test_a_lost_link_fails_the_run(link):
    agent = LoneCore().streaming()
    (failed,) = replies(agent.happens(ev.LinkLost(link, "pulled out")), Failed)
    assert "'n1' broke: pulled out" in failed.reason
    assert failed.peer == "n1"


@pytest.mark.parametrize("link", [HOST_LINK, b"somebody"])
def test_a_lost_link_of_the_host_or_a_stranger_does_not(link):
    assert not LoneCore().streaming().happens(ev.LinkLost(link))


def test_shutdown_ends_an_agent_that_a_launcher_started():
    agent = LoneCore(obeys_shutdown=True).at(Stage.RUNNING)
    actions = agent.says(Shutdown())
    assert has(actions, act.Unload)
    assert not has(actions, act.Exit)
    assert has(agent.happens(ev.Unloaded(7)), act.Exit)
    assert has(LoneCore(obeys_shutdown=True).at(Stage.EMPTY).says(Shutdown()), act.Exit)


def test_a_daemon_refuses_shutdown():
    agent = LoneCore().at(Stage.READY)
    actions = agent.says(Shutdown())
    assert replies(actions, Refused)
    assert agent.core.life.stage is Stage.READY


def altered(channel: int, **fields) -> Deployment:
    channels = list(DEPLOYMENT.channels)
    channels[channel] = dataclasses.replace(channels[channel], **fields)
    return dataclasses.replace(DEPLOYMENT, channels=tuple(channels))


@pytest.mark.parametrize(
    ("deployment", "reason"),
    [
        (dataclasses.replace(DEPLOYMENT, phases=()), "no phase"),
        (dataclasses.replace(DEPLOYMENT, dial=()), "the address of its target is missing"),
        (dataclasses.replace(DEPLOYMENT, channels=(TO_NEXT,)), "input 'x' from 0 channels"),
        (altered(0, number=1), "two channels have the number 1"),
        (altered(0, target_phases=(1,)), "leads to phase 1"),
        (altered(0, target_phases=(0, 0)), "leads to the phases"),
        (altered(0, target_phases=()), "leads to the phases"),
        (altered(0, tensor="z"), "does not carry an input"),
        (
            altered(0, tensor="z" * 4096, target_phases=tuple(range(4096))),
            "does not carry an input",
        ),
        (altered(0, target_phases=(0,) * 4096), "leads to the phases"),
        (altered(0, target_node="n9"), "neither comes from nor leads to node 'n0'"),
        (altered(0, shape=(1 << 20, 1 << 20)), "bytes"),
        (altered(1, source_phase=1), "comes from phase 1; there are 1"),
        (altered(1, source_phase=None), "comes from phase None"),
        (altered(1, tensor="z"), "does not carry an output"),
    ],
)
def test_a_deployment_that_is_inconsistent_is_refused(deployment, reason):
    agent = LoneCore().at(Stage.EMPTY)
    (failed,) = replies(agent.says(Deploy(deployment)), Failed)
    assert reason in failed.reason
    assert agent.core.life.stage is Stage.EMPTY


def fired(agent: LoneCore, frame: int) -> None:
    agent.data(HOST_LINK, TensorHeader(7, 0, frame, "float32", (2,)), b"12345678", 8)
    agent.happens(ev.FiringEnded(7, 0, frame, {"y": b"abcdefgh"}, 0.25))


def measured(agent: LoneCore) -> Stats:
    agent.says(GetStats())
    (stats,) = replies(agent.happens(ev.Measured("stats", USAGE)), Stats)
    return stats


def test_statistics_say_how_many_frames_each_channel_holds():
    agent = LoneCore().streaming()
    agent.data(HOST_LINK, HEADER, b"12345678", 8)
    assert measured(agent).channel_frames == (1, 1)  # the firing has claimed a place for its output
    agent.happens(ev.FiringEnded(7, 0, 0, {"y": b"abcdefgh"}, 0.25))
    assert measured(agent).channel_frames == (0, 1)
    agent.data("n1", Credit(7, 1, 1))
    assert measured(agent).channel_frames == (0, 0)


def test_statistics_say_for_how_long_the_node_waited_for_credits_and_had_nothing_else_to_do():
    agent = LoneCore().streaming()
    for frame in range(2):  # the capacity of the channel to the next node
        fired(agent, frame)
    agent.now_s = 10.0
    agent.data(HOST_LINK, TensorHeader(7, 0, 2, "float32", (2,)), b"12345678", 8)
    agent.now_s = 13.0
    assert measured(agent).waited_s == (3.0,)
    agent.now_s = 14.0
    agent.data("n1", Credit(7, 1, 1))
    agent.now_s = 20.0
    agent.happens(ev.FiringEnded(7, 0, 2, {"y": b"abcdefgh"}, 6.0))
    agent.now_s = 30.0
    assert measured(agent).waited_s == (4.0,)  # it waits for a frame now, not for a credit


def test_what_is_loaded_ahead_stays_when_the_present_deployment_is_stopped():
    agent = LoneCore().at(Stage.RUNNING)
    prepared = agent.says(Prepare(dataclasses.replace(DEPLOYMENT, epoch=8), loads=True))
    assert only(prepared, act.PrepareSubnets).loads
    assert not has(agent.says(Stop(7)), act.CloseAhead)


@pytest.mark.parametrize("epoch", [0, 8])
def test_what_is_loaded_ahead_is_closed_by_a_stop_of_what_is_not_deployed(epoch):
    agent = LoneCore().at(Stage.RUNNING)
    assert has(agent.says(Stop(epoch)), act.CloseAhead)


def test_what_is_loaded_ahead_is_closed_when_a_launcher_greets():
    agent = LoneCore().at(Stage.RUNNING)
    hello = Hello(PROTOCOL, agent.core.session.name, 15.0)
    assert has(agent.says(hello), act.CloseAhead)


@pytest.mark.parametrize("every", [1, 2])
def test_statistics_have_the_usual_time_of_firings_once_there_are_enough(every):
    """Those of which the undisturbed time is unknown do not count."""
    agent, told = LoneCore().streaming(), []
    for frame in range(SETTLED + MOST_FIRINGS + 1):
        cold_s = 1.0 if frame < SETTLED or frame % 10 == 9 else 0.0
        agent.data(HOST_LINK, TensorHeader(7, 0, frame, "float32", (2,)), b"12345678", 8)
        firing = ev.FiringEnded(7, 0, frame, {"y": b"abcdefgh"}, 9.0)
        agent.happens(firing if frame % every else firing._replace(undisturbed_s=0.25 + cold_s))
        agent.data("n1", Credit(7, 1, 1))
        told.append(measured(agent).phase_s)
    enough = SETTLED + every * (FEWEST_FIRINGS - 1)
    assert set(told[:enough]) == {(0.0,)}
    assert set(told[enough:]) == {(0.25,)}
