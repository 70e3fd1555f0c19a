"""The supervisor leads all nodes through a run together, or ends it on all with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.config.run import RunConfig
from launcher.core.events import (
    Abandoned,
    AgentExited,
    Disconnected,
    MessageMalformed,
    MessageReceived,
)
from launcher.core.run_state import RUN_TRANSITIONS, RunState, RunStep
from launcher.core.session import TRANSITIONS, SessionState, Step
from launcher.errors import BadInputError, LauncherError, RunFailedError
from nodes.protocol.messages import (
    PROTOCOL,
    Deploy,
    Deployed,
    Failed,
    Figures,
    Missing,
    PeerSpec,
    Pong,
    Refused,
    Stats,
    Stopped,
    Welcome,
)
from partition.plan import Plan
from tests.launcher_runtime.plans import EPOCH, in_a_row, plans
from tests.launcher_runtime.simulation import ENGINES, LIMITS, World


def delays(seed: int) -> Callable[[], float]:
    """Seconds that each message takes: mostly nothing, now and then longer than a firing."""
    random = Random(seed)
    return lambda: random.choice((0.0, 0.0, 0.001, 0.02, 0.3, 2.0))


def error_of(world: World) -> LauncherError:
    assert world.end is not None
    assert world.end.error is not None
    return world.end.error


def stderr_tail(world: World) -> dict[str, str]:
    return {name: agent.words[-1] for name, agent in world.nodes.items() if agent.words}


# ---------------------------------------------------------------- a run that goes well


@settings(deadline=None, max_examples=40)
@given(plans(), st.sets(st.sampled_from("0123456789abcdef")), st.integers(0, 2**32))
def test_every_node_is_taken_through_the_whole_protocol_whatever_the_delays(
    plan: Plan, cached: set[str], seed: int
) -> None:
    world = World(plan, 6, delays(seed), cached=lambda digest: digest[-1] in cached)
    world.run()
    assert error_free(world)
    assert world.results == list(range(6))
    for name, node in world.nodes.items():
        told = [word for word in node.words if word != "Put"]
        assert told == ["Hello", "Query", "Deploy", "Start", "Stop", "Bye"]
        blobs = {b.digest: b.size_bytes for b in world.supervisor.blueprint.blobs(name)}
        assert node.stored == {d: size for d, size in blobs.items() if d[-1] not in cached}
        stats = world.supervisor.sessions[name].stats
        assert stats is not None
        assert stats.firings == (6,) * len(world.supervisor.blueprint.deployments[name].phases)
        assert stats.stale_messages == stats.bad_messages == 0


@settings(deadline=None, max_examples=20)
@given(plans(), st.integers(0, 2**32))
def test_all_nodes_pass_each_barrier_together(plan: Plan, seed: int) -> None:
    world = World(plan, delay_s=delays(seed)).run()
    words = [word for _, word in world.trace]
    nodes = len(world.nodes)
    for before, after in [("Hello", "Deploy"), ("Deploy", "Start"), ("Stop", "Bye")]:
        assert words.count(after) == nodes
        # Each `after` follows the answers to every `before`.
        assert words.index(after) > len(words) - 1 - words[::-1].index(before)


def test_agents_that_we_started_are_told_to_shut_down() -> None:
    world = World(in_a_row(3), started_by_us=True).run()
    assert error_free(world)
    assert set(stderr_tail(world).values()) == {"Shutdown"}


def error_free(world: World) -> bool:
    return world.end is not None and world.end.error is None


def test_a_node_that_has_all_blobs_is_sent_none() -> None:
    world = World(in_a_row(2), cached=lambda _: True).run()
    assert "Put" not in [word for _, word in world.trace]
    assert "uploading" not in {report.stage for report in world.reports}


def test_progress_is_reported_stage_by_stage_and_ends_complete() -> None:
    world = World(in_a_row(4), frames=7).run()
    stages = [report.stage for report in world.reports]
    assert list(dict.fromkeys(stages)) == ["connecting", "uploading", "loading", "streaming"]
    for stage in dict.fromkeys(stages):
        counts = [r.done for r in world.reports if r.stage == stage]
        assert counts == sorted(counts)
        last = [r for r in world.reports if r.stage == stage][-1]
        assert last.done == last.total
    assert world.reports[-1].total == 7


def test_peers_dial_the_ip_address_at_which_an_agent_was_reached_not_a_name_only_we_know() -> None:
    world = World(in_a_row(2))
    welcome = Welcome(
        PROTOCOL, "n1", "0", "tcp://0.0.0.0:7001", "none", "sim", 1, 1, (), None, ENGINES
    )
    world.supervisor.handle(MessageReceived("n1", welcome, host="10.0.0.77"), 0.1)
    world.supervisor.handle(MessageReceived("n1", Missing(())), 0.2)
    first = replace(welcome, name="n0")
    world.supervisor.handle(MessageReceived("n0", first, host="10.0.0.76"), 0.3)
    deploys = world.supervisor.handle(MessageReceived("n0", Missing(()), host="10.0.0.76"), 0.4)
    told = {a.node: a.message.deployment for a in deploys if isinstance(a.message, Deploy)}
    assert told["n0"].dial == (PeerSpec("n1", "tcp://10.0.0.77:7001"),)


def test_an_agent_that_lacks_an_encoding_of_the_plan_ends_the_launch_with_what_to_install() -> None:
    plan = in_a_row(2)
    between = replace(plan.channels[1], encoding="lossless", encoded_bytes=8)
    world = World(replace(plan, channels=(plan.channels[0], between, *plan.channels[2:]))).run()
    error = error_of(world)
    assert isinstance(error, BadInputError)
    assert "cannot exchange tensors encoded as lossless: install csdf-edge[lossless]" in str(error)


def test_the_stream_goes_to_the_hosts_neighbours_where_their_data_ports_are() -> None:
    world = World(in_a_row(3)).run()
    assert [s.data_addresses for s in world.streams] == [
        {"n0": "tcp://10.0.0.0:7000", "n2": "tcp://10.0.0.2:7002"}
    ]


# ---------------------------------------------------------------- a run that does not

NO_STATS = Stats(EPOCH, (), (), 0.0, 0.0, *[0] * 7)

MISFORTUNES = {
    "exits": lambda node: AgentExited(node, -9, "out of memory\n"),
    "disconnects": Disconnected,
    "fails": lambda node: MessageReceived(node, Failed(EPOCH, "the engine broke")),
    "forgets us": lambda node: MessageReceived(node, Refused("no session", PROTOCOL)),
    "babbles": lambda node: MessageMalformed(node, "not msgpack"),
    "jumps ahead": lambda node: MessageReceived(node, Stopped(EPOCH, NO_STATS)),
}


@settings(deadline=None, max_examples=50)
@given(plans(), st.sampled_from(sorted(MISFORTUNES)), st.data())
def test_whatever_befalls_a_node_and_when_the_run_ends_naming_it(
    plan: Plan, misfortune: str, data: st.DataObject
) -> None:
    world = World(plan, frames=20, started_by_us=misfortune == "exits")
    victim = data.draw(st.sampled_from(sorted(world.nodes)))
    at_s = data.draw(st.floats(0.03, 2.0))

    def strike() -> None:
        if world.end is None:
            world.silent.add(victim)
            world.event(MISFORTUNES[misfortune](victim))

    world.at(at_s, strike)
    world.run()
    error = error_of(world)
    assert isinstance(error, RunFailedError)
    assert f"node {victim!r}" in str(error)
    assert world.end_s < at_s + 3.0
    goodbye = "Shutdown" if misfortune == "exits" else "Bye"
    for name, agent in world.nodes.items():
        if name != victim and "Hello" in agent.words:
            assert agent.words[-1] == goodbye
            assert agent.words.count(goodbye) == 1


@settings(deadline=None, max_examples=15)
@given(plans(), st.data())
def test_a_node_that_falls_silent_is_given_up_after_the_silence_timeout(
    plan: Plan, data: st.DataObject
) -> None:
    world = World(plan, frames=60, take_s=1.0)
    victim = data.draw(st.sampled_from(sorted(world.nodes)))
    at_s = data.draw(st.floats(1.0, 30.0))  # all links stand, so no peer tells of it first
    world.at(at_s, lambda: world.silent.add(victim))
    world.run()
    assert f"node {victim!r}" in str(error_of(world))
    assert "silent for 10 s" in str(error_of(world))
    assert (
        at_s + LIMITS.run.silence_timeout_s - 1
        < world.end_s
        < at_s + LIMITS.run.silence_timeout_s + 2
    )


def test_the_sentence_tells_how_far_the_run_got_and_the_last_words() -> None:
    world = World(in_a_row(2), frames=64, started_by_us=True)
    world.at(1.25, lambda: world.event(AgentExited("n1", -9, "cannot allocate memory\n")))
    world.run()
    assert "node 'n1' (started on this machine) was lost while running, after" in str(
        error_of(world)
    )
    assert f"after {world.supervisor.taken} of 64 results" in str(error_of(world))
    assert "signal 9 (SIGKILL)" in str(error_of(world))
    assert "cannot allocate memory" in str(error_of(world))


@pytest.mark.parametrize(
    ("code", "kills", "told"), [(-9, 1, True), (-9, 0, False), (-11, 1, False), (1, 1, False)]
)
def test_an_agent_that_was_killed_for_want_of_memory_is_reported_as_such(
    code: int, kills: int, told: bool
) -> None:
    world = World(in_a_row(2), frames=64, started_by_us=True)
    world.at(1.25, lambda: world.event(AgentExited("n1", code, "", kills)))
    world.run()
    sentence = "by the kernel for want of memory, which has happened once on this machine since"
    assert (sentence in str(error_of(world))) == told


def test_unreachable_nodes_are_all_named_with_their_addresses() -> None:
    world = World(in_a_row(3))
    world.silent |= {"n0", "n2"}
    world.run()
    error = error_of(world)
    assert isinstance(error, BadInputError)
    assert world.end_s == LIMITS.run.connect_timeout_s
    assert str(error) == (
        "node 'n0' at tcp://10.0.0.0:7000, node 'n2' at tcp://10.0.0.2:7000 did not answer within "
        "10 s; check that node-agent runs there, and that this machine can reach it"
    )
    assert stderr_tail(world) == {"n1": "Bye"}


@pytest.mark.parametrize("node", ["n0", "n2"])
def test_a_data_port_that_cannot_be_reached_is_named(node: str) -> None:
    """One feeds the network, one takes its results: neither may leave the launcher waiting."""
    world = World(in_a_row(3))
    world.closed_data_ports.add(node)
    error = error_of(world.run())
    port = f"tcp://10.0.0.{node[1]}:700{node[1]}"
    assert f"node '{node}' at tcp://10.0.0.{node[1]}:7000 was lost while running" in str(error)
    assert f"its data port at {port} did not answer within 10 s" in str(error)


def test_an_agent_of_another_protocol_is_a_users_matter_and_both_versions_are_named() -> None:
    for answer in (
        Refused("it speaks another protocol", PROTOCOL + 1),
        Welcome(PROTOCOL + 1, "n1", "9", "tcp://*:1", "none", "sim", 1, 1),
    ):
        world = World(in_a_row(2))
        world.silent.add("n1")
        world.at(0.5, lambda w=world, a=answer: w.event(MessageReceived("n1", a)))
        error = error_of(world.run())
        assert isinstance(error, BadInputError)
        assert f"protocol {PROTOCOL + 1}" in str(error)
        assert f"protocol {PROTOCOL}:" in str(error)


def test_a_busy_agent_refuses_and_its_reason_is_reported() -> None:
    world = World(in_a_row(2))
    world.silent.add("n0")
    world.at(0.5, lambda: world.event(MessageReceived("n0", Refused("laptop-17 has it", PROTOCOL))))
    assert "node 'n0' at tcp://10.0.0.0:7000 refused: laptop-17 has it" in str(
        error_of(world.run())
    )


@pytest.mark.usefixtures("unwatched")
def test_an_engine_that_hangs_ends_the_run_and_the_sentence_tells_where_it_is_stuck() -> None:
    world = World(in_a_row(3), frames=50)
    world.at(1.0, lambda: world.hanging.add("n1"))
    error = str(error_of(world.run()))
    taken = world.supervisor.taken
    assert f"no result has arrived for 60 s, after {taken} of 50 results" in error
    assert f"node 'n1': {taken}; node 'n2': {taken})" in error
    assert 60.0 < world.end_s < 65.0


def test_the_failure_of_a_victim_gives_way_to_the_loss_that_caused_it() -> None:
    world = World(in_a_row(3), frames=100, started_by_us=True)
    world.at(
        2.0, lambda: world.event(MessageReceived("n2", Failed(EPOCH, "n1 closed its connection")))
    )
    world.at(2.1, lambda: world.event(AgentExited("n1", -11, "")))
    world.run()
    assert "node 'n1'" in str(error_of(world))
    assert "SIGSEGV" in str(error_of(world))


@pytest.mark.parametrize("then", [Disconnected("n1"), AgentExited("n1", 1, "")])
def test_an_agent_that_says_why_before_it_goes_is_quoted(then: Disconnected | AgentExited) -> None:
    world = World(in_a_row(2), frames=100)
    world.at(2.0, lambda: world.event(MessageReceived("n1", Failed(EPOCH, "the engine broke"))))
    world.at(2.1, lambda: world.event(then))
    error = str(error_of(world.run()))
    assert "node 'n1' at tcp://10.0.0.1:7000 failed while running, after " in error
    assert error.endswith("results: the engine broke")


def test_an_agent_of_ours_that_disconnects_is_waited_for_to_tell_its_exit_code() -> None:
    world = World(in_a_row(2), frames=100, started_by_us=True)
    world.at(2.0, lambda: world.event(Disconnected("n1")))
    world.at(2.2, lambda: world.event(AgentExited("n1", 3, "no such CPU\n")))
    assert "exit code 3; its last output:\nno such CPU" in str(error_of(world.run()))


def test_an_upload_without_progress_ends_after_the_deploy_timeout() -> None:
    limits = replace(LIMITS, run=RunConfig(deploy_timeout_s=5.0, silence_timeout_s=50.0))
    world = World(in_a_row(2), limits=limits)

    def mute(node: str = "n0") -> None:
        world.silent.add(node)

    world.at(0.025, mute)  # after its welcome, before it says what it lacks
    world.run()
    assert "node 'n0'" in str(error_of(world))
    assert "made no progress for 5 s" in str(error_of(world))


def test_a_launcher_that_was_late_itself_blames_nobody() -> None:
    """A slow consumer of results: 12 s pass, then the answers that waited are read."""
    world = World(in_a_row(2), frames=50)
    assert LIMITS.run.silence_timeout_s < 12.0 < LIMITS.run.lease_s

    def sleep() -> None:
        world.now_s += 12.0
        for node in world.nodes:
            world.event(MessageReceived(node, Pong()))

    world.at(2.0, sleep)
    assert error_free(world.run())


@settings(deadline=None, max_examples=30)
@given(plans(), st.floats(0.0, 1.5))
def test_a_run_that_is_given_up_says_goodbye_to_everyone_it_greeted(
    plan: Plan, at_s: float
) -> None:
    world = World(plan, frames=20)

    def give_up() -> None:
        welcomed.update(n for n, s in world.supervisor.sessions.items() if s.welcome is not None)
        if world.end is None:
            world.event(Abandoned(None))

    welcomed: set[str] = set()
    world.at(at_s, give_up)
    world.run()
    assert {n for n, word in stderr_tail(world).items() if word == "Bye"} >= welcomed


def test_answers_of_another_epoch_are_ignored() -> None:
    world = World(in_a_row(2))
    stale = Deployed(EPOCH + 1, (0.1,), 1)
    for at_s in (0.05, 0.3, 0.6):
        world.at(at_s, lambda: world.event(MessageReceived("n0", stale)))
    assert error_free(world.run())


def test_figures_for_which_the_roll_call_did_not_wait_are_ignored() -> None:
    world = World(in_a_row(2))
    for at_s in (0.05, 0.07, 0.1, 0.3, 0.6):
        world.at(at_s, lambda: world.event(MessageReceived("n0", Figures(None, "too late"))))
    assert error_free(world.run())


# ---------------------------------------------------------------- the table


def test_the_table_of_states_can_reach_every_state_and_leaves_a_lost_one_only_to_greet_it() -> None:
    reached = {SessionState.CONNECTING}
    while True:
        more = {after for (before, _), after in TRANSITIONS.items() if before in reached}
        if more <= reached:
            break
        reached |= more
    assert reached == set(SessionState)
    from_lost = {
        step: after for (before, step), after in TRANSITIONS.items() if before is SessionState.LOST
    }
    assert from_lost == {Step.LOSE: SessionState.LOST, Step.GREET: SessionState.RETURNING}


def test_a_run_can_reach_every_state_and_never_leaves_its_end() -> None:
    reached = {RunState.PREPARING}
    for _ in RunState:
        reached |= {after for (before, _), after in RUN_TRANSITIONS.items() if before in reached}
    assert reached == set(RunState)
    assert RunState.ENDED not in {before for (before, _) in RUN_TRANSITIONS}


def test_a_run_can_end_in_every_state() -> None:
    ends = {before for (before, step), _ in RUN_TRANSITIONS.items() if step is RunStep.END}
    assert ends == set(RunState) - {RunState.ENDED}


def test_no_epoch_streams_that_was_not_rolled_out_to_all_nodes() -> None:
    before = {state for (state, step) in RUN_TRANSITIONS if step is RunStep.START}
    assert before == {RunState.PREPARING, RunState.ROLLOUT}


def test_an_agent_can_be_lost_in_every_state() -> None:
    assert all((state, Step.LOSE) in TRANSITIONS for state in SessionState)


@pytest.mark.parametrize("state", [s for s in SessionState if s not in (SessionState.DEPLOYING,)])
def test_an_agent_may_call_itself_deployed_only_while_deploying(state: SessionState) -> None:
    assert (state, Deployed) not in TRANSITIONS
