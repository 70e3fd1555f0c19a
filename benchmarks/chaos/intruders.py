"""Defines faults of the network between boards: damaged bytes, and connections of strangers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from benchmarks.chaos import strangers
from benchmarks.chaos.bed import Bed, Wait
from benchmarks.chaos.faults import VICTIM, end, tell
from benchmarks.lab.shell import run
from launcher.run.access import LAUNCHER
from nodes.net.curve import new_pair
from nodes.net.keys import KeyFolder

ALIAS = 201
"""The last number of the address that the proxy listens at."""

CONTROL, DATA = 0, 1
"""The ports of an agent, counted from its address."""

KNOCK_S = 5.0


def interpose(harm: str, port: int) -> Callable[[Bed], None]:
    """From now on the launcher and all boards reach the victim through a proxy, which harms what
    comes to that port as soon as the fault strikes. To be called before the stream."""

    def prepare(bed: Bed) -> None:
        layout, place = bed.lab.layout, bed.lab.place(VICTIM)
        alias = f"{place.host.rpartition('.')[0]}.{ALIAS}"
        address = (f"{alias}/32", "dev", layout.host_interface)
        bed.harmed.add(VICTIM)
        bed.lab.kill(VICTIM)
        run(("ip", "address", "add", *address))
        bed.tools.callback(run, ("ip", "address", "delete", *address))
        bed.start_as(VICTIM, listen=f"tcp://0.0.0.0:{place.port}")
        ports = (str(place.port), str(place.port + 1))
        proxy = subprocess.Popen(
            (
                *(sys.executable, "-m", "benchmarks.chaos.proxy", alias, place.host, *ports),
                *("--harm", harm, "--on", ports[port]),
            ),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        bed.tools.callback(end, proxy)
        assert proxy.stdout is not None
        assert proxy.stdout.readline() == "ready\n"
        bed.readdress(VICTIM, f"tcp://{alias}:{place.port}")
        bed.helper = proxy

    return prepare


def switch_on(bed: Bed, _: Wait) -> None:
    """From now on the proxy harms what passes."""
    tell(bed)


def _ports(bed: Bed) -> dict[str, str]:
    """Every port of every agent, and whose it is."""
    controls = {address: board for board, address in bed.lab.addresses.items()}
    return controls | {strangers.data_of(port): board for port, board in controls.items()}


def garbage(bed: Bed, wait: Wait) -> None:
    """Bytes below ZeroMQ on all ports."""
    strangers.garbage(_ports(bed), wait, KNOCK_S)


def messages(bed: Bed, wait: Wait) -> None:
    """Messages out of turn on all ports, from people without keys."""
    strangers.messages(_ports(bed), wait, KNOCK_S)


def wrong_keys(bed: Bed, wait: Wait) -> None:
    """Messages on all ports, under a key that nobody admits."""
    ring = KeyFolder(bed.lab.layout.keys / LAUNCHER)
    known = [(port, ring.key_of(board)) for port, board in _ports(bed).items()]
    strangers.wrong_keys(known, wait, KNOCK_S, new_pair()[1])
