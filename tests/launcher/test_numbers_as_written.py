"""Every number of `cluster.yaml`: read as a person means it, or refused with its bound."""

from __future__ import annotations

import math
import operator
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from launcher.config.cluster import ClusterConfig
from launcher.config.ends.kinds import SINKS, SOURCES
from launcher.config.kinds import key_names
from launcher.config.load import validated
from launcher.config.node import NodeConfig
from launcher.config.source import parse_source, source_text
from launcher.config.units import parse_bytes, parse_duration, parse_link, parse_share, parse_speed
from launcher.errors import BadInputError

Path = tuple[str, ...]

BOUND = re.compile(r"must be (at least|above|at most|below|a multiple of) (\S+), not (\S+)$")


def parts(annotation: object) -> Iterator[object]:
    """The members of a union, without what is annotated to them."""
    if get_origin(annotation) is Annotated:
        yield from parts(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from parts(each)
    else:
        yield annotation


def numbers(model: type[BaseModel], at: Path = ()) -> Iterator[Path]:
    """Where a model and those within it have a number."""
    for key, field in zip(key_names(model), model.model_fields.values(), strict=True):
        found = list(parts(field.annotation))
        if int in found or float in found:
            yield (*at, key)
        for each in found:
            if isinstance(each, type) and issubclass(each, BaseModel):
                yield from numbers(each, (*at, key))


NODE, OF_NODE = {"name": "a", "address": "tcp://a:5500"}, "node"
BESIDE = {
    "folder": "f", "file": "f", "url": "http://a/", "host": "a", "topic": "t", "kind": "detect",
    "device": "/dev/video0", "path": "p", "files": "random",
}  # fmt: skip
"""What keys may have that must stand beside a number."""

EVERYWHERE = [
    *numbers(ClusterConfig),
    *((OF_NODE, *path) for path in numbers(NodeConfig)),
    *(("sinks", kind, *path) for kind in SINKS.built_in for path in numbers(SINKS.find(kind))),
    *(("source", kind, *path) for kind in SOURCES.built_in for path in numbers(SOURCES.find(kind))),
]  # fmt: skip


def document(path: Path, number: str) -> str:
    """A file in which only that number is not a default, unless others are needed beside it."""
    data: dict[str, Any] = {"model": "m.onnx", "nodes": [dict(NODE)]}
    first, *inner = path
    within: dict[str, Any] = data
    model: Any = ClusterConfig
    if first == OF_NODE:
        within, model = data["nodes"][0], NodeConfig
    elif first in ("sinks", "source"):
        kind, *inner = inner
        model = (SINKS if first == "sinks" else SOURCES).find(kind)
        within = {"kind": kind}
        data |= {"sinks": [within]} if first == "sinks" else {"input": {"source": within}}
    else:
        inner = [first, *inner]
    *outer, last = inner
    for key in outer:
        field = model.model_fields[key.replace("-", "_")]
        model = next(each for each in parts(field.annotation) if hasattr(each, "model_fields"))
        within[key] = {}
        within = within[key]
    for key, field in zip(key_names(model), model.model_fields.values(), strict=True):
        if field.is_required() or key == "files":
            within.setdefault(key, BESIDE.get(key, "x"))
    within[last] = "NUMBER"
    return source_text(data).replace("NUMBER", number)


def spelled(value: float) -> st.SearchStrategy[str]:
    """The ways in which people write a number."""
    forms = [repr(value), f"{value:e}", f"{value:E}", f"{value:.3e}".replace("e+0", "e")]
    if value.is_integer() and abs(value) < 1e15:
        whole = f"{int(value)}"
        forms += [
            whole,
            f"{int(value):_}",
            f"{whole}.",
            f"{whole}.0",
            f"+{whole}".replace("+-", "-"),
        ]
        forms += [f"{whole}e0", f"0{whole}" if value >= 0 else whole]
    elif abs(value) < 1:
        forms.append(repr(value).replace("0.", ".", 1))
    return st.sampled_from(forms)


values = st.one_of(
    st.integers(-10, 1000).map(float),
    st.sampled_from(
        [0.5, 0.05, 0.95, 1.05, 1e-3, 1e3, 1e6, 2e9, 2.0**32, 1e17, 1e-9, -0.25, 65536.0]
    ),
    st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip


def person_reads(text: str) -> float:
    return float(text.replace("_", ""))


def test_there_are_numbers_everywhere() -> None:
    assert len(EVERYWHERE) > 60
    assert {path[0] for path in EVERYWHERE} >= {
        "tolerance",
        "run",
        "ga",
        OF_NODE,
        "sinks",
        "source",
    }


@given(values.flatmap(spelled), st.sampled_from(EVERYWHERE))
def test_a_number_is_taken_as_a_person_reads_it_or_refused_with_its_bound(
    text: str, path: Path
) -> None:
    try:
        found: Any = validated(parse_source(document(path, text), "cluster.yaml"))
    except BadInputError as error:
        sentence = str(error)
        assert path[-1] in sentence
        assert "Input should" not in sentence
        if (match := BOUND.search(sentence)) is not None:
            relation, bound, given_text = match.groups()
            assert given_text == text
            number, least = person_reads(text), parse_source(bound, "").data
            assert isinstance(least, int | float)
            is_kept = {
                "at least": operator.ge,
                "above": operator.gt,
                "at most": operator.le,
                "below": operator.lt,
                "a multiple of": lambda one, other: one % other == 0,
            }
            assert not is_kept[relation](number, least)
        elif ", not " in sentence:
            assert text in sentence
        return
    if path[0] == OF_NODE:
        found, path = found.nodes[0], path[1:]
    elif path[0] == "sinks":
        found, path = found.sinks[0], path[2:]
    elif path[0] == "source":
        found, path = found.input.source, path[2:]
    for key in path:
        found = getattr(found, key.replace("-", "_"))
    if isinstance(found, int) and "." in text:  # sizes are cut to whole bytes
        assert found == math.floor(person_reads(text))
    else:
        assert found == person_reads(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("1E3", 1000), ("1.5e3", 1500), (".5", 0.5), ("5.", 5.0), ("010", 10),
        ("1_000", 1000), ("0x1F", 31), ("0o17", 15), ("0b101", 5), ("1:30", "1:30"),
        ("-1e-2", -0.01), ("+3", 3), ("1e", "1e"), ("e3", "e3"), ("1.2.3", "1.2.3"),
        ("2e9x", "2e9x"), (".", "."), ("1e3", 1000),
    ],
)  # fmt: skip
def test_numbers_are_those_of_yaml_1_2(text: str, value: object) -> None:
    data = parse_source(f"a: {text}", "").data
    assert data == {"a": value}
    assert isinstance(data, dict)
    assert type(data["a"]) is type(value)


@given(st.from_regex(r"[-+.0-9eExob_:]{1,8}", fullmatch=True))
def test_text_that_looks_like_a_number_is_written_in_quotes(text: str) -> None:
    assert parse_source(source_text({"a": text}), "").data == {"a": text}
    assert yaml.safe_load(source_text({"a": text})) == {"a": text}


@given(st.floats(1e-6, 1e15).flatmap(spelled))
def test_sizes_rates_and_times_may_have_any_spelling_of_a_number(text: str) -> None:
    number = text.replace("_", "").removeprefix("+")
    expected = float(number)
    assert parse_duration(f"{number}s") == expected
    assert parse_speed(f"{number}k") == expected * 1000
    assert parse_link(f"{number}MB/s") == expected * 10**6
    if expected <= 1:
        assert parse_share(number) == expected
    if expected >= 1:
        assert parse_bytes(f"{number}kB") == int(expected * 1000)


def test_a_name_that_is_a_number_is_to_be_put_in_quotes() -> None:
    text = "model: m.onnx\nnodes:\n- name: 1e3\n"
    with pytest.raises(BadInputError, match=r"name: must be text, not 1e3; put it in quotes$"):
        validated(parse_source(text, "cluster.yaml"))


def test_a_secret_that_is_a_number_is_not_shown() -> None:
    text = "model: m.onnx\nnodes: [{name: a}]\nserve: {token: 123456}\n"
    with pytest.raises(BadInputError) as refused:
        validated(parse_source(text, "cluster.yaml"))
    assert "123456" not in str(refused.value)


ANCHORS = """
x-board: &board {memory: 2e9, threads: 2}
x-large: &large 4GB
model: m.onnx
nodes:
- {name: a, <<: *board}
- {name: b, <<: *board, memory: *large}
- name: c
  <<: [{threads: 3}, *board]
"""


def test_keys_for_anchors_and_merge_keys() -> None:
    config = validated(parse_source(ANCHORS, "cluster.yaml"))
    found = [(node.name, node.memory, node.threads) for node in config.nodes]
    assert found == [("a", 2 * 10**9, 2), ("b", 4 * 10**9, 2), ("c", 2 * 10**9, 3)]


@pytest.mark.parametrize("value", ["3", "[1]", "text"])
def test_a_merge_key_must_name_a_mapping(value: str) -> None:
    with pytest.raises(BadInputError, match=r"line 3: `<<` must name a mapping"):
        parse_source(f"model: m\nnodes:\n- <<: {value}\n", "cluster.yaml")


def test_a_mistake_in_what_is_merged_has_a_line() -> None:
    text = "x-a: &a {threads: 0}\nmodel: m.onnx\nnodes:\n- {name: a, <<: *a}\n"
    with pytest.raises(
        BadInputError, match=r"line \d, nodes\[0\].threads: must be at least 1, not 0"
    ):
        validated(parse_source(text, "cluster.yaml"))
