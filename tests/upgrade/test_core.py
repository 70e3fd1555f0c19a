"""The order of an upgrade, and what is undone, whichever step fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.upgrade.core import Begun, Ended, Failed, Step, Succeeded, Upgrade

FORWARD = [Step.COPY, Step.BUILD, Step.TRY, Step.SWITCH, Step.RESTART, Step.CHECK, Step.PRUNE]
BACK = [Step.SWITCH_BACK, Step.RESTART_BACK, Step.CHECK_BACK, Step.DISCARD]


def run(
    boards: tuple[str, ...], failing: set[tuple[str, Step]], present: frozenset[str] = frozenset()
) -> tuple[list[tuple[str, Step]], Ended]:
    """Perform an upgrade in which these steps of these boards fail; return the steps and the end."""
    core = Upgrade(boards)
    actions = core.handle(Begun())
    steps = []
    while True:
        action = actions.pop(0)
        if isinstance(action, Ended):
            assert not actions
            return steps, action
        board, step = action.board, action.step
        steps.append((board, step))
        if (board, step) in failing:
            actions += core.handle(Failed(board, step, "no"))
        else:
            actions += core.handle(Succeeded(board, step, step is Step.LOOK and board in present))


def test_all_boards_are_looked_at_and_then_upgraded_one_after_the_other() -> None:
    steps, ended = run(("a", "b"), set())
    looked = [("a", Step.LOOK), ("b", Step.LOOK)]
    assert steps == looked + [("a", step) for step in FORWARD] + [("b", step) for step in FORWARD]
    assert ended == Ended(("a", "b"), (), (), ())


def test_nothing_is_changed_if_a_board_cannot_be_upgraded() -> None:
    steps, ended = run(("a", "b", "c"), {("c", Step.LOOK)})
    assert {step for _, step in steps} == {Step.LOOK}
    assert [problem.board for problem in ended.problems] == ["c"]
    assert ended.untouched == ("a", "b")


def test_a_board_that_has_the_version_is_left_alone() -> None:
    steps, ended = run(("a", "b"), set(), frozenset({"a"}))
    assert ("a", Step.COPY) not in steps
    assert ended == Ended(("b",), ("a",), (), ())


@pytest.mark.parametrize("step", [Step.SWITCH, Step.RESTART, Step.CHECK])
def test_a_board_that_does_not_come_back_gets_its_former_version(step: Step) -> None:
    steps, ended = run(("a", "b", "c"), {("b", step)})
    after = steps[steps.index(("b", step)) + 1 :]
    assert after == [("b", each) for each in BACK]
    assert (ended.upgraded, ended.untouched) == (("a",), ("c",))
    assert str(ended.problems[0]) == (
        f"b: could not {step.value}: no; it has its former version again, whose agent works"
    )


@pytest.mark.parametrize("step", [Step.COPY, Step.BUILD, Step.TRY])
def test_a_version_that_cannot_be_installed_is_removed_without_a_restart(step: Step) -> None:
    steps, ended = run(("a", "b"), {("a", step)})
    assert steps[-1] == ("a", Step.DISCARD)
    assert not {("a", Step.SWITCH_BACK), ("a", Step.RESTART_BACK)} & set(steps)
    assert ended.untouched == ("b",)
    assert ended.problems[0].outcome == "it was not changed"


@given(
    failing=st.sets(st.tuples(st.sampled_from("abc"), st.sampled_from(Step)), max_size=6),
    present=st.frozensets(st.sampled_from("abc")),
)
def test_whatever_fails_every_board_is_told_of_and_at_most_one_is_without_a_working_agent(
    failing: set[tuple[str, Step]], present: frozenset[str]
) -> None:
    steps, ended = run(("a", "b", "c"), failing, present)
    unfinished = {
        board
        for board, step in steps
        if step is Step.SWITCH
        and board not in ended.upgraded
        and (board, Step.DISCARD) not in steps
    }
    assert len(unfinished) <= 1
    assert unfinished <= {problem.board for problem in ended.problems}
    told = [*ended.upgraded, *ended.present, *ended.untouched]
    told += [problem.board for problem in ended.problems]
    assert sorted(set(told)) == ["a", "b", "c"]
    assert len(steps) <= 3 + 3 * len(Step)


def test_a_former_version_that_does_not_work_either_is_said() -> None:
    steps, ended = run(("a",), {("a", Step.CHECK), ("a", Step.RESTART_BACK)})
    assert steps[-1] == ("a", Step.RESTART_BACK)
    assert "former version does not work either" in str(ended.problems[0])


def test_older_versions_that_cannot_be_removed_do_not_stop_an_upgrade() -> None:
    assert run(("a",), {("a", Step.PRUNE)})[1].upgraded == ("a",)
