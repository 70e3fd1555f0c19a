"""Input files as `launch` reads them: images, .npy and .npz files."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image

from cnn.network import Layer, Network, Tensor
from launcher.config.network import InputConfig
from launcher.errors import BadInputError
from launcher.inputs.frames import open_inputs
from tests.fuzz.mutation import mutated

SHAPE = (1, 3, 4, 6)
_CHUNKS = (
    b"tEXt", b"zTXt", b"iTXt", b"iCCP", b"eXIf", b"acTL", b"fcTL", b"fdAT", b"PLTE", b"tRNS",
    b"gAMA", b"pHYs", b"cHRM", b"IDAT",
)  # fmt: skip
_ALPHABET = (0, 1, 2, 4, 8, 16, 127, 128, 255, 0xD8, 0xDA, 0xC0, 0xC2, 0xE1)


def reader(folder: Path, suffix: str) -> Callable[[bytes], bool]:
    """Reads bytes as a file of that suffix for a network of one small image."""
    tensors = {"x": Tensor("x", SHAPE, "float32"), "y": Tensor("y", (1, 10), "float32")}
    layers = (Layer("only", "Op", ("x",), ("y",)),)
    network = Network("net", layers, tensors, {}, ("x",), ("y",))
    path = folder / f"input{suffix}"
    config = InputConfig(files=(path.name,))

    def read(data: bytes) -> bool:
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        try:
            inputs = open_inputs(
                network, config, folder, frames=None, seed=0, is_classifier=True, where="input"
            )
            for number in (0, len(inputs.items) - 1, 0):
                frame = inputs.items[number].load()
                assert {name: array.shape for name, array in frame.items()} == {"x": SHAPE}
        except BadInputError as error:
            is_good_sentence(error)
            return False
        return True

    return read


def is_good_sentence(error: BadInputError) -> None:
    """One line that people read to its end."""
    assert "\n" not in str(error)
    assert len(str(error)) < 1000


def images() -> tuple[bytes, ...]:
    """A picture of each kind that is decoded in its own way."""
    random = np.random.default_rng(0)
    pixels = Image.fromarray(random.integers(0, 255, (9, 11, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    found = [
        _saved(pixels, "PNG", exif=exif),
        _saved(pixels.convert("P"), "PNG", transparency=0),
        _saved(pixels.convert("1"), "PNG"),
        _saved(pixels.convert("LA"), "PNG"),
        _saved(pixels, "PNG", save_all=True, append_images=[pixels.rotate(90)]),
        _saved(pixels.convert("RGBA"), "PNG"),
        _saved(Image.fromarray(random.integers(0, 65535, (9, 11), np.uint16)), "PNG"),
        _saved(pixels, "JPEG", exif=exif),
        _saved(pixels, "JPEG", progressive=True, icc_profile=b"profile" * 9),
        _saved(pixels.convert("CMYK"), "JPEG"),
        _saved(pixels, "MPO", save_all=True, append_images=[pixels], exif=exif),
    ]
    return tuple(found)


def _saved(image: Image.Image, kind: str, **settings: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **settings)  # type: ignore[arg-type]
    return file.getvalue()


def changed_image(seeds: Sequence[bytes], random: Random) -> bytes:
    """Bytes changed anywhere; of a PNG file usually chunks, with checksums that are right again."""
    seed = random.choice(seeds)
    if not seed.startswith(b"\x89PNG") or random.random() < 0.3:
        return mutated(seeds, random)
    chunks, at = [], 8
    while at + 8 <= len(seed):
        (size,) = struct.unpack_from(">I", seed, at)
        chunks.append((seed[at + 4 : at + 8], seed[at + 8 : at + 8 + size]))
        at += 12 + size
    for _ in range(random.randint(1, 3)):
        number = random.randrange(len(chunks))
        name, content = chunks[number]
        match random.randrange(5):
            case 0:
                del chunks[number]
            case 1:
                chunks.insert(random.randrange(len(chunks) + 1), (name, content))
            case 2:
                chunks[number] = (random.choice(_CHUNKS), content)
            case 3 if name == b"IDAT":
                unpacked = mutated((b"\0" * 300, content), random)
                chunks[number] = (name, zlib.compress(unpacked))
            case _:
                data = bytearray(content or b"\0")
                data[random.randrange(len(data))] = random.choice(_ALPHABET)
                chunks[number] = (name, bytes(data))
        if not chunks:
            break
    return seed[:8] + b"".join(
        struct.pack(">I", len(content)) + name + content
        + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )  # fmt: skip


def arrays() -> tuple[bytes, ...]:
    """An array of each layout, of one frame and of several."""
    stack = np.arange(3 * 72, dtype=np.float32).reshape(3, *SHAPE[1:])
    given = (stack, stack[:1], np.asfortranarray(stack), stack.astype(">f8"), stack[0].astype("?"))
    found = []
    for array in given:
        file = io.BytesIO()
        np.save(file, array)
        found.append(file.getvalue())
    return tuple(found)


def archives() -> tuple[bytes, ...]:
    """The same in archives, packed and not, beside an array that is no input."""
    found = []
    for save in (np.savez, np.savez_compressed):
        for frames in (1, 2):
            file = io.BytesIO()
            save(file, x=np.ones((frames, *SHAPE[1:]), np.float32), other=np.ones(3))
            found.append(file.getvalue())
    return tuple(found)


_HEADER_WORDS = (
    b"-1", b"0", b"1", b"3,", b"(", b")", b"99999999999999999999", b"'|O'", b"'<f8'", b"True",
    b"[('a', '<f4')]", b"'<U9999999'", b"'V4'", b"1e9", b"None", b"1j", b"L", b"((((((((", b"'M8'",
)  # fmt: skip


def changed_array(seeds: Sequence[bytes], random: Random) -> bytes:
    """Bytes changed anywhere, or words of a header."""
    data = mutated(seeds, random) if random.random() < 0.5 else random.choice(seeds)
    start, end = data.find(b"{"), data.find(b"}")
    if start < 0 or end < 0 or random.random() < 0.3:
        return data
    at = random.randrange(start, max(start + 1, end))
    return data[:at] + random.choice(_HEADER_WORDS) + data[at + random.choice((0, 1, 3, 6)) :]


def changed_archive(seeds: Sequence[bytes], random: Random) -> bytes:
    """Bytes changed anywhere, or an archive made again of a changed array."""
    if random.random() < 0.5:
        return mutated(seeds, random)
    file = io.BytesIO()
    method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(file, "w", method) as archive:
        for name in random.sample(("x.npy", "x", "y.npy", "../x.npy", "x.npy.npy"), 2):
            archive.writestr(name, changed_array(arrays(), random))
    return mutated((file.getvalue(),), random) if random.random() < 0.3 else file.getvalue()
