"""Finds out whether a host can be reached by TCP, and the largest packet that gets there.

The kernel learns the path MTU from routers that say they had to drop a packet (RFC 1191). Where a
firewall drops these messages, long packets vanish silently: small messages pass, and tensors do
not. RFC 4821 calls this a black hole. It is found by echo requests (ping) of growing length that
must not be fragmented.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import itertools
import os
import select
import socket
import struct
import time
from dataclasses import dataclass
from enum import Enum

from nodes.protocol.addresses import host_of

CONNECT_S = 3.0
ECHO_S = 0.4
"""How long a connection and an echo may take."""

TRIES = 2
"""Echo requests of a length before it counts as too long."""

SMALLEST = 128
"""Bytes of the packet that shows whether the host answers echo requests at all."""

_MTU_DISCOVER, _MTU, _PROBE = 10, 14, 3
"""IP_MTU_DISCOVER, IP_MTU and IP_PMTUDISC_PROBE of ip(7)."""

_GET_ADDRESS, _GET_MTU = 0x8915, 0x8921
"""SIOCGIFADDR and SIOCGIFMTU of netdevice(7)."""

_HEADERS = 28
"""Bytes of the headers of IPv4 and ICMP."""

_ECHO, _ECHO_REPLY = 8, 0


class Reach(Enum):
    """How an attempt to connect has ended."""

    CONNECTED = "connected"
    UNKNOWN_HOST = "unknown host"
    REFUSED = "refused"
    SILENT = "silent"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class PortReach:
    """How an attempt to connect to an address by TCP has ended; `words` are the system's."""

    address: str
    reach: Reach
    words: str = ""


def reach(address: str, timeout_s: float = CONNECT_S) -> PortReach:
    """Connect to `tcp://HOST:PORT` and close the connection at once."""
    host, port = host_of(address), address.rpartition(":")[2]
    try:
        with socket.create_connection((host, int(port)), timeout_s):
            return PortReach(address, Reach.CONNECTED)
    except socket.gaierror as error:
        return PortReach(address, Reach.UNKNOWN_HOST, str(error.strerror))
    except ConnectionRefusedError as error:
        return PortReach(address, Reach.REFUSED, str(error.strerror))
    except TimeoutError:
        return PortReach(address, Reach.SILENT)
    except OSError as error:
        silent = error.errno == errno.ETIMEDOUT
        return PortReach(
            address, Reach.SILENT if silent else Reach.UNREACHABLE, str(error.strerror)
        )


@dataclass(frozen=True, slots=True)
class PathReading:
    """Measurements of the path to a host, in bytes of IP packets.

    `interface` is where it begins here. `known_mtu` is the kernel's estimate of the path's MTU, and
    `largest` the longest echo request that was answered; None if none was, which proves nothing,
    because many hosts do not answer.
    """

    interface: str
    interface_mtu: int
    known_mtu: int
    largest: int | None

    @property
    def is_black_hole(self) -> bool:
        """Whether packets get lost that the kernel takes for short enough."""
        return self.largest is not None and self.largest < self.known_mtu


def read_path(address: str) -> PathReading | None:
    """Measure the path to an address's host; None if that is impossible (IPv6, no route)."""
    try:
        host = socket.gethostbyname(str(host_of(address)))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # UDP: this finds the route and sends nothing
            known = probe.getsockopt(socket.IPPROTO_IP, _MTU)
            name, mtu = _interface(probe.getsockname()[0])
    except OSError:
        return None
    return PathReading(name, mtu, known, _largest(host, known))


def _interface(address: str) -> tuple[str, int]:
    """Return the name and the MTU of the interface that has an IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            request = array.array("b", struct.pack("256s", name.encode()[:15]))
            with contextlib.suppress(OSError):  # it has no IPv4 address
                fcntl.ioctl(sock, _GET_ADDRESS, request)
                if socket.inet_ntoa(request.tobytes()[20:24]) == address:
                    fcntl.ioctl(sock, _GET_MTU, request)
                    return name, struct.unpack("i", request.tobytes()[16:20])[0]
    raise OSError(errno.ENODEV, f"no interface has the address {address}")


def _largest(host: str, known: int) -> int | None:
    """Return the longest packet, at most `known` bytes, whose echo comes back; None for none."""
    try:
        echo = _Echo(host)
    except OSError:  # users who may not send echo requests
        return None
    with echo:
        if not echo.passes(SMALLEST):
            return None
        if echo.passes(known):
            return known
        low, high = SMALLEST, known
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if echo.passes(middle) else (low, middle)
        return low


class _Echo:
    """Sends echo requests that must not be fragmented."""

    def __init__(self, host: str) -> None:
        """Open a socket; raises OSError for users who may not."""
        self._is_raw = False
        try:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
        except PermissionError:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
            self._is_raw = True
        self._socket.setsockopt(socket.IPPROTO_IP, _MTU_DISCOVER, _PROBE)
        self._socket.connect((host, 0))
        self._numbers = itertools.count(1)
        self._id = os.getpid() & 0xFFFF

    def __enter__(self) -> _Echo:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def passes(self, length: int) -> bool:
        """Return whether the echo of a packet of `length` bytes comes back."""
        return any(self._try(length) for _ in range(TRIES))

    def _try(self, length: int) -> bool:
        number = next(self._numbers)
        body = bytes(length - _HEADERS)
        try:
            self._socket.send(_echo_request(self._id, number, body))
        except OSError:  # longer than the interface's MTU
            return False
        until_s = time.monotonic() + ECHO_S
        while (left_s := until_s - time.monotonic()) > 0:
            if not select.select([self._socket], [], [], left_s)[0]:
                return False
            try:
                answer = self._socket.recv(1 << 16)
            except OSError:  # a router says that the packet was too long
                return False
            if self._is_raw:
                answer = answer[(answer[0] & 0xF) * 4 :]
            kind, _, _, name, sequence = struct.unpack("!BBHHH", answer[:8])
            # A socket that is not raw gets its name from the kernel, and only its own answers.
            is_ours = not self._is_raw or name == self._id
            if kind == _ECHO_REPLY and sequence == number and is_ours:
                return True
        return False


def _echo_request(name: int, number: int, body: bytes) -> bytes:
    """Return an ICMP echo request with its checksum (RFC 792)."""
    header = struct.pack("!BBHHH", _ECHO, 0, 0, name, number & 0xFFFF)
    padded = header + body + b"\0" * (len(body) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return struct.pack("!BBHHH", _ECHO, 0, checksum, name, number & 0xFFFF) + body
