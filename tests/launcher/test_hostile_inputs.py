"""Hostile input files: each is used or refused in a sentence, at a known cost."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from launcher.errors import BadInputError
from launcher.inputs.images import DECODE_BYTES, MOST_PIXELS, decoded
from tests.descriptors import opened_under
from tests.launcher.models import network_of
from tests.launcher.test_inputs import opened, paint

IMAGE = (1, 3, 4, 6)
LARGE = (12_000, 9_000)
TURNED = b"Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0"
"""EXIF of a picture that stands on its side."""


def refused(folder: Path, name: str, shape: tuple[int, ...] = IMAGE, inputs: int = 1) -> str:
    """The sentence by which a file is refused before anything starts."""
    with pytest.raises(BadInputError) as caught:
        opened(network_of(shape, inputs=inputs), folder, name).check()
    sentence = str(caught.value)
    assert sentence.startswith(str(folder / name))
    assert "\n" not in sentence
    return sentence


def peak_bytes(code: str, *arguments: object) -> int:
    """What its own process holds at most while it runs `code`, beyond what it began with."""
    measured = f"""
import sys
from pathlib import Path
import numpy as np
from launcher.errors import BadInputError
from launcher.inputs.images import decoded
from launcher.inputs.arrays import LastArchive, open_arrays
from cnn.network import Tensor
path = Path(sys.argv[1])
def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(key))
before = status("VmRSS:")
{code}
sys.stdout.write(str(status("VmHWM:") - before))
"""
    command = [sys.executable, "-c", measured, *map(str, arguments)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=120).stdout)


def png(width: int, height: int, data: bytes, depth: int = 8, kind: int = 2) -> bytes:
    """A PNG file that states a size, with `data` as its packed pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


# ---------------------------------------------------------------- images


