"""Makes the files in this folder: a network that finds coloured balls, a video and pictures.

    python examples/balls/make.py [--output FOLDER]

No weight was trained. The network averages how red, green and blue each place is over windows of
its size, and so finds round patches of a strong colour, whatever they are. What it finds is true,
so that an example can be checked; for your own objects you need a network that was trained for
them. Its file is as ultralytics exports a YOLO: metadata, and one row of four edges and a score for
each class per cell of a grid. PyAV, ONNX and Pillow are needed.
"""

from __future__ import annotations

import argparse
import random
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw, ImageFilter

COLOURS = {"red": "#d8322a", "green": "#22b14c", "blue": "#2b5fd9"}
SIDE, STRIDE, WINDOW = 160, 8, 24
"""Of the network: its input's side, the distance of cells and the side of windows, in pixels."""

WIDTH, HEIGHT, RATE, FRAMES, RADIUS = 320, 240, 10, 60, 13
"""Of the video: pixels, frames per second, frames, and pixels of a ball's radius."""

Ball = tuple[str, float, float, float]
"""Colour, centre x, centre y and radius, in pixels."""


def network() -> onnx.ModelProto:  # noqa: PLR0915 - a statement for each operator
    """Input `images`, float32 [1, 3, 160, 160]; output `output0`, float32 [1, 7, 400]."""
    cells = SIDE // STRIDE
    constants: dict[str, np.ndarray] = {}
    nodes: list[onnx.NodeProto] = []

    def constant(name: str, values: object) -> str:
        constants[name] = np.asarray(values, dtype=np.float32)
        return name

    def add(kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def windows(name: str, weights: np.ndarray) -> str:
        """The sum of each colour's `weights` [side, side] around the middle of each cell."""
        constant(f"{name}_weights", np.broadcast_to(weights, (3, 1, *weights.shape)))
        pads = [(weights.shape[0] - STRIDE) // 2] * 4
        inputs = ["colour", f"{name}_weights"]
        return add("Conv", inputs, name, group=3, strides=[STRIDE] * 2, pads=pads)

    # How much of one colour a place has more than of the two others: 0 for grey, 1 for a ball.
    more = np.where(np.eye(3, dtype=bool), 1.0, -0.75)[:, :, None, None]
    constant("colour_weights", 6 * more)
    constant("colour_bias", [-1.0] * 3)
    constant("zero", 0.0), constant("one", 1.0)
    add("Conv", ["images", "colour_weights", "colour_bias"], "coloured")
    add("Clip", ["coloured", "zero", "one"], "colour")

    # The area in a window, and its centre of mass from the window's middle.
    steps = np.arange(WINDOW) - (WINDOW - 1) / 2
    windows("area", np.ones((WINDOW, WINDOW)))
    add("Max", ["area", "one"], "some_area")
    for axis, weights in (
        ("x", np.tile(steps, (WINDOW, 1))),
        ("y", np.tile(steps[:, None], (1, WINDOW))),
    ):
        windows(f"moment_{axis}", weights)
        add("Div", [f"moment_{axis}", "some_area"], f"shift_{axis}")
        add("Mul", [f"shift_{axis}", f"shift_{axis}"], f"square_{axis}")

    # A ball's cell has its colour in the middle, and lies close to the centre of mass. One halfway
    # between four cells covers a half of their middles, hence the factor.
    windows("middle", np.full((STRIDE, STRIDE), 1.5 * STRIDE**-2))
    add("Add", ["square_x", "square_y"], "distance")
    constant("reach", 2 * STRIDE**2)
    add("Div", ["distance", "reach"], "far")
    add("Sub", ["one", "far"], "near")
    add("Mul", ["near", "middle"], "scored")
    add("Clip", ["scored", "zero", "one"], "scores")

    # The box of a cell is that of its best colour, which the softmax chooses.
    constant("sharpness", 50.0)
    add("Mul", ["scores", "sharpness"], "sharp")
    add("Softmax", ["sharp"], "choice", axis=1)
    constant("disc", 4 / np.pi)
    add("Mul", ["some_area", "disc"], "square")
    add("Sqrt", ["square"], "diameter")
    middles = (np.arange(cells) + 0.5) * STRIDE
    constant("grid_x", np.tile(middles, (cells, 1))[None, None])
    constant("grid_y", np.tile(middles[:, None], (1, cells))[None, None])
    for name in ("shift_x", "shift_y", "diameter"):
        add("Mul", [name, "choice"], f"chosen_{name}")
        add("ReduceSum", [f"chosen_{name}", "channels"], f"best_{name}", keepdims=1)
    add("Add", ["grid_x", "best_shift_x"], "x")
    add("Add", ["grid_y", "best_shift_y"], "y")
    add("Concat", ["x", "y", "best_diameter", "best_diameter", "scores"], "rows", axis=1)
    add("Reshape", ["rows", "shape"], "output0")

    integers = {"channels": [1], "shape": [1, 7, cells * cells]}
    graph = helper.make_graph(
        nodes,
        "balls",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 7, cells * cells])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()]
        + [numpy_helper.from_array(np.array(v, np.int64), name) for name, v in integers.items()],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    said = {
        "task": "detect",
        "names": str(dict(enumerate(COLOURS))),
        "imgsz": f"[{SIDE}, {SIDE}]",
        "stride": str(STRIDE),
    }
    helper.set_model_props(model, said)
    onnx.checker.check_model(model, full_check=True)
    return model


