"""Weights by a rule, so that a file of test values needs their names and shapes only."""

import numpy as np


def drawn(shapes):
    """{name: float32 array} for {name: shape}: normal numbers of a size that keeps that of what
    passes through; variances are positive, scales are about 1. Counters are 0."""
    values = {}
    for seed, (name, shape) in enumerate(sorted(shapes.items())):
        rng = np.random.default_rng(seed)
        leaf = name.rpartition(".")[2]
        if leaf == "num_batches_tracked":
            values[name] = np.zeros(shape, np.int64)
            continue
        normal = rng.standard_normal(shape, np.float32)
        if leaf == "running_var":
            normal = 1 + np.abs(normal) / 4
        elif len(shape) == 1:
            normal = normal / 8 + (leaf == "weight")
        elif len(shape) in (2, 4):
            normal *= np.float32(1.2 * np.prod(shape[1:]) ** -0.5)
        values[name] = np.ascontiguousarray(normal, np.float32)
    return values


def images(size):
    """Two images as networks take them, (2, 3, size, size)."""
    return np.random.default_rng(7).standard_normal((2, 3, size, size), np.float32)


def picture():
    """A picture uint8 (3, 80, 90) of waves."""
    y, x = np.mgrid[:80, :90]
    waves = [np.sin(x / 9) + np.cos(y / 7), np.sin((x + y) / 11), np.cos((x - y) / 5)]
    return np.stack([np.round(127.5 + 60 * wave) for wave in waves]).astype(np.uint8)
