"""Trains a network to classify images: one's own pictures, CIFAR, MNIST, or generated ones.

    python -m singa train --data pets               a folder of pictures: pets/cat/1.jpg, ...
    python -m singa train --data pets --model mobilenet_v2    a network for larger pictures
    python -m singa train --quick                   a short run on generated images
    python -m singa train --data cifar-10 --download          downloads CIFAR-10 first
    python -m singa train --out runs/pets --resume  continues after Ctrl-C or a crash
    python -m singa predict runs/pets cat.jpg       asks the trained network

--data takes

EXPECTED
A fifth of a folder's pictures is held out for the test. Broken files are named and left out.

The output folder (--out) gets these files:

    log.jsonl               one record per epoch
    curves.png              plots of loss and accuracy
    checkpoint.safetensors  state of the run, saved after each epoch
    model.safetensors       the network with its classes and transforms, saved after each epoch

A run that is resumed gives the same bits as one that was never interrupted. Ctrl-C saves a
checkpoint and stops; a second Ctrl-C stops at once.

`python -m singa launch -n 2 -m singa train ...` trains on two processes, each on its part of every
batch. A run may be resumed with another number of ranks. With --virtual-ranks 4, it gives the same
bits on 1, 2 and 4 ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import singa

from .. import device, distributed, models, opt, tensor
from ..training.picture_classifier import FILE_NAME, PictureClassifier
from ..training.program import (
    add_run_arguments,
    at_least,
    choose_device,
    parse_run,
    reporting_errors,
    say,
)
from . import picture_sets
from .loop import Run

PROG = "python -m singa train"
SETTINGS = (
    *("model", "data", "images", "epochs", "batch_size", "lr", "schedule", "warmup", "momentum"),
    *("weight_decay", "label_smoothing", "no_augment", "seed", "dtype", "optimizer"),
    *("virtual_ranks", "size", "split", "augment"),
)
#: Networks for small images, by the names of the option.
SMALL = {
    "lenet": "lenet",
    "resnet18": "resnet18_cifar",
    "resnet20": "resnet20_cifar",
    "resnet50": "resnet50_cifar",
    "resnet110": "resnet110_cifar",
    "vgg16": "vgg16_cifar",
    "wrn28_10": "wrn28_10_cifar",
    "vit_tiny": "vit_tiny_cifar",
    "convnext": "convnext_cifar",
}
#: Networks for pictures.
LARGE = tuple(name for name in models.names() if name not in ("gpt_small", "unet"))
_SMALLEST = 64  # side in pixels to which pictures are reduced at most, by default


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments. A resumed run gets its settings from the checkpoint."""
    parser = argparse.ArgumentParser(
        prog=PROG,
        usage="%(prog)s [options]",
        description=(__doc__ or "").replace("EXPECTED", picture_sets.EXPECTED),
        epilog=_listed("Networks for CIFAR, MNIST and generated images", SMALL)
        + _listed("Networks for pictures", LARGE),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    count, natural, amount = at_least(1, int), at_least(0, int), at_least(0, float)
    # The weights depend on these, so a resumed run cannot change them.
    run = parser.add_argument_group("training (a resumed run keeps these settings)")
    run.add_argument(
        "--data", metavar="PATH", help="folder or CSV file, see above [generated images]"
    )
    run.add_argument(
        "--model",
        metavar="NAME",
        default="resnet20",
        help="network, see below [resnet20; MNIST: lenet; pictures: resnet20_cifar]",
    )
    run.add_argument(
        "--images",
        type=count,
        metavar="N",
        help="use only the first N training images; pictures: about N, of all classes [all]",
    )
    run.add_argument("--epochs", type=count, default=15, metavar="N", help="[15; pictures: 20]")
    run.add_argument(
        "--batch-size", type=count, default=128, metavar="N", help="[128; pictures: 32]"
    )
    run.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd", help="[%(default)s]")
    run.add_argument(
        "--lr",
        type=amount,
        default=0.1,
        metavar="X",
        help="peak learning rate [0.1; pictures: 0.025; adamw: 0.001]",
    )
    run.add_argument(
        "--schedule",
        choices=("onecycle", "cosine", "step", "constant"),
        default="onecycle",
        help="learning rate schedule; step divides by 10 at 1/2 and 3/4 of the run [%(default)s]",
    )
    run.add_argument(
        "--warmup",
        type=amount,
        default=0,
        metavar="EPOCHS",
        help="linear warm-up of the learning rate [%(default)s]",
    )
    run.add_argument(
        "--momentum", type=amount, default=0.9, metavar="X", help="of sgd [%(default)s]"
    )
    run.add_argument(
        "--weight-decay", type=amount, default=5e-4, metavar="X", help="[0.0005; adamw: 0.05]"
    )
    run.add_argument("--label-smoothing", type=amount, default=0, metavar="X", help="[%(default)s]")
    run.add_argument("--no-augment", action="store_true", help="no random crop and flip")
    run.add_argument(
        "--virtual-ranks",
        type=count,
        metavar="V",
        help="parts of a batch, each of which a rank trains on at a time [as many as ranks]",
    )
    run.add_argument("--seed", type=natural, default=0, metavar="N", help="[%(default)s]")
    run.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="type of convolutions and matrix products; parameters are float32 [%(default)s]",
    )
    pictures = parser.add_argument_group("a folder of pictures (a resumed run keeps the first 3)")
    pictures.add_argument(
        "--size",
        type=count,
        metavar="N",
        help="side in pixels of what the network gets [the network's own, at least 64]",
    )
    pictures.add_argument(
        "--split",
        type=_share,
        default=0.2,
        metavar="X",
        help="share of each class that is held out for the test, if there is no folder val or test "
        "[%(default)s]",
    )
    pictures.add_argument(
        "--augment",
        choices=("standard", "trivial", "rand"),
        default="standard",
        help="random crop and flip; also TrivialAugment or RandAugment [%(default)s]",
    )
    pictures.add_argument(
        "--cache",
        metavar="DIR",
        help="folder that keeps decoded pictures; 'memory' keeps them in memory [none]",
    )
    pictures.add_argument(
        "--workers",
        type=natural,
        default=2,
        metavar="N",
        help="threads that read pictures [%(default)s]",
    )

    parser.add_argument(
        "--quick", action="store_true", help="set --epochs 5 and --images 5000, unless given"
    )
    parser.add_argument(
        "--download", action="store_true", help="download CIFAR-10 to --data if it is missing"
    )
    add_run_arguments(parser, "runs/MODEL; pictures: runs/FOLDER", "epochs")

    given = parser.parse_args(argv)
    if given.download and not given.data and not given.resume:
        parser.error("--download needs --data, the folder for CIFAR-10")
    kind = _set_defaults(parser, given)
    args = parse_run(parser, argv, SETTINGS, lambda args: Path("runs") / _name(args, kind))
    _check_model(parser, args)
    return args


