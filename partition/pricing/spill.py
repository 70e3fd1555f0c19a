"""Weights that a device's cache has no room for: all bytes beyond it, or whole layers.

**bytes**: weights beyond the cache, to the byte (Eq. 8 of Yin et al., 2022). The default.

**layers**: the rule of the Edge TPU's compiler, as Villarrubia et al. (2025, §4.2) found it. Layers
are placed in topological order; one that does not fit stays with the host as a whole. Two things
take room in addition to weights. A segment keeps the tensors that it reads from elsewhere in the
cache: of their Table 4, two layers of 2.82 MiB fit together with inputs of 2.23 MiB, and two of
3.13 MiB do not fit with 2.35 MiB. And where inputs are small, at least `RESERVED_BYTES` are not for
weights: in Table 2, 7.73 of 8 MiB are the most that any network has on the device, and 7.79 MiB no
longer fit.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from partition.devices import Device
from partition.pricing.traffic import Floats

RESERVED_BYTES = 1 << 18
"""See the module's docstring."""


def uncached_bytes(
    device: Device,
    layer_bytes: Iterable[float],
    mine: Iterable[NDArray[np.bool_]],
    weight_bytes: Floats,
    received_bytes: Floats,
) -> Floats:
    """Return the bytes of weights that `device` fetches again for each frame: [...].

    `layer_bytes` [layers] are the weights of each layer in topological order, and `mine` [layers,
    ...], which may be an iterator, says which layers the device has. `weight_bytes` [...] are their
    weights together, and `received_bytes` [...] what the device reads from elsewhere per frame.

    >>> mebi = 2.0**20
    >>> layers, mine = np.array([3 * mebi, 3 * mebi]), np.ones((2, 1), dtype=bool)
    >>> for spill in ("bytes", "layers"):
    ...     device = Device("tpu", cache_bytes=8 << 20, cache_spill=spill)
    ...     found = uncached_bytes(device, layers, mine, np.array([6 * mebi]), np.array([3 * mebi]))
    ...     print(spill, found / mebi)
    bytes [0.]
    layers [3.]
    """
    if device.cache_bytes is None:
        return np.zeros_like(weight_bytes)
    if device.cache_spill == "bytes":
        return np.asarray(np.maximum(weight_bytes - device.cache_bytes, 0.0))
    room = device.cache_bytes - np.maximum(received_bytes, RESERVED_BYTES)
    kept, host = np.zeros_like(room), np.zeros_like(room)
    for size, here in zip(layer_bytes, mine, strict=True):
        fits = kept + size <= room
        kept += np.where(here & fits, size, 0.0)
        host += np.where(here & ~fits, size, 0.0)
    return host
