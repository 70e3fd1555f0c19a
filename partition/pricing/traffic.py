"""The traffic between devices under whole populations of assignments.

A tensor travels once to each device that reads it. How long it is held at either end depends on
phases and skews, which are approximated by **levels**: a layer's level counts the device boundaries
from it to the end of the network, as in `csdf.conversion.grouping`. A channel holds as many frames
as the levels of its ends differ by, one more, and the slack. Channels of long tensors between
devices hold at either end what the times of the phases there require, where a level of a device's
layers stands for a phase (`Durations`).
Arrays have one column per individual.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Assignments = NDArray[np.integer]
"""Device numbers."""

SLACK_FRAMES = 1
"""The default number of frames that a channel holds at most beyond what its skew needs. Channels
between devices hold the first of them only where the period needs it
(`partition.prediction.fitting`)."""


LONG_BYTES = 1 << 18
"""The producers of tensors of this length or more have their own places in channels between devices
(`partition.prediction.fitting`). Shorter ones are copied when they are sent.
"""

UNSENT_FRAMES = 2
"""A producer's places where times are not known: for a frame that leaves, and one that is made."""

MARGIN = 0.15
"""Periods. In simulated runs of ResNet50 on 4 and 10 devices whose phases take up to 30 % more or
less time than planned, periods are then as short as with a frame of slack in every channel. Boards
of the laboratory wait as long with 0.3 and 0.75 periods (decision 042)."""


def margin_periods(slack_frames: int) -> float:
    """Return the margin of channels between devices, in periods."""
    return MARGIN + slack_frames - 1 if slack_frames else 0.0


def frames_between_devices(slack_frames: int) -> int:
    """Return the frames that a channel between two devices usually holds at either end if its ends
    are one level apart.

    One frame leaves or has arrived while another is made or read: two frames, and the slack beyond
    the first frame of it.

    >>> frames_between_devices(slack_frames=1)
    2
    """
    return 2 + max(slack_frames - 1, 0)


