"""Divide networks by the strategies, with random layer times on random devices."""

from __future__ import annotations

import random

import numpy as np

import cnn
from ga.strategies import find_strategy
from partition.devices import Device
from partition.strategies.base import Problem
from tests.agreement.drawn.case import Division

STRATEGIES = ("sequential", "vertical", "hybrid", "auto")


def planned(model: cnn.Model, dice: random.Random) -> Division:
    """Divide over two to four devices by any of `STRATEGIES`."""
    devices = tuple(Device(f"d{number}") for number in range(dice.randint(2, 4)))
    numbers = np.random.default_rng(dice.getrandbits(32))
    # So long that sending a tensor and starting a phase are nothing beside them.
    layer_s = numbers.lognormal(0.0, 1.0, (len(model.network.layers), len(devices)))
    problem = Problem(
        model.network, devices, seed=dice.getrandbits(16), model=model, layer_s=layer_s
    )
    solution = find_strategy(dice.choice(STRATEGIES)).solve(problem)
    rewritten = model.rewritten(solution.rewrites) if solution.rewrites else model
    return Division(solution.rewrites, rewritten, solution.assignment)
