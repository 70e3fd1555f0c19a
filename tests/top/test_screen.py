"""What `launch top` decides: which lines are on the screen after which views and keys."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.top.screen import Style, whole
from launcher.top.watching import Key, NotAnswered, Viewed, Watching
from launcher.view.model import NodeState, RunView
from launcher.view.shown import shown
from tests.view.views import channel, latency, node, run

URL = "http://127.0.0.1:8000"
PLAIN, ASCII = Style(), Style(is_ascii=True)


def watching(*views: RunView) -> Watching:
    return Watching(URL).handle(Viewed(views), 1)


def lines(state: Watching, width: int = 80, height: int = 24, style: Style = PLAIN) -> list[str]:
    return [row.plain for row in state.shows(width, height, style).rows]


def many(number: int) -> RunView:
    """A run of so many nodes in a row."""
    names = [f"node-{index}" for index in range(number)]
    pairs = zip(["@host", *names], [*names, "@host"], strict=True)
    return run(nodes=tuple(map(node, names)), channels=tuple(channel(a, b) for a, b in pairs))


def pressed(state: Watching, *keys: str) -> Watching:
    """Press keys, and look after each, as the terminal does."""
    for key in keys:
        drawn = state.shows(80, 24, PLAIN)
        state = state.settled(drawn.first_line).handle(Key(key), drawn.page_lines)
    return state.settled(state.shows(80, 24, PLAIN).first_line)


def test_the_first_lines_have_the_run_its_rate_and_its_latency() -> None:
    head = lines(watching(run()))[:4]
    assert head[1] == "resnet50  streaming  strategy vertical, up 1 h"
    assert head[2].startswith("11.9 frames/s of 12.5 predicted; latency 200.0 ms median, ")
    assert head[3] == "frames 40000, dropped 7, recoveries 1, in flight 6"


def test_the_bottleneck_has_a_sign_that_needs_no_colour() -> None:
    assert [line[:4] for line in lines(watching(run())) if line.startswith("> ")] == [">  b"]


def test_a_lost_node_has_a_sign_and_its_reason() -> None:
    lost = node("c", state=NodeState.LOST, reason="its process ended")
    text = lines(watching(run(nodes=(node("a"), lost))))
    assert "!! c is lost: its process ended" in text
    assert any(line.startswith("!! c ") and "lost" in line for line in text)


def test_a_full_fifo_says_so() -> None:
    (row,) = (line for line in lines(watching(run())) if line.startswith("   a → b"))
    assert "4/4" in row
    assert "full" in row


@given(
    width=st.integers(20, 200),
    height=st.integers(4, 60),
    nodes=st.integers(0, 12),
    keys=st.lists(st.sampled_from(["j", "k", " ", "b", "end", "home", "n"]), max_size=6),
    style=st.sampled_from([PLAIN, ASCII]),
)
def test_every_screen_fits(
    width: int, height: int, nodes: int, keys: list[str], style: Style
) -> None:
    state = watching(many(nodes), run(run="other"))
    for key in keys:
        drawn = state.shows(width, height, style)
        state = state.settled(drawn.first_line).handle(Key(key), drawn.page_lines)
    text = lines(state, width, height, style)
    assert len(text) == height
    assert all(len(line) <= width for line in text)
    assert style is PLAIN or all(line.isascii() for line in text)


def test_what_does_not_fit_can_be_scrolled_to_its_end_and_no_further() -> None:
    state = watching(many(12))
    assert "EVENTS" not in "\n".join(lines(state))
    last = pressed(state, *["j"] * 100)
    assert "b is lost" in lines(last)[-2]
    assert pressed(last, "k").first_line == last.first_line - 1
    assert pressed(state, "end").first_line == last.first_line
    assert pressed(last, "home").first_line == 0


def test_a_page_leaves_one_line_in_sight() -> None:
    state = watching(many(12))
    last = lines(state)[-2]
    assert lines(pressed(state, "page down"))[4] == last


def test_several_runs_are_shown_one_at_a_time() -> None:
    state = watching(run(), run(models=("yolo",), run="other"))
    assert lines(state)[0].endswith("run 1 of 2")
    assert lines(pressed(state, "n"))[1].startswith("yolo")
    assert lines(pressed(state, "n", "n"))[1].startswith("resnet50")
    assert lines(pressed(state, "left"))[1].startswith("yolo")


def test_the_run_that_was_shown_may_end() -> None:
    state = pressed(watching(run(), run(models=("yolo",), run="other")), "n")
    assert lines(state.handle(Viewed((run(),)), 1))[1].startswith("resnet50")
    assert "no run streams now" in lines(state.handle(Viewed(()), 1))


def test_a_server_that_is_away_is_a_sentence_above_what_was_seen_last() -> None:
    state = watching(run()).handle(NotAnswered("it does not answer"), 1)
    text = lines(state)
    assert text[1] == "!! it does not answer; trying again each second"
    assert text[2].startswith("resnet50")
    assert not any("!!" in line for line in lines(state.handle(Viewed((run(),)), 1)))


def test_before_the_first_answer_it_says_that_it_connects() -> None:
    assert "connecting" in lines(Watching(URL))


def test_q_ends_it() -> None:
    assert pressed(watching(run()), "q").has_ended
    assert not pressed(watching(run()), "x").has_ended


def test_latencies_are_those_of_the_frames_that_ended_since_it_watches() -> None:
    state = watching(run(latency=latency(0, 0, 0, 0, 0, 100)))
    state = state.handle(Viewed((run(latency=latency(50, 0, 0, 0, 0, 100)),)), 1)
    assert "latency 5.0 ms median" in lines(state)[2]


def test_what_is_kept_of_earlier_views_is_bounded() -> None:
    state = Watching(URL)
    for second in range(500):
        state = state.handle(Viewed((run(run=f"run {second // 100}", taken_s=float(second)),)), 1)
    assert sum(map(len, state.earlier.values())) <= 60


@pytest.mark.parametrize("style", [PLAIN, ASCII])
def test_names_from_outside_cannot_steer_the_terminal(style: Style) -> None:
    evil = "\x1b[2J\x07\u202ename"
    view = run(models=(evil,), nodes=(node(evil, engine=evil),), strategy=evil)
    for line in (
        *lines(watching(view), style=style),
        *(t.plain for t in whole(shown(view), 80, style)),
    ):
        assert line.isprintable()
    assert replace(watching(view), url=evil).shows(80, 24, style).rows[0].plain.isprintable()
