"""A run begins with the nodes that answer, and takes in the others when they come."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

import pytest

from launcher.config.run import RunConfig
from launcher.core import events as lev
from launcher.core.returns import MOST_LOADS, REDIAL_S
from launcher.core.run_state import RunState
from launcher.core.session import SessionState
from launcher.core.watch import START_WAIT_S, Limits
from launcher.errors import BadInputError, RunFailedError
from nodes.core import events as nev
from nodes.protocol.messages import PROTOCOL, Deployment, Refused
from tests.launcher_runtime import simulated_host
from tests.launcher_runtime.faults import FaultyWorld, recovering
from tests.launcher_runtime.simulated_node import SimulatedNode

CONNECT_S = RunConfig().connect_timeout_s


class Starting(FaultyWorld):
    """A cluster of daemons whose nodes may be off at first, or unable to load their parts."""

    def __init__(self, nodes: int = 3, room: int | None = None, **given: object) -> None:
        usual = {"frames": 60, "take_s": 0.3, "limits": starting(), "started_by_us": False}
        self.cannot_load: set[str] = set()
        self.why = "p0: the engine has no memory left"
        self.crashes_loading: set[str] = set()
        self.loads = 0
        super().__init__(
            Random(5),
            nodes=nodes,
            standby=0,
            room=room,
            delay_s=lambda: 0.01,
            **(usual | given),
        )
        self.gain = lambda: 1.5

    def _load(self, name: str, node: SimulatedNode, deployment: Deployment) -> None:
        self.loads += 1
        if name in self.cannot_load:
            failed = nev.LoadFailed(deployment.epoch, self.why)
            self.later(name, 0.1, failed)
        elif name in self.crashes_loading:
            self.at(self.now_s + 0.1, lambda: self.crash(name))
            self.at(self.now_s + 0.4, lambda: self.restart(name))
        else:
            super()._load(name, node, deployment)

    @property
    def used(self) -> set[str]:
        return set(self.supervisor.blueprint.deployments)

    def told(self, text: str) -> bool:
        return any(text in notice for notice in self.notices)

    def finish(self) -> Starting:
        """To the end, which must be a good one."""
        self.run(4000.0)
        self.check_end()
        assert self.end == lev.End(None)
        return self

    def fail(self) -> str:
        """To the end, which must be an error; returns its sentence."""
        self.run(4000.0)
        self.check_end()
        return self.sentence

    @property
    def sentence(self) -> str:
        """The error with which the run has ended."""
        assert self.end is not None
        assert self.end.error is not None
        return str(self.end.error)


def starting(wait_s: float = 30.0, **run: object) -> Limits:
    limits = recovering()
    return replace(
        limits,
        run=RunConfig(deploy_timeout_s=60.0, **run),
        start_wait_s=wait_s,  # type: ignore[arg-type]
    )


# ---------------------------------------------------------------- a node is absent


def test_a_node_that_is_off_is_named_and_the_others_begin_without_it() -> None:
    world = Starting()
    world.is_absent("n1", until_s=None)
    world.finish()
    (absence,) = world.supervisor.absences
    assert absence.node == "n1"
    assert absence.came_s is None
    assert "node 'n1' at tcp://10.0.0.1:7000 did not answer within 10 s; check that node-agent" in (
        absence.reason
    )
    assert world.told(absence.reason)
    assert world.told("planning for n0, n2")
    assert world.used <= {"n0", "n2"}
    assert not world.supervisor.recoveries, "a longer start is no recovery"


def test_it_is_used_when_it_comes_without_a_frame_lost() -> None:
    world = Starting(frames=400)
    world.is_absent("n1", until_s=20.0)
    world.finish()
    (absence,) = world.supervisor.absences
    assert absence.came_s == pytest.approx(20.1, abs=1.5)
    assert [past.cause for past in world.supervisor.recoveries] == ["return"]
    assert world.told("node 'n1' has joined; checking whether a plan with it is worth it")
    assert world.told("1.50 times as fast: n1 has joined")


def test_a_node_that_comes_before_the_first_frame_was_not_absent() -> None:
    world = Starting()
    world.is_absent("n1", until_s=5.0)
    world.finish()
    assert world.supervisor.absences == ()


def test_who_was_found_absent_before_is_not_waited_for_and_not_named_again() -> None:
    world = Starting(known_absent=("n1",))
    world.is_absent("n1", until_s=None)
    world.finish()
    assert world.supervisor.absences[0].reason == "node 'n1' is off"
    assert float(next(t for t in world.story if "plan epoch" in t).split()[0]) < 1.0
    assert not world.told("n1")


def test_a_node_that_comes_too_late_for_the_first_plan_was_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulated_host, "PLANNING_S", 5.0)
    world = Starting(known_absent=("n1",))
    world.is_absent("n1", until_s=0.1)
    world.finish()
    (absence,) = world.supervisor.absences
    assert (absence.node, absence.reason) == ("n1", "node 'n1' is off")
    assert absence.came_s == pytest.approx(1.0, abs=0.5)


def test_a_plan_is_requested_only_once_every_other_node_has_answered_or_is_late() -> None:
    world = Starting(nodes=4)
    world.is_absent("n0", until_s=None)
    refused = Refused("laptop-17 has it", PROTOCOL)
    world.pause("n1")
    world.at(0.005, lambda: world.event(lev.MessageReceived("n2", refused)))
    world.at(3.0, lambda: world.resume("n1"))
    world.event(lev.Begin())
    while world.supervisor.life.state is not RunState.GATHERING:
        assert world.step()
    while world.supervisor.life.state is RunState.GATHERING:
        assert world.step()
    assert world.now_s == pytest.approx(CONNECT_S)
    planned = next(text for text in world.story if "plan epoch" in text)
    assert "'n1'" in planned
    assert "'n0'" not in planned


def test_a_run_that_wants_all_its_nodes_ends_with_those_that_do_not_answer() -> None:
    world = Starting(limits=starting(start="all"))
    world.is_absent("n1", until_s=None)
    world.run()
    assert "node 'n1' at tcp://10.0.0.1:7000 did not answer within 10 s" in world.sentence
    assert world.now_s < CONNECT_S + 1.0


# ---------------------------------------------------------------- too few nodes answer


def test_if_too_few_answer_the_run_waits_for_more() -> None:
    world = Starting(room=2)
    for name in ("n1", "n2"):
        world.is_absent(name, until_s=25.0)
    world.finish()
    assert world.told("the nodes that answer cannot continue")
    assert world.told("waiting 30 s at most for other nodes to come (run.start_wait_s)")
    assert world.supervisor.absences == ()


def test_it_waits_no_longer_than_it_may_and_says_who_is_missing() -> None:
    world = Starting(room=1)
    world.is_absent("n1", until_s=None)
    sentence = world.fail()
    assert "node 'n1' at tcp://10.0.0.1:7000 did not answer within 10 s" in sentence
    assert sentence.endswith("with room for 1 each, and none came in 30 s")
    assert isinstance(world.end and world.end.error, BadInputError)
    assert world.now_s == pytest.approx(CONNECT_S + START_WAIT_S, abs=1.0)


def test_a_service_waits_without_a_limit_and_says_so() -> None:
    world = Starting(nodes=1, limits=starting(inf))
    world.is_absent("n0", until_s=3000.0)
    world.finish()
    assert world.told("no node can be used; waiting without a limit for any node to come")
    shown = [r for r in world.reports if r.stage == "waiting for any node to come (s)"]
    assert shown[-1].done > 2900
    assert {(report.total, report.note) for report in shown} == {(None, "without a limit")}


# ---------------------------------------------------------------- what waiting does not change


def refuses(world: Starting, name: str, protocol: int) -> None:
    world.silent.add(name)
    world.touched[name] = 0.0
    answer = Refused("it speaks another protocol", protocol)
    world.at(0.5, lambda: world.event(lev.MessageReceived(name, answer)))


def test_a_node_of_another_protocol_is_named_with_the_remedy_and_not_waited_for() -> None:
    world = Starting(nodes=1)
    refuses(world, "n0", PROTOCOL + 9)
    assert "install the same version of csdf-edge on both" in world.fail()
    assert world.now_s < 1.0


def test_the_others_begin_without_it() -> None:
    world = Starting()
    refuses(world, "n1", PROTOCOL + 9)
    world.finish()
    assert world.told("install the same version of csdf-edge on both")
    assert "n1" not in world.used


def test_a_service_waits_also_for_one_that_somebody_may_repair() -> None:
    world = Starting(nodes=1, limits=starting(inf))
    world.touched["n0"] = 0.0
    answer = Refused("it speaks another protocol", PROTOCOL + 9)
    world.pause("n0")
    world.at(0.5, lambda: world.event(lev.MessageReceived("n0", answer)))
    world.at(500.0, lambda: world.resume("n0"))
    world.at(500.1, lambda: world.event(lev.ControlConnected("n0")))
    world.finish()


def test_a_node_that_refuses_this_launchers_key_is_dialled_again_until_it_does_not() -> None:
    world = Starting(frames=300)
    world.unreached.add("n1")
    world.pause("n1")
    error = BadInputError("node 'n1' does not admit this launcher's key")
    redialled: list[float] = []
    world.redialled = lambda name: redialled.append(world.now_s)
    world.at(0.1, lambda: world.event(lev.NotAdmitted("n1", error, final=True)))
    world.at(2 * REDIAL_S + 1.0, lambda: world.resume("n1"))
    world.finish()
    assert redialled == pytest.approx([0.1 + REDIAL_S, 0.1 + 2 * REDIAL_S])
    assert world.supervisor.absences[0].reason == str(error)
    assert world.supervisor.absences[0].came_s is not None


# ---------------------------------------------------------------- losses while subnets load

STATES = {
    SessionState.QUERYING: 0.03,
    SessionState.UPLOADING: 0.06,
    SessionState.DEPLOYING: 0.12,
}


@pytest.mark.parametrize("state", STATES)
def test_a_board_that_is_lost_before_the_first_frame_costs_that_board(state: SessionState) -> None:
    world = Starting()

    def lose() -> None:
        assert world.supervisor.sessions["n1"].state is state
        world.crash("n1")

    world.at(STATES[state], lose)
    world.finish()
    assert "n1" not in world.used
    (absence,) = world.supervisor.absences
    assert f"node 'n1' at tcp://10.0.0.1:7000 was lost while {state.value}: its agent" in (
        absence.reason
    )


def test_a_board_whose_engine_cannot_load_its_part_costs_that_board() -> None:
    world = Starting()
    world.cannot_load.add("n1")
    world.touched["n1"] = 0.0
    world.finish()
    assert "n1" not in world.used
    assert "failed while loading its subnets: p0: the engine has no memory left" in (
        world.supervisor.absences[0].reason
    )


def test_a_model_that_no_engine_can_load_ends_the_run_with_a_sentence_about_it() -> None:
    """Not with one about each node after the other, and long before the nodes would come back."""
    world = Starting(limits=starting(30.0))
    world.cannot_load |= world.nodes.keys()
    world.why = "subnet p0: Engine 1 cannot load it: there is no such operator"
    world.touched |= dict.fromkeys(world.nodes, 0.0)
    world.broken |= world.nodes.keys()
    sentence = world.fail()
    assert sentence.startswith("no node can run the model: Engine 1 cannot load it: there is no")
    assert isinstance(world.end and world.end.error, BadInputError)
    assert world.loads <= len(world.nodes)
    assert world.now_s < 10.0


@pytest.mark.parametrize("wait_s", [30.0, inf])
def test_a_subnet_that_fails_on_every_board_ends_the_run_with_that_sentence(wait_s: float) -> None:
    world = Starting(limits=starting(wait_s))
    world.cannot_load |= world.nodes.keys()
    world.touched |= dict.fromkeys(world.nodes, 0.0)
    world.broken |= world.nodes.keys()
    assert "p0: the engine has no memory left" in world.fail()
    assert isinstance(world.end and world.end.error, RunFailedError)
    assert world.loads <= len(world.nodes) ** 2
    assert world.now_s < 60.0


@pytest.mark.parametrize("wait_s", [30.0, inf])
def test_agents_that_crash_whenever_they_load_are_not_tried_for_ever(wait_s: float) -> None:
    world = Starting(limits=starting(wait_s))
    world.crashes_loading |= world.nodes.keys()
    world.broken |= world.nodes.keys()
    world.run(4000.0)
    assert "was lost while" in world.sentence
    assert world.loads <= MOST_LOADS * len(world.nodes) ** 2
    assert world.now_s < 300.0


def test_one_that_crashes_whenever_it_loads_is_left_alone_until_frames_stream() -> None:
    world = Starting(nodes=2, room=None, frames=200)
    world.crashes_loading.add("n1")
    world.finish()
    assert world.used == {"n0"}


def test_agents_that_come_while_all_are_known_to_be_absent_hear_of_this_launcher_while_it_plans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulated_host, "PLANNING_S", 2 * RunConfig().lease_s)
    world = Starting(known_absent=("n0", "n1", "n2"))
    for name in world.nodes:
        world.is_absent(name, until_s=5.0)
    world.finish()
    assert not world.told("no longer knows this launcher")
