"""Graphs with parameters, against the graphs of all their values."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from itertools import product
from math import gcd
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csdf.errors import CsdfError, InconsistentGraphError
from csdf.formats import json_format
from csdf.model.consistency import connected_parts, repetition_vector
from csdf.model.graph import Graph
from csdf.model.parametric import ParametricChannel, ParametricGraph, symbolic_repetitions
from csdf.model.polynomials import Polynomial
from csdf.parametric_analysis import analyze_parameters
from csdf.timing.throughput import throughput
from tests.csdf.conftest import Csdf

TERMS = ("1", "2", "p", "q", "2*p", "p*q", "p + 1", "3*q + p", "p^2", "p^2 + 2*p + 1")

polynomials = st.lists(st.sampled_from(TERMS), min_size=1, max_size=3).map(" + ".join)
values = st.fixed_dictionaries({"p": st.integers(0, 6), "q": st.integers(0, 6)})


def by_python(text: str, at: Mapping[str, int]) -> int:
    """The value of a polynomial by Python's own arithmetic."""
    return int(eval(text.replace("^", "**"), {}, dict(at)))


@given(polynomials, polynomials, values)
def test_polynomials_are_added_and_multiplied_as_their_values_are(
    one: str, other: str, at: dict[str, int]
) -> None:
    a, b = Polynomial.read(one), Polynomial.read(other)
    assert a.at(at) == by_python(one, at)
    assert (a + b).at(at) == by_python(f"{one} + {other}", at)
    assert (a * b).at(at) == by_python(f"({one}) * ({other})", at)
    assert Polynomial.read(str(a * b)) == a * b
    number, factors = (a * b).factors()
    found = Polynomial.constant(number)
    for factor in factors.elements():
        found *= factor
    assert found == a * b


@pytest.mark.parametrize("text", ["", "p +", "2p", "p/2", "(p)", "p^0", "p**2", "1.5", "p" * 600])
def test_what_is_not_a_polynomial_is_refused(text: str) -> None:
    with pytest.raises(CsdfError, match="is not a sum of products like"):
        Polynomial.read(text)


def random_parametric(draw: random.Random) -> dict[str, Any]:
    """A graph with parameters, whose loops often balance, and sometimes only for some values."""
    names = [f"a{i}" for i in range(draw.randint(1, 4))]
    counts = {name: draw.choice(TERMS[:7]) for name in names}
    channels = []
    for i in range(draw.randint(0, 5)):
        s, t = (i, i + 1) if i + 1 < len(names) else (draw.randrange(len(names)) for _ in range(2))
        put, taken = counts[names[t]], counts[names[s]]
        if draw.random() < 0.1:
            put = draw.choice(TERMS)
        channels.append({
            "name": f"c{i}", "source": names[s], "target": names[t],
            "production": [put, 0], "consumption": [taken, 0],
            "initial_tokens": draw.choice((0, "p + 1", "8*p*q + 20")) if s >= t else 0,
        })  # fmt: skip
    times = [[draw.choice((1, 2, "p", "1/2", "q + 1")) for _ in range(2)] for _ in names]
    return {
        "parameters": {"p": [1, 3], "q": [1, 2]},
        "actors": [
            {"name": name, "execution_times": own, "concurrency": 1}
            for name, own in zip(names, times, strict=True)
        ],
        "channels": channels,
    }


def agrees(draw: random.Random) -> bool:
    """Compare with the graph of each combination of values; returns whether counts were found."""
    content = random_parametric(draw)
    graph = json_format.parse_parametric(json.dumps(content).encode())
    found = analyze_parameters(graph)
    assert [dict(at) for at, _ in found.values] == [
        {"p": p, "q": q} for p, q in product((1, 2, 3), (1, 2))
    ]
    for at, own in found.values:
        plain = json_format.parse(json.dumps(by_hand(content, at)).encode())
        assert graph.at(at) == plain
        try:
            smallest = repetition_vector(plain)
        except InconsistentGraphError:
            assert found.repetitions is None
            assert own.repetitions is None
            continue
        if own.live:
            assert own.period == throughput(plain).period
        if found.repetitions is None:
            continue
        counts = {name: count.at(at) for name, count in found.repetitions.items()}
        for part in connected_parts(plain):
            common = gcd(*(counts[name] for name in part))
            assert {name: counts[name] // common for name in part} == {
                name: smallest[name] for name in part
            }
    if found.longest is not None and found.live:
        assert found.longest[0] == max(own.period or 0 for _, own in found.values)
    return found.repetitions is not None


def by_hand(content: Mapping[str, Any], at: Mapping[str, int]) -> dict[str, Any]:
    """The graph for some values, without the reader's polynomials."""

    def plain(value: object) -> object:
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, str) and value != "1/2":
            return by_python(value, at)
        return value

    keys = ("production", "consumption", "initial_tokens", "execution_times")
    return {
        what: [
            {key: plain(value) if key in keys else value for key, value in one.items()}
            for one in content[what]
        ]
        for what in ("actors", "channels")
    }


@pytest.mark.parametrize("seed", range(40))
def test_counts_and_periods_are_those_of_all_values(seed: int) -> None:
    agrees(random.Random(seed))


def test_some_have_counts_for_all_values_and_some_do_not() -> None:
    found = [agrees(random.Random(seed)) for seed in range(60)]
    assert 5 < sum(found) < 55


