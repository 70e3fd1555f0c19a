"""Accusations are evidence: which nodes are lost because of them, and which are not."""

from __future__ import annotations

from random import Random

import pytest

from launcher.core import events as lev
from launcher.core.blame import FORGET_S, Disputes, ModelFaults, Verdict
from launcher.core.session import Session, SessionState
from launcher.core.watch import Suspicion
from launcher.errors import RunFailedError
from nodes.protocol.messages import (
    PROTOCOL,
    DeviceOffer,
    EngineOffer,
    Failed,
    Progress,
    Welcome,
)
from tests.launcher_runtime.faults import RECOVERING
from tests.launcher_runtime.outages import MOST_COUNT, Outages
from tests.launcher_runtime.test_faults import streaming

NODES = {name: Session(name, "ipc://there", False, SessionState.FAILED) for name in "abcd"}


def judge(disputes: Disputes, *pairs: tuple[str, str], now_s: float = 0.0) -> Verdict:
    error = RunFailedError("it broke")
    said = [Suspicion(NODES[who], peer, error) for who, peer in pairs]
    return disputes.judge(said, list(NODES.values()), now_s)


def names(verdict: Verdict) -> tuple[list[str], list[str]]:
    return [node for node, _ in verdict.failed], [node for node, _ in verdict.suspect]


ONE = ("a", "b")
TABLE = [
    ("it says that it failed itself", [], [("c", "")], ["c"], []),
    ("and others blame another", [], [ONE, ("c", "")], ["c"], []),
    ("it blames somebody without a part", [], [("c", "x")], ["c"], []),
    ("it blames itself by name", [], [("c", "c")], ["c"], []),
    ("a first accusation", [], [ONE], [], []),
    ("two accuse each other for the first time", [], [ONE, ("b", "a")], [], []),
    ("two accuse the same one", [], [ONE, ("c", "b")], [], ["b"]),
    ("one accuses a second one", [ONE], [("a", "c")], [], ["a"]),
    ("a second one accuses the same", [ONE], [("c", "b")], [], ["b"]),
    ("the accused accuses another", [ONE], [("b", "c")], [], ["b"]),
    ("the same accusation again", [ONE], [ONE], [], ["a"]),
    ("the same two the other way round", [ONE], [("b", "a")], [], ["b"]),
    ("two pairs at once, nobody in common", [], [ONE, ("c", "d")], [], []),
    ("two pairs at once, one of them again", [ONE], [("c", "d"), ONE], [], ["a"]),
]


