#!/usr/bin/env python3
"""The five small sets of pictures of defaults.py, as PNG files."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

TILED = ("astronaut", "brick", "camera", "cat", "coffee", "coins", "grass", "gravel", "page")
CIFAR = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
#: Functions of two coordinates in pixels, and of the distances of 16 points (16, 32, 32).
PATTERNS: dict[str, Callable[..., np.ndarray]] = {
    "stripes": lambda u, v, away: np.sin(u),
    "checks": lambda u, v, away: np.sin(u) * np.sin(v),
    "weave": lambda u, v, away: np.maximum(np.sin(u), np.sin(v)),
    "waves": lambda u, v, away: np.sin(u + 2 * np.sin(v / 2)),
    "zigzag": lambda u, v, away: np.sin(u + 2 * np.arcsin(np.sin(v / 2))),
    "rings": lambda u, v, away: np.sin(away[0]),
    "cells": lambda u, v, away: away.min(0),
    "blobs": lambda u, v, away: np.exp(-np.square(away) / 5).sum(0),
}

Set = tuple[np.ndarray, list[str], int]
"""Pictures (N, H, W) or (N, H, W, 3) of uint8, their classes, and how many are for training"""


def digits(cifar: str) -> Set:
    """800 of scikit-learn's digits."""
    from sklearn.datasets import load_digits

    pictures, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))[:800]
    pictures = (pictures.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    return pictures[order], [str(labels[place]) for place in order], 500


def tiles(cifar: str) -> Set:
    """Grey tiles of nine pictures of scikit-image, 50 of each: which picture is it?"""
    from skimage import color, data

    rng = np.random.default_rng(0)
    found = []
    for name in TILED:
        whole = getattr(data, name)()
        whole = (255 * color.rgb2gray(whole)).astype(np.uint8) if whole.ndim == 3 else whole
        rows, columns = (length // 32 for length in whole.shape)
        for place in rng.permutation(rows * columns)[:50]:
            y, x = 32 * (place // columns), 32 * (place % columns)
            found.append((whole[y : y + 32, x : x + 32], name))
    pictures, labels = zip(*(found[place] for place in rng.permutation(len(found))), strict=True)
    return np.array(pictures), list(labels), len(found) * 3 // 4


def shapes(cifar: str) -> Set:
    """The figures that singa generates."""
    from singa import data

    sets = data.shapes("train", 500), data.shapes("test", 500)
    pictures = np.concatenate([each.images.transpose(0, 2, 3, 1) for each in sets])
    return pictures, [sets[0].classes[label] for each in sets for label in each.labels], 500


def textures(cifar: str) -> Set:
    """Generated textures of any direction, scale and colours, under noise."""
    rng = np.random.default_rng(0)
    pictures, labels = [], []
    for number in range(1000):
        y, x = rng.uniform(0.6, 1.4) * (np.mgrid[:32, :32] - 16)
        turn, shift = rng.uniform(0, np.pi), rng.uniform(0, 40, 2)
        u = np.cos(turn) * x + np.sin(turn) * y + shift[0]
        v = np.cos(turn) * y - np.sin(turn) * x + shift[1]
        points = rng.uniform(-20, 20, (2, 16, 1, 1))
        away = np.hypot(x - points[0], y - points[1])
        label = list(PATTERNS)[number % len(PATTERNS)]
        pattern = PATTERNS[label](u, v, away)
        pattern = (pattern - pattern.mean()) / pattern.std()
        picture = rng.uniform(80, 176, 3) + pattern[..., None] * rng.uniform(-40, 40, 3)
        picture += rng.normal(0, rng.uniform(10, 50), picture.shape)
        pictures.append(np.clip(picture, 0, 255).astype(np.uint8))
        labels.append(label)
    return np.array(pictures), labels, 500


def cifar10(cifar: str) -> Set:
    """The first pictures of CIFAR-10."""
    files = sorted(Path(cifar).glob("data_batch_*.bin"))
    rows = np.concatenate([np.fromfile(file, np.uint8) for file in files]).reshape(-1, 3073)[:1000]
    pictures = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return pictures, [CIFAR[row[0]] for row in rows], 500


def write(name: str, root: str, cifar: str) -> dict:
    """Writes a set as PNG files, train/CLASS/N.png and test/CLASS/N.png, and counts them."""
    from PIL import Image

    pictures, labels, train = SETS[name](cifar)
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        folder = Path(root, "train" if number < train else "test", label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"{number}.png")
    counts = {"train": train, "test": len(labels) - train, "classes": len(set(labels))}
    return counts | {"side": pictures.shape[1]}


SETS = {f.__name__: f for f in (digits, tiles, shapes, textures, cifar10)}

if __name__ == "__main__":
    print(json.dumps(write(*sys.argv[1:])))
