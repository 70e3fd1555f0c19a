"""Check a certificate of a dataflow graph or of a plan: `python check.py CERTIFICATE GRAPH|PLAN`.

It is written from the definitions in docs/certificates.md. All that a firing can wait for is an
**arc**: firings of its target take tokens at their start, those of its source put some at the end.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections import namedtuple
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

_TIME = re.compile(r"\d+(\.\d+)?([eE][+-]?\d{1,2})?|\d+/0*[1-9]\d*", re.ASCII)
_ACTOR = ("name", "execution_times", "concurrency")
_CHANNEL = ("name", "source", "target", "production", "consumption", "initial_tokens", "capacity")
_MALFORMED = LookupError, TypeError, AttributeError, ArithmeticError, ValueError, RecursionError
_HOST = ("@source", "@sink")
Arc = namedtuple("Arc", "source target puts takes tokens channel kind")


class RefusedError(Exception):
    """The certificate does not prove what it claims, or one of the files is malformed."""


class _Graph:
    def __init__(self, actors: list[Any], channels: list[Any]) -> None:
        self.times = {name: [_fraction(time) for time in times] for name, times, _ in actors}
        self.phases = {name: len(times) for name, times in self.times.items()}
        _require(len(self.times) == len(actors), "two actors have the same name")
        self.arcs, self.firings = list[Arc](), dict[str, int]()  # those of a channel: space last
        for name, times, bound in actors:
            if bound is not None:
                one = _moved_before([1] * len(times))
                self.arcs.append(Arc(name, name, one, one, _number(bound, 1), None, "concurrency"))
        for name, source, target, puts, takes, tokens, capacity in channels:
            fit = (len(puts), len(takes)) == (self.phases[source], self.phases[target])
            _require(fit, f"channel {name!r} and its actors differ in their numbers of phases")
            put, take, held = _moved_before(puts), _moved_before(takes), _number(tokens or 0)
            self.arcs.append(Arc(source, target, put, take, held, name, "tokens"))
            if capacity is not None:
                free = _number(_number(capacity) - held)
                self.arcs.append(Arc(target, source, take, put, free, name, "space"))

    def execute(self, arcs: list[Arc], schedule: Any) -> tuple[list[int], dict[str, int]]:
        """Fire one after the other; return the tokens of all arcs, and the firings by actor."""
        tokens, fired = [arc.tokens for arc in arcs], dict.fromkeys(self.times, 0)
        at: dict[str, list[Any]] = {actor: [] for actor in fired}
        for place, arc in enumerate(arcs):
            for end in {arc.source, arc.target}:  # what the other end moves is 0
                put = arc.puts if arc.source == end else (0).__mul__
                at[end].append((place, put, arc.takes if arc.target == end else (0).__mul__))
        for actor, count in schedule:
            first, last = fired[actor], fired[actor] + _number(count, 1)
            fired[actor], some = last, range(max(first, last - self.phases[actor]), last)
            for place, put, take in at[actor]:
                held = tokens[place] - put(first) + take(first)
                enough = held + min(put(i) - take(i + 1) for i in some) >= 0
                _require(enough, f"{actor!r} fires without its tokens: {arcs[place][5:]}")
                tokens[place] = held + put(last) - take(last)
        return tokens, fired

    def check_deadlock(self, arcs: list[Arc], fired: Any, waits: Any) -> None:
        """Check that in a state that can be reached, actors wait for each other, so for ever."""
        tokens, firings = self.execute(arcs, fired)
        held = {(arc.target, arc.channel, arc.kind): (arc, tokens[i]) for i, arc in enumerate(arcs)}
        for wait, (provider, *_) in pairwise([*waits, waits[0]]):
            (arc, there), i = held[tuple(wait)], firings[wait[0]]
            _require(there < arc.takes(i + 1) - arc.takes(i), f"an actor need not wait: {wait}")
            _require(arc.source == provider, f"{arc.source!r} does not wait, and may end {wait}")

    def check_cycle(self, arcs: list[Arc], iterations: int, steps: Any) -> Fraction:
        """Check that each firing of a cycle waits for the end of the last; return the ratio."""
        named = {(arc.channel, arc.kind, arc.source, arc.target): arc for arc in arcs}
        ordered = {actor for actor, times in self.times.items() if len(set(times)) == 1}
        for actor, arc in ((arc.source, arc) for arc in arcs if arc.source == arc.target):
            if all(arc.tokens + arc.puts(i) < arc.takes(i + 2) for i in range(self.phases[actor])):
                ordered.add(actor)
        total, actor = Fraction(0), steps[0][0]
        again = [actor, steps[0][1] + _number(iterations, 1) * self.firings[actor]]
        for (actor, i, channel, kind), (after, j, *_) in pairwise([*steps, again]):
            if kind == "order" and actor == after and _number(i) <= _number(j):
                continue
            arc, times = named[channel, kind, actor, after], self.times[actor]
            _require(actor in ordered, f"firings of {actor!r} might overtake")
            too_few = arc.tokens + arc.puts(_number(i)) < arc.takes(_number(j) + 1)
            _require(too_few, f"firing {j} of {after!r} does not wait for firing {i} of {actor!r}")
            total += times[i % len(times)]
        return total / iterations

    def check_schedule(self, period: Fraction, unit: int, starts: Any) -> None:
        """Check that every firing of a periodic schedule finds its tokens."""
        lasts = {a: [_number(t * _number(unit, 1)) for t in own] for a, own in self.times.items()}
        counts = {actor: len(own) for actor, own in _fields(starts, *self.times).items()}
        rounds = {a: _number(Fraction(self.firings[a], n)) for a, n in counts.items()}
        turns = {actor: _number(period * unit / n) for actor, n in rounds.items()}

        def time(actor: str, firing: int, ends: int) -> int:
            cycle, place = divmod(firing, counts[actor])
            start = _number(starts[actor][place]) + cycle * turns[actor]
            return start + ends * lasts[actor][firing % self.phases[actor]]

        for actor, i in ((one, i) for one, n in self.firings.items() for i in range(n)):
            later = (time(actor, i, ends) <= time(actor, i + 1, ends) for ends in (0, 1))
            _require(all(later), f"firings {i} and {i + 1} of {actor!r} are not in order")
        for arc in self.arcs:
            phases = self.phases[arc.source]
            last = (-arc.tokens // arc.puts(phases) - 1) * phases
            for j in range(self.firings[arc.target]):
                if arc.takes(j) < arc.takes(j + 1):
                    while arc.tokens + arc.puts(last + 1) < arc.takes(j + 1):
                        last += 1
                    in_time = time(arc.target, j, 0) >= time(arc.source, last, 1)
                    _require(in_time, f"firing {j} of {arc.target!r} starts too early: {arc[5:]}")

    def check_repetitions(self, counts: Any) -> None:
        """Check that an iteration leaves every channel as it was, and that none is shorter."""
        counted = _fields(counts, *self.times).items()
        self.firings = fired = {actor: _number(n, 1) * self.phases[actor] for actor, n in counted}
        parts = {actor: [actor] for actor in self.times}
        for source, target, puts, takes, _, name, _ in self.arcs:
            _require(
                puts(fired[source]) == takes(fired[target]), f"{name!r} ends with other tokens"
            )
            if parts[source] is not parts[target]:
                parts[source] += parts[target]
                parts.update(dict.fromkeys(parts[target], parts[source]))
        for own in {id(own): own for own in parts.values()}.values():
            _require(math.gcd(*map(counts.get, own)) == 1, f"{own[0]!r}: a common divisor")

    def check(self, about: dict[str, Any]) -> dict[str, Any]:
        """Return what a certificate proves of this graph, by claim."""
        if "inconsistent" in about:
            channels = {arc.channel: arc for arc in self.arcs if arc.kind == "tokens"}
            around = [channels[name] for name in _fields(about, "inconsistent")["inconsistent"]]
            for begin in around[0][:2]:  # in either direction along the first
                at, ratio = begin, Fraction(1)
                for source, target, puts, takes, *_ in around:
                    change = Fraction(puts(self.phases[source]), takes(self.phases[target]))
                    ratio *= change if at == source else 1 / change
                    at = target if at == source else source if at == target else ...
                if at == begin and ratio != 1:
                    return {"consistent": False}
            raise RefusedError("the channels do not form a cycle, or their rates agree")
        self.check_repetitions(about["repetitions"])
        if "deadlock" in about:
            self.check_deadlock(self.arcs, **_fields(about, "repetitions", "deadlock")["deadlock"])
            return {"consistent": True, "live": False}
        keys = [key for key in ("period", "capacities") if key in about]
        fired = self.execute(self.arcs, _fields(about, *keys, "repetitions", "live")["live"])[1]
        _require(fired == self.firings, "the schedule is not one iteration")
        claims: dict[str, Any] = {"consistent": True, "live": True}
        if "period" in about:
            found = _fields(about["period"], "value", "unit", "starts", "cycle")
            claims["period"] = period = _fraction(found["value"])
            self.check_schedule(period, found["unit"], found["starts"])
            longest = self.check_cycle(self.arcs, **found["cycle"]) if found["cycle"] else 0
            _require(longest == period, f"the cycle takes {longest} an iteration, not {period}")
        for name, reason in about.get("capacities", {}).items():
            at = max(i for i, arc in enumerate(self.arcs) if arc.channel == name)
            less = [*self.arcs]
            less[at] = less[at]._replace(tokens=_number(less[at].tokens - 1))
            if "deadlock" in reason:
                self.check_deadlock(less, **_fields(reason, "deadlock")["deadlock"])
            else:
                slower = self.check_cycle(less, **_fields(reason, "cycle")["cycle"])
                _require("period" in claims and slower > period, f"{name!r}: as fast with less")
            claims.setdefault("capacities", []).append(name)
        return claims


def _graph_of(plan: Any, skews: dict[str, int], turns: Any) -> _Graph:
    """Return the graph of a plan's phases and the host; tokens are frames, or turns of a node."""
    actors = [(host, [0] * len(plan["dealing"]), 1) for host in _HOST]
    actors += [(phase["name"], [phase["predicted_s"]], 1) for phase in plan["phases"]]
    channels = [(f"{a}, {b}", a, b, [1], [1], int(b == own[0]), None) for a, b, own in turns]
    for one in plan["channels"]:
        source, dealt = one["source"], [int(copy == one["copy"]) for copy in plan["dealing"]]
        for target in one["targets"]:
            rates = (dealt if end in _HOST else [1] for end in (source, target))
            late, name = skews[target] - skews[source], f"{one['tensor']} → {target}"
            channels.append((name, source, target, *rates, late, _number(one["capacity_frames"])))
    return _Graph(actors, channels)


