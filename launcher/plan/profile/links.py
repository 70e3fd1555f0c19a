"""Identifies the nodes, and measures the links between them by running tiny networks on them.

The networks are those of `cnn.built_in`, one for each link and size of a tensor. All are deployed
at once, and `launcher.plan.profile.survey` decides which of them get frames. A channel across a
link holds one frame, so a frame leaves only after the credit for the previous one has returned: the
period is the time of one tensor there, of a few bytes back, and of the two layers. The agents have
measured the layers' time while they warmed up, and it is subtracted. The rest is linear in bytes
(`partition.pricing.linear_models`): half its constant part is the latency, its slope the inverse of
the rate. The launcher's own channels hold many frames, so that its links do not count.
"""

from __future__ import annotations

import itertools
import math
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Timer
from types import MappingProxyType

import numpy as np

from cnn.built_in import write_wire_probe
from cnn.merge import merge, part_name
from cnn.model import Model, read
from launcher.config.node import NodeConfig
from launcher.errors import BadInputError, LauncherError, UnreachableError
from launcher.plan.devices import threads_of
from launcher.plan.machines import THIS_MACHINE, machine_of
from launcher.plan.profile.bench import Bench
from launcher.plan.profile.file import DeclaredIdentity, LinkTimes, NodeIdentity, ProfileCache
from launcher.plan.profile.survey import (
    COUNT,
    SIZES_BYTES,
    SURVEY_S,
    Pair,
    Survey,
    Test,
    tournament,
)
from launcher.plan.subnet_files import cut_subnets
from launcher.quantities import megabytes
from launcher.run.feed import Feed, Outputs
from launcher.run.parts import parts_of
from nodes.protocol.messages import HOST, EngineChoice, Welcome
from partition.devices import Device
from partition.errors import PartitionError
from partition.measured.profiles import LEAST_S, LinkProfile
from partition.plan import Plan
from partition.planner import make_plan
from partition.pricing.linear_models import fit_transfer

HOST_FRAMES = 8

LOADING_S = 20.0
"""The longest time until the first tensor has crossed a link. Most of it is that of loading the
engines, which the launch needs anyway; the board of 0.04 core in the laboratory needs over 10 s."""

STUCK_S = 2 * SURVEY_S
"""The longest time after that; a link that was not measured within it is assumed."""


def node_part(node: NodeConfig) -> DeclaredIdentity:
    """Return the part of a node's identity that `cluster.yaml` has.

    A node on this machine has this machine's name as its host.
    """
    machine = machine_of(node)
    host = socket.gethostname() if machine == THIS_MACHINE else machine
    asked = "" if node.choice == EngineChoice() else _spelled(node.choice)
    return DeclaredIdentity(host=host, threads=threads_of(node), cpus=node.cpus, asked=asked)


def _spelled(choice: EngineChoice) -> str:
    options = (f"{option.name}={option.value}" for option in choice.options)
    return ", ".join((choice.engine, choice.device, choice.precision, *options))


def tiny_plan(bench: Bench, configs: Sequence[NodeConfig]) -> tuple[Plan, Model]:
    """Return a plan in which every node has two layers of almost no work, and its model."""
    devices = tuple(Device(node.name) for node in configs)
    model = _probe(bench.folder / "who.onnx", 8, len(devices))
    assignment = {
        layer: device.name
        for number, device in enumerate(devices)
        for layer in (f"grow{number}", f"shrink{number}")
    }
    return _plan(model, devices, assignment), model


def identities(
    configs: Sequence[NodeConfig], welcome: Mapping[str, Welcome]
) -> dict[str, NodeIdentity]:
    """Return the identities of the nodes whose agents have answered."""
    return {
        node.name: NodeIdentity(
            **node_part(node).model_dump(),
            machine=welcome[node.name].machine,
            cores=welcome[node.name].cores,
            engine=welcome[node.name].engine,
            version=welcome[node.name].version,
            agent="" if node.address is None or node.host is not None else node.address,
        )
        for node in configs
        if node.name in welcome
    }


class TooSlowError(LauncherError):
    """Measuring took too long."""


