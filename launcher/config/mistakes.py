"""Says what is wrong with a value that a configuration or an option cannot have.

Pydantic finds it; the sentence says what the value must be and, unless that is secret, what it is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from launcher.config.redaction import HIDDEN, without_secrets
from launcher.config.source import Location, plain_value
from launcher.config.units import brief


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'memory'?`, or "" where no known word is close."""
    close = difflib.get_close_matches(wrong, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def no_such(noun: str, wrong: str, known: Collection[str]) -> str:
    """Return the sentence about a name that is not among those `known`."""
    return f"there is no {noun} {wrong!r}" + (
        suggestion(wrong, known) or f"; the {noun}s are {', '.join(known)}"
    )


_HOLDERS = {"sinks", "source", "traces"}
"""Keys in whose mappings a password may be anywhere."""


def _as_written(data: object) -> object:
    return list(map(_as_written, data)) if isinstance(data, tuple) else data


def _without_secrets(given: object, location: Location) -> object:
    """Return the value at `location` as messages may show it."""
    whole: object = given
    for part in reversed(location):
        whole = {part: whole}
    whole = without_secrets(whole)
    for part in location:
        whole = whole[part] if isinstance(whole, Mapping) else HIDDEN
    return whole


def _shown(given: object, location: Location) -> str:
    """A value of another type than it must have, as a message shows it."""
    if given is None:
        return "nothing"
    if given == HIDDEN:
        return "the value given"
    if _HOLDERS & set(location) and isinstance(given, dict | list):  # a password may be in it
        return "a mapping" if isinstance(given, dict) else "a list"
    return brief(given)


_SHORT: dict[Location, str] = {
    ("model",): "must be a path, or a mapping with the key path, or a list of these",
    ("input",): "must be a glob, a list of globs, random, a source such as rtsp://HOST/PATH, or a "
    "mapping with the key files or source",
    ("task",): "must be a kind such as detect, or a mapping with the key kind",
}

_MEMBERS: dict[tuple[object, type], Location] = {
    ("model", int): ("model",),
    ("inputs", str): ("input",),
    ("tasks", str): ("task",),
}
"""The members of lists and mappings that may be short as well."""

_REQUIRED = {
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


def _quoted_as(*types: type) -> Callable[[str], bool]:
    """Return whether a text is, without quotes, a value of one of these types."""
    return lambda text: type(plain_value(text)) in types


_QUOTED = {
    "int_type": _quoted_as(int),
    "float_type": _quoted_as(int, float),
    "bool_type": _quoted_as(bool),
}
"""What a quoted text may be meant as, by the type that is required."""


def problem_text(
    problem: Mapping[str, Any],
    location: Location = (),
    keys: Callable[[Location], tuple[str, ...]] = lambda _: (),
) -> str:
    """Return the sentence for one of pydantic's errors, without its place; by default that of a
    single value, such as an option's."""
    kind, context = problem["type"], problem.get("ctx", {})
    given = _without_secrets(_as_written(problem.get("input")), location)
    if (sentence := _required_form(location, given)) is not None:
        return sentence
    if kind == "extra_forbidden":
        known = keys(location[:-1])
        key = str(location[-1])
        return "unknown key" + (
            suggestion(key, known) or f"; the keys known here are {', '.join(known)}"
        )
    if kind == "value_error":
        return str(context.get("error", problem["msg"]))
    if kind in _REQUIRED:
        shown = f"{_required(location, kind)}, not {_shown(given, location)}"
        if isinstance(given, bool) and (kind == "string_type" or location in _SHORT):
            return f"{shown} (YAML reads on, off, yes and no so: use quotes)"
        quoted = isinstance(given, str) and kind in _QUOTED and _QUOTED[kind](given)
        return f"{shown}; remove the quotes" if quoted else shown
    for word, relation in _RELATIONS.items():
        if word in context:
            return f"must be {relation} {_number(context[word])}, not {brief(given)}"
    if kind == "literal_error":
        near = suggestion(str(given), re.findall("'([^']+)'", context["expected"]))
        return f"must be {context['expected']}, not {brief(given)}{near}"
    if kind in ("too_short", "string_too_short"):
        if location == ("nodes",):
            return "lists no node; a cluster needs at least one"
        least = context.get("min_length", 1)
        return "must not be empty" if least == 1 else f"must have at least {least} characters"
    if kind == "string_pattern_mismatch" and location[-1:] in _FORMS:
        return f"must {_FORMS[location[-1:]]}, not {_shown(given, location)}"
    return str(problem["msg"])


_FORMS: Mapping[Location, str] = {
    ("token",): "have visible ASCII characters only, and no spaces",
    ("traces",): "be a URL such as http://HOST:4318",
}
"""The forms of texts that pydantic checks by a pattern, by their keys."""

_RELATIONS = {
    "ge": "at least",
    "gt": "above",
    "le": "at most",
    "lt": "below",
    "multiple_of": "a multiple of",
}
"""Pydantic's names of bounds."""


def _number(bound: float) -> str:
    """A bound as a file can have it."""
    return str(int(bound)) if float(bound).is_integer() else repr(bound)


def _required_form(location: Location, given: object) -> str | None:
    """The sentence for a key whose value may have several forms; None for other keys."""
    if location[-1:] in (("mean",), ("std",)):
        return f"must be one number, or a list with one per channel, not {brief(given)}"
    if location[-1:] == ("pad_color",):
        return (
            "must be a number from 0 to 255, or a list of these for red, green and blue, "
            f"not {brief(given)}"
        )
    if location[-1:] == ("input_shape",):
        return (
            f"must be a list of whole numbers above 0, such as [1, 3, 224, 224], not {brief(given)}"
        )
    if location[:1] == ("model",) and location[-2:-1] == ("inputs",):
        return f"must be a number, a list of numbers or a list of such lists, not {brief(given)}"
    if location[:1] == ("inputs",) and len(location) == 2 and isinstance(given, int | float):
        return (
            f"must be files, not {brief(given)}; write a constant input of the network as "
            f"model: {{path: …, inputs: {{{location[1]}: {brief(given)}}}}}"
        )
    return None


def _required(location: Location, kind: str) -> str:
    """The type that the value at `location` must have; members of lists may have short forms."""
    form = _MEMBERS.get((location[0], type(location[1]))) if len(location) == 2 else None
    if form is not None:
        return _SHORT[form]
    return _SHORT.get(location, _REQUIRED[kind])