def _listed(title: str, names: Iterable[str]) -> str:
    text = textwrap.fill(f"{title}: {', '.join(names)}.", 88, subsequent_indent="  ")
    return text + "\n"


def _share(text: str) -> float:
    value = at_least(0, float)(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must lie between 0 and 1, got {text}")
    return value


def _set_defaults(parser: argparse.ArgumentParser, given: argparse.Namespace) -> str:
    """Sets the defaults that depend on the data and on other options; returns the kind of data."""
    kind = "generated"
    # What is wrong with the data is said later, as an error of files.
    with contextlib.suppress(OSError, ValueError):
        kind = picture_sets.kind_of(given.data, given.download)
    if kind == "mnist":
        parser.set_defaults(model="lenet")
    if kind == "pictures":
        parser.set_defaults(model="resnet20_cifar", epochs=20, batch_size=32, lr=0.025)
    if given.quick:
        parser.set_defaults(epochs=5, images=5000)
    if given.optimizer == "adamw":
        parser.set_defaults(lr=0.001, weight_decay=0.05)
    return kind


def _name(args: argparse.Namespace, kind: str) -> str:
    """The name of the default output folder."""
    if kind != "pictures":
        return args.model
    path = Path(args.data)
    return path.stem if path.is_file() else path.resolve().name


def _check_model(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Chooses the architecture and the size. Exits with an error for a model that the data do not
    have."""
    kind = "generated"
    with contextlib.suppress(OSError, ValueError):
        kind = picture_sets.kind_of(args.data, args.download)
    known = LARGE if kind == "pictures" else tuple(SMALL)
    if args.model not in known:
        parser.error(
            f"argument --model: invalid choice: {args.model!r} (choose from {', '.join(known)})"
        )
    args.architecture = args.model if kind == "pictures" else SMALL[args.model]
    if kind == "pictures":
        if args.size is None:
            args.size = max(models.create(args.architecture).image_shape[1], _SMALLEST)
            args.settings["size"] = args.size
        return
    for name in ("size", "split", "augment", "cache"):
        if getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name} is for a folder of pictures")


def make_schedule(args: argparse.Namespace, steps_per_epoch: int) -> opt.DecayScheduler:
    """The schedule of the learning rate, with the warm-up."""
    warmup = round(args.warmup * steps_per_epoch)
    steps = max(args.epochs * steps_per_epoch - warmup, 1)
    schedule = {
        "onecycle": lambda: opt.OneCycle(args.lr, steps),
        "cosine": lambda: opt.CosineDecay(args.lr, steps),
        "step": lambda: opt.MultiStepDecay(args.lr, [steps // 2, steps * 3 // 4]),
        "constant": lambda: opt.Constant(args.lr),
    }[args.schedule]()
    return opt.WarmUp(schedule, warmup) if warmup else schedule


def make_optimizer(args: argparse.Namespace, steps_per_epoch: int) -> Any:
    """The optimizer with its schedule, for one rank or several."""
    schedule = make_schedule(args, steps_per_epoch)
    scaler = opt.GradScaler() if args.dtype == "float16" else None
    common = {"weight_decay": args.weight_decay, "scaler": scaler}
    if args.optimizer == "sgd":
        optimizer: Any = opt.SGD(schedule, args.momentum, **common)
    else:
        undecayed = opt.ParamGroup(opt.norm_and_bias, weight_decay=0.0)
        optimizer = opt.AdamW(schedule, groups=[undecayed], **common)
    if (args.virtual_ranks or distributed.world_size()) > 1:
        optimizer = opt.DistOpt(optimizer, virtual_ranks=args.virtual_ranks)
    return optimizer


def train(args: argparse.Namespace) -> int:
    """Trains, or resumes a run; returns the exit status."""
    hardware = choose_device(args.device, args.threads)
    singa.seed(args.seed)
    sets = picture_sets.load(args)
    loader, test_loader = sets.loaders(args)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.overwrite and distributed.is_main():
        args.checkpoint.unlink(missing_ok=True)
    classes = len(sets.classes)
    net = models.create(
        args.architecture, num_classes=classes, label_smoothing=args.label_smoothing
    )
    net.class_names = list(sets.classes)
    optimizer = make_optimizer(args, len(loader))
    net.set_optimizer(optimizer)
    ranks = distributed.world_size()
    images = -(-args.batch_size // (args.virtual_ranks or ranks))
    shape = (images, sets.channels, sets.size, sets.size)
    example = tensor.Tensor(shape, device.get_default_device())
    net.compile([example], is_train=True, use_graph=True, dtype=args.dtype)
    parameters = sum(p.size() for p in net.get_params().values())
    where = f"{ranks} ranks with {hardware}" if ranks > 1 else hardware
    say(f"{args.model}: {parameters:,} parameters, {args.dtype}, {where}")

    classifier = PictureClassifier(net, sets.classes, sets.for_prediction(), sets.channels)
    run = Run(
        net,
        optimizer,
        loader,
        test_loader,
        out=args.out,
        checkpoint=args.checkpoint,
        settings=args.settings,
        epochs=args.epochs,
        checkpoint_steps=args.checkpoint_steps,
        top5=classes > 5,
        together=1 if args.device == "cpu" else 16,
        title=args.model,
        save_model=lambda: classifier.save(args.out / FILE_NAME),
    )
    if args.resume:
        run.resume()
    status = run.fit()
    if status == 0 and sets.kind == "pictures":
        say(f"to use it: python -m singa predict {args.out} PICTURE...")
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns the exit status."""
    return reporting_errors(PROG, lambda: train(parse(argv)))
