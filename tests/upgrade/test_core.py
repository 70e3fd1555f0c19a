"""The order of an upgrade, and what is undone, whichever step fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.upgrade.core import (
    StepFailed,
    StepSucceeded,
    Upgrade,
    UpgradeEnded,
    UpgradeStep,
)

FORWARD = [
    UpgradeStep.COPY,
    UpgradeStep.BUILD,
    UpgradeStep.TRY,
    UpgradeStep.SWITCH,
    UpgradeStep.RESTART,
    UpgradeStep.CHECK,
    UpgradeStep.PRUNE,
]
BACK = [
    UpgradeStep.SWITCH_BACK,
    UpgradeStep.RESTART_BACK,
    UpgradeStep.CHECK_BACK,
    UpgradeStep.DISCARD,
]


def run(
    boards: tuple[str, ...],
    failing: set[tuple[str, UpgradeStep]],
    present: frozenset[str] = frozenset(),
) -> tuple[list[tuple[str, UpgradeStep]], UpgradeEnded]:
    """Perform an upgrade in which these steps of these boards fail; return steps and end."""
    core = Upgrade(boards)
    actions = core.begin()
    steps = []
    while True:
        action = actions.pop(0)
        if isinstance(action, UpgradeEnded):
            assert not actions
            return steps, action
        board, step = action.board, action.step
        steps.append((board, step))
        if (board, step) in failing:
            actions += core.handle(StepFailed(board, step, "no"))
        else:
            actions += core.handle(
                StepSucceeded(board, step, step is UpgradeStep.LOOK and board in present)
            )


def test_all_boards_are_looked_at_and_then_upgraded_one_after_the_other() -> None:
    steps, ended = run(("a", "b"), set())
    looked = [("a", UpgradeStep.LOOK), ("b", UpgradeStep.LOOK)]
    assert steps == looked + [("a", step) for step in FORWARD] + [("b", step) for step in FORWARD]
    assert ended == UpgradeEnded(("a", "b"), (), (), ())


def test_nothing_is_changed_if_a_board_cannot_be_upgraded() -> None:
    steps, ended = run(("a", "b", "c"), {("c", UpgradeStep.LOOK)})
    assert {step for _, step in steps} == {UpgradeStep.LOOK}
    assert [problem.board for problem in ended.problems] == ["c"]
    assert ended.untouched == ("a", "b")


def test_a_board_that_has_the_version_is_left_alone() -> None:
    steps, ended = run(("a", "b"), set(), frozenset({"a"}))
    assert ("a", UpgradeStep.COPY) not in steps
    assert ended == UpgradeEnded(("b",), ("a",), (), ())


@pytest.mark.parametrize("step", [UpgradeStep.SWITCH, UpgradeStep.RESTART, UpgradeStep.CHECK])
def test_a_board_that_does_not_come_back_gets_its_former_version(step: UpgradeStep) -> None:
    steps, ended = run(("a", "b", "c"), {("b", step)})
    after = steps[steps.index(("b", step)) + 1 :]
    assert after == [("b", each) for each in BACK]
    assert (ended.upgraded, ended.untouched) == (("a",), ("c",))
    assert str(ended.problems[0]) == (
        f"b: could not {step.value}: no; it has its former version again, whose agent works"
    )


@pytest.mark.parametrize("step", [UpgradeStep.COPY, UpgradeStep.BUILD, UpgradeStep.TRY])
def test_a_version_that_cannot_be_installed_is_removed_without_a_restart(step: UpgradeStep) -> None:
    steps, ended = run(("a", "b"), {("a", step)})
    assert steps[-1] == ("a", UpgradeStep.DISCARD)
    assert not {("a", UpgradeStep.SWITCH_BACK), ("a", UpgradeStep.RESTART_BACK)} & set(steps)
    assert ended.untouched == ("b",)
    assert ended.problems[0].outcome == "it was not changed"


@given(
    failing=st.sets(st.tuples(st.sampled_from("abc"), st.sampled_from(UpgradeStep)), max_size=6),
    present=st.frozensets(st.sampled_from("abc")),
)
def test_whatever_fails_every_board_is_reported_and_at_most_one_is_without_a_working_agent(
    failing: set[tuple[str, UpgradeStep]], present: frozenset[str]
) -> None:
    steps, ended = run(("a", "b", "c"), failing, present)
    unfinished = {
        board
        for board, step in steps
        if step is UpgradeStep.SWITCH
        and board not in ended.upgraded
        and (board, UpgradeStep.DISCARD) not in steps
    }
    assert len(unfinished) <= 1
    assert unfinished <= {problem.board for problem in ended.problems}
    told = [*ended.upgraded, *ended.present, *ended.untouched]
    told += [problem.board for problem in ended.problems]
    assert sorted(set(told)) == ["a", "b", "c"]
    assert len(steps) <= 3 + 3 * len(UpgradeStep)


def test_a_former_version_that_does_not_work_either_is_said() -> None:
    steps, ended = run(("a",), {("a", UpgradeStep.CHECK), ("a", UpgradeStep.RESTART_BACK)})
    assert steps[-1] == ("a", UpgradeStep.RESTART_BACK)
    assert "former version does not work either" in str(ended.problems[0])


def test_older_versions_that_cannot_be_removed_do_not_stop_an_upgrade() -> None:
    assert run(("a",), {("a", UpgradeStep.PRUNE)})[1].upgraded == ("a",)
