"""Read and write graphs as JSON, which can express capacities and bounds on concurrency.

    {"name": "example",
     "actors": [{"name": "A", "execution_times": [3, "1/2"], "concurrency": 1}],
     "channels": [{"name": "c", "source": "A", "target": "A", "production": [1, 0],
                   "consumption": [0, 1], "initial_tokens": 1, "capacity": 4, "token_bytes": 2}]}

With a key `"parameters": {"p": [1, 8]}`, the whole numbers from which each parameter has its value,
rates, initial tokens, capacities and times may be texts like `"2*p + 1"`. The functions below take
the values; `parse_parametric` does without.

Times are numbers, read exactly as decimals, or strings with a fraction. `concurrency`,
`initial_tokens`, `capacity` and `token_bytes` may be left out. `execution_times` may be left out if
only consistency and liveness are analysed (`read_for_analysis`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from csdf.errors import CsdfError, GraphError
from csdf.model.graph import Actor, Channel, Graph
from csdf.model.parametric import ParametricChannel, ParametricGraph, outside
from csdf.model.polynomials import NAME, Polynomial, total

MAX_BYTES = 32 << 20
MAX_VALUES = 2_000_000

# A decimal in full, as it is written again, has up to 160 digits.
_TIME = re.compile(
    r"\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?|\d{1,160}(/0*[1-9]\d{0,159})?", re.ASCII
)
_COUNT = re.compile(r"-?\d{1,18}", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")

_T = TypeVar("_T")

_FILE = {"name", "actors", "channels", "parameters"}

_PARAMETRIC = {"production", "consumption", "initial_tokens", "capacity", "execution_times"}

_ACTOR = {"name", "execution_times", "concurrency"}

_CHANNEL = {
    "name",
    "source",
    "target",
    "production",
    "consumption",
    "initial_tokens",
    "capacity",
    "token_bytes",
}


class JsonError(CsdfError):
    """The file is not a graph in JSON; the message names the file and the place in it."""


def write(graph: Graph) -> str:
    """Return `graph` as JSON, which `parse` reads back.

    >>> graph = Graph("one", (Actor("a", (Fraction(1, 3),), concurrency=2),), ())
    >>> parse(write(graph).encode()) == graph
    True
    """
    return json.dumps(as_json(graph), ensure_ascii=False, indent=1) + "\n"


def as_json(graph: Graph) -> dict[str, Any]:
    """Return `graph` as a value for `json.dumps`."""
    return {
        "name": graph.name,
        "actors": [
            {
                "name": actor.name,
                "execution_times": [_time_as_json(time) for time in actor.execution_times],
                "concurrency": actor.concurrency,
            }
            for actor in graph.actors
        ],
        "channels": [
            {
                "name": channel.name,
                "source": channel.source,
                "target": channel.target,
                "production": list(channel.production),
                "consumption": list(channel.consumption),
                "initial_tokens": channel.initial_tokens,
                "capacity": channel.capacity,
                "token_bytes": channel.token_bytes,
            }
            for channel in graph.channels
        ],
    }


Values = Mapping[str, int]
"""Values of parameters."""


def read(path: str | Path, values: Values = MappingProxyType({})) -> Graph:
    """Return the graph in a JSON file. Raises `JsonError`, which starts with the path."""
    return parse(_contents(path), str(path), values)


def parse(data: bytes, origin: str = "JSON", values: Values = MappingProxyType({})) -> Graph:
    """Return the graph in `data`. Raises `JsonError`, whose message starts with `origin`."""
    graph, untimed = parse_for_analysis(data, origin, values)
    if untimed:
        number = list(graph.actor).index(untimed[0])
        raise JsonError(f"{origin}: actors[{number}] has no 'execution_times'")
    return graph


def read_for_analysis(
    path: str | Path, values: Values = MappingProxyType({})
) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph in a file, and the names of its actors without execution times.

    In the graph, these actors have times of 0, for as many phases as their channels have. Raises
    as `read` does.
    """
    return parse_for_analysis(_contents(path), str(path), values)


