"""Counts the objects of a video that cross a line, and draws the picture in which the last one did.

    python examples/count/count.py [VIDEO] [--model FILE]

It prints a line for each class, and writes `counted.jpg` to the current folder. VIDEO may also be a
camera, such as /dev/video0 or rtsp://HOST/PATH; Ctrl-C ends that. `csdf-edge[launch,stream,cpu]` is
needed.
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import ImageDraw

import csdf_edge

BALLS = Path(__file__).parents[1] / "balls"
LINE, REACH = 0.5, 0.15
"""Where the line is, and how far an object may move from one picture to the next, as shares of the
picture's width."""

parser = argparse.ArgumentParser()
parser.add_argument("video", nargs="?", default=str(BALLS / "balls.mp4"))
parser.add_argument("--model", default=str(BALLS / "balls.onnx"), help="a network that finds boxes")
asked = parser.parse_args()

nodes = [{"name": "a"}, {"name": "b"}]  # a board has also an address: tcp://192.168.1.21:5500
counted: Counter[str] = Counter()
before: list[tuple[str, np.ndarray]] = []
with csdf_edge.open({"model": asked.model, "nodes": nodes}) as cluster:
    try:
        for found in cluster.predictions(asked.video):
            height, width = found.image.shape[:2]
            now = list(zip(found.names, (found.boxes[:, :2] + found.boxes[:, 2:]) / 2, strict=True))
            crossed = 0
            for name, centre in now:
                # It is the nearest object of the same class in the picture before, if one is near.
                near = [old for its, old in before if its == name]
                old = min(near, key=lambda old: np.hypot(*(old - centre)), default=centre)
                if np.hypot(*(old - centre)) < REACH * width:
                    crossed += (old[0] < LINE * width) != (centre[0] < LINE * width)
                    counted[name] += (old[0] < LINE * width) != (centre[0] < LINE * width)
            before = now
            if crossed:
                picture = found.plot()
                draw = ImageDraw.Draw(picture)
                draw.line([(LINE * width, 0), (LINE * width, height)], "yellow", 2)
                text = ", ".join(f"{name} {number}" for name, number in sorted(counted.items()))
                draw.text((6, height - 16), text, "yellow", stroke_width=2, stroke_fill="black")
    except KeyboardInterrupt:
        pass

for name, number in sorted(counted.items()):
    print(f"{name}: {number}")
if counted:
    picture.save("counted.jpg")
