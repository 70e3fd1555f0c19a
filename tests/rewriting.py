"""Random rewrites that a model can carry out, for whatever must hold for all of them."""

from __future__ import annotations

from hypothesis import strategies as st

import cnn
from cnn.rewrites import Channels, Rewrite, Slices


@st.composite
def divisions(draw: st.DrawFn, channels: Channels) -> tuple[int, ...]:
    """A legal division of a layer's channels into two to four slices (one for lack of channels)."""
    shares = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    return tuple(part for part in channels.divide(shares) if part)


@st.composite
def slicings(draw: st.DrawFn, model: cnn.Model, most: int = 8) -> tuple[Rewrite, ...]:
    """Slices of layers of `model`, some of them of layers that are slices already."""
    rewrites: list[Rewrite] = []
    for _ in range(draw(st.integers(1, most))):
        channels = model.slice_channels()
        if not channels:
            break
        layer = draw(st.sampled_from(sorted(channels)))
        rewrites.append(Slices(layer, draw(divisions(channels[layer]))))
        model = model.rewritten(rewrites[-1:])
    return tuple(rewrites)
