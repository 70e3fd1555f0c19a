"""Trains a small CNN on scikit-learn's handwritten digits and writes what this example needs.

    pip install torch==2.13.0 scikit-learn onnx
    python examples/digits/train.py [--output FOLDER] [--epochs N]

PyTorch is no dependency of the project: it is needed here, once, and the files that this script
writes are in the repository. They are `digits.onnx` (opset 17, batch norms as trained),
`test_images.npy` (held-out images, float32 [N, 1, 8, 8] in 0…1, as the model wants them) and
`test_labels.txt` (their digits, one per line). A fifth of the 1797 images is held out, each digit
in proportion, and never looked at in training.

The network is one table, `LAYERS`: training and the ONNX file are both made from it, so they cannot
differ. It has two residual blocks and a place where three branches meet, because a plain chain
would be too easy a thing to cut over three nodes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

SEED = 20
HELD_OUT = 0.2
INPUT, OUTPUT = "image", "probabilities"


@dataclass(frozen=True)
class Operator:
    """One operator and the operators (or the input) that it reads; its output has its name.

    `channels` (in, out), `kernel` and `stride` matter to Conv, `channels` to Gemm and to
    BatchNormalization. Every Conv pads so that stride 1 keeps the picture's size.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    channels: tuple[int, int] = (0, 0)
    kernel: int = 0
    stride: int = 1


def _conv(
    name: str, source: str, channels: tuple[int, int], kernel: int, stride: int = 1
) -> tuple[Operator, Operator]:
    """A convolution without bias and its batch norm, whose output is called `name`."""
    conv = f"{name}_conv"
    return (
        Operator(conv, "Conv", (source,), channels, kernel, stride),
        Operator(name, "BatchNormalization", (conv,), (channels[1], channels[1])),
    )


LAYERS: tuple[Operator, ...] = (
    *_conv("stem", INPUT, (1, 16), 3),
    Operator("stem_relu", "Relu", ("stem",)),
    # A residual block that keeps the size,
    *_conv("same1", "stem_relu", (16, 16), 3),
    Operator("same1_relu", "Relu", ("same1",)),
    *_conv("same2", "same1_relu", (16, 16), 3),
    Operator("same_add", "Add", ("same2", "stem_relu")),
    Operator("same_relu", "Relu", ("same_add",)),
    # one that halves it, with a projection beside it,
    *_conv("down1", "same_relu", (16, 32), 3, stride=2),
    Operator("down1_relu", "Relu", ("down1",)),
    *_conv("down2", "down1_relu", (32, 32), 3),
    *_conv("down_skip", "same_relu", (16, 32), 1, stride=2),
    Operator("down_add", "Add", ("down2", "down_skip")),
    Operator("down_relu", "Relu", ("down_add",)),
    # three branches,
    *_conv("point", "down_relu", (32, 16), 1),
    Operator("point_relu", "Relu", ("point",)),
    *_conv("wide", "down_relu", (32, 24), 3),
    Operator("wide_relu", "Relu", ("wide",)),
    *_conv("deep1", "down_relu", (32, 16), 1),
    Operator("deep1_relu", "Relu", ("deep1",)),
    *_conv("deep2", "deep1_relu", (16, 24), 3),
    Operator("deep2_relu", "Relu", ("deep2",)),
    Operator("branches", "Concat", ("point_relu", "wide_relu", "deep2_relu")),
    # and the classifier.
    Operator("pooled", "GlobalAveragePool", ("branches",)),
    Operator("features", "Flatten", ("pooled",)),
    Operator("logits", "Gemm", ("features",), (64, 10)),
    Operator(OUTPUT, "Softmax", ("logits",)),
)