def _check_skews(channels: Any, skews: dict[str, int], where: Any, dual: Any) -> int:
    """Check that with no skews channels span fewer bytes × periods; return these."""
    spans, least, excess = 0, 0, dict.fromkeys(skews, 0)
    for one, own in zip(channels, dual, strict=True):
        source, targets = one["source"], one["targets"]
        for target, (share, flow) in zip(targets, own, strict=True):
            apart = int(where[source] != where[target])
            _require(skews[target] - skews[source] >= apart, f"{target!r} is too early")
            excess[target] += _number(share) - _number(flow)
            excess[source] -= share - flow
            least += flow * apart
        _require(sum(share for share, _ in own) == one["bytes"], "the shares do not add up")
        spans += one["bytes"] * (max(skews[target] for target in targets) - skews[source])
    excess[_HOST[0]] = least - spans  # whose skew is 0
    _require(min(excess.values()) >= 0, "other skews may need less")
    return spans


def _check_bound(costs: Any, layers: Any, bound: int, prices: Any) -> int:
    """Check that wherever layers are, a room holds `bound` for each of its places; return it."""
    spare = [_number(places, 1) * _number(bound) - _number(held) for places, held in costs["rooms"]]
    there, asked = sum(_number(p) * max(0, n) for p, n in zip(prices, spare, strict=True)), 0
    for own in _fields(costs["layers"], *layers).values():
        nodes = zip(map(_number, own), costs["nodes"], strict=True)
        fits = (c * sum(prices[i] for i in r) for c, r in nodes if c < min(spare[i] for i in r))
        asked += min(fits, default=there)
    _require(0 < there <= asked, "the rooms may hold less in all")
    return bound