def kept_links(who: Mapping[str, NodeIdentity], cache: ProfileCache) -> tuple[LinkProfile, ...]:
    """Return the kept measurements of the links between these nodes."""
    return tuple(
        LinkProfile(ends, link.latency_s, link.bytes_per_s)
        for ends in itertools.combinations(who, 2)
        if (link := cache.link(who[ends[0]], who[ends[1]]))
    )


def measure_machines(
    bench: Bench,
    nodes: Iterable[NodeConfig],
    who: Mapping[str, NodeIdentity],
    cache: ProfileCache,
    *,
    again: bool = False,
) -> tuple[LinkProfile, ...]:
    """Measure and keep the links between the nodes' machines that have not been measured yet, or
    with `again` all of them; return their times.

    Failures and timeouts are reported to the user, and so is a cache that cannot be written. Raises
    `UnreachableError` if a node does not answer any more.
    """
    members: dict[str, list[NodeConfig]] = {}
    for node in nodes:
        if node.name in who:
            members.setdefault(machine_of(node), []).append(node)
    first = {own[0].name: own for own in members.values()}
    pairs = tournament(list(first))
    kept = () if again else kept_links({name: who[name] for name in first}, cache)
    known = {link.ends: link.bytes_per_s or math.inf for link in kept}
    stated = {
        name: max(node.link or 0.0 for node in own)
        for name, own in first.items()
        if all(node.link for node in own)
    }
    try:
        found = measure_links(bench, pairs, known, stated)
    except UnreachableError:
        raise
    except LauncherError as error:
        bench.progress.say(f"links between machines are assumed, not measured: {error}")
        return ()
    try:
        for (one, other), each in found.items():
            cache.keep_link(who[one], who[other], each)
    except BadInputError as error:
        bench.progress.say(f"what is measured is not kept for later launches: {error}", "warning")
    rates = [(each.bytes_per_s, pair) for pair, each in found.items() if each.bytes_per_s]
    if rates:
        rate, (one, other) = min(rates)
        bench.progress.say(f"the slowest link, {one} - {other}, carries {megabytes(rate)}/s")
    elif found:
        bench.progress.say("the links between machines are too fast to measure")
    return tuple(LinkProfile(ends, e.latency_s, e.bytes_per_s) for ends, e in found.items())


