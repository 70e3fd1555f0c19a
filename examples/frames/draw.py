"""Draws the frames in this folder: eight small scenes, so that nobody has to download a picture.

    python examples/frames/draw.py [--output FOLDER]

Each scene is drawn at three times its size and scaled down, which smooths the edges. The same
Pillow gives the same bytes; another one may encode the same picture differently. Sizes, formats
and colour modes vary on purpose (landscape and portrait, PNG and JPEG, colour, grey and
transparent): whoever feeds a network with files meets all of them.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from PIL import Image, ImageColor, ImageDraw, ImageFilter

OVERSAMPLING = 3

Point = tuple[float, float]


class Scene:
    """A canvas of `width` × `height` picture points that is drawn `OVERSAMPLING` times larger."""

    def __init__(self, width: int, height: int, top: str, bottom: str) -> None:
        self.size = (width, height)
        self._image = Image.new("RGB", (width * OVERSAMPLING, height * OVERSAMPLING))
        self._draw = ImageDraw.Draw(self._image)
        self.gradient(0, height, top, bottom)

    def gradient(self, y0: float, y1: float, top: str, bottom: str) -> None:
        """Fills the full width from `y0` to `y1` with a vertical run of colours."""
        first, last = ImageColor.getrgb(top), ImageColor.getrgb(bottom)
        rows = range(round(y0 * OVERSAMPLING), round(y1 * OVERSAMPLING))
        for row in rows:
            share = (row - rows.start) / max(1, len(rows) - 1)
            colour = tuple(round(a + (b - a) * share) for a, b in zip(first, last, strict=True))
            self._draw.line([(0, row), (self._image.width, row)], fill=colour)

    def shape(self, points: list[Point], colour: str) -> None:
        """A filled polygon."""
        self._draw.polygon(_scaled(points), fill=colour)

    def box(self, x0: float, y0: float, x1: float, y1: float, colour: str) -> None:
        """A filled rectangle."""
        self._draw.rectangle(_scaled([(x0, y0), (x1, y1)]), fill=colour)

    def disc(self, x: float, y: float, rx: float, ry: float, colour: str) -> None:
        """A filled ellipse around (x, y)."""
        self._draw.ellipse(_scaled([(x - rx, y - ry), (x + rx, y + ry)]), fill=colour)

    def ring(self, x: float, y: float, radius: float, colour: str, width: float) -> None:
        """A circle's outline around (x, y)."""
        corners = _scaled([(x - radius, y - radius), (x + radius, y + radius)])
        self._draw.ellipse(corners, outline=colour, width=round(width * OVERSAMPLING))

    def line(self, points: list[Point], colour: str, width: float) -> None:
        """A bent line with round joints and ends."""
        self._draw.line(
            _scaled(points), fill=colour, width=round(width * OVERSAMPLING), joint="curve"
        )
        for x, y in (points[0], points[-1]):
            self.disc(x, y, width / 2, width / 2, colour)

    def glow(self, x: float, y: float, radius: float, colour: str, strength: int) -> None:
        """A soft light around (x, y); `strength` 0–255 is its opacity in the middle."""
        mask = Image.new("L", self._image.size)
        corners = _scaled([(x - radius / 2, y - radius / 2), (x + radius / 2, y + radius / 2)])
        ImageDraw.Draw(mask).ellipse(corners, fill=strength)
        mask = mask.filter(ImageFilter.GaussianBlur(radius * OVERSAMPLING / 4))
        self._image.paste(ImageColor.getrgb(colour), mask=mask)

    def finished(self) -> Image.Image:
        """The scene at its own size."""
        return self._image.resize(self.size, Image.Resampling.LANCZOS)


def _scaled(points: list[Point]) -> list[Point]:
    return [(x * OVERSAMPLING, y * OVERSAMPLING) for x, y in points]


