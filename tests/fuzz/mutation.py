"""Good inputs made bad: bytes, texts and msgpack values with a few places changed, from a seed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random
from typing import Any

import msgpack

NUMBERS = (
    *(0, 1, -1, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1),
    *(2**63 - 1, 2**63, 2**64 - 1),
)
VALUES: tuple[Any, ...] = (
    *NUMBERS, None, True, False, 0.0, -0.0, float("nan"), float("inf"), 1e308, "", "\0", "../x",
    "ä" * 300, b"", b"\xff" * 70, [], {}, [[[[]]]], {"": None}, [0] * 5000, "x" * 70_000,
)  # fmt: skip
FRAGMENTS = (
    "&a ", "*a", "<<: ", "- ", "? ", ": ", "{", "}", "[", "]", "!!python/object:os.system ", "'",
    '"', "|\n", "\t", "\0", "#", "%", "@", "`", "null", "true", ".inf", "1e999", "-1",
    "99999999999999999999", "\u2028", "tcp://", "../", "x" * 300,
)  # fmt: skip


def mutated(seeds: Sequence[bytes], random: Random) -> bytes:
    """One of the seeds with one to four changes to its bytes; sometimes bytes out of nowhere."""
    if random.random() < 0.05:
        return random.randbytes(random.randrange(200))
    data = bytearray(random.choice(seeds))
    for _ in range(random.randint(1, 4)):
        _change(data, seeds, random)
    return bytes(data)


def _change(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.choice((1, 1, 2, 4, 8, 30)))
    match random.randrange(8):
        case 0 if at < len(data):
            data[at] ^= 1 << random.randrange(8)
        case 1 if at < len(data):
            data[at] = random.choice((0, 1, 127, 128, 192, 193, 199, 207, 220, 223, 255))
        case 2:
            del data[at:end]
        case 3:
            data[at:at] = data[at:end] * random.choice((1, 2, 50))
        case 4:
            del data[at:]
        case 5:
            size = random.choice("BHIQ")
            number = random.choice(NUMBERS) % (1 << 8 * struct.calcsize(size))
            data[at:at] = struct.pack(random.choice("<>") + size, number)
        case 6:
            other = random.choice(seeds)
            data[at:] = other[random.randrange(len(other) + 1) :]
        case _:
            data[at:at] = random.randbytes(random.choice((1, 2, 9)))


def mutated_text(seeds: Sequence[str], random: Random) -> str:
    """One of the seeds with lines and words moved, dropped, repeated or replaced."""
    text = random.choice(seeds)
    for _ in range(random.randint(1, 4)):
        lines = text.splitlines(keepends=True) or [""]
        line = random.randrange(len(lines))
        at = random.randrange(len(text) + 1)
        match random.randrange(6):
            case 0:
                lines.insert(random.randrange(len(lines)), lines[line])
            case 1:
                del lines[line]
            case 2:
                lines[line] = random.choice((" ", "  ", "\t", "- ", "")) + lines[line].lstrip()
            case 3:
                words = lines[line].split(" ")
                words[random.randrange(len(words))] = str(random.choice(VALUES))[:300]
                lines[line] = " ".join(words)
            case 4:
                lines = [text[:at], random.choice(FRAGMENTS), text[at:]]
            case _:
                lines = [text[:at], text[at + random.choice((1, 2, 9)) :]]
        text = "".join(lines)
    return text


def mutated_map(seeds: Sequence[bytes], random: Random) -> bytes:
    """One of the seeds, which are msgpack maps, with one value or key anywhere in it replaced."""
    whole = msgpack.unpackb(random.choice(seeds), strict_map_key=False)
    places: list[tuple[Any, Any]] = []
    found = [whole]
    while found:
        here = found.pop()
        pairs = here.items() if isinstance(here, dict) else enumerate(here)
        for key, value in pairs:
            places.append((here, key))
            if isinstance(value, dict | list):
                found.append(value)
    here, key = random.choice(places)
    if isinstance(here, dict) and random.random() < 0.2:
        here[str(random.choice(VALUES))[:100]] = here.pop(key)
    else:
        here[key] = random.choice(VALUES)
    return bytes(msgpack.packb(whole))
