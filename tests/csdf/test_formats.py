"""JSON and NetworkX: what is written is read back the same; anything else is refused in words."""

from __future__ import annotations

import json
from fractions import Fraction

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from csdf.errors import GraphError
from csdf.formats import json_format, sdf3
from csdf.formats.networkx_form import from_networkx, to_networkx
from csdf.model.graph import Graph
from csdf.timing.throughput import throughput
from tests.csdf.graphs import consistent_graphs, graph


@given(consistent_graphs())
def test_json_gives_the_same_graph_back(found: Graph) -> None:
    assert json_format.parse(json_format.write(found).encode()) == found


@given(consistent_graphs())
def test_networkx_gives_the_same_graph_back(found: Graph) -> None:
    assert from_networkx(to_networkx(found)) == found


def test_decimals_are_exact() -> None:
    text = b'{"actors": [{"name": "A", "execution_times": [0.1, 2, "1/3"]}], "channels": []}'
    (actor,) = json_format.parse(text).actors
    assert actor.execution_times == (Fraction(1, 10), 2, Fraction(1, 3))


@pytest.mark.parametrize(
    "time", ["2.220446049250313e-16", f"{'9' * 30}.{'9' * 30}e99", f"0.{'0' * 29}1e-99", "1E+99"]
)
def test_a_time_that_is_read_is_read_back_from_what_is_written(time: str) -> None:
    text = f'{{"actors": [{{"name": "A", "execution_times": [{time}]}}], "channels": []}}'
    found = json_format.parse(text.encode())
    assert json_format.parse(json_format.write(found).encode()) == found
    assert sdf3.parse(sdf3.write(found).encode()).actor["A"] == found.actor["A"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "the file should be an object"),
        ('{"actors": []}', "the file has no 'channels'"),
        ('{"actors": {}, "channels": []}', "the file.actors should be a list"),
        ('{"actors": [{}], "channels": []}', r"actors\[0\] has no 'name'"),
        ('{"actors": [{"name": "A"}], "channels": []}', r"actors\[0\] has no 'execution_times'"),
        ('{"actors": [{"nom": 1}], "channels": []}', r"actors\[0\] has 'nom'; known are"),
        ('{"actors": [{"name": 1, "execution_times": []}], "channels": []}', "should be a string"),
        (
            '{"actors": [{"name": "A", "execution_times": [-1]}], "channels": []}',
            r"actors\[0\].execution_times should hold numbers ≥ 0",
        ),
        (
            '{"actors": [{"name": "A", "execution_times": [1e99999]}], "channels": []}',
            "of at most 30 digits",
        ),
        ('{"actors": [{"name": "A", "execution_times": []}], "channels": []}', "has no phase"),
    ],
)
def test_json_that_is_not_a_graph_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(json_format.JsonError, match=sentence):
        json_format.parse(text.encode())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["actors", "channels", "name", "execution_times"]), inner
            )
        ),
    )
)
def test_no_json_whatsoever_ends_in_anything_but_a_sentence(value: object) -> None:
    said = "JSON: "
    try:
        json_format.parse(json.dumps(value).encode())
    except json_format.JsonError as error:
        said = str(error)
    assert said.startswith("JSON: ")


def test_a_graph_made_in_networkx() -> None:
    made = networkx.DiGraph()
    made.add_node("A", execution_times=[2, 1])
    made.add_node("B", execution_times=3, concurrency=1)
    made.add_edge("A", "B", production=1, consumption=2)
    found = from_networkx(made)
    assert found.actors[0].execution_times == (2, 1)
    assert found.channels[0].production == (1, 1)
    assert throughput(found).period == 3
    made.add_node("C")
    with pytest.raises(GraphError, match="node 'C' has no attribute 'execution_times'"):
        from_networkx(made)


def test_channels_keep_their_order() -> None:
    found = graph({"A": (1,), "B": (1,)}, ("B", "A", (1,), (1,), 2), ("A", "B", (1,), (1,)))
    assert from_networkx(to_networkx(found)) == found