def boat() -> Image.Image:
    """A sailing boat on a calm sea, towards evening."""
    scene = Scene(320, 240, "#8ec5e8", "#fbe3bd")
    scene.glow(245, 120, 70, "#fff4c8", 255)
    scene.disc(245, 120, 17, 17, "#fff6d8")
    scene.gradient(145, 240, "#4f8fae", "#123e5c")
    rng = random.Random(1)
    for _ in range(160):
        y = 148 + 90 * rng.random() ** 1.4
        x, length = 320 * rng.random(), 3 + (y - 140) * 0.16
        bright = abs(x - 245) < 12 + (y - 145) * 0.3
        colour = "#f4dcae" if bright else "#6ba4bd"
        scene.line([(x, y), (x + length, y)], colour, 0.8)
    scene.line([(140, 178), (140, 48)], "#5b3a21", 3)
    scene.shape([(144, 52), (144, 166), (206, 166)], "#fdfaf2")
    scene.shape([(144, 120), (144, 166), (206, 166), (181, 120)], "#e2574c")
    scene.shape([(136, 62), (136, 166), (92, 166)], "#f2ead9")
    scene.shape([(78, 176), (214, 176), (192, 203), (100, 203)], "#7a3b22")
    scene.shape([(78, 176), (214, 176), (210, 183), (83, 183)], "#f7f3ea")
    scene.line([(84, 206), (208, 206)], "#cfe3ea", 1.5)
    return scene.finished()


def bicycle() -> Image.Image:
    """A bicycle in front of a yellow wall."""
    scene = Scene(360, 240, "#f2c14e", "#e8a93a")
    for row, y in enumerate(range(0, 176, 22)):
        scene.line([(0, y), (360, y)], "#d9982f", 1)
        for x in range(-20 + 26 * (row % 2), 380, 52):
            scene.line([(x, y), (x, y + 22)], "#d9982f", 1)
    scene.gradient(176, 240, "#9a9690", "#6e6b66")
    rear, front, radius = (105.0, 162.0), (252.0, 162.0), 46.0
    scene.disc(180, 210, 130, 6, "#5f5c58")
    for x, y in (rear, front):
        for spoke in range(14):
            angle = spoke * math.pi / 7
            end = (x + radius * math.cos(angle), y + radius * math.sin(angle))
            scene.line([(x, y), end], "#c9c9c9", 0.6)
        scene.ring(x, y, radius, "#1f1f1f", 4)
        scene.ring(x, y, radius - 4.5, "#b9bcc0", 1.6)
        scene.disc(x, y, 4, 4, "#333333")
    crank, saddle, head = (166.0, 164.0), (148.0, 98.0), (229.0, 92.0)
    for stroke in ([rear, saddle], [rear, crank], [crank, saddle], [crank, head], [saddle, head]):
        scene.line(stroke, "#1c6e5a", 4.5)
    scene.line([front, (226, 80)], "#1c6e5a", 4.5)
    scene.line([(226, 80), (222, 66), (236, 62), (247, 68)], "#2a2a2a", 4)
    scene.line([saddle, (144, 84)], "#8b8f94", 4)
    scene.shape([(122, 78), (166, 80), (162, 87), (134, 89)], "#4a2c1a")
    scene.line([(105, 159), (166, 155)], "#444444", 1.5)
    scene.line([(105, 166), (166, 173)], "#444444", 1.5)
    scene.ring(*crank, 11, "#444444", 3)
    scene.line([(160, 146), (172, 182)], "#8b8f94", 3)
    scene.line([(164, 182), (181, 182)], "#222222", 4)
    scene.line([(152, 146), (168, 146)], "#222222", 4)
    return scene.finished()


