"""Bad requests to a running `launch serve`: `python -m tests.fuzz.live_server`.

Bodies, headers and messages are changed at random; bodies are cut off, too long, or never end;
connections send garbage, close one direction, stay open and say nothing. Meanwhile two honest
clients, of HTTP and of gRPC, must get their own answers in time. What is looked for: a request
that is not answered or is answered by an internal error, a wrong or late answer to the honest, a
line of an error in the server's log, memory that grows, a server that does not end.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import struct
import sys
import tempfile
import time
import zlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as attribute
from pathlib import Path
from random import Random
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from benchmarks.report import Figure, print_json, report
from benchmarks.serving.attackers import frame
from benchmarks.serving.clients import KINDS, Asked
from benchmarks.serving.server import Serving
from launcher.serve.over_grpc.messages import METHODS, SERVICE, STREAM, field
from tests.fuzz.mutation import mutated, mutated_text
from tests.serve.server import ask_all, expected, images

WAIT_S = 30.0
"""A request that is not answered within this time is a finding."""

SLOW_S = 5.0
"""So is one whose answer takes so long, but for a body that stops in the middle."""

GROWN_BYTES = 60_000_000
"""What all requests under way may take at a time; more is a finding."""

LATE_S = 5.0
WORKERS = 12
MOST_OPEN = 150
"""Connections that are left open, saying nothing or a byte now and then."""

MOST_LINES = 50
"""In the log: the server says when it changes to another plan, and nothing of requests."""

ALLOWED = {200, 204, 400, 401, 403, 404, 405, 408, 411, 413, 415, 429, 431, 501, 505}
CODES = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
LINES = (
    "POST /v2/models/digits/infer HTTP/1.1",
    "Host: localhost",
    "Content-Type: application/json",
    "Inference-Header-Content-Length: 10",
    "Content-Encoding: gzip",
    "Transfer-Encoding: chunked",
    "Expect: 100-continue",
    "Origin: http://localhost",
    "Connection: keep-alive, Upgrade",
    "Upgrade: websocket",
    "Content-Length: 5",
)

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


@dataclass
class Outcome:
    """What the bad requests led to, and the honest clients' answers."""

    sent: Counter[str] = attribute(default_factory=Counter)
    answers: Counter[str] = attribute(default_factory=Counter)
    findings: list[str] = attribute(default_factory=list)
    honest: dict[str, Asked] = attribute(default_factory=dict)
    slowest_s: float = 0.0
    seconds: float = 0.0


def _tensor(**more: Any) -> dict[str, Any]:
    return {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], **more}


def _http_seeds() -> tuple[bytes, ...]:
    values = images()[0].astype("f4")
    as_json = json.dumps({"id": "1", "inputs": [_tensor(data=values.ravel().tolist())]})
    output = [{"name": "probabilities", "parameters": {"binary_data": True}}]
    binary = _tensor(parameters={"binary_data_size": values.nbytes})
    header = json.dumps({"inputs": [binary], "outputs": output}).encode()
    return as_json.encode(), b"%d\n" % len(header) + header + values.tobytes()


def _grpc_seeds() -> dict[str, tuple[bytes, ...]]:
    found: dict[str, tuple[bytes, ...]] = {}
    for method, (request, _) in METHODS.items():
        message = request()
        if "name" in message.DESCRIPTOR.fields_by_name:
            message.name = "digits"
        found[method] = (message.SerializeToString(), b"\n\x06digits")
    theirs = service_pb2.ModelInferRequest(model_name="digits", inputs=[_tensor()])
    theirs.raw_input_contents.append(images()[0].tobytes())
    typed = METHODS["ModelInfer"][0](model_name="digits", inputs=[_tensor()])
    typed.inputs[0].contents.fp32_contents.extend(images()[0].ravel().tolist())
    found["ModelInfer"] = found[STREAM] = (theirs.SerializeToString(), typed.SerializeToString())
    return found


