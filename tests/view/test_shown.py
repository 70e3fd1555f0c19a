"""What is said of a view, and which marks it gets."""

from __future__ import annotations

import pytest

from launcher.errors import RunFailedError
from launcher.view.json_form import views_as_json, views_from_json
from launcher.view.model import NodeState, RunView
from launcher.view.shown import Mark, ShownRun, shown
from tests.view.views import channel, latency, node, run


def said(view: RunView) -> list[tuple[str, Mark]]:
    return [(sentence.text, sentence.mark) for sentence in shown(view).sentences]


def figure(rows: ShownRun, label: str) -> str:
    return dict(rows.figures)[label]


def test_a_run_that_streams_as_predicted_is_fine_and_says_what_limits_it() -> None:
    assert said(run()) == [("b is the bottleneck, busy for 97% of the time", Mark.FINE)]
    assert shown(run()).mark is Mark.FINE


def test_the_bottleneck_is_marked_at_its_node() -> None:
    assert [row.name for row in shown(run()).nodes if row.is_bottleneck] == ["b"]


def test_without_measurements_nothing_is_said_of_a_bottleneck() -> None:
    view = run(nodes=(node("a", busy=None), node("b", busy=None)))
    assert said(view) == []
    assert [row.busy for row in shown(view).nodes] == [None, None]


def test_nodes_that_wait_for_frames_are_said_to_have_time_left() -> None:
    view = run(nodes=(node("a", busy=0.3), node("b", busy=0.2)))
    assert said(view) == [
        (
            "a is the bottleneck, busy for 30% of the time, so the nodes could compute more frames",
            Mark.FINE,
        )
    ]


def test_a_busy_bottleneck_that_is_slower_than_predicted_is_a_warning() -> None:
    view = run(rate=7.0)
    assert shown(view).mark is Mark.WARNING
    assert said(view)[-1][0].endswith("and slower than predicted")


@pytest.mark.parametrize("state", [NodeState.LOST, NodeState.ABSENT])
def test_a_node_that_takes_no_part_degrades_the_run_and_has_no_load(state: NodeState) -> None:
    away = node("c", state=state, reason="it has not answered for 3.0 s")
    rows = shown(run(nodes=(node("a"), away)))
    assert rows.mark is Mark.ERROR
    assert rows.sentences[0].text == f"c is {state.value}: it has not answered for 3.0 s"
    assert (rows.nodes[1].mark, rows.nodes[1].busy, rows.nodes[1].memory) == (
        Mark.ERROR,
        None,
        None,
    )


def test_a_node_that_stands_by_is_no_fault() -> None:
    spare = node("c", state=NodeState.STANDING_BY, busy=None, predicted_bytes=None, phases=())
    rows = shown(run(nodes=(node("a"), spare)))
    assert rows.mark is Mark.FINE
    assert rows.nodes[1].state == "standing by"


def test_more_memory_than_predicted_is_a_warning_and_more_than_the_limit_an_error() -> None:
    above, beyond = node("a", rss_bytes=120_000_000), node("b", rss_bytes=220_000_000)
    assert said(run(nodes=(above, beyond)))[:2] == [
        ("a holds more memory than was predicted", Mark.WARNING),
        ("b holds more memory than its limit of 200.0 MB", Mark.ERROR),
    ]
    assert [row.memory and row.memory.mark for row in shown(run(nodes=(above, beyond))).nodes] == [
        Mark.WARNING,
        Mark.ERROR,
    ]


def test_memory_is_drawn_as_a_share_of_the_prediction_and_without_one_of_the_limit() -> None:
    predicted, limited = shown(run(nodes=(node("a"), node("b", predicted_bytes=None)))).nodes
    assert predicted.memory is not None
    assert predicted.memory.share == pytest.approx(0.9)
    assert predicted.memory.text == "90.0 MB of 100.0 MB"
    assert limited.memory is not None
    assert limited.memory.share == pytest.approx(0.45)
    assert limited.memory.text == "90.0 MB"


def test_a_full_channel_is_marked_and_no_warning() -> None:
    rows = shown(run())
    assert [row.is_full for row in rows.channels] == [False, True, False, False]
    assert rows.channels[1].fill.text == "4/4"
    assert rows.mark is Mark.FINE


def test_the_launcher_is_an_end_with_a_name_that_people_know() -> None:
    rows = shown(run()).channels
    assert (rows[0].producer, rows[-1].consumer) == ("launcher", "launcher")


def test_a_channel_without_room_counts_as_full() -> None:
    (row,) = shown(run(channels=(channel("a", "b", 0, capacity=0),))).channels
    assert (row.is_full, row.fill.share) == (True, 1.0)


def test_a_run_that_does_not_stream_says_so_and_nothing_of_its_speed() -> None:
    assert said(run(state="planning")) == [
        ("the run is planning: no frames are computed", Mark.ERROR)
    ]


def test_latencies_are_those_of_recent_frames_where_an_earlier_histogram_is_known() -> None:
    before, now = latency(0, 0, 0, 0, 0, 100), latency(10, 0, 0, 0, 0, 100)
    assert figure(shown(run(latency=now), before), "median latency") == "5.0 ms"
    assert figure(shown(run(latency=now)), "99 % latency") == "496.7 ms"


def test_without_recent_frames_latencies_are_those_of_all() -> None:
    histogram = latency(0, 0, 0, 0, 0, 100)
    assert figure(shown(run(latency=histogram), histogram), "median latency") == "350.0 ms"


def test_latencies_beyond_the_last_bound_are_not_invented() -> None:
    assert figure(shown(run(latency=latency(*[0] * 7, 10))), "median latency") == "> 1.00 s"
    assert figure(shown(run(latency=latency())), "median latency") == "-"


def test_events_are_reported_by_their_age_the_latest_first() -> None:
    rows = shown(run()).events
    assert [(row.age, row.mark) for row in rows] == [
        ("49 min 58 s ago", Mark.NONE),
        ("50 min ago", Mark.WARNING),
    ]


def test_phases_have_their_measured_time_beside_the_predicted_one() -> None:
    (phase,) = shown(run(nodes=(node("a"),))).nodes[0].phases
    assert phase.time == "45.0 ms, 44.0 ms predicted"
    assert (phase.layers, phase.firings) == ("12 layers", "fired 40000 times")


def test_views_come_out_of_json_as_they_went_in() -> None:
    views = (run(), run(models=("other",), nodes=(node("a", state=NodeState.LOST),)))
    assert views_from_json(views_as_json(views)) == views


def test_a_reader_ignores_keys_of_a_newer_server() -> None:
    newer = views_as_json((run(),)).replace(b'"epoch":3', b'"epoch":3,"colour":"red"')
    assert views_from_json(newer) == (run(),)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"runs": [{}]}', b"<html>"])
def test_what_is_no_view_is_refused(data: bytes) -> None:
    with pytest.raises(RunFailedError):
        views_from_json(data)
