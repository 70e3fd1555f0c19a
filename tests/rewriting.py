"""Draw random rewrites that a model can apply, for properties that hold for all rewrites."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import strategies as st

import cnn
from cnn.rewrite.rewrites import Bands, Channels, Rewrite, Slices


@st.composite
def divisions(draw: st.DrawFn, channels: Channels) -> tuple[int, ...]:
    """Draw a legal division of a layer's channels into up to four slices."""
    shares = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    return tuple(part for part in channels.divide(shares) if part)


@st.composite
def slicings(draw: st.DrawFn, model: cnn.Model, most: int = 8) -> tuple[Rewrite, ...]:
    """Draw slices of layers of `model`, some of them of layers that are slices already."""
    rewrites: list[Rewrite] = []
    for _ in range(draw(st.integers(1, most))):
        channels = model.slice_channels()
        if not channels:
            break
        layer = draw(st.sampled_from(sorted(channels)))
        rewrites.append(Slices(layer, draw(divisions(channels[layer]))))
        model = model.rewritten(rewrites[-1:])
    return tuple(rewrites)


def random_rows(height: int, bands: int, seed: int) -> tuple[int, ...]:
    """Return random heights of so many bands (or of as many as there are rows)."""
    edges = sorted(random.Random(seed).sample(range(1, height), min(bands, height) - 1))
    return tuple(np.diff([0, *edges, height]).tolist())


def random_rewrite(model: cnn.Model, dice: random.Random) -> Rewrite | None:
    """Return any layer in slices, a single layer in bands, or two neighbours in bands."""
    if dice.random() < 0.4:
        sliceable = model.slice_channels()
        if not sliceable:
            return None
        name = dice.choice(sorted(sliceable))
        sizes = [size for size in sliceable[name].divide([dice.random() for _ in range(3)]) if size]
        return Slices(name, tuple(sizes))
    names = model.band_layers()
    if not names:
        return None
    layers = [dice.choice(names)]
    made = model.network.layer[layers[0]].outputs[0]
    readers = model.network.consumers[made]
    if made not in model.network.outputs and len(readers) == 1 and readers[0] in names:
        layers += readers
    fused = model.fused(layers)
    if fused.height < 2:
        return None
    return Bands(tuple(layers), random_rows(fused.height, dice.randint(2, 3), dice.getrandbits(32)))
