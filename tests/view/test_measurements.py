"""Counters of a node, over epochs whose statistics begin at zero each time."""

from __future__ import annotations

from dataclasses import replace

from launcher.view.measurements import NodeMeasurements
from nodes.protocol.messages import Stats


def stats(epoch: int, elapsed_s: float, busy_s: float, **fields: object) -> Stats:
    made = Stats(epoch, (3, 3), (busy_s / 2, busy_s / 2), elapsed_s, 0.0, 100, 10, 5, 5, 5, 0, 0)
    return replace(made, **fields)


def measured(*given: Stats) -> NodeMeasurements:
    node = NodeMeasurements()
    for each in given:
        node.add(each)
    return node


def test_counters_continue_in_a_new_epoch() -> None:
    node = measured(stats(1, 4.0, 2.0), stats(1, 8.0, 5.0), stats(2, 1.0, 0.5), stats(3, 1.0, 0.25))
    assert (node.busy_s, node.sent_bytes, node.received_bytes) == (5.75, 300, 30)


def test_statistics_of_an_earlier_moment_change_nothing() -> None:
    node = measured(stats(1, 8.0, 5.0), stats(1, 4.0, 2.0))
    assert node.busy_s == 5.0


def test_the_share_of_time_is_that_between_the_last_two() -> None:
    node = measured(stats(1, 10.0, 1.0))
    assert node.busy is None
    node.add(stats(1, 12.0, 2.5))
    assert node.busy == 0.75
    node.add(stats(2, 1.0, 1.0))
    assert node.busy is None


def test_statistics_that_come_right_after_others_are_compared_with_those_before() -> None:
    """Others than the one who looks ask for statistics, too."""
    node = measured(stats(1, 10.0, 1.0), stats(1, 12.0, 2.0), stats(1, 12.01, 2.01))
    assert node.busy is not None
    assert abs(node.busy - 0.5) < 0.01


def test_the_phase_that_waited_longest_counts() -> None:
    node = measured(
        stats(1, 10.0, 1.0, waited_s=(1.0, 0.0)), stats(1, 20.0, 1.0, waited_s=(2.0, 5.0))
    )
    assert (node.waited, node.waited_s) == (0.4, 5.0)
    node.add(stats(2, 1.0, 1.0, waited_s=(0.25, 0.5)))
    assert (node.waited, node.waited_s) == (None, 5.5)


def test_energy_is_unknown_until_it_was_measured() -> None:
    node = measured(stats(1, 1.0, 1.0))
    assert node.energy_j is None
    node.add(stats(1, 2.0, 1.0, energy_j=5.0))
    node.add(stats(2, 1.0, 1.0, energy_j=2.0))
    node.add(stats(2, 2.0, 1.0))
    assert node.energy_j == 7.0


def test_an_agent_without_a_deployment_says_only_what_it_holds() -> None:
    node = measured(stats(1, 4.0, 2.0), Stats(0, (), (), 0.0, 0.0, 0, 0, 77, 77, 77, 0, 0))
    node.add(stats(1, 4.0, 2.0))  # the answer to a Stop that was repeated
    assert (node.busy_s, node.sent_bytes, node.rss_bytes) == (2.0, 100, 5)