def house() -> Image.Image:
    """A house between trees, in summer."""
    scene = Scene(340, 220, "#5fa8e0", "#d8eefb")
    for x, y, size in ((60, 40, 1.0), (150, 28, 0.7), (280, 50, 1.2)):
        for dx, dy, r in ((-20, 3, 12), (0, 0, 17), (19, 4, 13), (6, 8, 15)):
            scene.disc(x + dx * size, y + dy * size, r * 1.25 * size, r * 0.8 * size, "#fbfdff")
    scene.gradient(150, 220, "#86b84e", "#4f8a2f")
    scene.disc(70, 152, 150, 26, "#79ad46")
    scene.shape([(166, 190), (190, 190), (214, 220), (150, 220)], "#d9c79a")
    scene.box(108, 105, 238, 190, "#f3e6cf")
    scene.box(108, 180, 238, 190, "#a79a85")
    scene.box(206, 52, 222, 84, "#8c4a3a")
    scene.shape([(94, 108), (252, 108), (218, 60), (128, 60)], "#a8432f")
    for y in (72, 84, 96):
        scene.line([(128 - (y - 60) * 0.7, y), (218 + (y - 60) * 0.7, y)], "#8f3625", 1)
    scene.box(165, 138, 191, 190, "#5a3a22")
    scene.disc(186, 165, 2, 2, "#e5c34a")
    for x in (122, 204):
        scene.box(x - 2, 128, x + 24, 160, "#ffffff")
        scene.box(x, 130, x + 22, 158, "#6f9dbf")
        scene.line([(x + 11, 130), (x + 11, 158)], "#ffffff", 2)
        scene.line([(x, 144), (x + 22, 144)], "#ffffff", 2)
    rng = random.Random(2)
    for x, ground, size in ((45.0, 188.0, 1.0), (287.0, 192.0, 1.25), (322.0, 176.0, 0.8)):
        scene.box(x - 5 * size, ground - 48 * size, x + 5 * size, ground, "#5c4128")
        for _ in range(70):
            angle, far = 2 * math.pi * rng.random(), math.sqrt(rng.random())
            leaf_x = x + 34 * size * far * math.cos(angle)
            leaf_y = ground - 78 * size + 38 * size * far * math.sin(angle)
            green = rng.choice(("#2f6b2a", "#3b7d31", "#4b9140", "#28602a"))
            scene.disc(leaf_x, leaf_y, 11 * size, 9 * size, green)
    return scene.finished()


def cup() -> Image.Image:
    """A cup of coffee on a table, from slightly above; portrait, in grey."""
    scene = Scene(220, 280, "#b8b8b8", "#e0e0e0")
    scene.gradient(160, 280, "#8a8a8a", "#5c5c5c")
    for y in (178, 200, 228, 262):
        scene.line([(0, y), (220, y)], "#6c6c6c", 1)
    scene.disc(114, 236, 92, 21, "#4a4a4a")
    scene.disc(108, 229, 90, 21, "#f1f1f1")
    scene.disc(108, 228, 72, 15, "#d6d6d6")
    scene.ring(170, 165, 28, "#cfcfcf", 10)
    scene.shape([(52, 128), (164, 128), (150, 215), (134, 229), (82, 229), (66, 215)], "#fafafa")
    scene.shape([(126, 128), (164, 128), (150, 215), (134, 229), (112, 229)], "#dedede")
    scene.disc(108, 128, 56, 16, "#ffffff")
    scene.disc(108, 130, 50, 12, "#2b2b2b")
    scene.disc(96, 128, 24, 4, "#4d4d4d")
    for x in (84.0, 108.0, 132.0):
        waves = [(x + 7 * math.sin(step / 4), 108 - 2.6 * step) for step in range(26)]
        scene.line(waves, "#f4f4f4", 3)
    scene.line([(24, 250), (88, 262)], "#e6e6e6", 4)
    scene.disc(20, 249, 14, 6, "#ededed")
    return scene.finished().convert("L")


