"""Streams images through three nodes, and prints the digit that the network sees in each."""

from collections.abc import Iterator

import numpy as np

import csdf_edge


def camera() -> Iterator[dict[str, np.ndarray]]:
    """Stands for any source; it may never end, and is read as fast as results are taken."""
    for image in np.load("examples/digits/test_images.npy")[:20]:
        yield {"image": image[None]}


with csdf_edge.open("examples/digits/cluster.yaml", strategy="sequential") as cluster:
    for number, result in enumerate(cluster.stream(camera(), in_flight=8)):
        scores = result["probabilities"][0]
        print(f"image {number}: {scores.argmax()} ({scores.max():.0%})")