def measure_links(
    bench: Bench,
    pairs: Sequence[Pair],
    known: Mapping[Pair, float] = MappingProxyType({}),
    stated: Mapping[str, float] = MappingProxyType({}),
    *,
    loading_s: float = LOADING_S,
    stuck_s: float = STUCK_S,
) -> dict[Pair, LinkTimes]:
    """Measure those of these links that a `Survey` chooses, and return their times.

    A link that was not measured within `stuck_s` of the first result is missing. Raises
    `LauncherError` if there is no result within `loading_s`, or if a node fails.
    """
    survey = Survey(pairs, known, stated)
    first = survey.begin()
    if not first:
        return {}
    probes = {size: _probe(bench.folder / f"{size}.onnx", size // 4, 1) for size in SIZES_BYTES}
    new = [pair for pair in pairs if pair not in known]
    tests = {(pair, size): f"{n}-{size}" for n, pair in enumerate(new) for size in SIZES_BYTES}
    model = merge([probes[size].with_name(name) for (_, size), name in tests.items()])
    ends = {
        test: [part_name(name, layer) for layer in ("grow0", "shrink0")]
        for test, name in tests.items()
    }
    assignment = dict(placed for test in tests for placed in zip(ends[test], test[0], strict=True))
    plan = _plan(model, tuple(map(Device, dict.fromkeys(assignment.values()))), assignment)
    layer_s = _Measurement(survey, tests, model, stuck_s).run(bench, plan, first, loading_s)

    def seconds_of(pair: Pair, size: int, seconds: float) -> float:
        return max(0.0, seconds - sum(layer_s.get(layer, 0.0) for layer in ends[pair, size]))

    return {
        pair: link_times(list(seconds), [seconds_of(pair, *each) for each in seconds.items()])
        for pair, seconds in survey.seconds.items()
    }


class _Measurement:
    """Streams the tests of a survey, in one network per test: a pair and a size of tensors."""

    def __init__(self, survey: Survey, tests: Iterable[Test], model: Model, stuck_s: float) -> None:
        """`model` is merged of the networks of the `tests`, in that order."""
        self._survey = survey
        self._stuck_s = stuck_s
        self._model = model
        parts = zip(tests, parts_of(model), strict=True)
        self._feeds = {test: Feed(part, COUNT) for test, part in parts}
        self._timer: Timer | None = None
        self._too_slow: TooSlowError | None = None

    def run(
        self, bench: Bench, plan: Plan, first: Iterable[Test], loading_s: float
    ) -> dict[str, float]:
        """Run the plan until the survey is over, or for too long; return the seconds of layers, if
        they are known."""
        subnets = cut_subnets(self._model, plan, bench.folder, lambda *_: None)
        feeds = tuple(self._feeds.values())
        self._send(first)
        self._give_up_after(loading_s)
        try:
            result = bench.runner(plan, bench.nodes, subnets, feeds, lambda _: None, bench.options)
        except LauncherError as error:
            if self._too_slow is None:
                raise
            if not self._survey.seconds:
                raise self._too_slow from error
            return {}
        finally:
            self._stop_timer()
            for feed in feeds:
                feed.close()
        return _layer_s(plan, result.warmup_s)

    def _took(self, test: Test, _: Future[Outputs]) -> None:
        if not self._survey.has_results:
            self._give_up_after(self._stuck_s)
        self._send(self._survey.took(test[0], time.monotonic()))

    def _send(self, tests: Iterable[Test]) -> None:
        for test in tests:
            for _ in range(COUNT):
                frame = {"x0": np.zeros((1, 1), np.float32)}
                self._feeds[test].submit(frame).add_done_callback(partial(self._took, test))
        if self._survey.is_over:
            for feed in self._feeds.values():
                feed.end()

    def _give_up_after(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = Timer(seconds, self._give_up, (seconds,))
        self._timer.start()

    def _give_up(self, seconds: float) -> None:
        self._too_slow = TooSlowError(f"no link was measured within {seconds:g} s")
        for feed in self._feeds.values():
            feed.give_up(self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()


def _layer_s(plan: Plan, warmup_s: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the seconds of the layers of a plan whose phases have one layer each."""
    found: dict[str, float] = {}
    for device, times in warmup_s.items():
        own = sorted((p for p in plan.phases if p.device == device), key=lambda p: p.index)
        found |= {p.layers[0]: time_s for p, time_s in zip(own, times, strict=True)}
    return found


def link_times(sizes_bytes: Sequence[int], seconds: Sequence[float]) -> LinkTimes:
    """Return the times of a link that took `seconds` for tensors of these sizes, ascending."""
    if len(sizes_bytes) == 1:  # a second one took too long: these were not the latency
        return LinkTimes(latency_s=0.0, bytes_per_s=sizes_bytes[0] / max(seconds[0], LEAST_S))
    try:
        line = fit_transfer(sizes_bytes, seconds)
    except PartitionError:
        return LinkTimes(latency_s=seconds[0] / 2, bytes_per_s=None)
    return LinkTimes(latency_s=line.s_per_message / 2, bytes_per_s=1 / line.s_per_byte)


def _probe(path: Path, values: int, branches: int) -> Model:
    path.parent.mkdir(parents=True, exist_ok=True)
    return read(write_wire_probe(path, values, branches))


def _plan(model: Model, devices: tuple[Device, ...], assignment: Mapping[str, str]) -> Plan:
    plan = make_plan(
        model.network,
        model.digest,
        devices,
        assignment,
        strategy="probe",
        explanation="to measure links",
        slack_frames=0,
    )
    channels = tuple(
        replace(
            channel,
            capacity_frames=HOST_FRAMES
            if HOST in (channel.source_device, channel.target_device)
            else 1,
            unsent_frames=0,
        )
        for channel in plan.channels
    )
    return replace(plan, channels=channels)