def test_a_postscript_file_is_not_an_image_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow would run Ghostscript for it."""
    script = tmp_path / "bin" / "gs"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
    (tmp_path / "a.png").write_text(
        "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 4\n%%EndComments\n"
    )
    assert "neither a PNG nor a JPEG" in refused(tmp_path, "a.png")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["BMP", "GIF", "TIFF", "WEBP", "PPM", "ICO"])
def test_other_formats_are_refused_by_their_content(tmp_path: Path, kind: str) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "a.jpg", kind)
    assert "neither a PNG nor a JPEG" in refused(tmp_path, "a.jpg")


def test_a_jpeg_file_may_be_called_png(tmp_path: Path) -> None:
    Image.new("RGB", (6, 4)).save(tmp_path / "a.png", "JPEG")
    opened(network_of(IMAGE), tmp_path, "a.png").check()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["png", "jpg"])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_pictures_are_turned_upright_as_pillow_does(
    tmp_path: Path, orientation: int, kind: str, mode: str
) -> None:
    random = np.random.default_rng(0)
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = Image.fromarray(random.integers(0, 255, (5, 7, 3), np.uint8))
    path = tmp_path / f"a.{kind}"
    picture.save(path, exif=exif)
    with Image.open(path) as file:
        wanted = ImageOps.exif_transpose(file).convert(mode)
    assert np.array_equal(np.asarray(decoded(path, mode)), np.asarray(wanted))


@pytest.mark.parametrize(
    ("width", "height", "sentence"),
    [
        (20_000, 20_000, "at most 110 million are decoded"),
        (100_000, 10, "65535 along an edge"),
        (12_000, 8_000, "more than so short a file can hold"),
    ],
)
def test_a_picture_that_states_too_many_pixels_is_refused_unread(
    tmp_path: Path, width: int, height: int, sentence: str
) -> None:
    (tmp_path / "a.png").write_bytes(png(width, height, zlib.compress(b"\0" * 1000)))
    assert sentence in refused(tmp_path, "a.png")


def test_a_short_jpeg_file_cannot_claim_a_large_picture(tmp_path: Path) -> None:
    Image.new("L", (64, 64)).save(tmp_path / "a.jpg")
    data = (tmp_path / "a.jpg").read_bytes()
    size = data.index(b"\xff\xc0") + 5
    (tmp_path / "a.jpg").write_bytes(
        data[:size] + struct.pack(">HH", 9000, 12000) + data[size + 4 :]
    )
    assert "more than so short a file can hold" in refused(tmp_path, "a.jpg")


def test_a_jpeg_file_cannot_have_scans_without_end(tmp_path: Path) -> None:
    """Each costs a pass over the whole picture, and needs few bytes."""
    Image.new("RGB", (64, 64)).save(tmp_path / "a.jpg", progressive=True)
    data = (tmp_path / "a.jpg").read_bytes()
    scan = data[data.rindex(b"\xff\xda") : -2]
    (tmp_path / "a.jpg").write_bytes(data[:-2] + 600 * scan + data[-2:])
    assert "more than 500 scans" in refused(tmp_path, "a.jpg")


def test_exif_beyond_its_bound_is_refused(tmp_path: Path) -> None:
    """Pillow before 13 copied the whole of it for each of its entries: 700 kB became 10 GB."""
    many = 30_000
    entries = (struct.pack("<HHLL", tag + 1, 7, 300_000, 60) for tag in range(many))
    exif = b"II*\0" + struct.pack("<LH", 8, many) + b"".join(entries) + bytes(100)
    plain = io.BytesIO()
    Image.new("RGB", (8, 8)).save(plain, "JPEG")
    segments = b""
    for start in range(0, len(exif), 65_000):
        part = b"Exif\0\0" + exif[start : start + 65_000]
        segments += b"\xff\xe1" + struct.pack(">H", len(part) + 2) + part
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8" + segments + plain.getvalue()[20:])
    assert "EXIF data are larger than 64 KiB" in refused(tmp_path, "a.jpg")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png", exif=exif)
    assert "EXIF data are larger than 64 KiB" in refused(tmp_path, "a.png")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode", "settings"),
    [
        pytest.param("grey.png", "L", {}, marks=pytest.mark.further),
        pytest.param("alpha.png", "RGBA", {"exif": TURNED}, marks=pytest.mark.further),
        ("deep.png", "I;16", {}),
        pytest.param("plain.jpg", "RGB", {}, marks=pytest.mark.further),
        ("scans.jpg", "CMYK", {"progressive": True, "subsampling": 0}),
    ],
)
def test_decoding_the_largest_picture_holds_no_more_than_is_stated(
    tmp_path: Path, name: str, mode: str, settings: dict[str, object]
) -> None:
    assert LARGE[0] * LARGE[1] <= MOST_PIXELS
    Image.new(mode, LARGE).save(tmp_path / name, **settings)  # type: ignore[arg-type]
    assert peak_bytes("decoded(path, 'RGB')", tmp_path / name) <= DECODE_BYTES


def test_a_camera_picture_makes_no_warning(tmp_path: Path) -> None:
    """Pillow would warn of a bomb from 89 million pixels on."""
    Image.new("1", (12_000, 8_000)).save(tmp_path / "a.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened(network_of((1, 1, 4, 6)), tmp_path, "a.png").check()


# ---------------------------------------------------------------- arrays


def test_an_array_that_is_not_an_input_costs_nothing(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w") as member:
            np.lib.format.write_array(member, np.ones((1, 2), np.float32))
        with archive.open("huge.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.zeros(1 << 27, np.uint8))
    code = "open_arrays(path, (Tensor('x', (1, 2), 'float32'),), LastArchive()).frame(0)"
    assert peak_bytes(code, tmp_path / "a.npz") < 20 << 20


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_is_read_frame_by_frame_in_any_order(tmp_path: Path, save: object) -> None:
    frames = np.arange(40, dtype=np.float32).reshape(20, 2)
    for name, shift in (("a.npz", 0), ("b.npz", 100)):
        save(tmp_path / name, x=frames + shift)  # type: ignore[operator]
    inputs = opened(network_of((1, 2)), tmp_path, "*.npz")
    for index in (0, 1, 25, 7, 39, 8, 0):
        want = frames[index % 20] + 100 * (index // 20)
        np.testing.assert_array_equal(inputs.items[index].load()["x"][0], want)


def test_a_large_archive_is_not_held_in_memory(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((64, 1 << 20), np.uint8))
    code = """
arrays = open_arrays(path, (Tensor('x', (1, 1 << 20), 'uint8'),), LastArchive())
for index in range(arrays.frames):
    arrays.frame(index)
