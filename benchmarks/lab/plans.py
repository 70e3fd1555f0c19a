"""Returns the actions that make a laboratory, board by board, in order."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from benchmarks.lab.actions import Action, MakeFolder, Run, Start, Write
from benchmarks.lab.cgroups import make_all
from benchmarks.lab.layout import BRIDGE, INTERFACE, UPLINK, Layout, Place

BURST_S = 0.002
LEAST_BURST_BYTES = 16_000
"""How much a link may send at once: 2 ms of its rate, ten frames of Ethernet at least."""

QUEUE_S = 0.025
LEAST_QUEUE_BYTES = 256_000
"""What a port of a small switch holds back before it drops."""

JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done; shift; exec "$@"'
"""A shell joins control groups before it becomes the program, so that nothing goes uncounted."""


def up(layout: Layout) -> tuple[Action, ...]:
    """Everything up to running agents."""
    actions: list[Action] = [MakeFolder(layout.folder)]
    actions += make_all(layout.found, layout.group, first=layout.config.undisturbed)
    actions += _switch(layout)
    for place in layout.places.values():
        actions += board(layout, place)
        actions += start(layout, place)
    return tuple(actions)


def _switch(layout: Layout) -> Iterable[Action]:
    switch, here = layout.switch, layout.host_interface
    yield _ip("netns", "add", switch)
    yield _ip("-n", switch, "link", "add", "name", BRIDGE, "type", "bridge", "mcast_snooping", "0")
    yield _ip("-n", switch, "link", "set", BRIDGE, "up")
    yield _ip("link", "add", "name", here, "type", "veth", "peer", "name", UPLINK, "netns", switch)
    yield _ip("-n", switch, "link", "set", UPLINK, "master", BRIDGE, "up")
    yield _ip("address", "add", layout.host_address, "dev", here)
    yield _ip("link", "set", here, "up")


def board(layout: Layout, place: Place) -> Iterable[Action]:
    """One board, and nothing running on it yet."""
    yield MakeFolder(place.folder)
    yield MakeFolder(place.cache)
    yield from layout.group_of(place).make(place.slice)
    own, switch, port = place.namespace, layout.switch, place.switch_port
    prefix = layout.host_address.partition("/")[2]
    yield _ip("netns", "add", own)
    yield _ip("-n", switch, "link", "add", "name", port, "type", "veth", "peer", "name", INTERFACE,
              "netns", own)  # fmt: skip
    yield _ip("-n", switch, "link", "set", port, "master", BRIDGE, "up")
    yield _ip("-n", own, "address", "add", f"{place.host}/{prefix}", "dev", INTERFACE)
    yield _ip("-n", own, "link", "set", INTERFACE, "up")
    yield _ip("-n", own, "link", "set", "lo", "up")
    if place.slice.link is not None:
        yield from shape(layout, place, place.slice.link)
    if place.slice.disk is not None:
        yield Run(("truncate", "--size", str(place.slice.disk), str(place.image)))
        yield from _empty_disk(place)


def _empty_disk(place: Place) -> Iterable[Action]:
    yield Run(("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(place.image)))
    yield Run(("mount", "-o", "loop", str(place.image), str(place.cache)))


def empty_disk(place: Place) -> Iterable[Action]:
    """The file system of a board's cache anew; nothing runs on the board."""
    yield Run(("umount", str(place.cache)))
    yield from _empty_disk(place)


def shape(layout: Layout, place: Place, bytes_per_s: float) -> Iterable[Action]:
    """Bound a board's link in both directions: what it sends, and at the switch what it gets."""
    yield _shape(("-n", place.namespace), INTERFACE, bytes_per_s)
    yield _shape(("-n", layout.switch), place.switch_port, bytes_per_s)


def cable(layout: Layout, place: Place, state: str) -> Run:
    """Pull the cable at the switch (`down`), which the board sees as an interface without a
    carrier, or put it back (`up`)."""
    return _ip("-n", layout.switch, "link", "set", place.switch_port, state)


def restore(layout: Layout, place: Place) -> Iterable[Action]:
    """Put the cable back; give link and slice the bounds that `lab.yaml` says."""
    yield cable(layout, place, "up")
    if place.slice.link is not None:
        yield from shape(layout, place, place.slice.link)
    else:
        for where, port in ((place.namespace, INTERFACE), (layout.switch, place.switch_port)):
            delete = ("tc", "-n", where, "qdisc", "delete", "dev", port, "root")
            yield Run(delete, required=False)
    yield from layout.group_of(place).set_cpu(place.slice.cpu)


def _shape(where: tuple[str, ...], interface: str, bytes_per_s: float) -> Run:
    burst = max(LEAST_BURST_BYTES, round(bytes_per_s * BURST_S))
    queue = burst + max(LEAST_QUEUE_BYTES, round(bytes_per_s * QUEUE_S))
    return Run(
        (
            *("tc", *where, "qdisc", "replace", "dev", interface, "root", "tbf"),
            *("rate", f"{round(bytes_per_s * 8)}bit", "burst", str(burst), "limit", str(queue)),
        )
    )


def start(layout: Layout, place: Place) -> Iterable[Action]:
    """Start a board's agent."""
    yield Start(inside(layout, place, agent(layout, place)), place.log)


def agent(layout: Layout, place: Place, listen: str | None = None) -> tuple[str, ...]:
    """The command of a board's agent; it listens at `listen`, usually the board's address."""
    name = place.slice.name
    return (
        *("env", f"XDG_CACHE_HOME={place.home}"),
        *(sys.executable, "-m", "nodes.cli", "--name", name, "--listen", listen or place.address),
        *("--cache", str(place.cache)),
        *(("--keys", str(layout.keys / name)) if layout.config.keys else ("--insecure",)),
    )  # without keys: nobody but this machine is on the laboratory's network


def inside(layout: Layout, place: Place, argv: tuple[str, ...]) -> tuple[str, ...]:
    """A command as a process of a board."""
    group = layout.group_of(place)
    entered = ("nsenter", f"--net=/run/netns/{place.namespace}", "--", *argv)
    if layout.cpus is not None:
        entered = ("taskset", "--cpu-list", _listed(layout.cpus.rest), *entered)
    return ("/bin/sh", "-c", JOIN, "sh", *map(str, group.join), "--", *entered)


def _listed(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus))


def settle(layout: Layout, place: Place, executor: int) -> tuple[Action, ...]:
    """What waits until the agent is there: its executor thread into the slice, then the quota.

    `executor` is that thread's id.
    """
    group = layout.group_of(place)
    actions: list[Action] = [Write(file, str(executor)) for file in group.thread_files()]
    if layout.cpus is not None:
        cpus = _listed(layout.cpus.compute)
        actions.append(Run(("taskset", "--cpu-list", "--pid", cpus, str(executor))))
    return (*actions, *group.set_cpu(place.slice.cpu))


def _ip(*arguments: str) -> Run:
    return Run(("ip", *arguments))
