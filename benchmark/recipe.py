#!/usr/bin/env python3
"""Accuracy of recipes for training on CIFAR-10, or on a part of it.

    python benchmark/recipe.py --data DIR                     # all recipes, 3 seeds, 15 epochs
    python benchmark/recipe.py --data DIR --recipes strong --epochs 100 --seeds 0

DIR has CIFAR-10 in a published format. All recipes train with one-cycle SGD (momentum 0.9, weight
decay 5e-4) for the same number of epochs from the same start weights, and differ in this:

    plain     images as they are
    standard  random crop by 4 and flip
    mixed     the same, mixup (alpha 0.2), label smoothing 0.1; tested with averaged weights (EMA,
              decay 0.99)
    strong    the same, and TrivialAugment

Prints top-1 accuracy on the test images after the last epoch for each seed, and means with standard
errors over the seeds. Runs stored in --out are not repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import time
from pathlib import Path

import harness
import singa
from singa import data, metric, models, opt, tensor

STATISTICS = data.CIFAR10_MEAN, data.CIFAR10_STD
RECIPES = ("plain", "standard", "mixed", "strong")


def augmentation(recipe: str) -> data.Compose:
    if recipe == "plain":
        return data.Compose(data.Normalize(*STATISTICS))
    standard = data.RandomCrop(4), data.RandomHorizontalFlip()
    more = [data.TrivialAugment()] if recipe == "strong" else []
    return data.Compose(*standard, *more, data.Normalize(*STATISTICS))


def train(args: argparse.Namespace, recipe: str, seed: int) -> dict[str, float]:
    """Trains once; returns accuracies and seconds."""
    singa.seed(seed)
    train_set, test_set = data.load_cifar10(args.data), data.load_cifar10(args.data, "test")
    classes = len(train_set.classes)
    mixed = recipe in ("mixed", "strong")
    loader = data.DataLoader(
        train_set,
        args.batch,
        shuffle=True,
        seed=seed,
        transform=augmentation(recipe),
        mix=data.MixUp(classes, alpha=0.2) if mixed else None,
        drop_last=True,
    )
    tests = data.DataLoader(test_set, 100, transform=data.Normalize(*STATISTICS))
    net = models.create(args.model, num_classes=classes, label_smoothing=0.1 * mixed)
    schedule = opt.OneCycle(args.lr, args.epochs * len(loader))
    net.set_optimizer(opt.SGD(schedule, momentum=0.9, weight_decay=5e-4))
    net.compile([tensor.Tensor((args.batch, 3, 32, 32))], is_train=True, use_graph=True)
    ema = opt.EMA(net, decay=0.99) if mixed else None
    began = time.monotonic()
    for _ in range(args.epochs):
        for x, y in loader:
            net(x, y)
            if ema is not None:
                ema.update()
    seconds = time.monotonic() - began
    net.eval()
    accuracy = metric.Accuracy()
    with ema.applied() if ema is not None else contextlib.nullcontext():
        for x, y in tests:
            accuracy.update(net(x), tensor.from_numpy(y))
    return {"top1": accuracy.compute(), "seconds": round(seconds, 1)}


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with CIFAR-10")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=RECIPES)
    parser.add_argument("--model", default="resnet20_cifar")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1, help="peak of the cycle")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/recipe"))
    args = parser.parse_args()
    singa.set_num_threads(args.threads)
    for recipe in args.recipes:
        found = []
        for seed in args.seeds:
            kind = f"{args.model}-{args.epochs}epochs-b{args.batch}-lr{args.lr}"
            file = args.out / f"{kind}-{recipe}-seed{seed}.json"
            if not file.exists():
                harness.save(file, train(args, recipe, seed))
            result = json.loads(file.read_text())
            found.append(result["top1"])
            print(f"{recipe:8}  seed {seed}: top-1 {result['top1']:.1%}", flush=True)
        if len(found) > 1:
            error = statistics.stdev(found) / math.sqrt(len(found))
            mean = statistics.mean(found)
            print(f"{recipe:8}  mean {mean:.1%}, standard error {error:.1%}", flush=True)


if __name__ == "__main__":
    main()
