"""Compares predictions with ultralytics' own: `python -m benchmarks.zoo.predictions`.

The networks are those of `ultralytics_answers`, the images two photographs of scikit-learn, whole
and cropped to other proportions. An object of ours is ultralytics' if it has the same class, all
edges within a pixel, and the score within 0.001. `--python` names a Python that has torch,
ultralytics and onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

import csdf_edge
from csdf_edge import ImagePrediction

ROOT = Path(__file__).parents[2]

MODELS = (
    "yolov5n", "yolov8n", "yolo11n", "yolo26n", "yolov8n-seg", "yolo11n-seg", "yolov8n-pose",
    "yolo11n-pose", "yolov8n-obb", "yolo11n-obb",
)  # fmt: skip

EDGE_PIXELS, SCORE = 1.0, 1e-3


@dataclass
class Counts:
    """Objects that both found, those that only one found, and the largest differences."""

    both: int = 0
    ours: int = 0
    theirs: int = 0
    edge: float = 0.0
    score: float = 0.0
    point: float = 0.0
    overlaps: tuple[float, ...] = ()

    def row(self, name: str) -> str:
        """Return a row of a table in Markdown."""
        point = f"{self.point:.3f}" if self.point else ""
        mask = f"{np.mean(self.overlaps):.4f}" if self.overlaps else ""
        return (
            f"| {name} | {self.both} | {self.ours} | {self.theirs} | {self.edge:.3f} | "
            f"{self.score:.1e} | {point} | {mask} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=os.environ.get("ZOO_PYTHON"), required=False)
    parser.add_argument("models", nargs="*", default=MODELS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_images(folder / "images")
        command = [arguments.python, "-m", "benchmarks.zoo.ultralytics_answers", name]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([*command, *arguments.models], env=environment, check=True)
        print("| network | both | only ours | only theirs | edges (px) | scores | points | masks |")
        print("|---|---|---|---|---|---|---|---|")
        for model in arguments.models:
            print(_compared(folder, model).row(model), flush=True)


def _write_images(folder: Path) -> None:
    folder.mkdir()
    for number, pixels in enumerate(load_sample_images().images):
        photograph = Image.fromarray(pixels)  # 640 × 427
        photograph.save(folder / f"{number}-whole.png")
        photograph.resize((1920, 1281)).crop((0, 100, 1920, 1180)).save(folder / f"{number}-hd.png")
        photograph.crop((100, 0, 340, 427)).save(folder / f"{number}-tall.png")
        photograph.crop((0, 0, 201, 113)).save(folder / f"{number}-small.png")


def _compared(folder: Path, model: str) -> Counts:
    counts = Counts()
    given = {
        "model": folder / f"{model}.onnx",
        "nodes": [{"name": "a"}, {"name": "b"}],
        "strategy": "sequential",
        "task": {"kind": "auto", "most": 3000},
    }
    with csdf_edge.open(given, progress=False) as cluster:
        for found in cluster.predictions(folder / "images"):
            theirs = np.load(folder / model / f"{Path(found.name).stem}.npz")
            _compare(found, dict(theirs.items()), counts)
    return counts


def _compare(found: ImagePrediction, theirs: dict[str, np.ndarray], counts: Counts) -> None:
    height, width = found.image.shape[:2]
    masks = found.masks if "masks" in theirs else None
    free = np.ones(len(found), np.bool_)
    wanted = clipped = np.clip(theirs["boxes"], 0, (width, height) * 2)
    ours = found.boxes
    if "corners" in theirs:  # in any order, within the image
        wanted, ours = (
            np.sort(np.clip(corners, 0, (width, height)), axis=1).reshape(-1, 8)
            for corners in (theirs["corners"], found.corners)
        )
    seen = (clipped[:, 2:] > clipped[:, :2]).all(axis=1)  # we leave out what lies outside
    for number in np.flatnonzero(seen):
        box = wanted[number]
        edges = np.abs(ours - box).max(axis=1, initial=0.0)
        scores = np.abs(found.scores - theirs["scores"][number])
        alike = free & (found.classes == theirs["classes"][number])
        alike &= (edges <= EDGE_PIXELS) & (scores <= SCORE)
        if not alike.any():
            counts.theirs += 1
            continue
        index = int(np.flatnonzero(alike)[np.argmin(edges[alike])])
        free[index] = False
        counts.both += 1
        counts.edge = max(counts.edge, float(edges[index]))
        counts.score = max(counts.score, float(scores[index]))
        if "points" in theirs:
            apart = np.abs(found.points[index] - theirs["points"][number])[:, :2].max()
            counts.point = max(counts.point, float(apart))
        if masks is not None and found.objects[index].mask is not None:  # those are bounded
            one, other = masks[index], theirs["masks"][number]
            union = (one | other).sum()
            if union:
                counts.overlaps += (float((one & other).sum() / union),)
    counts.ours += int(free.sum())


if __name__ == "__main__":
    main()