def _check_plan(plan: Any, about: Any) -> dict[str, Any]:
    """Return what a certificate proves of a plan, by claim."""
    about = _fields(about, "orders", "skews", "bounds")
    found, channels, phases = (plan["derived"], *map(plan["derived"].get, ("channels", "phases")))
    placed = sorted((layer, phase["node"]) for phase in phases for layer in phase["layers"])
    assigned = sorted((layer, node) for node, own in plan["assignment"].items() for layer in own)
    _require(placed == assigned, "the phases are not those of the assignment")
    skews = {phase["name"]: _number(phase["skew"]) for phase in phases} | {_HOST[0]: 0}
    skews[_HOST[1]] = 1 + max(skews[one["source"]] for one in channels if one["to"] == "@host")
    where = {one["name"]: one["node"] for one in phases} | dict.fromkeys(_HOST, "@host")
    nodes = [[one["name"] for one in phases if one["node"] == node] for node in plan["assignment"]]
    turns = [(a, b, own) for own in nodes for a, b in pairwise([*own, *own[:1]])]
    still, claims = dict.fromkeys(skews, 0), dict[str, Any]()
    orders = {"any": (still, ()), "in turn": (still, turns), "pipelined": (skews, turns)}
    for order, graph in orders.items():
        claims |= _graph_of(found, *graph).check(_fields(about["orders"], *orders)[order])
        _require(claims["live"], f"{order}: the graph is not live")
    claims["spans"] = _check_skews(channels, skews, where, about["skews"])
    for what, own in about["bounds"].items():
        claims[what] = _check_bound(found["costs"][what], dict(placed), **own)
    return claims


