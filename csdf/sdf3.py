"""SDF3 XML: the format in which the field exchanges dataflow graphs.

Rates and execution times are lists with one entry per phase: `1,2,1`, or `18*32` for eighteen times
32; one value stands for all phases. An SDF graph is the case of one phase. SDF3 knows neither
capacities nor bounds on overlapping firings: a capacity is written as a reverse channel, a bound as
a self-channel, and both are read as the channels that they are. `tokenSize` counts bits. Buffer
sizes (`bufferSize`) are results of a mapping in SDF3, not bounds, and are not read. Of several
processors of an actor the default one counts, the last of them if there is more than one.

Source: S. Stuijk, M. C. W. Geilen, T. Basten, "SDF3: SDF for free", ACSD 2006.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from csdf import safe_xml
from csdf.errors import CsdfError, GraphError
from csdf.graph import Actor, Channel, Graph
from csdf.safe_xml import Element

MAX_ENTRIES = 2_000_000
"""Entries of all rate and time lists of a file, run lengths and single values written out."""

_COUNT = re.compile(r"\d{1,18}", re.ASCII)
_TIME = re.compile(r"\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?|\d{1,30}/0*[1-9]\d{0,29}", re.ASCII)

_Number = TypeVar("_Number", int, Fraction)


class Sdf3Error(CsdfError):
    """A file that is not SDF3 XML or uses what cannot be read; names the file, line and element."""


def read(path: str | Path, processor: str | None = None) -> Graph:
    """The graph in an SDF3 file of type `sdf` or `csdf`; see `parse`.

    Raises `Sdf3Error`, which starts with the path.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(safe_xml.MAX_BYTES + 1)
    except OSError as error:
        raise Sdf3Error(f"{path}: cannot be read: {error.strerror or error}") from error
    return parse(data, str(path), processor)


def parse(data: bytes, origin: str = "SDF3 XML", processor: str | None = None) -> Graph:
    """The graph in `data`; `origin` starts the messages of errors.

    An actor's times are those of the processor type `processor` where it has that, else of its
    (last) default one. Raises `Sdf3Error`.
    """
    try:
        return _Reader(safe_xml.parse(data), processor).graph()
    except (safe_xml.XmlError, GraphError, _ReadError) as error:
        raise Sdf3Error(f"{origin}: {error}") from None


class _ReadError(Exception):
    def __init__(self, element: Element, message: str) -> None:
        super().__init__(f"line {element.line}: {message}")


