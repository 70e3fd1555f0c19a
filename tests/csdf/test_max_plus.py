"""The max-plus matrix of an iteration, against executions that begin with given times of tokens."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from csdf.errors import DeadlockError, OvertakingError, TooLargeError
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Actor, Graph
from csdf.timing.max_plus import MaxPlusMatrix, Token, max_plus_matrix
from csdf.timing.throughput import throughput
from tests.csdf.conftest import Csdf
from tests.csdf.firing_times import LONG_AGO, Key, after_iteration
from tests.csdf.graphs import graph, random_graph


def key(token: Token) -> Key:
    if token.starts:
        return "start", str(token.actor)
    if token.channel is None:
        return "turn", str(token.actor)
    return ("room" if token.for_space else "tokens"), token.channel


def follows_executions(found: Graph, draw: random.Random) -> bool:
    """Check the matrix by executions, and its eigenvalue by the period; False if there is none."""
    try:
        plain, whole = max_plus_matrix(found), max_plus_matrix(found, every_start=True)
    except (DeadlockError, OvertakingError, TooLargeError):
        return False
    assert plain.eigenvalue() == whole.eigenvalue() == throughput(found).period
    repetitions = repetition_vector(found)
    state: dict[Key, list[Fraction]] = {}
    for token in whole.tokens:
        time = Fraction(draw.choice((0, draw.randint(0, 9), draw.randint(0, 40))))
        state.setdefault(key(token), []).append(time)
    for _ in range(2):
        state = one_more(found, whole, repetitions, state)
    if any(waits_for_nothing(found, actor) for actor in found.actors):
        return True
    # States that an execution reaches need no starts beyond those of the plain matrix.
    state = {}
    for token in plain.tokens:
        state.setdefault(key(token), []).append(Fraction(0))
    for _ in range(3):
        state = one_more(found, plain, repetitions, state)
    return True


def waits_for_nothing(found: Graph, actor: Actor) -> bool:
    """Whether an actor may have fired long before time 0, before initial tokens are there."""
    return actor.concurrency is None and not any(
        actor.name == c.target or (actor.name == c.source and c.capacity is not None)
        for c in found.channels
    )


def one_more(
    found: Graph,
    matrix: MaxPlusMatrix,
    repetitions: Mapping[str, int],
    state: Mapping[Key, Sequence[Fraction]],
) -> dict[Key, list[Fraction]]:
    """Return the state after an iteration, which the matrix must give."""
    after = after_iteration(found, repetitions, state)
    times = [state[key(token)][token.place] for token in matrix.tokens]
    for token, row in zip(matrix.tokens, matrix.rows(), strict=True):
        time = after[key(token)][token.place]
        assert time == product(row, times) or time < LONG_AGO / 2
    return {one: own for one, own in after.items() if one in state}


def product(row: Sequence[Fraction | None], times: Sequence[Fraction]) -> Fraction | None:
    return max((a + x for a, x in zip(row, times, strict=True) if a is not None), default=None)


@pytest.mark.parametrize("seed", range(60))
def test_the_matrix_says_when_tokens_are_there_again(seed: int) -> None:
    follows_executions(
        random_graph(random.Random(seed), bounded=seed % 2 == 0), random.Random(seed)
    )


def test_most_graphs_have_one() -> None:
    found = [random_graph(random.Random(seed), bounded=True) for seed in range(60)]
    assert sum(follows_executions(one, random.Random(0)) for one in found) > 15


def test_the_matrix_of_a_pipeline() -> None:
    pair = graph({"A": (2,), "B": (3,)}, ("A", "B", (1,), (1,), 0, 2))
    found = max_plus_matrix(pair)
    assert [str(token) for token in found.tokens] == [
        "room in c1[0]",
        "room in c1[1]",
        "turn of A[0]",
        "turn of B[0]",
    ]
    assert found.rows() == [
        [None, 0, None, None],
        [5, None, 5, 3],
        [2, None, 2, None],
        [5, None, 5, 3],
    ]
    assert found.eigenvalue() == 3


def test_what_has_none() -> None:
    with pytest.raises(OvertakingError, match="'A' may overlap and have different times"):
        max_plus_matrix(graph({"A": (1, 2)}, concurrency=None))
    with pytest.raises(DeadlockError):
        max_plus_matrix(graph({"A": (1,)}, ("A", "A", (1,), (1,))))
    with pytest.raises(TooLargeError, match="a row for each initial token"):
        max_plus_matrix(graph({"A": (1,)}, ("A", "A", (1,), (1,), 10**9)))


def test_it_is_written_as_json(tmp_path: Path, csdf: Csdf) -> None:
    pair = graph({"A": (2,), "B": ("3/2",)}, ("A", "B", (1,), (1,)))  # type: ignore[dict-item]
    output = tmp_path / "matrix.json"
    csdf("convert", pair, str(output), "--max-plus")
    assert json.loads(output.read_text()) == {
        "tokens": ["turn of A[0]", "turn of B[0]"],
        "matrix": [["2", None], ["7/2", "3/2"]],
    }
    assert "not both" in csdf("convert", pair, str(output), "--max-plus", "--hsdf", code=2).err
    other = str(tmp_path / "matrix.xml")
    assert "does not end in .json" in csdf("convert", pair, other, "--max-plus", code=2).err
