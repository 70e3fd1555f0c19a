"""Provides networks as practitioners export them, to test what must hold for any network.

`registry` names each network, its source and the expected outcome. The other modules export
networks with random weights from a seed, or copy them from wheels that contain trained ones. The
files are not in the repository but in a folder of the user's (`registry.folder`).

    python -m benchmarks.zoo.export NAME …   # with a Python that has torch, keras, …
    python -m benchmarks.zoo NAME …          # with the project's: read, simplify, compare
"""
