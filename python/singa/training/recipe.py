"""Options of programs that train a classifier, and what follows from them: data, optimizer, and
the compiled network."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import data, device, distributed, opt, tensor
from ..model import Model
from ..raw.words import counted
from .program import at_least, say
from .progress import Progress

__all__ = [
    "QUICK",
    "RECIPE",
    "SMALL_NETWORKS",
    "add_recipe_arguments",
    "compile_network",
    "extended_schedule",
    "load_cifar10",
    "make_optimizer",
    "set_recipe_defaults",
]

#: Networks for small images: names of `models.create` by short names.
SMALL_NETWORKS = {
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
#: Names of the options of `add_recipe_arguments`.
RECIPE = (
    *("epochs", "batch_size", "lr", "schedule", "warmup", "momentum", "weight_decay"),
    *("label_smoothing", "no_augment", "seed", "dtype", "optimizer", "virtual_ranks"),
)


#: What --quick sets, unless it is given.
QUICK = {"epochs": 5, "images": 5000}


def add_recipe_arguments(
    group: Any, *, epochs: str = "15", batch_size: str = "128", lr: str = "0.1"
) -> None:
    """Adds the options on which the weights of a run depend, whatever its data and its network are:
    those of RECIPE. The texts describe the defaults."""
    count, natural, amount = at_least(1, int), at_least(0, int), at_least(0, float)
    add = group.add_argument
    add("--epochs", type=count, default=15, metavar="N", help=f"[{epochs}]")
    add("--batch-size", type=count, default=128, metavar="N", help=f"[{batch_size}]")
    add("--optimizer", choices=("sgd", "adamw"), default="sgd", help="[%(default)s]")
    add(
        "--lr",
        type=amount,
        default=0.1,
        metavar="X",
        help=f"peak learning rate [{lr}; adamw: 0.001]",
    )
    add(
        "--schedule",
        choices=("onecycle", "cosine", "step", "constant"),
        default="onecycle",
        help="learning rate schedule; step divides by 10 at 1/2 and 3/4 of the run [%(default)s]",
    )
    add(
        "--warmup",
        type=amount,
        default=0,
        metavar="EPOCHS",
        help="linear warm-up of the learning rate [%(default)s]",
    )
    add("--momentum", type=amount, default=0.9, metavar="X", help="of sgd [%(default)s]")
    add("--weight-decay", type=amount, default=5e-4, metavar="X", help="[0.0005; adamw: 0.05]")
    add("--label-smoothing", type=amount, default=0, metavar="X", help="[%(default)s]")
    add("--no-augment", action="store_true", help="no random crop and flip")
    add(
        "--virtual-ranks",
        type=count,
        metavar="V",
        help="parts of a batch, each of which a rank trains on at a time [as many as ranks]",
    )
    add("--seed", type=natural, default=0, metavar="N", help="[%(default)s]")
    add(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="type of convolutions and matrix products; parameters are float32 [%(default)s]",
    )


def set_recipe_defaults(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Sets the defaults that depend on --quick and --optimizer."""
    if given.quick:
        parser.set_defaults(**QUICK)
    if given.optimizer == "adamw":
        if given.momentum != parser.get_default("momentum"):
            parser.error("--momentum is for --optimizer sgd")
        parser.set_defaults(lr=0.001, weight_decay=0.05)


def load_cifar10(folder: str, download: bool) -> tuple[data.ImageSet, data.ImageSet]:
    """Training and test images of CIFAR-10. With `download` they are fetched unless they are there.

    The first rank that comes here fetches them. The others wait for a lock, longer than they would
    wait for each other.
    """
    if download:
        path = Path(folder).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_name(f".{path.name}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                return data.load_cifar10(folder), data.load_cifar10(folder, "test")
            with Progress(170, "CIFAR-10, MB") as bar:
                report = lambda done, _: bar.step(done // 10**6 - bar.done)  # noqa: E731
                data.download_cifar10(folder, progress=report)
    try:
        return data.load_cifar10(folder), data.load_cifar10(folder, "test")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; --download gets CIFAR-10") from None


def make_schedule(args: argparse.Namespace, steps_per_epoch: int) -> opt.DecayScheduler:
    """The schedule of the learning rate, with the warm-up."""
    if args.warmup >= args.epochs:
        raise ValueError(
            f"--warmup {args.warmup:g}: the run has {counted(args.epochs, 'epoch')}, and the "
            "warm-up ends before the last one"
        )
    warmup = round(args.warmup * steps_per_epoch)
    steps = max(args.epochs * steps_per_epoch - warmup, 1)
    schedule = {
        "onecycle": lambda: opt.OneCycle(args.lr, steps),
        "cosine": lambda: opt.CosineDecay(args.lr, steps),
        "step": lambda: opt.MultiStepDecay(args.lr, [steps // 2, steps * 3 // 4]),
        "constant": lambda: opt.Constant(args.lr),
    }[args.schedule]()
    return opt.WarmUp(schedule, warmup) if warmup else schedule


def extended_schedule(args: argparse.Namespace, steps_per_epoch: int) -> opt.DecayScheduler:
    """The schedule of a run with `args.epochs`, and then one without a warm-up for each part by
    which the numbers of epochs in `args.extended` are larger."""
    parts, ends = [make_schedule(args, steps_per_epoch)], [args.epochs]
    for end in args.extended:
        part = argparse.Namespace(**{**vars(args), "epochs": end - ends[-1], "warmup": 0})
        parts.append(make_schedule(part, steps_per_epoch))
        ends.append(end)
    return opt.SequentialSchedule(parts, [end * steps_per_epoch for end in ends[:-1]])


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


def compile_network(
    net: Model, args: argparse.Namespace, image_shape: Sequence[int], hardware: str
) -> None:
    """Compiles the network for this rank's part of a batch of images, and says how large it is and
    where it trains: on `hardware`, which `choose_device` returned."""
    ranks = distributed.world_size()
    images = -(-args.batch_size // (args.virtual_ranks or ranks))
    example = tensor.Tensor((images, *image_shape), device.get_default_device())
    net.compile([example], is_train=True, use_graph=True, dtype=args.dtype)
    parameters = sum(p.size() for p in net.get_params().values())
    where = f"{ranks} ranks with {hardware}" if ranks > 1 else hardware
    say(f"{args.model}: {parameters:,} parameters, {args.dtype}, {where}")