@pytest.mark.parametrize(
    ("put", "taken", "counts"),
    [("p", "5 - p", ["-p + 5", "p"]), ("2*p", "10*p - 2*p^2", ["-p + 5", "1"])],
)
def test_counts_are_above_0_where_a_rate_falls_with_a_parameter(
    put: str, taken: str, counts: list[str]
) -> None:
    channel = ParametricChannel("c", "a", "b", Polynomial.read(put), Polynomial.read(taken))
    line = ParametricGraph({"p": (1, 4)}, ("a", "b"), (channel,), lambda _: Graph("", (), ()))
    assert list(map(str, symbolic_repetitions(line).values())) == counts


LINE: dict[str, Any] = {
    "parameters": {"p": [1, 4]},
    "actors": [
        {"name": "a", "execution_times": [1], "concurrency": 1},
        {"name": "b", "execution_times": ["2*p"], "concurrency": 1},
    ],
    "channels": [
        {"name": "c", "source": "a", "target": "b", "production": [1], "consumption": ["p"]}
    ],
}


def file_of(content: object, tmp_path: Path) -> Path:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(content))
    return path


def test_the_command(csdf: Csdf, tmp_path: Path) -> None:
    path = file_of(LINE, tmp_path)
    assert csdf("parameters", path).lines == [
        "consistent  for all values",
        "repetitions a × p, b × 1",
        "p  period",
        "1       2",
        "2       4",
        "3       6",
        "4       8",
        "longest     8, with p = 4",
    ]
    assert csdf("parameters", path, "--set", "p=3", "--json").json["longest_period"] == "6"
    assert "longest" not in csdf("analyze", path, "--set", "p=3").out
    assert "repetitions a × 3, b × 1" in csdf("analyze", path, "--set", "p=3").out
    said = csdf("analyze", path, code=2).err
    assert "parameter 'p' has no value; give it (--set p=1)" in said
    said = csdf("analyze", path, "--set", "p=3", "--set", "r=1", code=2).err
    assert "'r' is not a parameter; known are 'p'" in said
    assert (
        "only graphs in JSON have parameters"
        in csdf("analyze", "twodev_2_3.xml", "--set", "p=1", code=2).err
    )
    certificate = tmp_path / "certificate.json"
    csdf("certify", path, "--set", "p=3", "--output", certificate)
    assert "its period is 6" in csdf("check", certificate, path, "--set", "p=3").out
    assert csdf("check", certificate, path, "--set", "p=2", code=1).err


def test_what_would_take_too_long_is_not_called_a_success_or_a_deadlock(
    csdf: Csdf, tmp_path: Path
) -> None:
    bounded = [{**LINE["channels"][0], "capacity": 8}]
    path = file_of({**LINE, "channels": bounded}, tmp_path)
    said = csdf("parameters", path, "--effort", "1", code=3)
    assert "longer than the effort allows" in said.out
    assert "at most 1 are allowed (--effort)" in said.err
    primes = [f"1/{10**29 + 2 * i + 1}" for i in range(3000)]
    apart = {"actors": [{"name": "a", "execution_times": primes}], "channels": []}
    said = csdf("parameters", file_of(apart, tmp_path), code=3)
    assert "not known" in said.out
    assert "no common multiple" in said.err


def test_what_balances_for_some_values_only_is_said(csdf: Csdf, tmp_path: Path) -> None:
    back = {"name": "d", "source": "b", "target": "a", "production": [3], "consumption": [1]}
    content = {**LINE, "channels": [*LINE["channels"], {**back, "initial_tokens": 3}]}
    out = csdf("parameters", file_of(content, tmp_path), code=1).out
    assert "not for all values: channel 'd' balances only where 3 = p" in out
    assert [line.split()[1] for line in out.splitlines()[2:]] == ["inconsistent"] * 2 + [
        "9",
        "inconsistent",
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"parameters": {"p": 3}}, "parameters.p should be its smallest and largest value"),
        ({"parameters": {"p": [4, 1]}}, "parameters.p should be two numbers ≥ 0 in ascending"),
        ({"parameters": {"p q": [1, 4]}}, "a parameter is called like p or rate_2"),
        ({"parameters": {}}, "channels[0].consumption has 'p', which is not in 'parameters'"),
        ({"parameters": {"p": [0, 4]}}, "with p = 0, "),
        ({"parameters": {"p": [1, 4000]}}, "have 4000 combinations of values"),
    ],
)
def test_what_is_wrong_is_said(
    csdf: Csdf, tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    code = 3 if "combinations" in sentence else 2
    said = csdf("parameters", file_of({**LINE, **change}, tmp_path), code=code).err
    assert sentence in said


def test_graphs_without_parameters_have_one_combination() -> None:
    graph = json_format.parse_parametric(b'{"actors": [], "channels": []}')
    assert symbolic_repetitions(graph) == {}
    assert [dict(at) for at, _ in analyze_parameters(graph).values] == [{}]
    with pytest.raises(CsdfError, match="'p' is not a parameter"):
        analyze_parameters(graph, {"p": 1})


@pytest.mark.parametrize("command", ["parameters", "analyze", "schedule"])
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("p=9",), "'p' has the value 9, which is not from 1 to 4"),
        (("p=0",), "'p' has the value 0, which is not from 1 to 4"),
        (("p=2", "p=3"), "--set gives 'p' two values; give it one"),
        (("p=" + "1" * 32,), "with a number of at most 18 digits"),
    ],
)
def test_values_outside_of_the_range_are_refused(
    command: str, given: tuple[str, ...], sentence: str, csdf: Csdf, tmp_path: Path
) -> None:
    values = [word for one in given for word in ("--set", one)]
    assert sentence in csdf(command, file_of(LINE, tmp_path), *values, code=2).err
