"""Draw small random networks in the idioms of exporters, and check that dividing them changes
nothing.

Each network comes from a seed. Hypothesis draws networks of some thirty operators
(`tests.networks`); the idioms of torch, timm, Keras and quantisers are too many to draw and shrink
that way. `network` composes a network of the steps in `idioms`, `check` reads, simplifies, rewrites
and cuts it and compares the results, and `tests.agreement.random_networks` does so ten thousand
times.
"""
