"""Exports YOLO networks, and writes what ultralytics itself finds with them in images.

`benchmarks.zoo.predictions` calls it in a Python that has torch, ultralytics and onnxruntime. The
weights are random, and the biases of the scores such that about one cell in a hundred is an object.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.zoo.torch_exports import as_trained, seeded
from benchmarks.zoo.torchvision_operators import supply

CELLS_WITH_OBJECTS = 0.01
MOST = 3000
"""More objects than there are, so that no limit decides which are kept."""

SCORE = 0.4
"""The score that this share of the cells exceeds."""


def main() -> None:
    """Write NAME.onnx, and NAME/IMAGE.npz for each image in `images`, into the folder given."""
    folder = Path(sys.argv[1]).absolute()
    os.environ["YOLO_CONFIG_DIR"] = str(folder)
    os.chdir(folder)
    supply()
    images = sorted((folder / "images").iterdir())
    for name in sys.argv[2:]:
        model = _exported(name, images, folder / f"{name}.onnx")
        (folder / name).mkdir(exist_ok=True)
        for image in images:
            (found,) = model.predict(str(image), verbose=False, retina_masks=True, max_det=MOST)
            np.savez(folder / name / f"{image.stem}.npz", **_arrays(found))
        print(name, flush=True)


def _exported(name: str, images: list[Path], file: Path) -> object:
    """Return the network as ultralytics runs it from its ONNX file."""
    from ultralytics import YOLO  # noqa: PLC0415 - it reads its settings when imported

    seeded()
    model = YOLO(f"{name}.yaml")
    as_trained(model.model)
    pixels = torch.cat([_pixels(image) for image in images])
    _normalise(model.model, pixels)
    _spread_scores(model.model, pixels)
    made = model.export(format="onnx", simplify=False, opset=17, device="cpu", imgsz=320)
    Path(made).rename(file)
    return YOLO(str(file), task=model.task)


def _pixels(image: Path) -> torch.Tensor:
    pixels = np.asarray(Image.open(image).convert("RGB").resize((320, 320)), np.float32) / 255
    return torch.from_numpy(pixels.transpose(2, 0, 1)[None])


def _normalise(network: torch.nn.Module, pixels: torch.Tensor) -> None:
    """Give batch norms the statistics of the images, so that results depend on what they see."""
    network.train()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        network(pixels)
    network.eval()


def _spread_scores(network: torch.nn.Module, pixels: torch.Tensor) -> None:
    head = network.model[-1]
    branches = [getattr(head, name, None) for name in ("cv3", "one2one_cv3")]
    layers = [branch[-1] for one in branches if one is not None for branch in one]
    made = {}

    def keep(layer: torch.nn.Module, _inputs: object, output: torch.Tensor) -> None:
        made[layer] = output

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    with torch.no_grad():
        network(pixels)
        for layer, output in made.items():
            spread = output.std()
            layer.weight /= spread
            best = ((output - layer.bias[:, None, None]) / spread).amax(1)
            wanted = torch.logit(torch.tensor(SCORE))
            level = wanted - torch.quantile(best, 1 - CELLS_WITH_OBJECTS)
            layer.bias.fill_(float(level))
    for hook in hooks:
        hook.remove()


def _arrays(found: object) -> dict[str, np.ndarray]:
    """Return the numbers of a result by name, in pixels of its image."""
    turned, boxes = found.obb, found.boxes  # type: ignore[attr-defined]
    if turned is not None:
        arrays = {
            "boxes": turned.xyxy, "scores": turned.conf, "classes": turned.cls,
            "corners": turned.xyxyxyxy,
        }  # fmt: skip
    else:
        arrays = {"boxes": boxes.xyxy, "scores": boxes.conf, "classes": boxes.cls}
    if found.keypoints is not None:  # type: ignore[attr-defined]
        arrays["points"] = found.keypoints.data  # type: ignore[attr-defined]
    if found.masks is not None:  # type: ignore[attr-defined]
        arrays["masks"] = found.masks.data > 0  # type: ignore[attr-defined]
    return {name: array.cpu().numpy() for name, array in arrays.items()}


if __name__ == "__main__":
    main()