def read_parametric(path: str | Path) -> ParametricGraph:
    """Return the graph with parameters in a JSON file; one without has only one combination.

    Raises `JsonError`, which starts with the path, also by `at` of the result.

    >>> from tempfile import TemporaryDirectory
    >>> text = '''{"parameters": {"p": [1, 4]}, "channels": [],
    ...          "actors": [{"name": "a", "execution_times": ["2*p"]}]}'''
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "graph.json").write_text(text)
    ...     graph = read_parametric(f"{folder}/graph.json")
    >>> str(graph.at({"p": 3}).actor["a"].execution_times[0])
    '6'
    """
    return parse_parametric(_contents(path), str(path))


def parse_parametric(data: bytes, origin: str = "JSON") -> ParametricGraph:
    """Return what `read_parametric` does, from `data`."""
    found = _parsed(data, origin)

    def at(values: Values) -> Graph:
        graph, untimed = _built(found, values, origin)
        if untimed:
            raise JsonError(f"{origin}: actor {untimed[0]!r} has no 'execution_times'")
        return graph

    try:
        about = _object(found, "the file", _FILE)
        parameters = _parameters(about)
        actors = [
            _text(_object(one, f"actors[{i}]", _ACTOR), "name", f"actors[{i}]")
            for i, one in enumerate(_list(about, "actors", "the file"))
        ]
        channels = [
            _parametric_channel(
                _object(one, f"channels[{i}]", _CHANNEL), f"channels[{i}]", parameters, actors
            )
            for i, one in enumerate(_list(about, "channels", "the file"))
        ]
    except _PlaceError as error:
        raise JsonError(f"{origin}: {error}") from None
    return ParametricGraph(parameters, actors, channels, at)


def _contents(path: str | Path) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise JsonError(f"{path}: cannot be read: {error.strerror or error}") from error


def parse_for_analysis(
    data: bytes, origin: str = "JSON", values: Values = MappingProxyType({})
) -> tuple[Graph, tuple[str, ...]]:
    """Return what `read_for_analysis` does, from `data`."""
    return _built(_parsed(data, origin), values, origin)


def _parsed(data: bytes, origin: str) -> object:
    """Return the value in `data`, with numbers as they are written."""
    if len(data) > MAX_BYTES:
        raise JsonError(f"{origin}: is larger than {MAX_BYTES >> 20} MiB")
    if data.count(b",") > MAX_VALUES:  # before parsing takes a hundred times as much memory
        raise JsonError(f"{origin}: has more than {MAX_VALUES} values")
    try:
        # Numbers stay as they are written, so decimals are exact and huge ones cost nothing.
        return load(
            data,
            parse_float=_Number,
            parse_int=_Number,
            parse_constant=_Number,
            object_pairs_hook=_object_without_duplicates,
        )
    except (JsonError, _PlaceError) as error:
        raise JsonError(f"{origin}: {error}") from None


def load(data: bytes, **how: Any) -> Any:
    """Return what `json.loads` does. Raises `JsonError`, whose message lacks the file."""
    try:
        return json.loads(data, **how)
    except (json.JSONDecodeError, UnicodeError) as error:
        raise JsonError(f"is not JSON: {error}") from None
    except RecursionError:
        raise JsonError("is not JSON that can be read: it is nested too deep") from None
    except ValueError:
        raise JsonError("has a number with too many digits") from None


def _built(found: object, values: Values, origin: str) -> tuple[Graph, tuple[str, ...]]:
    try:
        return _graph(_with_values(found, values))
    except (_PlaceError, GraphError) as error:
        raise JsonError(f"{origin}: {error}") from None


