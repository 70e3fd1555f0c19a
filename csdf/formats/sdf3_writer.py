"""Writes a graph as SDF3 XML; what `csdf.formats.sdf3` reads back behaves the same.

A graph without capacities and bounds on overlap comes back as it is. A capacity becomes a reverse
channel, a bound a self-channel, because SDF3 has no other words for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from csdf.errors import CsdfError
from csdf.formats.xml_text import quoted
from csdf.model.graph import Channel, Graph

_SHORTEST_RUN = 4


def write(graph: Graph) -> str:
    """`graph` as SDF3 XML of type `csdf`. Raises `CsdfError` if a name cannot be written in XML."""
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
    """The channels that stand for capacities and bounds on overlap."""
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
    """Exactly: as a decimal if that ends, else as a fraction."""
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
