"""Read and write SDF3 XML, the format in which dataflow graphs are exchanged.

Rates and execution times are lists with one entry per phase, such as `1,2,1` or `18*32` for
eighteen times 32; one value stands for all phases. An SDF graph is the case of one phase. SDF3 has
neither capacities nor bounds on concurrency. A capacity is written as a reverse channel and a bound
as a self-channel, and both are read as the channels that they are, so a graph with them does not
read back the same but behaves the same. `tokenSize` counts bits. Buffer sizes (`bufferSize`) are
results of a mapping in SDF3, not bounds, and are not read. If an actor has several processors, its
default one counts, the last of them if there are several. Phases that happen once, before the cycle
(`3,3;1,1,0`, as the K-Iter tool writes them), leave the graph in the state after them
(`csdf.formats.initial_phases`).

The number of entries of all lists of a file together is bounded, however briefly they are written.

Source: S. Stuijk, M. C. W. Geilen, T. Basten, "SDF3: SDF for free", ACSD 2006.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from csdf.errors import CsdfError, GraphError
from csdf.formats import safe_xml
from csdf.formats.initial_phases import Ends, after_initial_phases
from csdf.formats.safe_xml import Element, quoted
from csdf.model.graph import Actor, Channel, Graph

MAX_ENTRIES = 2_000_000
"""Largest number of entries of all lists of a file, with runs and single values expanded."""

COUNT = re.compile(r"\d{1,18}", re.ASCII)
# A decimal in full, as it is written again, has up to 160 digits.
_TIME = re.compile(
    r"(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,2})?|\d{1,160}(/0*[1-9]\d{0,159})?",
    re.ASCII,
)

_Number = TypeVar("_Number", int, Fraction)

_SHORTEST_RUN = 4

_UNTIMED = (Fraction(0),)


class ReadError(CsdfError):
    """An element of the file is wrong; the message names its line."""

    def __init__(self, element: Element, message: str) -> None:
        super().__init__(f"line {element.line}: {message}")


class Lists:
    """The lists of one file. All methods raise `ReadError`."""

    def __init__(self) -> None:
        self._entries = 0

    def rates(self, port: Element) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the rates of a `port` element, of initial phases and of those of the cycle."""
        return self._read(port, "rate", COUNT, int)

    def times(self, execution_time: Element) -> tuple[Fraction, ...]:
        """Return the times of an `executionTime` element, without those of initial phases."""
        return self._read(execution_time, "time", _TIME, Fraction)[1]

    def spread(
        self, values: tuple[_Number, ...], phases: int, element: Element, what: str, actor: str
    ) -> tuple[_Number, ...]:
        """Return as many values as the `phases` of `actor`; a single value stands for all."""
        if len(values) == phases:
            return values
        if len(values) != 1:
            raise ReadError(
                element, f"{len(values)} {what} for the {phases} phases of actor {actor!r}"
            )
        self._count(element, phases)
        return values * phases

    def _read(
        self,
        element: Element,
        attribute: str,
        pattern: re.Pattern[str],
        number: Callable[[str], _Number],
    ) -> tuple[tuple[_Number, ...], tuple[_Number, ...]]:
        initial, semicolon, cycle = get(element, attribute).rpartition(";")
        first = self._numbers(element, attribute, initial, pattern, number) if semicolon else ()
        return first, self._numbers(element, attribute, cycle, pattern, number)

    def _numbers(
        self,
        element: Element,
        attribute: str,
        text: str,
        pattern: re.Pattern[str],
        number: Callable[[str], _Number],
    ) -> tuple[_Number, ...]:
        if text.count(",") >= MAX_ENTRIES:  # before splitting them
            self._count(element, MAX_ENTRIES + 1)
        found: list[_Number] = []
        for entry in text.split(","):
            times, star, value = entry.strip().rpartition("*")
            repeat = times.strip() if star else "1"
            if not (COUNT.fullmatch(repeat) and pattern.fullmatch(value.strip())):
                kind = (
                    "a whole number ≥ 0 of at most 18 digits" if number is int else "a number ≥ 0"
                )
                raise ReadError(
                    element,
                    f"{attribute} {short(text)} is not a list of numbers: {short(entry.strip())} "
                    f"is not {kind}",
                )
            self._count(element, int(repeat))
            found.extend([number(value.strip())] * int(repeat))
        if not found:
            raise ReadError(element, f"{attribute} {short(text)} lists no phase")
        return tuple(found)

    def _count(self, element: Element, entries: int) -> None:
        self._entries += entries
        if self._entries > MAX_ENTRIES:
            raise ReadError(element, f"the lists have more than {MAX_ENTRIES} entries together")


