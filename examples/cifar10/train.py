#!/usr/bin/env python3
"""Trains a ResNet, VGG, LeNet, ViT or ConvNeXt on CIFAR-10, or on generated images of ten classes.

    python train.py --quick                      a short run on generated images
    python train.py --data cifar-10 --download   downloads CIFAR-10, then trains ResNet-20 on it
    python train.py --model vgg16 --epochs 60 --out runs/vgg16
    python train.py --out runs/vgg16 --resume    continues after Ctrl-C or a crash
    python train.py --model resnet50 --device cuda --dtype bfloat16       on an NVIDIA GPU
    python train.py --model vit_tiny --optimizer adamw --warmup 2 --schedule cosine
    python -m singa launch -n 2 train.py         on two processes, each with half of the cores

The output folder (--out) gets these files:

    log.jsonl               one record per epoch
    curves.png              plots of loss and accuracy
    checkpoint.safetensors  state of the run, saved after each epoch
    model.safetensors       the trained weights, for Model.load_states

A run that is resumed gives the same bits as one that was never interrupted. Ctrl-C saves a
checkpoint and stops; a second Ctrl-C stops at once.

Under `singa launch` each rank trains on its part of every batch. A run may be resumed with another
number of ranks. With --virtual-ranks 4, it gives the same bits on 1, 2 and 4 ranks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import singa
from singa import data, device, distributed, metric, models
from singa.training import Trainer
from singa.training.program import (
    add_run_arguments,
    at_least,
    choose_device,
    parse_run,
    reporting_errors,
    say,
)
from singa.training.recipe import (
    RECIPE,
    SMALL_NETWORKS,
    add_recipe_arguments,
    compile_network,
    load_cifar10,
    make_optimizer,
    set_recipe_defaults,
)

PROG = "python train.py"


def parse(argv: Sequence[str] | None = None, prog: str = PROG) -> argparse.Namespace:
    """The arguments. A resumed run gets its settings from the checkpoint."""
    description = __doc__.replace(PROG, prog)
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s [options]",
        description=description.replace("train.py", prog.removeprefix("python ")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # The weights depend on these, so a resumed run cannot change them.
    run = parser.add_argument_group("training (a resumed run keeps these settings)")
    run.add_argument("--model", choices=SMALL_NETWORKS, default="resnet20", help="[%(default)s]")
    run.add_argument("--data", metavar="DIR", help="folder with CIFAR-10 [generated images]")
    run.add_argument(
        "--images",
        type=at_least(1, int),
        metavar="N",
        help="use only the first N training images [all]",
    )
    add_recipe_arguments(run)

    parser.add_argument(
        "--quick", action="store_true", help="set --epochs 5 and --images 5000, unless given"
    )
    parser.add_argument(
        "--download", action="store_true", help="download CIFAR-10 to --data if it is missing"
    )
    add_run_arguments(parser, "runs/MODEL", "epochs")

    set_recipe_defaults(parser, parser.parse_args(argv))
    settings = ("model", "data", "images", *RECIPE)
    args = parse_run(parser, argv, settings, lambda args: Path("runs") / args.model)
    if args.download and not args.data:
        parser.error("--download needs --data, the folder for CIFAR-10")
    return args


def load_images(args: argparse.Namespace) -> tuple[data.DataLoader, data.DataLoader]:
    """Loaders of the training and the test images."""
    if args.data:
        train, test = load_cifar10(args.data, args.download)
        mean, std = data.CIFAR10_MEAN, data.CIFAR10_STD
    else:
        train, test = data.shapes("train", args.images), data.shapes("test")
        mean, std = data.SHAPES_MEAN, data.SHAPES_STD
    if args.images is not None:
        train = train.head(args.images)
    say(f"{train.name}: {len(train)} images; {test.name}: {len(test)}")
    plain = data.Normalize(mean, std)
    augmented = plain if args.no_augment else data.standard_augmentation(mean, std)
    dev = device.get_default_device()
    common: dict[str, Any] = {"device": dev, "shard": distributed.shard()}
    parts: dict[str, Any] = {"virtual_ranks": args.virtual_ranks}
    return (
        data.DataLoader(train, args.batch_size, True, args.seed, augmented, **common, **parts),
        data.DataLoader(test, 200, transform=plain, **common),
    )


def train(args: argparse.Namespace) -> int:
    """Trains, or resumes a run; returns the exit status."""
    hardware = choose_device(args.device, args.threads)
    singa.seed(args.seed)
    loader, test_loader = load_images(args)
    net = models.create(
        SMALL_NETWORKS[args.model], num_classes=10, label_smoothing=args.label_smoothing
    )
    net.set_optimizer(make_optimizer(args, len(loader)))
    compile_network(net, args, (3, 32, 32), hardware)
    trainer = Trainer(
        net,
        # A function is computed in training, too, a Metric in the test alone.
        metrics={"top1": metric.count_top_k, "top5": metric.Accuracy(5)},
        out=args.out,
        checkpoint_steps=args.checkpoint_steps,
        settings=args.settings,
        title=args.model,
        validation_name="test",
    )
    trainer.resume_with = "--resume"
    trainer.fit(loader, args.epochs, test_loader, resume=args.resume, overwrite=args.overwrite)
    if trainer.exit_status:
        return trainer.exit_status
    distributed.on_main(lambda: net.save_states(args.out / "model.safetensors"), "save_states")
    say(f"weights, curves and log are in {args.out}")
    return 0


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Runs the program; returns the exit status."""
    return reporting_errors(prog, lambda: train(parse(argv, prog)))


if __name__ == "__main__":
    sys.exit(main())
