#!/usr/bin/env python3
"""Compares reading and augmenting pictures with torchvision's loader, in turn in one process.

    python benchmark/pictures.py                     500 x 375 JPEG files, crops of 224 x 224
    python benchmark/pictures.py --workers 0         without threads and processes
    python benchmark/pictures.py --train mobilenet_v2 --workers 1

Both sides decode JPEG files with Pillow, crop, resize, mirror and normalise. singa reads with
threads, torchvision with processes. Prints images/s (median over the rounds), and milliseconds of
this process's CPU time per image for a side without workers, which other programs on the machine
disturb less. "cache" is singa with decoded pictures of 256 pixels on disk. With --train, compares
training on batches from that cache with training on one batch that is there, in turn. Needs PyTorch
and torchvision.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_models
from PIL import Image
from singa import data, device, models, opt, tensor

SIZE, BATCH = 224, 32


def write_pictures(folder: Path, count: int) -> None:
    """JPEG files about as large as photographs of this size: smooth, with some noise."""
    rng = np.random.default_rng(0)
    for number in range(count):
        place = folder / str(number % 4)
        place.mkdir(exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC)).astype(np.int64)
        noisy = np.clip(smooth + rng.integers(-12, 13, smooth.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(place / f"{number:04}.jpg", quality=90)


def singas(
    folder: Path, workers: int, device: Any = None, **options: Any
) -> Callable[[], Iterable[Any]]:
    """Makes an epoch of singa's loader."""
    pictures = data.ImageFolder(folder, **options)
    transform = data.training_transform(
        SIZE, data.IMAGENET_MEAN, data.IMAGENET_STD, scale=(0.08, 1.0)
    )
    loader = data.DataLoader(pictures, BATCH, True, 0, transform, workers, device=device)
    return lambda: loader


def torchvisions(folder: Path, workers: int) -> Callable[[], Iterable[Any]]:
    """Makes an epoch of PyTorch's loader, whose processes stay."""
    vision = torch_models.imported("torchvision")
    transforms = vision.transforms
    steps = [
        transforms.RandomResizedCrop(SIZE),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(data.IMAGENET_MEAN, data.IMAGENET_STD),
    ]
    pictures = vision.datasets.ImageFolder(str(folder), transforms.Compose(steps))
    loader = torch.utils.data.DataLoader(
        pictures, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    return lambda: loader


def measured(epoch: Callable[[], Iterable[Any]]) -> tuple[float, float]:
    """Images/s, and milliseconds of CPU time of this process per image."""
    began, used, count = time.perf_counter(), time.process_time(), 0
    for images, _ in epoch():
        count += len(images)
    seconds = time.perf_counter() - began
    return count / seconds, 1e3 * (time.process_time() - used) / count


def train(name: str, folder: Path, workers: int, rounds: int) -> None:
    """Prints what steps of a network lose to data."""
    network = models.create(name, num_classes=4)
    network.set_optimizer(opt.SGD(0.01, momentum=0.9))
    x = tensor.from_numpy(np.zeros((BATCH, 3, SIZE, SIZE), np.float32))
    y = tensor.from_numpy(np.zeros(BATCH, np.int32))
    network.compile([x], is_train=True, use_graph=True)
    loader = singas(
        folder,
        workers,
        shorter_side=256,
        cache=folder.parent / "cache",
        device=device.get_default_device(),
    )()

    def epoch(batches: Iterable[Any]) -> float:
        """Seconds per step. The first step, which waits for the first batch, does not count."""
        times = []
        for images, labels in batches:
            times.append(time.perf_counter())
            network(images, labels)[1].numpy()
        return (time.perf_counter() - times[1]) / (len(times) - 1)

    epoch(loader)  # fills the cache, and records the step
    pairs = [(epoch(loader), epoch([(x, y)] * len(loader))) for _ in range(rounds)]
    fed, alone = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other in pairs)
    print(f"{name}, {BATCH} images of {SIZE} x {SIZE}: {1e3 * fed:.0f} ms a step from the cache,")
    print(f"{1e3 * alone:.0f} ms on one batch: {100 * (ratio - 1):.1f} % lost to data")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--count", type=int, default=320, help="pictures [%(default)s]")
    parser.add_argument("--rounds", type=int, default=9, help="[%(default)s]")
    parser.add_argument("--train", metavar="NETWORK", help="a name of models.create")
    args = parser.parse_args()
    if not args.train:
        torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder, cache = Path(place, "pictures"), Path(place, "cache")
        folder.mkdir()
        write_pictures(folder, args.count)
        if args.train:
            train(args.train, folder, args.workers, args.rounds)
            return
        sides = {
            "singa": singas(folder, args.workers),
            "torchvision": torchvisions(folder, args.workers),
            "singa, cache": singas(folder, args.workers, shorter_side=256, cache=cache),
            "singa, no workers": singas(folder, 0),
            "torchvision, no workers": torchvisions(folder, 0),
        }
        for epoch in sides.values():
            measured(epoch)
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for _ in range(args.rounds):
            for name, epoch in sides.items():
                results[name].append(measured(epoch))
    for name, found in results.items():
        rate = statistics.median(rate for rate, _ in found)
        cpu = statistics.median(cpu for _, cpu in found)
        text = f"   {cpu:.2f} ms of CPU time" if name.endswith("no workers") else ""
        print(f"{name:24} {rate:6.0f} images/s{text}")
    for suffix in ("", ", no workers"):
        pairs = zip(results[f"singa{suffix}"], results[f"torchvision{suffix}"], strict=True)
        ratio = statistics.median(own[0] / other[0] for own, other in pairs)
        print(f"singa / torchvision{suffix}: {ratio:.2f}")


if __name__ == "__main__":
    main()
