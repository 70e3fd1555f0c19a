"""Exports recurrent torch networks, whose state is an output and the next frame's input."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from benchmarks.zoo.registry import Entry
from benchmarks.zoo.torch_exports import OPSET, OPSET_OF_NEW, as_trained, seeded

_FRAME = (1, 3, 32, 32)


def _encoder() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1)
    )


class GruCell(nn.Module):
    """A cell of plain operators behind a convolutional encoder."""

    states = ((1, 24),)

    def __init__(self) -> None:
        super().__init__()
        self.encoder = _encoder()
        self.cell = nn.GRUCell(32, 24)
        self.head = nn.Linear(24, 6)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hn = self.cell(self.encoder(x).mean((2, 3)), h)
        return self.head(hn).softmax(1), hn


class Lstm(nn.Module):
    """Two layers of ONNX's own operator, whose states are slices of one tensor."""

    states = ((2, 1, 24), (2, 1, 24))

    def __init__(self) -> None:
        super().__init__()
        self.encoder = _encoder()
        self.rnn = nn.LSTM(32, 24, 2)
        self.head = nn.Linear(24, 6)

    def forward(
        self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        y, (hn, cn) = self.rnn(self.encoder(x).mean((2, 3))[None], (h, c))
        return self.head(y[0]), hn, cn


class ConvGru(nn.Module):
    """A state of rows and columns, as segmentation of video keeps it, and a decoder behind it."""

    states = ((1, 32, 8, 8),)

    def __init__(self) -> None:
        super().__init__()
        self.encoder = _encoder()
        self.gates = nn.Conv2d(64, 64, 3, padding=1)
        self.candidate = nn.Conv2d(64, 32, 3, padding=1)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(32, 8, 4, 4), nn.ReLU(), nn.Conv2d(8, 2, 1))

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.encoder(x)
        reset, update = self.gates(torch.cat([x, h], 1)).sigmoid().chunk(2, 1)
        found = self.candidate(torch.cat([x, reset * h], 1)).tanh()
        hn = (1 - update) * h + update * found
        return self.decoder(hn), hn


_MODELS = {"gru_cell": GruCell, "lstm": Lstm, "conv_gru": ConvGru}


def export(entry: Entry, file: Path) -> None:
    seeded()
    made = as_trained(_MODELS[entry.model]())
    generator = torch.Generator().manual_seed(2)
    tensors = [torch.randn(*shape, generator=generator) for shape in (_FRAME, *made.states)]
    dynamo = bool(entry.options.get("dynamo"))
    with torch.no_grad():
        torch.onnx.export(
            made, tuple(tensors), str(file), input_names=["x", *entry.state],
            output_names=["y", *entry.state.values()], dynamo=dynamo,
            opset_version=OPSET_OF_NEW if dynamo else OPSET,
        )  # fmt: skip