def street() -> Image.Image:
    """A street at night, with lamps and lit windows."""
    scene = Scene(300, 240, "#0b1030", "#38325c")
    rng = random.Random(3)
    for _ in range(60):
        scene.disc(300 * rng.random(), 90 * rng.random(), 0.6, 0.6, "#e8e8ff")
    for side in (-1, 1):
        for near, wall in ((0.45, "#1a1b33"), (0.7, "#22233f"), (1.0, "#2b2c4b")):
            x0, x1 = 150 + side * 62 * near * 1.55, 150 + side * 160 * near
            top, foot = 135 - 118 * near, 135 + 48 * near
            scene.box(min(x0, x1), top, max(x0, x1), foot, wall)
            step = 22 * near
            for row in range(5):
                for column in range(2):
                    lit = rng.random() < 0.55
                    x = min(x0, x1) + (6 + 24 * column) * near
                    y = top + 10 * near + row * step
                    colour = "#ffd36b" if lit else "#141528"
                    scene.box(x, y, x + 11 * near, y + 13 * near, colour)
    scene.shape([(138, 140), (162, 140), (330, 240), (-30, 240)], "#2a2a33")
    scene.shape([(132, 140), (138, 140), (-30, 240), (-120, 240)], "#4a4a55")
    scene.shape([(162, 140), (168, 140), (420, 240), (330, 240)], "#4a4a55")
    for near in (0.12, 0.25, 0.45, 0.75):
        y = 140 + 100 * near
        scene.box(150 - 3 * near, y, 150 + 3 * near, y + 22 * near, "#d8d2a8")
    for side in (-1, 1):
        for near in (0.3, 0.5, 0.85):
            x, foot, height = 150 + side * (18 + 120 * near), 140 + 82 * near, 150 * near
            lamp = (x - side * 20 * near, foot - height)
            arm = [(x, foot), (x, foot - height - 4 * near), (lamp[0], lamp[1] - 4 * near)]
            scene.line(arm, "#0c0c14", 4.5 * near)
            scene.glow(*lamp, 62 * near, "#ffdf8e", 210)
            scene.disc(*lamp, 6 * near, 4 * near, "#fff6d6")
    return scene.finished()


def mountains() -> Image.Image:
    """Mountain ridges behind a lake, one paler than the other."""
    scene = Scene(400, 225, "#6fa6d6", "#f6ead6")
    rng = random.Random(4)
    for base, height, colour, snow in (
        (150, 105, "#8fa6bd", True),
        (155, 62, "#67839a", False),
        (160, 34, "#3f5f5a", False),
    ):
        phases = [2 * math.pi * rng.random() for _ in range(5)]
        ridge = [(float(x), base - height * _ridge(x, phases)) for x in range(0, 404, 2)]
        scene.shape([(0, 225), *ridge, (402, 225)], colour)
        if snow:
            line = base - 0.55 * height
            for (x0, y0), (x1, y1) in pairwise(ridge):
                edge0, edge1 = (line + 6 * math.sin(x / 7) for x in (x0, x1))
                if y0 < edge0 and y1 < edge1:
                    scene.shape([(x0, y0), (x1, y1), (x1, edge1), (x0, edge0)], "#f7fafc")
    scene.gradient(162, 225, "#9dbdce", "#34617a")
    for _ in range(90):
        x, y = 400 * rng.random(), 164 + 60 * rng.random()
        scene.line([(x, y), (x + 6 + (y - 160) * 0.4, y)], "#b9d0da", 0.7)
    for x in range(4, 120, 13):
        foot, tall = 214 + 5 * math.sin(x), 44 + 12 * math.sin(x * 1.7)
        for share in (0.0, 0.25, 0.5):
            tip, wide = foot - tall * (1 - share * 0.9), 5 + 9 * share
            scene.shape([(x, tip), (x - wide, tip + tall * 0.45), (x + wide, tip + tall * 0.45)],
                        "#1f3d33")  # fmt: skip
    return scene.finished()


def _ridge(x: float, phases: list[float]) -> float:
    """Height of a ridge at `x`, about 0 to 1: sharp crests of ever shorter waves."""
    total = sum(
        (1 - abs(math.sin(x * 0.011 * 1.9**order + phase))) * 0.52**order
        for order, phase in enumerate(phases)
    )
    return total / sum(0.52**order for order in range(len(phases)))


