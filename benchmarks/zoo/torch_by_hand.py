"""Exports small torch networks with the idioms that exporters turn into shape arithmetic."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from benchmarks.zoo.registry import Entry
from benchmarks.zoo.torch_exports import as_trained, seeded, write


def _block(channels: int, filters: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()
    )


class UNet(nn.Module):
    """Three levels; what came up is padded to the size of what it is joined with."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 8, 16, 32)
        self.down = nn.ModuleList(_block(*pair) for pair in itertools.pairwise(sizes))
        self.up = nn.ModuleList(nn.ConvTranspose2d(size, size // 2, 2, 2) for size in (32, 16))
        self.join = nn.ModuleList(_block(size, size // 2) for size in (32, 16))
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for number, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for up, join, beside in zip(self.up, self.join, kept[-2::-1], strict=True):
            x = up(x)
            rows, columns = (beside.size(axis) - x.size(axis) for axis in (2, 3))
            pads = [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2]
            x = join(torch.cat([beside, functional.pad(x, pads)], 1))
        return self.head(x)


class SamePadding(nn.Module):
    """`same` padding whose pads are computed in the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2)
        self.depthwise = nn.Conv2d(8, 8, 5, 2, groups=8)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.stem(_same(x, 3, 2)))
        return self.norm(self.depthwise(_same(x, 5, 2)))


@torch.jit.script
def _same(x: torch.Tensor, taps: int, stride: int) -> torch.Tensor:
    rows, columns = x.size(2), x.size(3)
    below = max(((rows + stride - 1) // stride - 1) * stride + taps - rows, 0)
    right = max(((columns + stride - 1) // stride - 1) * stride + taps - columns, 0)
    return functional.pad(x, [right // 2, right - right // 2, below // 2, below - below // 2])


class GroupNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2), nn.GroupNorm(4, 16), nn.SiLU(),
            nn.Conv2d(16, 16, 3), nn.InstanceNorm2d(16, affine=True), nn.Hardswish(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).mean((2, 3))


class Crnn(nn.Module):
    """Convolutions, then a recurrent layer over the columns, as text recognisers have it."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(_block(3, 16), nn.MaxPool2d(2), _block(16, 32))
        self.rnn = nn.LSTM(32 * 16, 48, bidirectional=True)
        self.gru = nn.GRU(96, 24)
        self.head = nn.Linear(24, 37)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)
        batch, channels, rows, columns = x.shape
        x = x.permute(3, 0, 1, 2).reshape(columns, batch, channels * rows)
        x, _ = self.rnn(x)
        x, _ = self.gru(x)
        return self.head(x).log_softmax(2)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 48, 8, 8)
        layer = nn.TransformerEncoderLayer(48, 4, 96, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(48, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.encoder(x).mean(1))


class Resizes(nn.Module):
    """Resize of every mode to sizes that are computed from the input's."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_block(3, 6) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape[-2:]
        found = []
        for number, block in enumerate(self.layers):
            y = block(functional.avg_pool2d(x, 2 + number))
            mode = ("nearest", "bilinear", "bicubic", "bilinear")[number]
            corners = None if mode == "nearest" else number == 3
            found.append(
                functional.interpolate(y, (rows, columns), mode=mode, align_corners=corners)
            )
        return torch.cat(found, 1)


class Cell(nn.Module):
    """A recurrent cell in a loop over the steps, which appends its states to a list."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(16, 32)
        self.keep = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.size(0), 32)
        states = []
        for step in range(x.size(1)):
            state = torch.tanh(self.read(x[:, step]) + self.keep(state))
            states.append(state)
        return torch.stack(states, 1)


class Pyramid(nn.Module):
    """Halves the image while it is large, and then asks for its shape again."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.size(2) > 8:
            x = functional.max_pool2d(torch.relu(self.conv(x)), 2)
        if x.size(3) > 4:
            return x * 2.0
        return -x


_MODELS = {
    "unet": (UNet, (1, 3, 90, 122)),
    "same_padding": (SamePadding, (1, 3, 90, 122)),
    "group_norm": (GroupNorm, (1, 3, 64, 64)),
    "crnn": (Crnn, (1, 3, 32, 96)),
    "attention": (Attention, (1, 3, 64, 64)),
    "resizes": (Resizes, (1, 3, 90, 122)),
    "cell": (Cell, (1, 10, 16)),
    "pyramid": (Pyramid, (1, 3, 64, 64)),
}


def export(entry: Entry, file: Path) -> None:
    seeded()
    made, shape = _MODELS[entry.model]
    model = as_trained(made())
    if entry.options.get("scripted"):
        model = torch.jit.script(model)
    write(model, shape, file, dynamic=bool(entry.options.get("dynamic")))
