"""Several agents together: every frame arrives once, in order, whatever the network does.

Any acyclic graph of phases, put on any nodes, with any capacities of at least one frame.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.nodes.simulation import Dataflow, Simulation


@st.composite
def dataflows(draw, orders=("pipelined", "strict")):
    nodes = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=7))
    reads = []
    for phase in range(len(nodes)):
        tensors = ["x", *(f"t{i}" for i in range(phase))]
        reads.append(
            tuple(draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=3, unique=True)))
        )
    read = {tensor for tensors in reads for tensor in tensors}
    unread = [f"t{i}" for i in range(len(nodes)) if f"t{i}" not in read]
    return Dataflow(
        nodes=tuple(nodes),
        reads=tuple(reads),
        results=tuple(unread),
        capacities=tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))),
        order=draw(st.sampled_from(orders)),
        unsent=tuple(draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))),
    )


@settings(deadline=None, max_examples=120)
@given(dataflows(), st.integers(1, 6), st.integers(0, 1 << 32))
def test_every_frame_arrives_once_and_in_order(flow, frames, seed):
    simulation = Simulation(flow, frames, Random(seed))
    stopped = simulation.run()
    assert all(r == list(range(frames)) for r in simulation.host.results.values())
    for node, answer in stopped.items():
        phases = len(simulation.deployments[node].phases)
        if simulation.host.feeds:
            assert answer.stats.firings == (frames,) * phases
        assert answer.stats.stale_messages == answer.stats.bad_messages == 0


@settings(deadline=None, max_examples=60)
@given(dataflows(orders=["strict"]), st.integers(1, 4), st.integers(0, 1 << 32))
def test_strict_order_fires_all_phases_of_a_frame_before_the_next(flow, frames, seed):
    simulation = Simulation(flow, frames, Random(seed))
    simulation.run()
    for node, executor in simulation.executors.items():
        phases = len(simulation.deployments[node].phases)
        assert executor.fired == [(p, k) for k in range(frames) for p in range(phases)]


@settings(deadline=None, max_examples=60)
@given(dataflows(), st.integers(1, 5), st.integers(0, 1 << 32))
def test_each_phase_processes_its_frames_in_order(flow, frames, seed):
    simulation = Simulation(flow, frames, Random(seed))
    simulation.run()
    for node, executor in simulation.executors.items():
        for phase in range(len(simulation.deployments[node].phases)):
            assert [k for p, k in executor.fired if p == phase] == list(range(frames))


def test_an_early_and_a_late_phase_of_one_node_overlap_frames():
    """a → b → a: while frame 0 is at b, a already fires its first phase for frame 1."""
    flow = Dataflow(("a", "b", "a"), (("x",), ("t0",), ("t1",)), ("t2",), (2,))
    simulation = Simulation(flow, 6, Random(0))
    simulation.run()
    fired = simulation.executors["a"].fired
    assert fired.index((0, 1)) < fired.index((1, 0))
    assert sorted(fired) == [(p, k) for p in range(2) for k in range(6)]


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_replays_the_same_run(seed):
    flow = Dataflow(("a", "b", "a"), (("x",), ("t0",), ("t1", "x")), ("t2",), (2, 1))
    runs = [Simulation(flow, 4, Random(seed)) for _ in range(2)]
    for run in runs:
        run.run()
    assert runs[0].steps == runs[1].steps
    assert runs[0].executors["a"].fired == runs[1].executors["a"].fired