def get(element: Element, attribute: str) -> str:
    """Return a required attribute. Raises `ReadError`."""
    if attribute not in element.attributes:
        raise ReadError(element, f"element {element.tag!r} has no attribute {attribute!r}")
    return element.attributes[attribute]


def short(text: str) -> str:
    """Return `text` in quotes, shortened if it is long."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def write(graph: Graph) -> str:
    """Return `graph` as SDF3 XML of type `csdf`.

    Raises `CsdfError` if a name has a control character, which XML cannot hold.

    >>> actors = Actor("a", (Fraction(2),)), Actor("b", (Fraction(3),))
    >>> graph = Graph("g", actors, (Channel("c", "a", "b", (1,), (1,)),))
    >>> parse(write(graph).encode()) == graph
    True
    """
    for name in (graph.name, *graph.actor, *graph.channel):
        if any(ord(character) < 32 and character not in "\t\n\r" for character in name):
            raise CsdfError(f"the name {name!r} has a control character, which XML cannot hold")
    channels = [*graph.channels, *_implied(graph)]
    ports: dict[str, list[str]] = {actor.name: [] for actor in graph.actors}
    for channel in channels:
        for end, direction, rates in (
            (channel.source, "out", channel.production),
            (channel.target, "in", channel.consumption),
        ):
            port = _element(
                "port", type=direction, name=_port(direction, channel), rate=_list(rates)
            )
            ports[end].append(f"      {port}")
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<sdf3 type="csdf" version="1.0">']
    lines.append(f" <applicationGraph name={quoted(graph.name)}>")
    lines.append(f"  <csdf name={quoted(graph.name)} type={quoted(graph.name)}>")
    for actor_name, own in ports.items():
        lines.append(f"   <actor name={quoted(actor_name)} type={quoted(actor_name)}>")
        lines += [*own, "   </actor>"]
    lines += [
        "   "
        + _element(
            "channel",
            name=channel.name,
            srcActor=channel.source,
            srcPort=_port("out", channel),
            dstActor=channel.target,
            dstPort=_port("in", channel),
            initialTokens=str(channel.initial_tokens),
        )
        for channel in channels
    ]
    lines += ["  </csdf>", "  <csdfProperties>"]
    for actor in graph.actors:
        time = _element("executionTime", time=_list(actor.execution_times))
        lines.append(f"   <actorProperties actor={quoted(actor.name)}>")
        lines.append(f'    <processor type="default" default="true">{time}</processor>')
        lines.append("   </actorProperties>")
    for channel in channels:
        size = _element("tokenSize", sz=str(8 * channel.token_bytes))
        about = f"channelProperties channel={quoted(channel.name)}"
        lines.append(f"   <{about}>{size}</channelProperties>")
    lines += ["  </csdfProperties>", " </applicationGraph>", "</sdf3>", ""]
    return "\n".join(lines)


def _implied(graph: Graph) -> list[Channel]:
    """Return channels that express the graph's capacities and bounds on concurrency."""
    taken = set(graph.channel)

    def free(name: str) -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    spaces = [
        Channel(
            free(f"{channel.name}_space"),
            channel.target,
            channel.source,
            channel.consumption,
            channel.production,
            channel.capacity - channel.initial_tokens,
        )
        for channel in graph.channels
        if channel.capacity is not None
    ]
    bounds = [
        Channel(
            free(f"{actor.name}_self"),
            actor.name,
            actor.name,
            (1,) * actor.phases,
            (1,) * actor.phases,
            actor.concurrency,
        )
        for actor in graph.actors
        if actor.concurrency is not None
    ]
    return [*spaces, *bounds]


