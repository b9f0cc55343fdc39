#!/usr/bin/env python3
"""Trains a network with singa and PyTorch on the same images, and compares losses and accuracies.

    python benchmark/learning.py --data DIR                           # resnet20_cifar, 5 seeds
    python benchmark/learning.py --data DIR --model vgg16_cifar --epochs 8
    python benchmark/learning.py --data DIR --first 20 --dtype float64 --seeds 0

DIR has CIFAR-10, or a part of it, in a published format. For each seed both sides start with the
same weights and get the same batches with the same augmentation (crop by 4, flip), with one-cycle
SGD (momentum 0.9, no Nesterov, weight decay 5e-4). Prints the largest relative difference of the
first 20 losses, and the final test accuracies with two standard errors of their difference. Exit
status 1: with --first, if losses differ by more than 1e-3; else if accuracies differ by more than
two standard errors. Needs torch in the same interpreter. Runs stored in --out are not repeated.

Training amplifies rounding: at usual rates the float32 and float64 losses of one program differ by
more than 1e-3 within 20 steps. Compare single losses with --dtype float64, or in float32 at a small
rate (--lr 0.002).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
import numpy as np

MEAN = np.array([0.4914, 0.4822, 0.4465], np.float32).reshape(1, 3, 1, 1)
STD = np.array([0.2470, 0.2435, 0.2616], np.float32).reshape(1, 3, 1, 1)


def normalised(images: np.ndarray) -> np.ndarray:
    return (images.astype(np.float32) / 255 - MEAN) / STD


def batches(
    images: np.ndarray, labels: np.ndarray, batch: int, seed: int, epoch: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The batches of an epoch: shuffled, with images shifted by up to 4 pixels and flipped with
    probability 1/2. They depend only on (seed, epoch), so both sides get the same ones."""
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(images))
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        padded = np.pad(images[chosen], ((0, 0), (0, 0), (4, 4), (4, 4)))
        shifts = random.integers(0, 9, (len(chosen), 2))
        flips = random.random(len(chosen)) < 0.5
        out = np.empty_like(images[chosen])
        for i, ((dy, dx), flip) in enumerate(zip(shifts, flips, strict=True)):
            crop = padded[i, :, dy : dy + 32, dx : dx + 32]
            out[i] = crop[:, :, ::-1] if flip else crop
        yield normalised(out), labels[chosen]


def learning_rate(step: int, steps: int, peak: float) -> float:
    """One-cycle schedule: a linear rise from peak/25 over 30 % of the steps, then a cosine to 0."""
    up = 0.3 * steps
    if step < up:
        return peak * (1 / 25 + (1 - 1 / 25) * step / up)
    return peak * 0.5 * (1 + math.cos(math.pi * (step - up) / (steps - up)))


class TorchSide:
    def __init__(self, args: argparse.Namespace, seed: int) -> None:
        import torch
        import torch_models

        torch.set_num_threads(args.threads)
        torch.manual_seed(seed)
        self.torch = torch
        self.dtype = np.dtype(args.dtype)
        self.model = torch_models.create(args.model, 10).to(getattr(torch, args.dtype))
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4
        )

    def step(self, x: np.ndarray, y: np.ndarray, lr: float) -> float:
        torch = self.torch
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        out = self.model(torch.from_numpy(x.astype(self.dtype)))
        loss = torch.nn.functional.cross_entropy(out, torch.from_numpy(y).long())
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def scores(self, x: np.ndarray) -> np.ndarray:
        self.model.eval()
        with self.torch.no_grad():
            out = self.model(self.torch.from_numpy(x.astype(self.dtype))).numpy()
        self.model.train()
        return out


