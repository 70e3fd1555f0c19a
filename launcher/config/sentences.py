"""What pydantic finds wrong in a `cluster.yaml`, said in one sentence with its line and key."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from launcher.config.cluster import (
    ONE,
    SEVERAL,
    ClusterConfig,
    InputConfig,
    ModelConfig,
)
from launcher.config.genetic import GaConfig, PaperTuning, VerticalTuning
from launcher.config.nodes import NodeConfig
from launcher.config.run import RecoveryConfig, RunConfig
from launcher.config.source import Location, ParsedFile
from launcher.config.units import brief

Config = TypeVar("Config", bound=BaseModel)


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean 'memory'?`, or nothing where no known word is close."""
    close = difflib.get_close_matches(wrong, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _close(wrong: str, known: str) -> bool:
    return bool(suggestion(wrong, (known,)))


def validated(source: ParsedFile) -> ClusterConfig:
    """The configuration in `source`; raises `BadInputError` for its first mistake."""
    return validated_as(source, ClusterConfig, _keys)


def validated_as(
    source: ParsedFile, model: type[Config], keys: Callable[[Location], tuple[str, ...]]
) -> Config:
    """The same for another kind of file; `keys` are those that are known at a place in it."""
    try:
        return model.model_validate(_with_tuples(source.data))
    except ValidationError as error:
        problems = error.errors(include_url=False)
    # A list whose only members are wrong is too short as well, which is not what the user did.
    relevant = [problem for problem in problems if problem["type"] != "too_short"] or problems
    first = min(relevant, key=lambda problem: _line(source, _location(problem)))
    location = _location(first)
    if first["type"] == "missing":
        where, missing = location[:-1], str(location[-1])
        unknown = [_location(p) for p in relevant if p["type"] == "extra_forbidden"]
        misspelt = [own for own in unknown if own[:-1] == where and _close(str(own[-1]), missing)]
        if misspelt:
            raise source.error(misspelt[0], f"unknown key; did you mean {missing!r}?")
        raise source.error(where, f"the key {missing!r} is missing")
    raise source.error(location, _what(first, location, keys))


def _with_tuples(data: object) -> object:
    """Lists as tuples, which is what strict, frozen models ask for."""
    if isinstance(data, dict):
        return {key: _with_tuples(value) for key, value in data.items()}
    return tuple(map(_with_tuples, data)) if isinstance(data, list) else data


def _location(problem: Mapping[str, Any]) -> Location:
    """The place in the user's file: without the names that pydantic gives to union members."""
    given: Location = problem["loc"]
    location = tuple(part for part in given if part not in (ONE, SEVERAL, "[key]"))
    for length in range(2, len(location)):
        if location[length - 1] in ("input_shape", "mean", "std"):
            return location[:length]
        if location[0] == "model" and location[length - 1] == "inputs":
            return location[: length + 1]
    return location[:2] if location[:1] == ("pins",) else location


def _line(source: ParsedFile, location: Location) -> int:
    while location and location not in source.lines:
        location = location[:-1]
    return source.lines.get(location, 0)


def _keys(location: Location) -> tuple[str, ...]:
    models: dict[tuple[str, ...], type[BaseModel]] = {
        (): ClusterConfig,
        ("model",): ModelConfig,
        ("nodes",): NodeConfig,
        ("input",): InputConfig,
        ("run",): RunConfig,
        ("recovery",): RecoveryConfig,
        ("ga",): GaConfig,
        ("ga", "vertical"): VerticalTuning,
        ("ga", "vertical-paper"): PaperTuning,
    }
    path = tuple(part for part in location if isinstance(part, str))
    if path[:1] == ("inputs",):
        path = ("input", *path[2:])
    fields = models[path].model_fields if path in models else {}
    return tuple(field.alias or name for name, field in fields.items())


def _as_written(data: object) -> object:
    return list(map(_as_written, data)) if isinstance(data, tuple) else data


_SHORT: dict[Location, str] = {
    ("model",): "must be a path, or a mapping with the key path, or a list of these",
    ("input",): "must be a glob, a list of globs, random, or a mapping with the key files",
}

_WANTED = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
}


def _what(
    problem: Mapping[str, Any], location: Location, keys: Callable[[Location], tuple[str, ...]]
) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    given = _as_written(problem.get("input"))
    if (sentence := _of_several_forms(location, given)) is not None:
        return sentence
    if kind == "extra_forbidden":
        known = keys(location[:-1])
        key = str(location[-1])
        return "unknown key" + (
            suggestion(key, known) or f"; the keys known here are {', '.join(known)}"
        )
    if kind == "value_error":
        return str(context.get("error", problem["msg"]))
    if kind in _WANTED:
        shown = "nothing" if given is None else brief(given)
        if isinstance(given, bool):
            shown = f"{str(given).lower()} (YAML reads on, off, yes and no so: use quotes)"
        return f"{_wanted(location, kind)}, not {shown}"
    if kind in ("greater_than_equal", "greater_than"):
        bound = context.get("ge", context.get("gt", 0))
        return (
            f"must be {'at least' if 'ge' in context else 'above'} {int(bound)}, not {brief(given)}"
        )
    if kind in ("less_than_equal", "less_than"):
        bound = context.get("le", context.get("lt", 0))
        return (
            f"must be {'at most' if 'le' in context else 'below'} {int(bound)}, not {brief(given)}"
        )
    if kind == "literal_error":
        return f"must be {context['expected']}, not {brief(given)}"
    if kind in ("too_short", "string_too_short"):
        if location == ("nodes",):
            return "no node is listed; a cluster needs at least one"
        return "must not be empty"
    return str(problem["msg"])


def _of_several_forms(location: Location, given: object) -> str | None:
    """What a key that takes numbers in several forms wants; None for other keys."""
    if location[-1:] in (("mean",), ("std",)):
        return f"must be one number, or a list with one per channel, not {brief(given)}"
    if location[-1:] == ("input_shape",):
        return (
            f"must be a list of whole numbers above 0, such as [1, 3, 224, 224], not {brief(given)}"
        )
    if location[:1] == ("model",) and location[-2:-1] == ("inputs",):
        return f"must be a number, a list of numbers or a list of such lists, not {brief(given)}"
    if location[:1] == ("inputs",) and len(location) == 2 and isinstance(given, int | float):
        return (
            f"must be files, not {brief(given)}; an input of the network that is a constant is "
            f"written as model: {{path: …, inputs: {{{location[1]}: {brief(given)}}}}}"
        )
    return None


def _wanted(location: Location, kind: str) -> str:
    """What should stand there; lists and mappings of short forms have them as members."""
    if len(location) == 2 and (location[0], type(location[1])) in (("model", int), ("inputs", str)):
        return _SHORT[({"model": "model", "inputs": "input"}[str(location[0])],)]
    return _SHORT.get(location, _WANTED[kind])