def _port(direction: str, channel: Channel) -> str:
    return f"{direction}_{channel.name}"


def _element(tag: str, **attributes: str) -> str:
    return f"<{tag} {' '.join(f'{key}={quoted(value)}' for key, value in attributes.items())}/>"


def _list(values: Sequence[int | Fraction]) -> str:
    entries: list[str] = []
    for value, run in itertools.groupby(values):
        count = len(list(run))
        text = _decimal(Fraction(value))
        entries += [f"{count}*{text}"] if count >= _SHORTEST_RUN else [text] * count
    return ",".join(entries)


def _decimal(value: Fraction) -> str:
    """Return the exact value as a decimal, or as a fraction if its decimals do not end."""
    twos, fives, rest = 0, 0, value.denominator
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    if rest != 1 or places > 30:
        return f"{value.numerator}/{value.denominator}"
    digits = str(int(value * 10**places)).rjust(places + 1, "0")
    return digits if places == 0 else f"{digits[:-places]}.{digits[-places:]}"


class Sdf3Error(CsdfError):
    """The file is not SDF3 XML that can be read; the message names file, line and element."""


def read(path: str | Path, processor: str | None = None) -> Graph:
    """Return the graph in an SDF3 file of type `sdf` or `csdf`; see `parse`.

    Raises `Sdf3Error`, which starts with the path.
    """
    return parse(contents(path), str(path), processor)


def parse(data: bytes, origin: str = "SDF3 XML", processor: str | None = None) -> Graph:
    """Return the graph in `data`.

    An actor's times are those of the processor type `processor` if it has that, otherwise those of
    its (last) default one. Raises `Sdf3Error`, whose message starts with `origin`, also if an actor
    has no execution time.
    """
    graph, untimed = _parse(data, origin, processor)
    for error in untimed.values():
        raise Sdf3Error(f"{origin}: {error}")
    return graph