@dataclass(frozen=True, slots=True)
class Flows:
    """The traffic of devices: [devices, individuals], and `wire_bytes` [individuals].

    `cut_bytes` are the bytes of tensors that enter or leave a phase, from or to any device: once
    for each device that reads a tensor, and once where it is produced.
    """

    sent_bytes: Floats
    received_bytes: Floats
    link_sent_bytes: Floats
    link_received_bytes: Floats
    messages: Floats
    held_bytes: Floats
    cut_bytes: Floats
    wire_bytes: Floats

    @classmethod
    def none(cls, devices: int, individuals: int) -> Flows:
        """Return flows of zeros, to which others are added."""
        zeros = np.zeros((7, devices, individuals))
        return cls(
            zeros[0], zeros[1], zeros[2], zeros[3], zeros[4], zeros[5], zeros[6],
            np.zeros(individuals),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Durations:
    """How long steps take, in periods, and the `margin` that channels get.

    `phase` [devices, levels, individuals] is the time of a device's layers of a level,
    `byte` [individuals] that of a byte on its way.
    """

    phase: Floats
    byte: Floats
    margin: float

    def wire(self, sizes: Floats) -> Floats:
        """Return the time of tensors on their way, [tensors, individuals]."""
        return np.minimum(sizes[:, None] * self.byte, 1.0)  # the period is at least as long

    def unsent(self, source: Floats, wire: Floats) -> Ints:
        """Return the places of the producers of long tensors.

        Such a place is taken from the start of a firing until its tensor has left, and for the
        margin (`csdf.conversion.timed_capacities`).
        """
        return np.ceil(source + wire + self.margin).astype(np.int32)

    def consumed(self, source: Floats, reader: Floats, wire: Floats, lag: Ints) -> Ints:
        """Return the places of the consumers of long tensors whose ends are `lag` levels apart.

        Such a place is taken from when a tensor is sent to the end of the firing that reads it, and
        for the margin. Tensors that wait a period for each further level wait there.
        """
        all_places = np.ceil(source + reader + 2 * wire + self.margin + lag - 1).astype(np.int32)
        least = np.ceil(reader + wire + self.margin).astype(np.int32)
        return np.maximum(np.maximum(lag, all_places) - self.unsent(source, wire), least)


class Traffic:
    """The tensors that layers read, each with its producer and its readers, as index arrays."""

    def __init__(
        self,
        network: Network,
        slack_frames: int = SLACK_FRAMES,
        wire_bytes: Mapping[str, int] = MappingProxyType({}),
        *,
        share_cores: bool = False,
    ) -> None:
        """`wire_bytes` has the sizes of tensors that are encoded between devices.

        Where devices `share_cores`, channels between them hold the whole slack.
        """
        self._slack_frames = slack_frames
        self._share_cores = share_cores
        numbers = network.place
        read = [tensor for tensor in network.tensors if network.consumers[tensor]]
        made = (name in network.producer for name in read)
        long = (network.tensors[name].bytes >= LONG_BYTES for name in read)
        self._long = np.array([*map(operator.and_, made, long)], dtype=bool)[:, None]
        self._bytes = np.array([network.tensors[name].bytes for name in read], dtype=np.float64)
        self._wire_bytes = np.array(
            [wire_bytes.get(name, network.tensors[name].bytes) for name in read], dtype=np.float64
        )
        self._producer = np.array(
            [numbers[network.producer[name]] if name in network.producer else -1 for name in read],
            dtype=np.intp,
        )
        readers = [[numbers[layer] for layer in network.consumers[name]] for name in read]
        self._reader = np.array([layer for layers in readers for layer in layers], dtype=np.intp)
        self._starts = np.cumsum([0, *(len(layers) for layers in readers)])[:-1]
        self._tensor = np.repeat(np.arange(len(read)), [len(layers) for layers in readers])
        sent_out = [n for n in dict.fromkeys(network.outputs) if n in network.producer]
        row = {name: number for number, name in enumerate(read)}
        self._results = [
            (numbers[network.producer[n]], float(network.tensors[n].bytes), row.get(n, -1))
            for n in sent_out
        ]
        edges = {
            (int(producer), layer)
            for producer, layers in zip(self._producer, readers, strict=True)
            for layer in layers
            if producer >= 0
        }
        # In descending order, because levels are computed from the end to the front.
        self._edges = np.array(sorted(edges, reverse=True), dtype=np.intp).reshape(-1, 2)
        self._ends = self._edges.tolist()

    def levels(self, device_of: Assignments) -> Ints:
        """Count the device boundaries between each layer and the network's end: [layers,
        individuals]."""
        levels = np.zeros(device_of.shape, dtype=np.int32)
        crossed = device_of[self._edges[:, 0]] != device_of[self._edges[:, 1]]
        through = np.empty(device_of.shape[1], dtype=np.int32)
        rows = list(levels)
        for (producer, reader), boundary in zip(self._ends, crossed, strict=True):
            np.add(rows[reader], boundary, out=through)
            np.maximum(rows[producer], through, out=rows[producer])
        return levels

    def flows(
        self, device_of: Assignments, levels: Ints, hosts: NDArray[np.intp], durations: Durations
    ) -> Flows:
        """Return what every device sends and receives, and what it holds in memory meanwhile.

        `hosts` [devices] numbers the machine that each device runs on.
        """
        source, source_level = device_of[self._producer], levels[self._producer]
        reader, reader_level = device_of[self._reader], levels[self._reader]
        given = self._producer < 0
        source[given] = -1
        source_level[given] = np.maximum.reduceat(reader_level, self._starts, axis=0)[given] + 1
        shared = len(set(hosts.tolist())) < len(hosts)
        source_host = np.where(source < 0, -1, hosts[source]) if shared else source
        flows = Flows.none(len(hosts), device_of.shape[1])
        sends, link_sends, waiting = (np.zeros(source.shape, np.int32) for _ in range(3))
        columns = np.arange(device_of.shape[1])
        longest = durations.phase.shape[1] - 1
        making = durations.phase[source, np.minimum(source_level, longest), columns]
        wire = durations.wire(self._wire_bytes)
        unsent = np.maximum(1, durations.unsent(making, wire))
        if self._share_cores:
            unsent[:] = UNSENT_FRAMES
        held = np.zeros(source.shape, np.int32)
        # Raise readers on other devices above every level, so that they do not lower the minimum.
        away = np.int32(levels.max(initial=0) + 2)
        for number, host in enumerate(hosts):
            here = np.where(reader == number, reader_level, away)
            lowest = np.minimum.reduceat(here, self._starts, axis=0)
            lag = source_level - lowest
            remote = (lowest < away) & (source != number)
            cut = remote | (lag > 0)
            reading = durations.phase[number, np.minimum(lowest, longest), columns]
            frames = lag + 1 + self._slack_frames * remote
            if self._share_cores:
                frames -= remote & self._long
            else:
                timed = durations.consumed(making, reading, wire, lag)
                frames = np.where(remote & self._long, timed, frames)
            frames *= cut
            flows.received_bytes[number] = self._wire_bytes @ remote
            flows.cut_bytes[number] = self._bytes @ cut
            flows.messages[number] = remote.sum(axis=0)
            flows.held_bytes[number] = self._wire_bytes @ (frames * remote)
            sends += remote
            np.maximum(waiting, frames, out=waiting)
            own = np.where(remote & self._long, unsent, frames)
            np.maximum(held, own, out=held)
            if shared:
                on_link = remote & (source_host != host)
                flows.link_received_bytes[number] = self._wire_bytes @ on_link
                link_sends += on_link
        self._add_sources(source, sends, link_sends if shared else sends, waiting, held, flows)
        if not shared:
            flows.link_received_bytes[:] = flows.received_bytes
        flows.wire_bytes[:] = flows.received_bytes.sum(axis=0)
        self._add_results(device_of, waiting, flows)
        return flows

    def _add_sources(
        self,
        source: Assignments,
        sends: Ints,
        link_sends: Ints,
        waiting: Ints,
        held: Ints,
        flows: Flows,
    ) -> None:
        """Add to each tensor's producer what it sends of it, how many frames of it wait, and how
        many it holds itself."""
        sent, link_sent = sends * self._wire_bytes[:, None], link_sends * self._wire_bytes[:, None]
        kept, cut = held * self._wire_bytes[:, None], (waiting > 0) * self._bytes[:, None]
        for number in range(len(flows.sent_bytes)):
            mine = source == number
            for total, part in (
                (flows.sent_bytes, sent),
                (flows.link_sent_bytes, link_sent),
                (flows.held_bytes, kept),
                (flows.cut_bytes, cut),
                (flows.messages, sends),
            ):
                total[number] += np.einsum("ti,ti->i", part, mine)

    def _add_results(self, device_of: Assignments, waiting: Ints, flows: Flows) -> None:
        """Add what goes to the launcher; `waiting` is above 0 where a tensor leaves its phase
        anyway."""
        for layer, size, row in self._results:
            frames = UNSENT_FRAMES if size >= LONG_BYTES else 2 + self._slack_frames
            leaves = size if row < 0 else size * (waiting[row] == 0)
            flows.wire_bytes[:] += size
            for number in range(len(flows.sent_bytes)):
                mine = device_of[layer] == number
                flows.sent_bytes[number] += size * mine
                flows.link_sent_bytes[number] += size * mine
                flows.messages[number] += mine
                flows.held_bytes[number] += size * frames * mine
                flows.cut_bytes[number] += leaves * mine