def check(certificate: bytes, file: bytes) -> dict[str, Any]:
    """Return what is proved of the graph or the plan in a file, by claim. Raises `RefusedError`."""
    try:
        found, about = (json.loads(text, parse_float=str) for text in (file, certificate))
        what = "plan" if "plan" in about else "graph"
        head = "csdf-certificate 1", hashlib.sha256(file).hexdigest()
        _require((about.pop("format", ""), about.pop(what, "")) == head, f"made for another {what}")
        _require(about.pop("model", None) == found.get("model_digest"), "made for another model")
        if what == "plan":
            return _check_plan(found, about)
        actors = [[one.get(key) for key in _ACTOR] for one in found["actors"]]
        channels = [[one.get(key) for key in _CHANNEL] for one in found["channels"]]
        return _Graph(actors, channels).check(about)
    except _MALFORMED as error:
        raise RefusedError(f"a file is malformed: {error!r}") from None


def _require(holds: object, sentence: str) -> None:
    if not holds:
        raise RefusedError(sentence)


def _number(found: Any, least: int = 0) -> int:
    whole = type(found) is int or (type(found) is Fraction and found.denominator == 1)
    _require(whole and found >= least, f"{str(found)[:40]} is not a whole number ≥ {least}")
    return int(found)


def _fraction(found: Any) -> Fraction:
    _require(_TIME.fullmatch(str(found)), f"{str(found)[:40]!r} is not a number of at least 0")
    return Fraction(str(found))


def _fields(found: Any, *keys: str) -> Any:
    _require(type(found) is dict and found.keys() == set(keys), f"expected exactly {keys}")
    return found


def _moved_before(rates: Any) -> Any:
    sums = [0, *accumulate(map(_number, rates))]
    return lambda firing: firing // len(rates) * sums[-1] + sums[firing % len(rates)]


def main(arguments: list[str]) -> int:
    """Check the certificate of the graph or plan whose paths are given; return the exit code."""
    try:
        for claim, value in check(*(Path(path).read_bytes() for path in arguments)).items():
            sys.stdout.write(f"proved: {claim} {value}\n")
    except (RefusedError, OSError, TypeError) as error:
        sys.stderr.write(f"not proved: {error}\n" if len(arguments) == 2 else f"{__doc__}")
        return 1 if isinstance(error, RefusedError) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