def read_for_analysis(
    path: str | Path, processor: str | None = None
) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph in a file, and the names of its actors without execution times.

    In the graph, these actors have times of 0. Otherwise as `read`.
    """
    return parse_for_analysis(contents(path), str(path), processor)


def read_on(path: str | Path, processor: str) -> tuple[Graph, Mapping[str, tuple[Fraction, ...]]]:
    """Return the graph in a file, and the times of the actors that have this processor type.

    In the graph, other actors have times of 0. Otherwise as `read`.
    """
    graph, untimed = _parse(contents(path), str(path), processor, only=True)
    if len(untimed) == len(graph.actors):
        raise Sdf3Error(f"{path}: no actor has an execution time on a processor {processor!r}")
    return graph, {a.name: a.execution_times for a in graph.actors if a.name not in untimed}


def parse_for_analysis(
    data: bytes, origin: str = "SDF3 XML", processor: str | None = None
) -> tuple[Graph, tuple[str, ...]]:
    """Return what `read_for_analysis` does, from `data`."""
    graph, untimed = _parse(data, origin, processor)
    return graph, tuple(untimed)


def _parse(
    data: bytes, origin: str, processor: str | None, *, only: bool = False
) -> tuple[Graph, dict[str, ReadError]]:
    try:
        reader = GraphReader(*_parts(safe_xml.parse(data)), processor, only=only)
        return reader.graph(), reader.untimed
    except safe_xml.NotXmlError as error:
        if origin.lower().endswith("xml"):
            raise Sdf3Error(f"{origin}: {error}") from None
        raise Sdf3Error(
            f"{origin}: is not a graph; a graph is a JSON file, whose name ends in .json, or an "
            "SDF3 XML file of type sdf or csdf"
        ) from None
    except (safe_xml.XmlError, GraphError, ReadError) as error:
        raise Sdf3Error(f"{origin}: {error}") from None


def contents(path: str | Path) -> bytes:
    """Return the bytes of a file, up to one more than may be parsed. Raises `Sdf3Error`."""
    try:
        with Path(path).open("rb") as file:
            return file.read(safe_xml.MAX_BYTES + 1)
    except OSError as error:
        raise Sdf3Error(f"{path}: cannot be read: {error.strerror or error}") from error


class GraphReader:
    """One pass over the elements of a graph and of its properties: `graph` builds the graph.

    With `only`, an actor without the processor type `processor` has no execution time.
    """

    def __init__(
        self,
        body: Element,
        properties: Element | None,
        processor: str | None,
        *,
        only: bool = False,
    ) -> None:
        self._processor, self._only = processor, only
        self._lists = Lists()
        self._body, self._properties = body, properties
        self._ports: dict[tuple[str, str], Element] = {}
        self._rates: dict[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._phases: dict[str, int] = {}
        self._initial: dict[str, int] = {}
        self._initial_rates: dict[str, Ends] = {}
        self.untimed: dict[str, ReadError] = {}
        """The error of each actor without execution times, for analyses that need them."""

    def graph(self) -> Graph:
        """Return the graph, in which untimed actors have times of 0. Raises as `parse` does."""
        times: dict[str, Element] = {}
        for about in self._about("actorProperties"):
            name = get(about, "actor")
            if name in times:
                raise ReadError(about, f"the properties of actor {name!r} are given twice")
            times[name] = about
        actors = tuple(self._actor(element, times) for element in self._body.all("actor"))
        token_bytes = {
            get(about, "channel"): _bytes(size)
            for about in self._about("channelProperties")
            for size in about.all("tokenSize")
        }
        channels = tuple(
            self._channel(element, token_bytes) for element in self._body.all("channel")
        )
        graph = Graph(self._body.attributes.get("name", ""), actors, channels)
        if not any(self._initial.values()):
            return graph
        return after_initial_phases(graph, self._initial_rates)

    def _about(self, tag: str) -> list[Element]:
        return self._properties.all(tag) if self._properties is not None else []

    def _actor(self, element: Element, times: dict[str, Element]) -> Actor:
        name = get(element, "name")
        if name in self._phases:
            raise ReadError(element, f"two actors are called {name!r}")
        duration = self._duration(element, times.get(name), name)
        own = _UNTIMED if duration is None else self._lists.times(duration)
        phases = len(own)
        for port in element.all("port"):
            key = (name, get(port, "name"))
            if key in self._ports:
                raise ReadError(port, f"actor {name!r} has two ports {key[1]!r}")
            self._ports[key] = port
            self._rates[key] = self._lists.rates(port)
            initial, cycle = self._rates[key]
            phases = max(phases, len(cycle))
            self._initial[name] = max(self._initial.get(name, 0), len(initial))
        self._phases[name] = phases
        return Actor(name, self._lists.spread(own, phases, duration or element, "times", name))

    def _duration(self, element: Element, about: Element | None, actor: str) -> Element | None:
        """Return the element with the actor's times; if there is none, None and note that."""
        if about is None:
            why = f"actor {actor!r} has no execution time: there is no actorProperties for it"
            self.untimed[actor] = ReadError(element, why)
            return None
        processor = self._processor_of(about, actor)
        if processor is None:
            why = f"actor {actor!r} has no execution time: it has no processor"
            self.untimed[actor] = ReadError(about, why)
            return None
        durations = processor.all("executionTime")
        if not durations:
            self.untimed[actor] = ReadError(about, f"actor {actor!r} has no execution time")
            return None
        if len(durations) > 1:
            raise ReadError(about, f"actor {actor!r} has two execution times for one processor")
        return durations[0]

    def _processor_of(self, about: Element, actor: str) -> Element | None:
        """Return the requested processor, otherwise the last default one, as SDF3 does."""
        processors = about.all("processor")
        named = [p for p in processors if p.attributes.get("type") == self._processor]
        if named:
            return named[0]
        if self._only:
            return None
        defaults = [p for p in processors if p.attributes.get("default") in ("true", "1")]
        if defaults:
            return defaults[-1]
        if len(processors) == 1:
            return processors[0]
        if not processors:
            return None
        types = ", ".join(repr(p.attributes.get("type", "")) for p in processors)
        raise ReadError(
            about,
            f"actor {actor!r} has execution times for {types}, and none is the default; "
            "name one (--processor)",
        )

    def _channel(self, element: Element, token_bytes: dict[str, int]) -> Channel:
        name = get(element, "name")
        source, first_put, production = self._end(element, "src", "out")
        target, first_taken, consumption = self._end(element, "dst", "in")
        self._initial_rates[name] = first_put, first_taken
        tokens = element.attributes.get("initialTokens", "0").strip()
        if not COUNT.fullmatch(tokens):
            raise ReadError(
                element,
                f"channel {name!r} starts with {short(tokens)} tokens; "
                "give a whole number ≥ 0 of at most 18 digits",
            )
        size = token_bytes.get(name, 1)
        return Channel(name, source, target, production, consumption, int(tokens), None, size)

    def _end(
        self, element: Element, end: str, direction: str
    ) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """Return the actor, and the rates of its initial phases and of its cycle."""
        name = get(element, "name")
        actor, port = get(element, f"{end}Actor"), get(element, f"{end}Port")
        if actor not in self._phases:
            raise ReadError(element, f"channel {name!r} names {actor!r}, which is not an actor")
        if (actor, port) not in self._ports:
            raise ReadError(element, f"channel {name!r}: actor {actor!r} has no port {port!r}")
        about, (initial, rates) = self._ports[actor, port], self._rates[actor, port]
        if about.attributes.get("type") != direction:
            raise ReadError(about, f"port {port!r} of {actor!r} should have type {direction!r}")
        phases = self._initial[actor]
        if len(initial) != phases:
            raise ReadError(
                about,
                f"port {port!r} has {len(initial)} rates for the {phases} initial phases of actor "
                f"{actor!r}; give one for each before a semicolon",
            )
        return actor, initial, self._lists.spread(rates, self._phases[actor], about, "rates", actor)