@pytest.mark.parametrize(
    ("before", "now", "failed", "suspect"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_what_evidence_leads_to_what_verdict(
    before: list[tuple[str, str]],
    now: list[tuple[str, str]],
    failed: list[str],
    suspect: list[str],
) -> None:
    disputes = Disputes()
    for pair in before:
        judge(disputes, pair)
    assert names(judge(disputes, *now)) == (failed, suspect)


def test_disputes_are_forgotten() -> None:
    disputes = Disputes()
    judge(disputes, ONE)
    assert judge(disputes, ("a", "c"), now_s=FORGET_S) == Verdict()


def test_a_neighbour_that_many_have_had_disputes_with_is_at_fault_for_one_that_is_stuck() -> None:
    disputes = Disputes()
    assert disputes.blame_for_stall("a", ["d"], 0.0) == "a"
    assert disputes.blame_for_stall("b", ["d"], 0.0) == "d"


# ---------------------------------------------------------------- in a run


def four(seed: int = 5, frames: int = 400) -> Outages:
    given = {"frames": frames, "started_by_us": False, "take_s": 0.3, "limits": RECOVERING}
    return Outages(Random(seed), nodes=4, standby=0, room=None, delay_s=lambda: 0.01, **given)


def accuse(world: Outages, who: str, whom: str) -> None:
    epoch = world.supervisor.blueprint.epoch
    world.event(
        lev.MessageReceived(who, Failed(epoch, f"the data connection with {whom!r} broke", whom))
    )


def test_a_first_accusation_costs_a_pause_and_nobody_its_place() -> None:
    world = four()
    world.at(2.0, lambda: accuse(world, "n0", "n1"))
    world.run(2000.0)
    assert world.end == lev.End(None)
    (past,) = world.supervisor.recoveries
    assert (past.cause, past.nodes) == ("dispute", ("n0", "n1"))
    assert not any(session.was_lost for session in world.supervisor.sessions.values())


def test_who_is_accused_and_does_not_answer_is_lost_for_its_silence() -> None:
    world = streaming()
    epoch = world.supervisor.blueprint.epoch
    world.at(2.0, lambda: world.silent.add("n1"))
    world.at(2.0, lambda: world.event(lev.MessageReceived("n0", Failed(epoch, "no answer", "n1"))))
    world.run()
    assert world.end == lev.End(None)
    assert world.supervisor.recoveries[0].nodes == ("n1",)
    assert "silent for 2 s" in world.supervisor.recoveries[0].reasons[0]


@pytest.mark.parametrize("seed", range(6))
def test_a_board_that_lies_about_one_after_the_other_expels_nobody_but_itself(seed: int) -> None:
    world = four(seed)
    world.at(2.0, lambda: world.begin_to_lie("n0", 4.0))
    world.run(2000.0)
    world.check_end()
    assert world.end == lev.End(None)
    honest = [world.supervisor.sessions[f"n{i}"] for i in (1, 2, 3)]
    assert all(session.is_present for session in honest)


def test_progress_beyond_all_phases_is_not_shown() -> None:
    world = streaming(2)

    def lie() -> None:
        session = world.supervisor.sessions["n0"]
        if session.state is SessionState.DEPLOYING:
            epoch = world.supervisor.blueprint.epoch
            world.event(lev.MessageReceived("n0", Progress(epoch, MOST_COUNT, 1, "nothing")))
        elif world.now_s < 1.0:
            world.at(world.now_s + 0.001, lie)

    world.at(0.01, lie)
    world.run()
    assert world.end == lev.End(None)
    assert all(report.done <= report.total for report in world.reports)


def test_progress_without_end_does_not_keep_the_others_waiting_for_ever() -> None:
    world = streaming(2)
    world.hanging.add("n0")
    world._load = lambda *_: None  # it never ends

    def lie() -> None:
        if world.supervisor.sessions["n0"].state is SessionState.DEPLOYING:
            epoch = world.supervisor.blueprint.epoch
            world.event(lev.MessageReceived("n0", Progress(epoch, 0, 1, "nothing")))
        if world.end is None:
            world.at(world.now_s + 1.0, lie)

    world.at(0.01, lie)
    world.run()
    assert world.end is not None
    assert "made no progress for 60 s" in str(world.end.error)


# -------------------------------------------------------------------- the model, or a node

CANNOT = "subnet {}: ONNX Runtime 1.31.1 cannot load it: it has no kernel for operator Relu"


def member(node: str, engine: str = "onnxruntime") -> Session:
    """A node that has answered, with one engine."""
    session = Session(node, "ipc://there", False, SessionState.FAILED)
    offers = (EngineOffer(engine, devices=(DeviceOffer("cpu"),)),)
    session.welcome = Welcome(
        PROTOCOL, node, "1", "ipc://data", f"{engine} (CPU)", "", 4, 0, engines=offers
    )
    return session


def test_the_second_node_with_the_same_fault_shows_that_it_is_the_model() -> None:
    faults, (a, b, c, d) = ModelFaults(), map(member, "abcd")
    assert faults.note(a, CANNOT.format("x…y"), [b, c, d]) == ""
    assert faults.note(a, CANNOT.format("x…y"), [b, c, d]) == ""  # the same one again
    said = faults.note(b, CANNOT.format("x@2…z"), [c, d])
    assert said.startswith("ONNX Runtime 1.31.1 cannot load it: it has no kernel")
    assert said.endswith("(reported by node 'a' and node 'b')")


def test_files_and_copies_make_no_difference() -> None:
    faults, (a, b, c) = ModelFaults(), map(member, "abc")
    words = "subnet s: ONNX Runtime 1 cannot load it: Load model from {} failed: node {}"
    assert faults.note(a, words.format("/tmp/1/m", "y@1"), [b, c]) == ""
    assert faults.note(b, words.format("/tmp/2/m", "y@2"), [c]) != ""


def test_the_only_node_shows_it_at_once() -> None:
    assert ModelFaults().note(member("a"), CANNOT.format("x"), []) != ""


def test_a_node_with_another_engine_is_tried_first() -> None:
    faults, (a, b), other = ModelFaults(), map(member, "ab"), member("c", "openvino")
    assert faults.note(a, CANNOT.format("x"), [b, other]) == ""
    assert faults.note(b, CANNOT.format("x"), [other]) == ""
    words = "subnet x: OpenVINO 2025.4 cannot load it: no such operator"
    assert faults.note(other, words, []) != ""


@pytest.mark.parametrize(
    "reason",
    [
        "subnet x: preparing it takes more than the 90 MB of memory that are free on this node",
        "subnet x: the process that prepares it was killed, most likely for want of memory",
        "subnet x: onnxruntime crashed (SIGILL) while it prepared or first ran /tmp/x",
        "a prepared subnet cannot be written under /cache: No space left on device",
        "the weights of subnet x (/tmp/x) are missing: /tmp/w; send the subnet again",
    ],
)
def test_what_only_concerns_a_node_is_never_the_models_fault(reason: str) -> None:
    faults, (a, b, c) = ModelFaults(), map(member, "abc")
    assert [faults.note(node, reason, []) for node in (a, b, c)] == ["", "", ""]


def test_different_faults_are_not_taken_for_one() -> None:
    faults, (a, b, c) = ModelFaults(), map(member, "abc")
    assert faults.note(a, CANNOT.format("x"), [b, c]) == ""
    assert faults.note(b, "subnet x: ONNX Runtime 1.31.1 cannot run it: division by 0", [c]) == ""