def _with_values(found: object, values: Values) -> object:
    """Return the file without `parameters`, with numbers in place of polynomials."""
    if not isinstance(found, dict) or "parameters" not in found:
        if values:
            raise _PlaceError(f"has no 'parameters', so {next(iter(values))!r} cannot have a value")
        return found
    parameters = _parameters(found)
    for name, value in values.items():
        if name not in parameters:
            known = ", ".join(map(repr, parameters)) or "none"
            raise _PlaceError(f"{name!r} is not a parameter; known are {known}")
        if sentence := outside(name, value, parameters[name]):
            raise _PlaceError(sentence)
    for name in parameters:
        if name not in values:
            raise _PlaceError(
                f"parameter {name!r} has no value; give it (--set {name}=1), or analyse all values "
                "(csdf parameters)"
            )
    return {
        key: [_numbers(one, f"{key}[{i}]", values) for i, one in enumerate(listed)]
        if isinstance(listed, list)
        else listed
        for key, listed in found.items()
        if key != "parameters"
    }


def _numbers(found: object, place: str, values: Values) -> object:
    """Return an actor or a channel with numbers in place of polynomials."""
    if not isinstance(found, dict):
        return found

    def number(value: object, key: str) -> object:
        if isinstance(value, list):
            return [number(one, key) for one in value]
        if not isinstance(value, str) or isinstance(value, _Number):
            return value
        if key == "execution_times" and _TIME.fullmatch(value):
            return value
        return _Number(_polynomial(value, f"{place}.{key}", values).at(values))

    return {key: number(one, key) if key in _PARAMETRIC else one for key, one in found.items()}


def _polynomial(value: object, place: str, parameters: Mapping[str, object]) -> Polynomial:
    if isinstance(value, _Number):
        return Polynomial.constant(_count(value, place))
    if not isinstance(value, str):
        raise _PlaceError(f"{place} should hold whole numbers, or texts like 2*p + 1")
    try:
        found = Polynomial.read(value)
    except CsdfError as error:
        raise _PlaceError(f"{place}: {error}") from None
    for name in sorted(found.names):
        if name not in parameters:
            raise _PlaceError(f"{place} has {name!r}, which is not in 'parameters'")
    return found


def _parameters(about: Mapping[str, object]) -> dict[str, tuple[int, int]]:
    """Return the range of each parameter, from a file with or without them."""
    given = about.get("parameters", {})
    if not isinstance(given, dict):
        raise _PlaceError('parameters should be an object like {"p": [1, 8]}')
    found = {}
    for name, limits in given.items():
        place = f"parameters.{name}"
        if not NAME.fullmatch(name):
            raise _PlaceError(f"{place}: a parameter is called like p or rate_2")
        if not isinstance(limits, list) or len(limits) != 2:
            raise _PlaceError(f"{place} should be its smallest and largest value, like [1, 8]")
        low, high = (_count(limit, place) for limit in limits)
        if not 0 <= low <= high:
            raise _PlaceError(f"{place} should be two numbers ≥ 0 in ascending order")
        found[name] = low, high
    return found


def _parametric_channel(
    about: Mapping[str, object],
    place: str,
    parameters: Mapping[str, object],
    actors: Sequence[str],
) -> ParametricChannel:
    put, taken = (
        total(_polynomial(rate, f"{place}.{key}", parameters) for rate in _list(about, key, place))
        for key in ("production", "consumption")
    )
    ends = _text(about, "source", place), _text(about, "target", place)
    for end, rates, what in zip(ends, (put, taken), ("source", "target"), strict=True):
        if end not in actors:
            raise _PlaceError(f"{place}: its {what} {end!r} is not an actor")
        if not rates.terms:
            raise _PlaceError(f"{place}: all rates of its {what} are zero")
    return ParametricChannel(_text(about, "name", place), *ends, put, taken)


class _Number(str):
    """A number as it is written in the file."""

    __slots__ = ()


class _PlaceError(Exception):
    pass


def _object_without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise _PlaceError(f"duplicate key {twice!r} in an object")
    return found