"""
    assert peak_bytes(code, tmp_path / "a.npz") < 32 << 20


@pytest.mark.parametrize("shape", [(3, 2, 5), (3, 1, 2, 5), (2, 5), (1, 2, 5)])
def test_column_major_arrays_are_what_they_were(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    np.save(tmp_path / "a.npy", np.asfortranarray(array))
    np.savez(tmp_path / "b.npz", x=np.asfortranarray(array))
    for name in ("a.npy", "b.npz"):
        inputs = opened(network_of((1, 2, 5)), tmp_path, name)
        found = np.stack([inputs[index]["x"] for index in range(len(inputs))])
        np.testing.assert_array_equal(found.reshape(-1), array.reshape(-1))


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_file_that_is_shortened_meanwhile_is_a_sentence(tmp_path: Path, name: str) -> None:
    """A mapped file would end the process by SIGBUS."""
    frames = np.zeros((20, 1, 1 << 20), np.uint8)
    np.save(tmp_path / name, frames) if name == "a.npy" else np.savez(tmp_path / name, x=frames)
    inputs = opened(network_of((1, 1, 1 << 20), dtype="uint8"), tmp_path, name)
    inputs[0]
    os.truncate(tmp_path / name, 1 << 20)
    with pytest.raises(BadInputError, match="cannot be read as a NumPy file"):
        inputs[19]


def header(text: str, length: int | None = None, version: int = 1) -> bytes:
    size = len(text) if length is None else length
    begin = b"\x93NUMPY" + struct.pack("<BB", version, 0)
    return begin + size.to_bytes(2 * version, "little") + text.encode()


def stating(shape: str, descr: str = "'<f4'") -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (header("(" * 5000), ""),
        (stating("(1, 3, 4, 6)"), "declares 288 bytes of data"),
        (stating("(-1, 3, 4, 6)"), "a length that no array has"),
        (stating(f"({'9' * 5000}, 3, 4, 6)"), ""),
        (stating(f"({'9' * 400}, 3, 4, 6)"), "a length that no array has"),
        (stating(f"({2**62}, 3, 4, 6)"), "bytes of data"),
        (stating("'abc'"), ""),
        (stating("(1,)", "'|O'"), "Python objects"),
        (stating("(1, 3, 4, 6)", "[('a', '<f4')]"), "holds [('a', '<f4')], but"),
        (stating("(1,)", "('<f4', (3, 4, 6))"), "holds"),
        (header("x", 1 << 31, version=2), "header has 2147483648 bytes"),
        (header("x", version=3), "not for plain numbers"),
        (b"PK\3\4", ""),
        (b"", ""),
    ],
)
def test_an_array_file_with_a_false_header_is_refused(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    found = refused(tmp_path, "a.npy")
    assert sentence in found
    assert len(found) < 500


def test_an_archive_that_lies_about_sizes_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((100, 3, 4, 6), np.float32))
    data = (tmp_path / "a.npz").read_bytes()
    about = data.rindex(b"PK\1\2")
    lies = data[: about + 24] + struct.pack("<I", 1 << 31) + data[about + 28 :]
    (tmp_path / "a.npz").write_bytes(lies)
    assert "declares an impossible size" in refused(tmp_path, "a.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_is_packed_as_numpy_packs(tmp_path: Path, method: int) -> None:
    """The others have no bound to what a byte may stand for."""
    with (
        zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive,
        archive.open("x.npy", "w") as f,
    ):
        np.lib.format.write_array(f, np.zeros(IMAGE, np.float32))
    assert "method that NumPy does not use" in refused(tmp_path, "a.npz")


def test_a_stack_of_more_frames_than_a_run_takes_is_refused(tmp_path: Path) -> None:
    """The file may have holes: a few bytes on disk."""
    np.lib.format.open_memmap(tmp_path / "a.npy", "w+", np.uint8, (20_000_000, 1))
    with pytest.raises(BadInputError, match="but a run takes at most 10000000"):
        opened(network_of((1,), dtype="uint8"), tmp_path, "a.npy")


def test_thousands_of_archives_hold_one_descriptor(tmp_path: Path) -> None:
    for number in range(50):
        np.savez(tmp_path / f"{number}.npz", x=np.zeros((2, 1, 2), np.float32))
    inputs = opened(network_of((1, 2)), tmp_path, "*.npz")
    for index in range(len(inputs)):
        inputs.items[index].load()
    assert len(opened_under(tmp_path)) <= 1


def test_images_of_sixteen_bits_are_scaled_in_stripes(tmp_path: Path) -> None:
    deep = (np.arange(300 * 7).reshape(300, 7) * 31).astype(np.uint16)
    paint(tmp_path / "a.png", deep)
    assert np.array_equal(np.asarray(decoded(tmp_path / "a.png", "L")), deep >> 8)
