"""The stream over several epochs, and which node is at fault if a run is stuck."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.core.blame import stuck
from launcher.core.events import NetworkCounts
from launcher.core.session import Session, SessionState, Step
from launcher.core.stream import RunStream
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.messages import Credit, Missing, Pong, TensorHeader
from partition.plan import Plan
from tests.launcher_runtime.plans import blueprint_of, in_a_row, plans


def blueprint(epoch: int):
    return replace(blueprint_of(in_a_row(1)), epoch=epoch)


def result(stream: RunStream[int], epoch: int, frame: int, value: int) -> bool:
    (channel,) = stream.blueprint.to_host
    header = TensorHeader(epoch, channel.number, frame, channel.dtype, channel.shape)
    return stream.tensor("n0", header, value)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12), st.data())
def test_over_any_epochs_every_frame_has_one_result_in_order(steps, data) -> None:
    """In each epoch some frames are sent, some results come, some of those are taken."""
    frames = 10
    stream: RunStream[int] = RunStream(blueprint(1), frames=frames)
    stream.push(frames)
    stream.begin(blueprint(1))
    taken: list[int] = []
    for epoch, (sent, came) in enumerate([*steps, *[(2, 2)] * frames], start=1):
        first = stream.first
        (channel,) = stream.blueprint.from_host
        stream.credit(Credit(epoch, channel.number, 2))
        under_way = []
        while stream.may_send and len(under_way) < sent:
            under_way.append(stream.next_frame)
            assert stream.send()[0][1].frame == under_way[-1] - first
        for frame in under_way[:came]:
            assert result(stream, epoch, frame - first, frame)
        while stream.may_take and data.draw(st.booleans()):
            taken.append(stream.result()[1]["t1"])
            stream.take()
        complete = stream.complete
        assert stream.halt() == (complete, len(under_way[came:]))
        assert not result(stream, epoch, 0, 99)
        assert not stream.credit(Credit(epoch, channel.number, 1))
        stream.begin(blueprint(epoch + 1))
        assert stream.first == complete
        assert stream.next_frame == (complete if complete < frames else None)
    while stream.may_take:
        taken.append(stream.result()[1]["t1"])
        stream.take()
    assert taken == list(range(frames))
    assert stream.taken == frames


class Recurrent:
    """The stream of a phase that keeps state, with room for all frames."""

    def __init__(self, frames: int) -> None:
        plan = in_a_row(1, capacity_frames=frames)
        before = replace(plan.channels[-1].tensor, name="before")
        self.plan = replace(plan, phases=(replace(plan.phases[0], state=((before, "t1"),)),))
        self.stream: RunStream[int] = RunStream(self.blueprint(1), {"before": 1000})
        self.stream.push(frames, is_end=True)
        self.stream.begin(self.blueprint(1))
        self.grants()

    def blueprint(self, epoch: int):
        return replace(blueprint_of(self.plan), epoch=epoch)

    def sends(self) -> list[str]:
        """What goes to the node with the next frame."""
        return [channel.tensor for channel, _ in self.stream.send()]

    def gives_up(self) -> None:
        self.stream.halt()
        self.stream.begin(self.blueprint(self.stream.blueprint.epoch + 1))
        self.grants()

    def grants(self) -> None:
        """The node's first credits."""
        for channel in self.stream.source.channels:
            credit = Credit(self.stream.source.epoch, channel.number, channel.capacity_frames)
            self.stream.credit(credit)


def test_state_goes_to_the_nodes_with_the_first_frame_of_each_epoch() -> None:
    run = Recurrent(5)
    assert [run.sends() for _ in range(2)] == [["t0", "before"], ["t0"]]
    run.gives_up()
    assert [run.sends() for _ in range(2)] == [["t0", "before"], ["t0"]]


def test_an_epoch_begins_with_the_state_of_the_last_frame_that_is_complete() -> None:
    """Whether the user has taken its result or not."""
    run = Recurrent(6)
    for _ in range(3):
        run.sends()
    assert run.stream.state == {"before": 1000}
    for frame in range(2):
        assert result(run.stream, 1, frame, 10 + frame)
    run.stream.take()
    run.gives_up()
    assert (run.stream.first, run.stream.state) == (2, {"before": 11})
    run.sends()
    run.gives_up()
    assert (run.stream.first, run.stream.state) == (2, {"before": 11})
    assert run.stream.result() == (1, {"t1": 11})


def test_state_for_which_there_is_no_credit_holds_the_first_frame_up() -> None:
    run = Recurrent(2)
    run.stream.halt()
    run.stream.begin(run.blueprint(2))
    frames, state = run.stream.source.channels
    run.stream.credit(Credit(2, frames.number, 2))
    assert not run.stream.may_send
    run.stream.credit(Credit(2, state.number, 1))
    assert run.stream.may_send


@given(plans(), st.data())
def test_when_one_phase_hangs_its_node_is_found_and_no_other(plan: Plan, data) -> None:
    """All others fire as long as they can, then everything stands still."""
    blueprint = blueprint_of(plan)
    frames = 6
    index = {(p.device, p.index): p.name for p in plan.phases}
    victim = data.draw(st.sampled_from(sorted(index.values())))
    hangs_after = data.draw(st.integers(0, frames - 1))
    fired = dict.fromkeys([*index.values(), "@source", "@sink"], 0)

    def can_fire(phase: str) -> bool:
        reads = [c for c in plan.channels if phase in c.targets]
        writes = [c for c in plan.channels if c.source == phase]
        return (
            fired[phase] < frames
            and not (phase == victim and fired[phase] >= hangs_after)
            and all(fired[c.source] > fired[phase] for c in reads)
            and all(
                fired[phase] - min(fired[t] for t in c.targets) < c.capacity_frames for c in writes
            )
        )

    while able := [phase for phase in fired if can_fire(phase)]:
        fired[able[0]] += 1
    counts = {
        node: [fired[index[node, i]] for i in range(len(deployment.phases))]
        for node, deployment in blueprint.deployments.items()
    }
    owner = next(p.device for p in plan.phases if p.name == victim)
    assert stuck(blueprint, counts, NetworkCounts(fired["@sink"], frames, frames)) == [owner]


def session(node: str, state: SessionState = SessionState.FAILED) -> Session:
    return Session(node, "ipc://there", started_by_us=False, state=state)


def test_answers_to_what_was_abandoned_do_not_count_and_those_after_them_do() -> None:
    asked = session("a", SessionState.QUERYING)
    asked.query(())
    asked.step(Step.RENEW)
    asked.query(())
    assert asked.state is SessionState.IDLE
    assert asked.awaits(Pong())
    assert not asked.awaits(Missing(()))
    assert asked.awaits(Missing(()))


def test_an_error_of_a_session_says_what_led_to_it() -> None:
    asked = session("a", SessionState.IDLE)
    asked.step(Step.QUERY)
    asked.query(())
    asked.receive(Missing(()))
    led = re.escape("What led to this: QUERY → QUERYING; Missing → UPLOADING")
    with pytest.raises(RemoteProtocolError, match=f"it sent Missing while receiving.*{led}"):
        asked.receive(Missing(()))
    with pytest.raises(LocalProtocolError, match=f"node 'a': no Step.START.*{led}"):
        asked.step(Step.START)