def flower() -> Image.Image:
    """A sunflower on a transparent background; portrait."""
    scene = Scene(200, 280, "#ffffff", "#ffffff")
    scene.line([(100, 110), (104, 190), (98, 276)], "#3c7a2c", 8)
    scene.shape([(102, 205), (132, 172), (178, 178), (160, 206), (126, 216)], "#4c9438")
    scene.shape([(101, 236), (70, 200), (26, 206), (42, 234), (76, 246)], "#43852f")
    for ring, colour, length in ((0.0, "#e59a12", 74), (0.5, "#f9c723", 66)):
        for petal in range(16):
            angle = (petal + ring) * math.pi / 8
            along, across = (math.cos(angle), math.sin(angle)), (-math.sin(angle), math.cos(angle))
            outline = [
                (
                    100 + along[0] * far * length + across[0] * wide,
                    98 + along[1] * far * length + across[1] * wide,
                )
                for far, wide in ((0.3, -6), (0.7, -11), (1.1, 0), (0.7, 11), (0.3, 6))
            ]
            scene.shape(outline, colour)
    scene.disc(100, 98, 34, 34, "#4a2a12")
    for seed in range(150):
        angle, far = seed * math.pi * (3 - math.sqrt(5)), 32 * math.sqrt(seed / 150)
        colour = "#8a5a24" if seed % 2 else "#2c170a"
        scene.disc(100 + far * math.cos(angle), 98 + far * math.sin(angle), 1.7, 1.7, colour)
    picture = scene.finished().convert("RGBA")
    backdrop = Image.new("L", picture.size, 0)
    coloured = [255 if min(pixel[:3]) < 250 else 0 for pixel in _pixels(picture)]
    backdrop.putdata(coloured)
    picture.putalpha(backdrop)
    return picture


def _pixels(picture: Image.Image) -> list[tuple[int, ...]]:
    raw = picture.tobytes()
    bands = len(picture.getbands())
    return [tuple(raw[at : at + bands]) for at in range(0, len(raw), bands)]


def clock() -> Image.Image:
    """A station clock that shows ten past ten; in grey."""
    scene = Scene(260, 200, "#6b7076", "#3c4046")
    for x in range(0, 260, 40):
        scene.line([(x, 0), (x, 200)], "#50555b", 2)
    scene.box(122, 0, 138, 20, "#1c1e21")
    scene.disc(134, 106, 90, 90, "#2b2e32")
    scene.disc(130, 102, 90, 90, "#17191b")
    scene.disc(130, 102, 81, 81, "#f5f5f0")
    for minute in range(60):
        angle = minute * math.pi / 30
        hour = minute % 5 == 0
        inner = 60 if hour else 71
        ends = [(130 + far * math.sin(angle), 102 - far * math.cos(angle)) for far in (inner, 76)]
        scene.line(ends, "#1a1a1a", 5 if hour else 1.6)
    for angle, length, width in ((10.166 * math.pi / 6, 42, 7.0), (math.pi / 3, 64, 5.0)):
        ends = [(130 + far * math.sin(angle), 102 - far * math.cos(angle)) for far in (-12, length)]
        scene.line(ends, "#111111", width)
    scene.disc(130, 102, 6, 6, "#111111")
    return scene.finished().convert("L")


SCENES: dict[str, Callable[[], Image.Image]] = {
    "bicycle.jpg": bicycle,
    "boat.jpg": boat,
    "clock.jpg": clock,
    "cup.png": cup,
    "flower.png": flower,
    "house.jpg": house,
    "mountains.png": mountains,
    "street.png": street,
}


def main() -> None:
    """Draws every scene into the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, metavar="FOLDER")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    for name, scene in SCENES.items():
        options = {"quality": 88} if name.endswith(".jpg") else {"optimize": True}
        scene().save(folder / name, **options)


if __name__ == "__main__":
    main()
