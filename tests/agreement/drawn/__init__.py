"""Small random networks as exporters write them, each drawn from a seed.

Hypothesis draws networks of some thirty operators (`tests.networks`); these know the idioms of
torch, timm, Keras and quantisers, too many to draw and shrink that way. `network` puts one together
of the steps in `idioms`, `check` reads, simplifies, rewrites and cuts it and compares what it
computes, and `tests.agreement.random_networks` does so ten thousand times.
"""