class _Reader:
    """One pass over the tree; `graph` puts together what the other methods read."""

    def __init__(self, root: Element, processor: str | None) -> None:
        self._processor = processor
        self._entries = 0
        self._body, self._properties = _parts(root)
        self._ports: dict[tuple[str, str], Element] = {}
        self._rates: dict[tuple[str, str], tuple[int, ...]] = {}
        self._phases: dict[str, int] = {}

    def graph(self) -> Graph:
        times: dict[str, Element] = {}
        for about in self._about("actorProperties"):
            name = _get(about, "actor")
            if name in times:
                raise _ReadError(about, f"the properties of actor {name!r} are given twice")
            times[name] = about
        actors = tuple(self._actor(element, times) for element in self._body.all("actor"))
        token_bytes = {
            _get(about, "channel"): _bytes(size)
            for about in self._about("channelProperties")
            for size in about.all("tokenSize")
        }
        channels = tuple(
            self._channel(element, token_bytes) for element in self._body.all("channel")
        )
        return Graph(self._body.attributes.get("name", ""), actors, channels)

    def _about(self, tag: str) -> list[Element]:
        return self._properties.all(tag) if self._properties is not None else []

    def _actor(self, element: Element, times: dict[str, Element]) -> Actor:
        name = _get(element, "name")
        if name in self._phases:
            raise _ReadError(element, f"two actors are called {name!r}")
        if name not in times:
            raise _ReadError(
                element, f"actor {name!r} has no execution time: there is no actorProperties for it"
            )
        durations = self._processor_of(times[name], name).all("executionTime")
        if len(durations) != 1:
            many = "two execution times for one processor" if durations else "no execution time"
            raise _ReadError(times[name], f"actor {name!r} has {many}")
        own = self._list(durations[0], "time", _TIME, Fraction)
        phases = len(own)
        for port in element.all("port"):
            key = (name, _get(port, "name"))
            if key in self._ports:
                raise _ReadError(port, f"actor {name!r} has two ports {key[1]!r}")
            self._ports[key] = port
            self._rates[key] = self._list(port, "rate", _COUNT, int)
            phases = max(phases, len(self._rates[key]))
        self._phases[name] = phases
        return Actor(name, self._spread(durations[0], name, "times", own))

    def _processor_of(self, about: Element, actor: str) -> Element:
        """The processor that counts: the one asked for, else the last default one, as in SDF3."""
        processors = about.all("processor")
        named = [p for p in processors if p.attributes.get("type") == self._processor]
        if named:
            return named[0]
        defaults = [p for p in processors if p.attributes.get("default") in ("true", "1")]
        if defaults:
            return defaults[-1]
        if len(processors) == 1:
            return processors[0]
        if not processors:
            raise _ReadError(about, f"actor {actor!r} has no execution time: it has no processor")
        types = ", ".join(repr(p.attributes.get("type", "")) for p in processors)
        raise _ReadError(
            about,
            f"actor {actor!r} has execution times for {types}, and none is the default; "
            "name one (--processor)",
        )

    def _channel(self, element: Element, token_bytes: dict[str, int]) -> Channel:
        name = _get(element, "name")
        source, production = self._end(element, "src", "out")
        target, consumption = self._end(element, "dst", "in")
        tokens = element.attributes.get("initialTokens", "0").strip()
        if not _COUNT.fullmatch(tokens):
            raise _ReadError(
                element,
                f"channel {name!r} starts with {_short(tokens)} tokens; "
                "give a whole number ≥ 0 of at most 18 digits",
            )
        size = token_bytes.get(name, 1)
        return Channel(name, source, target, production, consumption, int(tokens), None, size)

    def _end(self, element: Element, end: str, direction: str) -> tuple[str, tuple[int, ...]]:
        name = _get(element, "name")
        actor, port = _get(element, f"{end}Actor"), _get(element, f"{end}Port")
        if actor not in self._phases:
            raise _ReadError(element, f"channel {name!r} names {actor!r}, which is no actor")
        if (actor, port) not in self._ports:
            raise _ReadError(element, f"channel {name!r}: actor {actor!r} has no port {port!r}")
        about = self._ports[actor, port]
        if about.attributes.get("type") != direction:
            raise _ReadError(about, f"port {port!r} of {actor!r} should have type {direction!r}")
        return actor, self._spread(about, actor, "rates", self._rates[actor, port])

    def _list(
        self,
        element: Element,
        attribute: str,
        pattern: re.Pattern[str],
        number: Callable[[str], _Number],
    ) -> tuple[_Number, ...]:
        text = _get(element, attribute)
        if ";" in text:
            raise _ReadError(
                element, f"{attribute} {_short(text)} has initial phases, which are not supported"
            )
        if text.count(",") >= MAX_ENTRIES:  # before all of them are looked at
            self._count(element, MAX_ENTRIES + 1)
        found: list[_Number] = []
        for entry in text.split(","):
            times, star, value = entry.strip().rpartition("*")
            repeat = times.strip() if star else "1"
            if not (_COUNT.fullmatch(repeat) and pattern.fullmatch(value.strip())):
                kind = (
                    "a whole number ≥ 0 of at most 18 digits" if number is int else "a number ≥ 0"
                )
                raise _ReadError(
                    element,
                    f"{attribute} {_short(text)} is no list of numbers: "
                    f"{_short(entry.strip())} is not {kind}",
                )
            self._count(element, int(repeat))
            found.extend([number(value.strip())] * int(repeat))
        if not found:
            raise _ReadError(element, f"{attribute} {_short(text)} gives no phase")
        return tuple(found)

    def _spread(
        self, element: Element, actor: str, what: str, values: tuple[_Number, ...]
    ) -> tuple[_Number, ...]:
        """One value for every phase of `actor`."""
        phases = self._phases[actor]
        if len(values) == phases:
            return values
        if len(values) != 1:
            raise _ReadError(
                element, f"{len(values)} {what} for the {phases} phases of actor {actor!r}"
            )
        self._count(element, phases)
        return values * phases

    def _count(self, element: Element, entries: int) -> None:
        self._entries += entries
        if self._entries > MAX_ENTRIES:
            raise _ReadError(element, f"the lists have more than {MAX_ENTRIES} entries together")


def _parts(root: Element) -> tuple[Element, Element | None]:
    """The graph and its properties."""
    if root.tag != "sdf3":
        raise _ReadError(root, f"the root element is {root.tag!r}, not 'sdf3'")
    kind = root.attributes.get("type", "")
    if kind not in ("sdf", "csdf"):
        raise _ReadError(root, f"graphs of type {kind!r} cannot be read, only 'sdf' and 'csdf'")
    applications = root.all("applicationGraph")
    if len(applications) != 1:
        raise _ReadError(root, f"has {len(applications)} application graphs instead of one")
    bodies = [child for child in applications[0].children if child.tag in ("sdf", "csdf")]
    if len(bodies) != 1:
        raise _ReadError(applications[0], f"has {len(bodies)} graphs instead of one")
    tags = ("sdfProperties", "csdfProperties")
    properties = [child for child in applications[0].children if child.tag in tags]
    if len(properties) > 1:
        raise _ReadError(properties[1], "the properties are given twice")
    return bodies[0], properties[0] if properties else None


def _get(element: Element, attribute: str) -> str:
    if attribute not in element.attributes:
        raise _ReadError(element, f"element {element.tag!r} has no attribute {attribute!r}")
    return element.attributes[attribute]


def _bytes(size: Element) -> int:
    bits = _get(size, "sz").strip()
    if not _COUNT.fullmatch(bits):
        raise _ReadError(size, f"the token size {_short(bits)} is no number of bits")
    return -(-int(bits) // 8)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