class SingaSide:
    def __init__(self, args: argparse.Namespace, seed: int) -> None:
        import singa
        import torch
        import torch_models
        from singa import models, opt, tensor

        singa.set_num_threads(args.threads)
        singa.seed(seed)
        torch.manual_seed(seed)
        self.tensor, self.dtype = tensor, getattr(tensor, args.dtype)
        self.model = models.create(args.model, num_classes=10)
        self.optimizer = opt.SGD(lr=0.1, momentum=0.9, weight_decay=5e-4)
        self.model.set_optimizer(self.optimizer)
        image = self.image(np.zeros((2, 3, 32, 32), np.float32))
        self.model.compile([image], is_train=True, use_graph=False, sequential=False)
        self.model.load_torch(torch_models.create(args.model, 10).state_dict())

    def image(self, x: np.ndarray) -> Any:
        return self.tensor.from_numpy(x).as_type(self.dtype)

    def step(self, x: np.ndarray, y: np.ndarray, lr: float) -> float:
        from singa import opt

        self.optimizer.lr = opt.Constant(lr)
        _, loss = self.model(self.image(x), self.tensor.from_numpy(y.astype(np.int32)))
        return float(self.tensor.to_numpy(loss).reshape(()))

    def scores(self, x: np.ndarray) -> np.ndarray:
        self.model.eval()
        out = self.tensor.to_numpy(self.model(self.image(x)))
        self.model.train()
        return out


def train(args: argparse.Namespace, side: str, seed: int) -> dict:
    from singa.data import load_cifar10

    data, test = load_cifar10(args.data), load_cifar10(args.data, "test")
    model = (SingaSide if side == "singa" else TorchSide)(args, seed)
    per_epoch = math.ceil(len(data.images) / args.batch)
    steps = args.epochs * per_epoch
    losses: list[float] = []
    for epoch in range(args.epochs):
        for x, y in batches(data.images, data.labels, args.batch, seed, epoch):
            losses.append(model.step(x, y, learning_rate(len(losses), steps, args.lr)))
            if args.first and len(losses) == args.first:
                return {"losses": losses}
    scores = np.concatenate(
        [
            model.scores(normalised(test.images[i : i + 100]))
            for i in range(0, len(test.images), 100)
        ]
    )
    ranks = (scores > scores[np.arange(len(scores)), test.labels][:, None]).sum(1)
    return {"losses": losses, "top1": float((ranks < 1).mean()), "top5": float((ranks < 5).mean())}


def run(args: argparse.Namespace, side: str, seed: int) -> dict:
    kind = f"first{args.first}-{args.dtype}-lr{args.lr}" if args.first else f"{args.epochs}epochs"
    file = args.out / f"{args.model}-{kind}-{side}-seed{seed}.json"
    if not file.exists():
        command = [sys.executable, __file__, "--child", side, "--seeds", str(seed)]
        for name in ("data", "model", "epochs", "batch", "lr", "threads", "first", "dtype"):
            command += [f"--{name}", str(getattr(args, name))]
        result = harness.run_child(command)
        harness.save(file, result)
    return json.loads(file.read_text())


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with CIFAR-10")
    parser.add_argument("--model", default="resnet20_cifar")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.2, help="peak of the cycle")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--first", type=int, default=0, help="stop after this many steps; 0: train all epochs"
    )
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    parser.add_argument("--child", choices=("singa", "torch"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(train(args, args.child, args.seeds[0])))
        return
    worst = 0.0
    accuracy: dict[str, list[float]] = {"singa": [], "torch": []}
    for seed in args.seeds:
        results = {side: run(args, side, seed) for side in ("torch", "singa")}
        pairs = list(zip(results["torch"]["losses"], results["singa"]["losses"], strict=True))[:20]
        difference = max(abs(a - b) / abs(a) for a, b in pairs)
        worst = max(worst, difference)
        text = f"seed {seed}: first {len(pairs)} losses differ by at most {difference:.1e}"
        if not args.first:
            for side, result in results.items():
                accuracy[side].append(result["top1"])
                text += f"; {side} top-1 {result['top1']:.3f} top-5 {result['top5']:.3f}"
        print(text, flush=True)
    failed = bool(args.first) and worst > 1e-3
    if not args.first and len(args.seeds) > 1:
        means = {side: statistics.mean(values) for side, values in accuracy.items()}
        error = math.sqrt(sum(statistics.variance(v) / len(v) for v in accuracy.values()))
        gap = means["singa"] - means["torch"]
        print(
            f"{args.model}, {args.epochs} epochs, {len(args.seeds)} seeds: "
            f"singa {means['singa']:.4f}, torch {means['torch']:.4f}, difference {gap:+.4f}, "
            f"two standard errors {2 * error:.4f}"
        )
        failed |= abs(gap) > 2 * error
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