def _parts(root: Element) -> tuple[Element, Element | None]:
    """Return the elements of the graph and of its properties."""
    if root.tag != "sdf3":
        raise ReadError(root, f"the root element is {root.tag!r}, not 'sdf3'")
    kind = root.attributes.get("type", "")
    if kind not in ("sdf", "csdf"):
        more = "; csdf scenarios reads it" if kind == "fsmsadf" else ""
        raise ReadError(
            root, f"graphs of type {kind!r} cannot be read, only 'sdf' and 'csdf'{more}"
        )
    applications = root.all("applicationGraph")
    if len(applications) != 1:
        raise ReadError(root, f"has {len(applications)} application graphs instead of one")
    bodies = [child for child in applications[0].children if child.tag in ("sdf", "csdf")]
    if len(bodies) != 1:
        raise ReadError(applications[0], f"has {len(bodies)} graphs instead of one")
    tags = ("sdfProperties", "csdfProperties")
    properties = [child for child in applications[0].children if child.tag in tags]
    if len(properties) > 1:
        raise ReadError(properties[1], "the properties are given twice")
    return bodies[0], properties[0] if properties else None


def _bytes(size: Element) -> int:
    bits = get(size, "sz").strip()
    if not COUNT.fullmatch(bits):
        raise ReadError(size, f"the token size {short(bits)} is not a number of bits")
    return -(-int(bits) // 8)