def scene(balls: list[Ball], width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """Balls on a grey table, drawn at three times their size and scaled down."""
    table = Image.linear_gradient("L").resize((width * 3, height * 3))
    picture = Image.merge("RGB", [table.point(lambda value: 150 + value // 5)] * 3)
    draw = ImageDraw.Draw(picture)
    for colour, x, y, radius in balls:

        def disc(x: float, y: float, rx: float, ry: float, fill: str) -> None:
            draw.ellipse([3 * (x - rx), 3 * (y - ry), 3 * (x + rx), 3 * (y + ry)], fill=fill)

        disc(x + radius * 0.3, y + radius * 0.8, radius, radius * 0.4, "#8c8c8c")
        disc(x, y, radius, radius, COLOURS[colour])
        disc(x - radius * 0.35, y - radius * 0.4, radius * 0.22, radius * 0.18, "#f4f4f4")
    return picture.filter(ImageFilter.GaussianBlur(1.5)).resize((width, height))


def rolling(frame: int) -> list[Ball]:
    """Where the balls of the video are: four red, three green, two blue, in lanes."""
    lanes = ("red", "green", "red", "blue", "red", "green", "blue", "red", "green")
    height = HEIGHT / len(lanes)
    balls = []
    for lane, colour in enumerate(lanes):
        late, speed = (lane * 7) % 20, 8 + lane * 5 % 4
        x = (frame - late) * speed - RADIUS * 1.5
        balls.append((colour, WIDTH - x if lane % 2 else x, (lane + 0.5) * height, RADIUS - 0.5))
    return balls


def still(number: int) -> tuple[list[Ball], int, int]:
    """Where the balls of a picture are, two to five that lie apart, and its width and height."""
    rng = random.Random(number + 8)
    width, height = ((320, 240), (240, 320), (400, 225), (256, 256))[number % 4]
    balls: list[Ball] = []
    while len(balls) < 2 + number % 4:
        radius = rng.uniform(0.04, 0.055) * max(width, height)
        x, y = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
        if all(np.hypot(x - a, y - b) > 5 * radius for _, a, b, _ in balls):
            balls.append((rng.choice(list(COLOURS)), x, y, radius))
    return balls, width, height


def write_video(path: Path) -> None:
    """Write the video of rolling balls, MPEG-4."""
    with av.open(path, "w") as container:
        stream = container.add_stream("mpeg4", rate=Fraction(RATE))
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.bit_rate = 90_000
        for frame in range(FRAMES):
            container.mux(stream.encode(av.VideoFrame.from_image(scene(rolling(frame)))))
        container.mux(stream.encode(None))


def main() -> None:
    """Write all files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, metavar="FOLDER")
    folder: Path = parser.parse_args().output
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    onnx.save(network(), folder / "balls.onnx")
    write_video(folder / "balls.mp4")
    for number in range(4):
        scene(*still(number)).save(folder / "pictures" / f"table-{number}.jpg", quality=88)


if __name__ == "__main__":
    main()