HTTP_SEEDS = _http_seeds()
GRPC_SEEDS = _grpc_seeds()


class Attack:
    """Sends bad requests to one server."""

    def __init__(self, serving: Serving, outcome: Outcome) -> None:
        self._http = serving.http.rpartition(":")[::2]
        self._grpc = serving.grpc.rpartition(":")[::2]
        self._outcome = outcome
        self._open: deque[Writer] = deque()
        self._kept: dict[int, tuple[Reader, Writer]] = {}
        self._channels: dict[int, Any] = {}

    async def send(self, worker: int, random: Random) -> None:
        """One bad request, or connection."""
        ways: tuple[tuple[int, Callable[[int, Random], Awaitable[str]]], ...] = (
            (35, self._body), (25, self._message), (5, self._stream), (5, self._head),
            (4, self._cut_off), (3, self._chunked), (3, self._garbage), (3, self._frames),
            (2, self._left_open), (6, self._encoded), (5, self._values), (5, self._fields),
            (1, self._resets),
        )  # fmt: skip
        (way,) = random.choices([w for _, w in ways], [share for share, _ in ways])
        name = way.__name__.strip("_")
        self._outcome.sent[name] += 1
        began_s = time.monotonic()
        try:
            answer = await asyncio.wait_for(way(worker, random), WAIT_S)
        except (asyncio.TimeoutError, TimeoutError):
            self._forget(worker)
            answer = "no answer"
            self._outcome.findings.append(f"{name}: not answered")
        except (OSError, asyncio.IncompleteReadError):  # the server has closed it
            self._forget(worker)
            answer = "closed"
        took_s = time.monotonic() - began_s
        self._outcome.slowest_s = max(self._outcome.slowest_s, took_s)
        if took_s > SLOW_S:
            self._outcome.findings.append(f"{name}: {took_s:.1f} s until {answer}")
        self._outcome.answers[answer] += 1

    async def close(self) -> None:
        for writer in (*self._open, *(writer for _, writer in self._kept.values())):
            writer.close()
        for channel in self._channels.values():
            await channel.close()

    # ------------------------------------------------------------ HTTP

    async def _connect(self, address: tuple[str, str]) -> tuple[Reader, Writer]:
        return await asyncio.open_connection(address[0], int(address[1]))

    def _forget(self, worker: int) -> None:
        kept = self._kept.pop(worker, None)
        if kept is not None:
            kept[1].close()

    async def _body(self, worker: int, random: Random) -> str:
        """A changed body of the right length, on a connection that is kept."""
        if random.random() < 0.5:
            data = mutated_text([HTTP_SEEDS[0].decode()], random).encode("utf-8", "surrogatepass")
            headers = []
        else:
            data = mutated(HTTP_SEEDS, random)
            length, _, rest = data.partition(b"\n")
            headers = []
            if length.isdigit():
                data, headers = rest, [f"Inference-Header-Content-Length: {length.decode()}"]
        if worker not in self._kept:
            self._kept[worker] = await self._connect(self._http)
        reader, writer = self._kept[worker]
        head = "\r\n".join([*LINES[:2], *headers, f"Content-Length: {len(data)}", "", ""])
        writer.write(head.encode() + data)
        status, closes = await self._answer(reader)
        if closes:
            self._forget(worker)
        return status

    async def _answer(self, reader: Reader) -> tuple[str, bool]:
        """The status, and whether the server closes the connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if status == 100:
            return await self._answer(reader)
        is_known = status in ALLOWED or (status == 500 and b"holds NaN" in body)
        if not is_known:
            self._outcome.findings.append(f"HTTP {status}: {body[:200]!r}")
        return str(status), headers.get("connection") == "close"

    async def _once(self, address: tuple[str, str], data: bytes) -> str:
        """Bytes on their own connection, of which this end is closed at once."""
        reader, writer = await self._connect(address)
        try:
            writer.write(data)
            writer.write_eof()
            found = await reader.read()
        finally:
            writer.close()
        if found.startswith(b"HTTP/1.1 5") and b"holds NaN" not in found:
            self._outcome.findings.append(f"{found[:200]!r}")
        return "closed" if not found.startswith(b"HTTP") else found[9:12].decode()

    async def _head(self, worker: int, random: Random) -> str:
        lines = [mutated_text([random.choice(LINES)], random) for _ in range(random.randint(1, 9))]
        first = LINES[0] if random.random() < 0.7 else lines[0]
        text = "\r\n".join([first, *lines, "", ""])
        return await self._once(self._http, text.encode("utf-8", "replace") + HTTP_SEEDS[0])

    async def _cut_off(self, worker: int, random: Random) -> str:
        """A body that is shorter, or much longer, than it was said to be."""
        body = HTTP_SEEDS[0]
        length = random.choice((len(body) + 1, 10**6, 10**12, -1, 2))
        head = "\r\n".join([*LINES[:2], f"Content-Length: {length}", "", ""])
        return await self._once(self._http, head.encode() + body[: random.randrange(len(body))])

    async def _chunked(self, worker: int, random: Random) -> str:
        chunk = b"%x\r\n%s\r\n" % (len(HTTP_SEEDS[0]), HTTP_SEEDS[0])
        data = mutated([chunk + b"0\r\n\r\n", chunk * 50, b"ffffffff\r\nx", chunk], random)
        head = "\r\n".join([*LINES[:2], "Transfer-Encoding: chunked", "", ""])
        return await self._once(self._http, head.encode() + data)

    async def _encoded(self, worker: int, random: Random) -> str:
        """A body that is said to be compressed, and may be much larger than it looks."""
        encoding = random.choice(("gzip", "deflate", "br", "zstd", "gzip, br", "GZIP", "x"))
        plain = random.choice((HTTP_SEEDS[0], bytes(10**7), b"[" * 10**6, b""))
        body = random.choice((gzip.compress, zlib.compress, bytes))(plain)[:200_000]
        if random.random() < 0.5:
            body = mutated([body], random)[:200_000]
        path = random.choice((LINES[0], "GET / HTTP/1.1", "POST /nowhere HTTP/1.1"))
        lines = [path, LINES[1], f"Content-Encoding: {encoding}", f"Content-Length: {len(body)}"]
        return await self._whole("\r\n".join([*lines, "Connection: close", "", ""]), body)

    async def _values(self, worker: int, random: Random) -> str:
        """JSON of other values than numbers, very many or very deep."""
        count = random.choice((1, 63, 64, 65, 5000, 30_000))
        value = random.choice(
            ('""', "[]", "{}", "1e999", "null", "-0", "1" * 99, '"\\ud800"', "[[1]]")
        )
        long = json.dumps("x" * random.choice((1, 1000, 30_000)))
        data = random.choice((
            f"[{','.join([long, *[value] * count])}]", "[" * count + "]" * count, '{"a":' * count,
        ))  # fmt: skip
        tensor = json.dumps(_tensor(data=0)).replace('"data": 0', f'"data": {data}')
        body = f'{{"inputs": [{tensor}]}}'.encode()[:66_000]
        lines = [*LINES[:2], f"Content-Length: {len(body)}", "Connection: close", "", ""]
        return await self._whole("\r\n".join(lines), body)

    async def _whole(self, head: str, body: bytes) -> str:
        """A request of which this end stays open."""
        reader, writer = await self._connect(self._http)
        try:
            writer.write(head.encode() + body)
            return (await self._answer(reader))[0]
        finally:
            writer.close()

    async def _garbage(self, worker: int, random: Random) -> str:
        data = random.randbytes(random.choice((1, 20, 5000, 100_000)))
        return await self._once(random.choice((self._http, self._grpc)), data)

    async def _left_open(self, worker: int, random: Random) -> str:
        """A connection on which a request never ends; one byte more to one of the others."""
        address = random.choice((self._http, self._grpc))
        begin = {self._http: LINES[0].encode(), self._grpc: PREFACE}[address]
        _, writer = await self._connect(address)
        writer.write(begin[: random.randrange(len(begin))])
        self._open.append(writer)
        if len(self._open) > MOST_OPEN:
            self._open.popleft().close()
        other = random.choice(self._open)
        if not other.is_closing():
            other.write(b"a")
        return "left open"

    # ------------------------------------------------------------ gRPC

    def _channel(self, worker: int) -> Any:
        if worker not in self._channels:
            self._channels[worker] = grpc.aio.insecure_channel(
                ":".join(self._grpc), options=[("grpc.use_local_subchannel_pool", 1)]
            )
        return self._channels[worker]

    async def _message(self, worker: int, random: Random) -> str:
        method = random.choice((*METHODS, "ModelInfer", "ModelInfer", "ModelInfer"))
        call = self._channel(worker).unary_unary(f"/{SERVICE}/{method}")
        return self._code(await call(mutated(GRPC_SEEDS[method], random)).code())

    async def _stream(self, worker: int, random: Random) -> str:
        call = self._channel(worker).stream_stream(f"/{SERVICE}/{STREAM}")()
        count = random.randrange(1, 20)
        with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            for _ in range(count):
                await call.write(mutated(GRPC_SEEDS[STREAM], random))
            if random.random() < 0.3:
                call.cancel()
                return "cancelled"
            await call.done_writing()
            answers = 0
            while await call.read() is not grpc.aio.EOF:
                answers += 1
            if answers != count and await call.code() is grpc.StatusCode.OK:
                self._outcome.findings.append(f"{answers} answers to {count} of a stream")
        return self._code(await call.code())

    def _code(self, code: grpc.StatusCode) -> str:
        if code.name not in CODES:
            self._outcome.findings.append(f"gRPC {code.name}")
        return str(code.name)

    async def _fields(self, worker: int, random: Random) -> str:
        """A message of one field very often, with another one in it."""
        within = b"".join(field(random.randint(1, 9), [random.randbytes(random.randrange(4))]))
        content = random.choice((b"", within, within * random.choice((10, 3000))))
        one = b"".join(field(random.randint(1, 9), [content]))
        data = GRPC_SEEDS[STREAM][0] + one * min(40_000, 60_000 // len(one))
        call = self._channel(worker).unary_unary(f"/{SERVICE}/ModelInfer")
        compression = random.choice((None, grpc.Compression.Gzip, grpc.Compression.Deflate))
        return self._code(await call(data, compression=compression).code())

    async def _resets(self, worker: int, random: Random) -> str:
        """Calls that are ended as soon as they begin."""
        reset, ping = frame(3, 0, 1, struct.pack(">I", 8)), frame(6, 0, 0, bytes(8))
        many = random.choice((reset, ping, frame(4, 0, 0, b""))) * random.choice((10, 3000))
        return await self._once(self._grpc, PREFACE + SETTINGS + many)

    async def _frames(self, worker: int, random: Random) -> str:
        """Frames of HTTP/2 of any type and flags, on any stream."""
        frames = [PREFACE, SETTINGS] if random.random() < 0.8 else [PREFACE]
        for _ in range(random.randint(1, 12)):
            payload = random.randbytes(random.choice((0, 4, 8, 30, 3000)))
            length = random.choice((len(payload), len(payload), 0, 2**24 - 1))
            kind, flags = random.randrange(12), random.randrange(256)
            stream = random.choice((0, 1, 2, 3, 2**31 - 1))
            frames.append(struct.pack(">I", length)[1:] + frame(kind, flags, stream, payload)[3:])
        return await self._once(self._grpc, b"".join(frames))


async def run(serving: Serving, requests: int, seed: int) -> Outcome:
    """So many bad requests, and the honest clients meanwhile."""
    outcome = Outcome()
    attack = Attack(serving, outcome)
    numbers = iter(range(requests))
    is_over = False

    async def work(worker: int) -> None:
        for number in numbers:
            await attack.send(worker, Random(f"live {seed + number}"))

    frames = [{"image": image} for image in images()[:20]]
    wanted = [{"probabilities": array} for array in expected()[:20]]

    async def ask(kind: str) -> float:
        asked = outcome.honest[kind] = Asked()
        slowest_s = 0.0
        while not is_over:
            began_s = time.monotonic()
            await ask_all(
                getattr(serving, kind), kind, "digits", frames, wanted,
                clients=1, each=len(frames), asked=asked,
            )  # fmt: skip
            slowest_s = max(slowest_s, time.monotonic() - began_s)
        return slowest_s

    began_s = time.monotonic()
    honest = [asyncio.create_task(ask(kind)) for kind in KINDS]
    await asyncio.gather(*map(work, range(WORKERS)))
    outcome.seconds = time.monotonic() - began_s
    is_over = True
    for kind, slowest_s in zip(KINDS, await asyncio.gather(*honest), strict=True):
        asked = outcome.honest[kind]
        if asked.wrong or asked.refusals or asked.errors:
            outcome.findings.append(f"honest client, {kind}: {asked.wrong} wrong, {asked.errors}")
        if slowest_s > LATE_S * len(frames):
            outcome.findings.append(f"honest client, {kind}: {slowest_s:.0f} s for 20 answers")
    await attack.close()
    return outcome


def attacked(requests: int, seed: int, log: Path) -> tuple[Outcome, float]:
    """The outcome, and by how many MB the launcher grew after the first sixth of all requests.

    What it printed is in `log`.
    """
    with log.open("wb") as file:
        serving = Serving(log=file)
        try:
            asyncio.run(run(serving, requests // 5, seed + requests))
            log_bytes = log.stat().st_size
            before = _status_bytes(serving, "VmRSS")
            Path(f"/proc/{serving.process.pid}/clear_refs").write_text("5")  # the peak begins again
            outcome = asyncio.run(run(serving, requests, seed))
            grown = (_status_bytes(serving, "VmRSS") - before) / 1e6
            if (peak := _status_bytes(serving, "VmHWM") - before) > GROWN_BYTES:
                outcome.findings.append(f"{peak / 1e6:.0f} MB more at the peak")
            if serving.end() != 0:
                outcome.findings.append(f"the server ended with {serving.process.returncode}")
        finally:
            serving.process.terminate()  # if something has failed
    lines = log.read_bytes()[log_bytes:].decode("utf-8", "replace").splitlines()
    bad = [line for line in lines if "Traceback" in line or "Error" in line]
    outcome.findings += [f"log: {line[:200]}" for line in bad[:5]]
    if len(lines) > MOST_LINES:
        outcome.findings.append(f"{len(lines)} lines in the log")
    return outcome, grown


def _status_bytes(serving: Serving, key: str) -> int:
    status = Path(f"/proc/{serving.process.pid}/status").read_text()
    return 1024 * int(status.partition(f"{key}:")[2].split()[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.live_server", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome, grown = attacked(options.requests, options.seed, Path(folder) / "log")
    honest = sum(len(asked.answers) for asked in outcome.honest.values())
    figures = [
        Figure("bad requests and connections", outcome.sent.total(), at_least=options.requests),
        Figure("findings", len(outcome.findings), at_most=0),
        Figure("answers to honest clients meanwhile", honest, at_least=1),
        Figure("longest wait for an answer", round(outcome.slowest_s, 2), "s", at_most=WAIT_S),
        Figure("memory of the launcher beyond the start", round(grown, 1), "MB"),
        Figure("bad requests per second", round(outcome.sent.total() / outcome.seconds)),
    ]
    data = {"sent": dict(outcome.sent), "answers": dict(outcome.answers)}
    data["findings"] = outcome.findings[:100]
    print_json(report("live-fuzz", "Bad requests to a server", figures, data=data))
    return int(bool(outcome.findings))


if __name__ == "__main__":
    sys.exit(main())
