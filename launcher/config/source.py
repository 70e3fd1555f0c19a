"""Reads a YAML file as plain data and remembers the line of every key, for error messages.

It accepts less than YAML allows: one document, text as keys, no key twice, no timestamps, and no
value that contains itself. Numbers are those of YAML 1.2, as people write them: `1e-3` is a number,
where YAML 1.1 and PyYAML read text, `010` is 10, and `1:30` is text. A number in powers of ten that
is whole, such as `1e6`, is an integer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from launcher.errors import BadInputError, reason
from launcher.files import read_small, too_long

Location = tuple[str | int, ...]
"""A path into the data: keys and list indices, such as ("nodes", 1, "memory")."""


MOST_VALUES = 100_000
"""Values that a file may hold; those behind an alias count each time."""

MOST_YAML_NODES = 2 * MOST_VALUES + 1
"""Keys and values that a file may have; those behind an alias count once."""

_WHOLE, _FLOAT = _NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_MERGE = "tag:yaml.org,2002:merge"
_OTHERS = (*_NUMBERS, "tag:yaml.org,2002:timestamp")

_BASES = {"0x": 16, "0o": 8, "0b": 2}

_MOST_WHOLE = 1e18
"""The largest number in powers of ten that is an integer."""


class _Loader(yaml.SafeLoader):
    """SafeLoader that leaves dates as text, reads numbers as YAML 1.2 does, and bounds the number
    of YAML nodes."""

    nodes = 0

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own class attribute
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _OTHERS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Count the node; raises `yaml.MarkedYAMLError` if there are too many."""
        self.nodes += 1
        if self.nodes > MOST_YAML_NODES:
            raise yaml.MarkedYAMLError(
                problem=f"it holds more than {MOST_VALUES} values",
                problem_mark=self.get_mark(),
            )
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that puts text into quotes which this module would read as a number."""


for _resolvers in (_Loader, _Dumper):
    _resolvers.add_implicit_resolver(
        _WHOLE,
        re.compile(r"(?:[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+)\Z", re.ASCII),
        list("-+0123456789"),
    )
    _resolvers.add_implicit_resolver(
        _FLOAT,
        re.compile(
            r"(?:[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z",
            re.ASCII,
        ),
        list("-+.0123456789"),
    )


def source_text(data: object) -> str:
    """Return the text of a file that has this data."""
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return str(text)


@dataclass(frozen=True)
class ParsedFile:
    """A file's data and the line of each part of it; `name` is the file as the user wrote it, and
    `written` has the numbers as the user wrote them."""

    name: str
    data: object
    lines: Mapping[Location, int]
    written: Mapping[Location, str] = field(default_factory=dict)

    def where(self, location: Location = ()) -> str:
        """Return `cluster.yaml, line 7, nodes[1].memory`; a missing key has the nearest line."""
        known = location
        while known and known not in self.lines:
            known = known[:-1]
        parts = [self.name]
        if known in self.lines:
            parts.append(f"line {self.lines[known]}")
        if location:
            parts.append(dotted(location))
        return ", ".join(parts)

    def place(self, location: Location) -> str:
        """Return `on line 7`, or `nodes[1].memory` where lines are not known."""
        line = self.lines.get(location)
        return dotted(location) if line is None else f"on line {line}"

    def error(self, location: Location, what: str) -> BadInputError:
        """Return the error `WHERE: WHAT`, to be raised."""
        return BadInputError(f"{self.where(location)}: {what}")


def dotted(location: Location) -> str:
    """Return `nodes[1].memory` for ("nodes", 1, "memory")."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def read_source(path: Path, name: str | None = None, *, may_be_pipe: bool = True) -> ParsedFile:
    """Read a YAML (or JSON) file; raises `BadInputError` naming file and line."""
    shown = name or str(path)
    try:
        text = read_small(path, may_be_pipe=may_be_pipe).decode("utf-8-sig")
    except FileNotFoundError:
        raise BadInputError(f"{shown}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{shown}: is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    except OSError as error:
        raise BadInputError(f"{shown}: cannot be read: {error.strerror}") from None
    return parse_source(text, shown)


def parse_source(text: str, name: str) -> ParsedFile:
    """Parse the text of a file that is called `name` in messages; raises `BadInputError`."""
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise BadInputError(_syntax_sentence(error, name)) from None
    except yaml.YAMLError as error:
        reason = getattr(error, "reason", error)
        raise BadInputError(f"{name}: is not a text file that YAML allows: {reason}") from None
    except RecursionError:
        raise BadInputError(f"{name}: is nested too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()
    if root is None:
        raise BadInputError(f"{name}: is empty")
    reader = _Reader(name)
    try:
        data = reader.read(root, (), ())
    except RecursionError:
        raise BadInputError(f"{name}: is nested too deeply") from None
    return ParsedFile(name, data, reader.lines, reader.written)


_PROBLEMS = {
    "mapping values are not allowed here": "a misplaced colon; put a space after the colon of a "
    "key, put text that has a colon into quotes, and check "
    "the indentation",
    "but found another document": "a second document begins here; keep one",
}
"""What PyYAML says, in words that say what to do."""


def _syntax_sentence(error: yaml.MarkedYAMLError, name: str) -> str:
    mark = error.problem_mark or error.context_mark
    line = f", line {mark.line + 1}" if mark else ""
    problem = error.problem or error.context or "cannot be parsed"
    if "'\\t'" in problem:
        problem = "a tab; write spaces instead"
    problem = _PROBLEMS.get(problem, problem)
    return f"{name}{line}: is not valid YAML: {problem}"


@dataclass
class _Reader:
    name: str
    lines: dict[Location, int] = field(default_factory=dict)
    written: dict[Location, str] = field(default_factory=dict)
    values: int = 0

    def read(self, node: yaml.Node, at: Location, within: tuple[int, ...]) -> object:
        line = node.start_mark.line + 1
        self.lines.setdefault(at, line)
        if id(node) in within:
            raise BadInputError(f"{self.name}, line {line}, {dotted(at)}: contains itself")
        self.values += 1
        if self.values > MOST_VALUES:
            raise BadInputError(f"{self.name}, line {line}: holds more than {MOST_VALUES} values")
        within = (*within, id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, at, within)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*at, i), within) for i, item in enumerate(node.value)]
        return self._scalar(node, at)

    def _mapping(
        self, node: yaml.MappingNode, at: Location, within: tuple[int, ...]
    ) -> dict[str, object]:
        data: dict[str, object] = {}
        merged: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _MERGE:
                merged |= self._merged(value_node, at, within)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise BadInputError(f"{self.name}, line {line}: a key must be text")
            try:
                key = _whole_text(str(key_node.value))
            except ValueError as error:
                raise BadInputError(f"{self.name}, line {line}: a key {error}") from None
            here = (*at, key)
            if key in data:
                first = self.lines[here]
                raise BadInputError(
                    f"{self.name}, line {line}, {dotted(here)}: duplicate key; the first is on "
                    f"line {first}"
                )
            self.lines[here] = line
            data[key] = self.read(value_node, here, within)
        return {**merged, **data}

    def _merged(self, node: yaml.Node, at: Location, within: tuple[int, ...]) -> dict[str, object]:
        """Return what the merge key `<<` adds to the mapping `at`, whose own keys count more."""
        members = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found: dict[str, object] = {}
        for member in members:
            data = self.read(member, at, within)
            if not isinstance(data, dict):
                line = node.start_mark.line + 1
                raise BadInputError(f"{self.name}, line {line}: `<<` must name a mapping")
            found = {**data, **found}
        return found

    def _scalar(self, node: yaml.Node, at: Location) -> object:
        loader = _Loader("")
        try:
            if "\0" in str(node.value):
                raise ValueError("a text must not contain the character \\0")
            if node.tag in _NUMBERS and (what := too_long(str(node.value))):
                raise ValueError(what)
            if node.tag in _NUMBERS:
                self.written[at] = str(node.value)
                return _number(str(node.value), is_whole=node.tag == _WHOLE)
            value = loader.construct_object(node)
            return _whole_text(value) if isinstance(value, str) else value
        except Exception as error:  # noqa: BLE001 - PyYAML raises KeyError and others for bad tags
            problem = getattr(error, "problem", None) or reason(error)
            if isinstance(error, yaml.constructor.ConstructorError):
                problem = f"the tag {node.tag!r} has no meaning here; remove it"
            place = f", {dotted(at)}" if at else ""
            line = node.start_mark.line + 1
            raise BadInputError(f"{self.name}, line {line}{place}: {problem}") from None
        finally:
            loader.dispose()


def plain_value(text: str) -> object:
    """Return what a text is in a file without quotes: a number, true or false, or the text."""
    try:
        return parse_source(text, "").data
    except BadInputError:
        return text


def _whole_text(text: str) -> str:
    """Return a text with the two halves of a character, as JSON writes some, put together.

    Raises `ValueError` for half a character alone, which no other program can read.
    """
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("holds half of a character (a lone surrogate); remove it") from None


def _number(text: str, *, is_whole: bool) -> int | float:
    """Return a number of YAML 1.2; raises `ValueError`."""
    digits = text.replace("_", "").lower()
    if is_whole:
        return int(digits, _BASES.get(digits[:2], 10))
    value = float(digits.replace(".inf", "inf").replace(".nan", "nan"))
    if "e" in digits and value.is_integer() and abs(value) <= _MOST_WHOLE:
        return int(value)
    return value
