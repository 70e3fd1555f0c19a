"""Check a certificate of a dataflow graph: `python check.py CERTIFICATE GRAPH.json`.

This file needs only the standard library, shares no code with the analyser, and is written from the
definitions in docs/certificates.md. All that a firing can wait for is an **arc**: firings of its
target take tokens from it when they start, firings of its source put tokens when they end.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import sys
from collections import namedtuple
from fractions import Fraction
from pathlib import Path
from typing import Any

_TIME = re.compile(r"\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?|\d{1,30}/0*[1-9]\d{0,29}", re.ASCII)


class RefusedError(Exception):
    """The certificate does not prove what it claims, or one of the files is malformed."""


class _Rates:
    """The tokens that the phases of an actor move, one phase after the other, over and over."""

    def __init__(self, rates: list[int]) -> None:
        self.of_phase = [number(rate) for rate in rates]
        self._before = [0, *itertools.accumulate(self.of_phase)]
        self.total, self.phases = self._before[-1], len(self.of_phase)
        require(self.total, "a channel has no rate above 0")

    def before(self, firing: int) -> int:
        """Return what all firings before this one move; below 0 backwards."""
        cycles, phase = divmod(firing, self.phases)
        return cycles * self.total + self._before[phase]

    def alternates(self, tokens: int, takes: _Rates) -> bool:
        """Return whether firing i + 1 always needs the tokens that firing i puts."""
        return all(tokens + self.before(i) < takes.before(i + 2) for i in range(self.phases))


Arc = namedtuple("Arc", "source target puts takes tokens channel kind")


class _Graph:
    """Times and concurrency (None: no bound) by actor, and channels, read from JSON."""

    def __init__(self, found: Any) -> None:
        self.times, self.concurrency = dict[str, list[Fraction]](), dict[str, Any]()
        self.channels: dict[str, tuple[str, str, _Rates, _Rates, int, int | None]] = {}
        for one in of(found["actors"], list):
            name, times = of(one["name"], str), of(one["execution_times"], list)
            require(times and name not in self.times, f"actor {name!r} has no times, or is two")
            self.times[name] = [fraction(time) for time in times]
            self.concurrency[name] = one.get("concurrency")
        self.phases = {actor: len(times) for actor, times in self.times.items()}
        self.firings = dict[str, int]()  # in an iteration
        for one in of(found["channels"], list):
            name, source, target = of(one["name"], str), one["source"], one["target"]
            require(name not in self.channels, f"two channels are called {name!r}")
            puts, takes = (_Rates(of(one[key], list)) for key in ("production", "consumption"))
            fit = (puts.phases, takes.phases) == (self.phases[source], self.phases[target])
            require(fit, f"channel {name!r} has other numbers of phases than its ends")
            tokens = number(one.get("initial_tokens") or 0)
            self.channels[name] = (source, target, puts, takes, tokens, one.get("capacity"))

    def arcs(self, less: str | None = None) -> list[Arc]:
        """Return all arcs; `less` has one place less, or one token if it has no capacity."""
        found = []
        for name, (source, target, puts, takes, tokens, capacity) in self.channels.items():
            held = number(tokens - (name == less and capacity is None))
            found.append(Arc(source, target, puts, takes, held, name, "tokens"))
            if capacity is not None:
                free = number(number(capacity) - tokens - (name == less))
                found.append(Arc(target, source, takes, puts, free, name, "space"))
        for actor, bound in self.concurrency.items():
            if bound is not None:
                ones = _Rates([1] * self.phases[actor])
                found.append(Arc(actor, actor, ones, ones, number(bound, 1), None, "concurrency"))
        return found


def execute(graph: _Graph, arcs: list[Arc], schedule: Any) -> tuple[list[int], dict[str, int]]:
    """Fire one firing after the other; return the tokens of all arcs, and the firings by actor."""
    tokens, fired = [arc.tokens for arc in arcs], dict.fromkeys(graph.phases, 0)
    at: dict[str, list[int]] = {actor: [] for actor in graph.phases}
    for place, arc in enumerate(arcs):
        for end in {arc.source, arc.target}:
            at[end].append(place)
    for actor, count in of(schedule, list):
        first = fired[actor]
        fired[actor] = last = first + number(count, 1)
        for place in at[actor]:
            arc, held = arcs[place], tokens[place]
            took = arc.takes.before(last) - arc.takes.before(first) if arc.target == actor else 0
            put = arc.puts.before(last) - arc.puts.before(first) if arc.source == actor else 0
            lowest = held - took
            if arc.source == arc.target:  # each firing puts before the next takes
                base = held - arc.puts.before(first) + arc.takes.before(first)
                some = range(first, min(last, first + arc.puts.phases))
                lowest = base + min(arc.puts.before(i) - arc.takes.before(i + 1) for i in some)
            require(lowest >= 0, f"{actor!r} fires without the {arc.kind} of {arc.channel!r}")
            tokens[place] += put - took
    return tokens, fired


def check_deadlock(graph: _Graph, arcs: list[Arc], fired: Any, waits: Any) -> None:
    """Check that in a state that can be reached, actors wait for each other, and so for ever."""
    tokens, firings = execute(graph, arcs, fired)
    held = {(arc.target, arc.channel, arc.kind): (arc, tokens[i]) for i, arc in enumerate(arcs)}
    for wait, (provider, *_) in itertools.pairwise([*waits, waits[0]]):
        arc, there = held[tuple(wait)]
        takes = arc.takes.of_phase[firings[arc.target] % arc.takes.phases]
        require(there < takes, f"{arc.target!r} need not wait: {wait}")
        require(arc.source == provider, f"{arc.source!r} does not wait, and may end {wait}")


def check_cycle(graph: _Graph, arcs: list[Arc], iterations: int, steps: Any) -> Fraction:
    """Check that each firing of a cycle waits for the end of the one before; return its ratio.

    The first step follows the last, `iterations` later. If the firings of an actor end in
    the order of their starts, firing j of an arc's target waits for the end of firing i of its
    source if what the arc held at first and what firings before i put is not enough.
    """
    named = {(arc.channel, arc.kind, arc.source, arc.target): arc for arc in arcs}
    own = [arc for arc in arcs if arc.source == arc.target]
    alone = {arc.source for arc in own if arc.puts.alternates(arc.tokens, arc.takes)}
    total, actor = Fraction(0), of(steps, list)[0][0]
    again = [actor, steps[0][1] + number(iterations, 1) * graph.firings[actor]]
    for (actor, i, channel, kind), (after, j, *_) in itertools.pairwise([*steps, again]):
        if kind == "order":
            require(actor == after and number(i) <= number(j), f"{actor!r}: firings not in order")
            continue
        arc, times = named[channel, kind, actor, after], graph.times[actor]
        require(actor in alone or len(set(times)) == 1, f"firings of {actor!r} might overtake")
        too_few = arc.tokens + arc.puts.before(number(i)) < arc.takes.before(number(j) + 1)
        require(too_few, f"firing {j} of {after!r} does not wait for firing {i} of {actor!r}")
        total += times[i % len(times)]
    return total / iterations


def check_schedule(graph: _Graph, arcs: list[Arc], period: Any, unit: int, starts: Any) -> None:
    """Check that every firing of a periodic schedule finds its tokens."""
    fields(starts, *graph.times)
    lasts = {actor: [whole(t * number(unit, 1)) for t in own] for actor, own in graph.times.items()}
    turns, firings = {}, graph.firings
    for actor, own in starts.items():
        fits = of(own, list) and len(own) % graph.phases[actor] == firings[actor] % len(own) == 0
        require(fits, f"the starts of {actor!r} fit no iteration")
        turns[actor] = whole(period * unit * len(own) / firings[actor])

    def start(actor: str, firing: int) -> int:
        cycle, place = divmod(firing, len(starts[actor]))
        return number(starts[actor][place]) + cycle * turns[actor]

    def end(actor: str, firing: int) -> int:
        return start(actor, firing) + lasts[actor][firing % len(lasts[actor])]

    for actor, own in starts.items():
        for i in range(len(own)):
            ordered = start(actor, i) <= start(actor, i + 1) and end(actor, i) <= end(actor, i + 1)
            require(ordered, f"firings {i} and {i + 1} of {actor!r} are not in order")
    for arc in arcs:
        last = (-arc.tokens // arc.puts.total - 1) * arc.puts.phases
        for j in range(firings[arc.target]):
            if arc.takes.of_phase[j % arc.takes.phases]:
                needs = arc.takes.before(j + 1) - arc.tokens
                while arc.puts.before(last + 1) < needs:
                    last += 1
                in_time = start(arc.target, j) >= end(arc.source, last)
                require(in_time, f"firing {j} of {arc.target!r} starts too early for {arc[5:]}")


def check_repetitions(graph: _Graph, counts: dict[str, int]) -> None:
    """Check that an iteration leaves every channel as it was, and that none is shorter."""
    fields(counts, *graph.phases)
    graph.firings = {actor: number(counts[actor], 1) * n for actor, n in graph.phases.items()}
    parts = {actor: [actor] for actor in graph.phases}
    for name, (source, target, puts, takes, *_) in graph.channels.items():
        change = counts[source] * puts.total - counts[target] * takes.total
        require(change == 0, f"an iteration changes the number of tokens in channel {name!r}")
        if parts[source] is not parts[target]:
            parts[source] += parts[target]
            parts.update(dict.fromkeys(parts[target], parts[source]))
    for own in {id(own): own for own in parts.values()}.values():
        common = math.gcd(*(counts[actor] for actor in own))
        require(common == 1, f"the repetitions of {own[0]!r} and others have a common divisor")


def check_inconsistent(graph: _Graph, names: list[str]) -> None:
    """Check that no repetition counts fit the rates around a closed walk along channels."""
    for begin in graph.channels[of(names, list)[0]][:2]:
        at, ratio = begin, Fraction(1)
        for name in names:
            source, target, puts, takes, *_ = graph.channels[name]
            ratio *= Fraction(puts.total, takes.total) ** (1 if at == source else -1)
            at = target if at == source else source if at == target else ""
        if at == begin and ratio != 1:
            return
    raise RefusedError("the channels do not lead around, or their rates agree")


def check(certificate: bytes, graph: bytes) -> dict[str, Any]:
    """Return what a certificate proves of the graph in a file, by claim. Raises `RefusedError`."""
    try:
        found, about = (json.loads(file, parse_float=str) for file in (graph, certificate))
        return _check(_Graph(found), about, hashlib.sha256(graph).hexdigest())
    except (LookupError, TypeError, ArithmeticError, ValueError, RecursionError) as error:
        raise RefusedError(f"a file is malformed: {error!r}") from None


def _check(graph: _Graph, about: dict[str, Any], digest: str) -> dict[str, Any]:
    keys = ["format", "graph"]
    require([about[key] for key in keys] == ["csdf-certificate 1", digest], "not about this graph")
    if "inconsistent" in about:
        check_inconsistent(graph, fields(about, *keys, "inconsistent")["inconsistent"])
        return {"consistent": False}
    check_repetitions(graph, about["repetitions"])
    arcs = graph.arcs()
    if "deadlock" in about:
        found = fields(about, *keys, "repetitions", "deadlock")["deadlock"]
        check_deadlock(graph, arcs, **found)
        return {"consistent": True, "live": False}
    keys += [key for key in ("period", "capacities") if key in about]
    fired = execute(graph, arcs, fields(about, *keys, "repetitions", "live")["live"])[1]
    require(fired == graph.firings, "the schedule is not one iteration")
    claims: dict[str, Any] = {"consistent": True, "live": True}
    if "period" in about:
        found = fields(about["period"], "value", "unit", "starts", "cycle")
        claims["period"] = period = fraction(found["value"])
        check_schedule(graph, arcs, period, found["unit"], found["starts"])
        ratio = check_cycle(graph, arcs, **found["cycle"]) if found["cycle"] else 0
        require(ratio == period, f"the cycle takes {ratio} an iteration, and not {period}")
    for name, reason in of(about.get("capacities", {}), dict).items():
        less = graph.arcs(less=name)
        if "deadlock" in of(reason, dict):
            check_deadlock(graph, less, **fields(reason, "deadlock")["deadlock"])
        else:
            slower = check_cycle(graph, less, **fields(reason, "cycle")["cycle"])
            require("period" in claims and slower > period, f"{name!r}: no slower with less room")
        claims.setdefault("capacities", []).append(name)
    return claims


def require(holds: object, sentence: str) -> None:
    """Raise `RefusedError` with the sentence unless `holds`."""
    if not holds:
        raise RefusedError(sentence)


def of(found: Any, kind: type) -> Any:
    """Return `found`, which must be of that kind."""
    require(type(found) is kind, f"{str(found)[:40]!r} should be a {kind.__name__}")
    return found


def number(found: Any, least: int = 0) -> int:
    """Return `found`, which must be an integer of at least `least`."""
    require(of(found, int) >= least, f"{found} is less than {least}")
    return int(found)


def whole(found: Fraction) -> int:
    """Return `found`, which must be an integer."""
    require(found.denominator == 1, "a time is not a multiple of the unit")
    return int(found)


def fraction(found: Any) -> Fraction:
    """Return a number that is written as an integer, a decimal, or a fraction in a string."""
    text = str(found) if type(found) is int else of(found, str)
    require(_TIME.fullmatch(text), f"{text[:40]!r} is not a number of at least 0")
    return Fraction(text)


def fields(found: Any, *keys: str) -> dict[str, Any]:
    """Return `found`, which must be an object with just these keys."""
    require(of(found, dict).keys() == set(keys), f"there should be just {sorted(keys)}")
    return dict(found)


def main(arguments: list[str]) -> int:
    """Check the certificate and the graph whose paths are given; return the exit code."""
    try:
        certificate, graph = (Path(path).read_bytes() for path in arguments)
        for claim, value in check(certificate, graph).items():
            sys.stdout.write(f"proved: {claim} {value}\n")
    except (RefusedError, OSError, ValueError) as error:
        sys.stderr.write(f"not proved: {error}\n")
        return 1 if isinstance(error, RefusedError) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