class Digits(nn.Module):
    """`LAYERS` as a PyTorch module: images [N, 1, 8, 8] to logits [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict()
        for op in LAYERS:
            if op.kind == "Conv":
                self.parts[op.name] = nn.Conv2d(
                    *op.channels, op.kernel, op.stride, padding=op.kernel // 2, bias=False
                )
            elif op.kind == "BatchNormalization":
                self.parts[op.name] = nn.BatchNorm2d(op.channels[1])
            elif op.kind == "Gemm":
                self.parts[op.name] = nn.Linear(*op.channels)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Runs the table up to the logits; the loss has the softmax in it."""
        values = {INPUT: images}
        for op in LAYERS:
            inputs = [values[name] for name in op.inputs]
            if op.kind == "Relu":
                values[op.name] = functional.relu(inputs[0])
            elif op.kind == "Add":
                values[op.name] = inputs[0] + inputs[1]
            elif op.kind == "Concat":
                values[op.name] = torch.cat(inputs, dim=1)
            elif op.kind == "GlobalAveragePool":
                values[op.name] = inputs[0].mean(dim=(2, 3), keepdim=True)
            elif op.kind == "Flatten":
                values[op.name] = inputs[0].flatten(1)
            elif op.kind != "Softmax":
                values[op.name] = self.parts[op.name](inputs[0])
        return values["logits"]


def to_onnx(model: Digits) -> onnx.ModelProto:
    """The trained table as an ONNX model for one image, [1, 1, 8, 8] to [1, 10] probabilities."""
    weights = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    initializers: dict[str, np.ndarray] = {}

    def constant(op: Operator, part: str) -> str:
        initializers[f"{op.name}.{part}"] = weights[f"parts.{op.name}.{part}"]
        return f"{op.name}.{part}"

    nodes = []
    for op in LAYERS:
        inputs = list(op.inputs)
        attributes: dict[str, object] = {}
        if op.kind == "Conv":
            inputs.append(constant(op, "weight"))
            attributes = {
                "kernel_shape": [op.kernel] * 2,
                "strides": [op.stride] * 2,
                "pads": [op.kernel // 2] * 4,
            }
        elif op.kind == "BatchNormalization":
            inputs += [constant(op, p) for p in ("weight", "bias", "running_mean", "running_var")]
            attributes = {"epsilon": 1e-5}
        elif op.kind == "Gemm":
            inputs += [constant(op, "weight"), constant(op, "bias")]
            attributes = {"transB": 1}
        elif op.kind in {"Concat", "Flatten", "Softmax"}:
            attributes = {"axis": 1}
        nodes.append(helper.make_node(op.kind, inputs, [op.name], name=op.name, **attributes))
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="train.py"
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def train(images: torch.Tensor, labels: torch.Tensor, epochs: int) -> Digits:
    """Trains on images [N, 1, 8, 8], each shifted by up to one pixel anew in every epoch."""
    torch.manual_seed(SEED)
    model = Digits()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    batch = 64
    steps = epochs * -(-len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=1e-2, total_steps=steps)
    for epoch in range(epochs):
        model.train()
        order = torch.randperm(len(images))
        total = 0.0
        for chosen in order.split(batch):
            down, right = torch.randint(-1, 2, (2,)).tolist()
            shifted = torch.roll(
                functional.pad(images[chosen], (1, 1, 1, 1)), (down, right), (2, 3)
            )
            loss = functional.cross_entropy(
                model(shifted[:, :, 1:-1, 1:-1]), labels[chosen], label_smoothing=0.05
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item() * len(chosen)
        print(f"epoch {epoch + 1} of {epochs}: loss {total / len(images):.4f}")
    return model.eval()


def main() -> None:
    """Trains, says how good it is on the held-out images, and writes the three files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, metavar="FOLDER")
    parser.add_argument("--epochs", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, digits.target, test_size=HELD_OUT, random_state=SEED, stratify=digits.target
    )
    model = train(torch.from_numpy(train_images), torch.from_numpy(train_labels), arguments.epochs)
    with torch.no_grad():
        guesses = model(torch.from_numpy(test_images)).argmax(dim=1).numpy()
    right = int((guesses == test_labels).sum())
    print(f"{right} of {len(test_labels)} held-out images right: {right / len(test_labels):.2%}")

    arguments.output.mkdir(parents=True, exist_ok=True)
    onnx.save(to_onnx(model), arguments.output / "digits.onnx")
    np.save(arguments.output / "test_images.npy", test_images)
    lines = "".join(f"{label}\n" for label in test_labels)
    (arguments.output / "test_labels.txt").write_text(lines)


if __name__ == "__main__":
    main()