def _graph(found: object) -> tuple[Graph, tuple[str, ...]]:
    about = _object(found, "the file", {"name", "actors", "channels"})
    listed = _list(about, "actors", "the file")
    channels = [
        _channel(_object(one, f"channels[{i}]", _CHANNEL), f"channels[{i}]")
        for i, one in enumerate(_list(about, "channels", "the file"))
    ]
    phases: dict[str, int] = {}
    for channel in channels:
        ends = ((channel.source, channel.production), (channel.target, channel.consumption))
        for end, rates in ends:
            phases[end] = max(phases.get(end, 1), len(rates))
    actors, untimed = [], []
    for i, one in enumerate(listed):
        fields = _object(one, f"actors[{i}]", _ACTOR)
        actors.append(_actor(fields, f"actors[{i}]", phases))
        if "execution_times" not in fields:
            untimed.append(actors[-1].name)
    name = _text(about, "name", "the file") if "name" in about else ""
    return Graph(name, tuple(actors), tuple(channels)), tuple(untimed)


def _actor(about: Mapping[str, object], place: str, phases: Mapping[str, int]) -> Actor:
    name = _text(about, "name", place)
    if "execution_times" in about:
        listed = _list(about, "execution_times", place)
        times = tuple(_time(time, f"{place}.execution_times") for time in listed)
    else:
        times = (Fraction(0),) * phases.get(name, 1)
    return Actor(
        name,
        times,
        _optional(about, "concurrency", place, None),
    )


def _channel(about: Mapping[str, object], place: str) -> Channel:
    rates = {
        key: tuple(_count(rate, f"{place}.{key}") for rate in _list(about, key, place))
        for key in ("production", "consumption")
    }
    return Channel(
        _text(about, "name", place),
        _text(about, "source", place),
        _text(about, "target", place),
        rates["production"],
        rates["consumption"],
        _optional(about, "initial_tokens", place, 0),
        _optional(about, "capacity", place, None),
        _optional(about, "token_bytes", place, 1),
    )


def _object(found: object, place: str, known: set[str]) -> Mapping[str, object]:
    if not isinstance(found, dict):
        raise _PlaceError(f"{place} should be an object in braces")
    for key in found:
        if key not in known:
            raise _PlaceError(f"{place} has {key!r}; known are {', '.join(sorted(known))}")
    return found


def _get(about: Mapping[str, object], key: str, place: str) -> object:
    if key not in about:
        raise _PlaceError(f"{place} has no {key!r}")
    return about[key]


def _list(about: Mapping[str, object], key: str, place: str) -> list[object]:
    found = _get(about, key, place)
    if not isinstance(found, list):
        raise _PlaceError(f"{place}.{key} should be a list in brackets")
    return found


def _text(about: Mapping[str, object], key: str, place: str) -> str:
    found = _get(about, key, place)
    if not isinstance(found, str) or isinstance(found, _Number):
        raise _PlaceError(f"{place}.{key} should be a string")
    if _SURROGATE.search(found):
        raise _PlaceError(f"{place}.{key} holds half a character (a lone surrogate)")
    if "\n" in found:
        raise _PlaceError(f"{place}.{key} has several lines; a name has one")
    return found


def _count(found: object, place: str) -> int:
    if not isinstance(found, _Number) or not _COUNT.fullmatch(found):
        raise _PlaceError(f"{place} should hold whole numbers of at most 18 digits")
    return int(found)


def _optional(about: Mapping[str, object], key: str, place: str, default: _T) -> int | _T:
    found = about.get(key)
    return default if found is None else _count(found, f"{place}.{key}")


def _time(found: object, place: str) -> Fraction:
    if not isinstance(found, str) or not _TIME.fullmatch(found):
        raise _PlaceError(f'{place} should hold numbers ≥ 0 of at most 30 digits, like 3 or "1/2"')
    return Fraction(found)


def _time_as_json(time: Fraction) -> int | str:
    return time.numerator if time.denominator == 1 else str(time)
