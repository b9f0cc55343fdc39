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
import contextlib
import fcntl
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import singa
from singa import data, device, distributed, metric, models, opt, tensor
from singa.training import JsonLinesLog, checkpoint, plot_curves
from singa.training.program import (
    StopSignals,
    add_run_arguments,
    at_least,
    choose_device,
    parse_run,
    reporting_errors,
    say,
)
from singa.training.progress import Progress

PROG = "python train.py"
SETTINGS = (
    *("model", "data", "images", "epochs", "batch_size", "lr", "schedule", "warmup", "momentum"),
    *("weight_decay", "label_smoothing", "no_augment", "seed", "dtype", "optimizer"),
    "virtual_ranks",
)
METRICS = ("loss", "top1", "top5")
MODELS = {
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


def parse(argv: Sequence[str] | None = None, prog: str = PROG) -> argparse.Namespace:
    """The arguments. A resumed run gets its settings from the checkpoint."""
    description = __doc__.replace(PROG, prog)
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s [options]",
        description=description.replace("train.py", prog.removeprefix("python ")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    count, natural, amount = at_least(1, int), at_least(0, int), at_least(0, float)
    # The weights depend on these, so a resumed run cannot change them.
    run = parser.add_argument_group("training (a resumed run keeps these settings)")
    run.add_argument("--model", choices=MODELS, default="resnet20", help="[%(default)s]")
    run.add_argument("--data", metavar="DIR", help="folder with CIFAR-10 [generated images]")
    run.add_argument(
        "--images", type=count, metavar="N", help="use only the first N training images [all]"
    )
    run.add_argument("--epochs", type=count, default=15, metavar="N", help="[%(default)s]")
    run.add_argument("--batch-size", type=count, default=128, metavar="N", help="[%(default)s]")
    run.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd", help="[%(default)s]")
    run.add_argument(
        "--lr", type=amount, default=0.1, metavar="X", help="peak learning rate [0.1; adamw: 0.001]"
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

    parser.add_argument(
        "--quick", action="store_true", help="set --epochs 5 and --images 5000, unless given"
    )
    parser.add_argument(
        "--download", action="store_true", help="download CIFAR-10 to --data if it is missing"
    )
    add_run_arguments(parser, "runs/MODEL", "epochs")

    given = parser.parse_args(argv)
    if given.quick:
        parser.set_defaults(epochs=5, images=5000)
    if given.optimizer == "adamw":
        parser.set_defaults(lr=0.001, weight_decay=0.05)
    args = parse_run(parser, argv, SETTINGS, lambda args: Path("runs") / args.model)
    if args.download and not args.data:
        parser.error("--download needs --data, the folder for CIFAR-10")
    return args


def load_cifar10(folder: str, download: bool) -> tuple[data.ImageSet, data.ImageSet]:
    """Training and test images of CIFAR-10, which are downloaded if they are missing."""
    if download:
        download_cifar10(folder)
    try:
        return data.load_cifar10(folder), data.load_cifar10(folder, "test")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; --download gets CIFAR-10") from None


def download_cifar10(folder: str) -> None:
    """Downloads CIFAR-10 unless it is there.

    The first rank that comes here does it. The others wait for the lock, longer than they would
    wait for each other.
    """
    path = Path(folder).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            data.load_cifar10(folder, "test")
            data.load_cifar10(folder)
            return
        with Progress(170, "CIFAR-10, MB") as bar:
            report = lambda done, _: bar.step(done // 10**6 - bar.done)  # noqa: E731
            data.download_cifar10(folder, progress=report)


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


class Totals:
    """Sums of loss and correct predictions over this rank's batches so far.

    Reading a result waits for the GPU, which then has nothing to do until the next step starts.
    Results are therefore read for `together` batches at once.
    """

    def __init__(self, together: int = 1, **sums: float) -> None:
        self.sums = {"images": 0, "loss": 0.0, "top1": 0, "top5": 0} | sums
        self.together = together
        self.batches: list[tuple[tensor.Tensor, tensor.Tensor, tensor.Tensor]] = []

    def add(self, out: tensor.Tensor, loss: tensor.Tensor, y: tensor.Tensor) -> None:
        """Adds a batch: scores, loss and labels."""
        self.batches.append((out, loss, y))
        if len(self.batches) >= self.together:
            self.settle()

    def settle(self) -> None:
        """Reads the results of all batches. Raises ValueError if the loss is not finite."""
        if not self.batches:
            return
        outs, losses, labels = zip(*self.batches, strict=True)
        self.batches = []
        scores = tensor.concatenate(outs, 0) if len(outs) > 1 else outs[0]
        classes = tensor.concatenate(labels, 0) if len(outs) > 1 else labels[0]
        for loss, y in zip(losses, labels, strict=True):
            self.sums["images"] += y.shape[0]
            self.sums["loss"] += float(loss) * y.shape[0]
        if not math.isfinite(self.sums["loss"]):
            raise ValueError(f"the loss became {self.sums['loss']}: a lower --lr may help")
        self.sums["top1"] += metric.count_top_k(scores, classes)
        self.sums["top5"] += metric.count_top_k(scores, classes, 5)

    def means(self, *names: str) -> dict[str, float]:
        """Means per image of this rank. By default all of METRICS."""
        return _means(self.sums, names)

    def means_of_all(self, prefix: str, *names: str) -> dict[str, float]:
        """Means per image of all ranks, with `prefix` before each name. All ranks call it."""
        self.settle()
        means = _means(distributed.total(self.sums), names)
        return {prefix + name: value for name, value in means.items()}


def _means(sums: dict[str, float], names: Sequence[str]) -> dict[str, float]:
    images = max(sums["images"], 1)
    return {name: sums[name] / images for name in names or METRICS}


def evaluate(net: models.Classifier, loader: data.DataLoader, together: int) -> dict[str, float]:
    """Loss and accuracy on the test images."""
    net.eval()
    totals = Totals(together)
    with Progress(len(loader), "test") as bar:
        for x, y in loader:
            if len(y):  # a short batch may have no image for this rank
                out = net(x)
                totals.add(out, net.loss(out, y), y)
            bar.step()
    net.train()
    return totals.means_of_all("test_")


def train(args: argparse.Namespace) -> int:
    """Trains, or resumes a run; returns the exit status."""
    hardware = choose_device(args.device, args.threads)
    together = 1 if args.device == "cpu" else 16
    singa.seed(args.seed)
    loader, test_loader = load_images(args)
    args.out.mkdir(parents=True, exist_ok=True)
    main = distributed.is_main()
    if args.overwrite and main:
        args.checkpoint.unlink(missing_ok=True)
    net = models.create(MODELS[args.model], num_classes=10, label_smoothing=args.label_smoothing)
    schedule = make_schedule(args, len(loader))
    scaler = opt.GradScaler() if args.dtype == "float16" else None
    common = {"weight_decay": args.weight_decay, "scaler": scaler}
    if args.optimizer == "sgd":
        optimizer: Any = opt.SGD(schedule, args.momentum, **common)
    else:
        undecayed = opt.ParamGroup(opt.norm_and_bias, weight_decay=0.0)
        optimizer = opt.AdamW(schedule, groups=[undecayed], **common)
    ranks = distributed.world_size()
    parts = args.virtual_ranks or ranks
    if parts > 1:
        optimizer = opt.DistOpt(optimizer, virtual_ranks=args.virtual_ranks)
    net.set_optimizer(optimizer)
    images = -(-args.batch_size // parts)
    example = tensor.Tensor((images, 3, 32, 32), device.get_default_device())
    net.compile([example], is_train=True, use_graph=True, dtype=args.dtype)
    parameters = sum(p.size() for p in net.get_params().values())
    where = f"{ranks} ranks with {hardware}" if ranks > 1 else hardware
    say(f"{args.model}: {parameters:,} parameters, {args.dtype}, {where}")

    totals = Totals(together)
    if args.resume:
        progress = checkpoint.load(args.checkpoint, net, optimizer)
        loader.load_state_dict(progress["loader"])
        totals = Totals(together, **own_sums(progress["totals"]))
        say(f"resumed after step {optimizer.steps}")

    def save() -> None:
        totals.settle()
        state = {"settings": args.settings, "loader": loader.state_dict()}
        sums = distributed.gather(totals.sums)
        checkpoint.save(args.checkpoint, net, optimizer, **state, totals=sums)

    # After the first signal, the step or the test ends and a checkpoint is saved.
    stopped = StopSignals()

    first_epoch = loader.epoch + 1
    log_path = args.out / "log.jsonl"
    with contextlib.ExitStack() as closing:
        if main:
            log = closing.enter_context(JsonLinesLog(log_path, lambda r: r["epoch"] < first_epoch))
        for epoch in range(first_epoch, args.epochs + 1):
            began, seen, rate = time.monotonic(), totals.sums["images"], 0.0
            title = f"epoch {epoch}/{args.epochs}"
            with Progress(len(loader), title, start=loader.state_dict()["batch"]) as bar:
                for number, (x, y) in enumerate(loader, 1):
                    # Parts with fewer images of a batch count less.
                    uneven = [] if loader.weight == 1.0 else [loader.weight]
                    out, loss = net(x, y, *uneven)
                    totals.add(out, loss, y)
                    if number % (parts // ranks):
                        continue
                    rate = ranks * (totals.sums["images"] - seen) / (time.monotonic() - began)
                    bar.step(**totals.means("loss", "top1"), **{"images/s": rate})
                    every = args.checkpoint_steps
                    stop = stopped.anywhere()
                    if stop or (every and optimizer.steps % every == 0):
                        save()
                    if stop:
                        break
            if not stopped.anywhere():
                totals.settle()
                rate = ranks * (totals.sums["images"] - seen) / (time.monotonic() - began)
                record: dict[str, float] = {"epoch": epoch, "step": optimizer.steps}
                record |= {"lr": optimizer.now("lr")}
                record |= totals.means_of_all("train_", "loss", "top1")
                record |= evaluate(net, test_loader, together)
                seconds = time.monotonic() - began
                if main:
                    log.append(record, images_per_s=round(rate, 1), seconds=round(seconds, 3))
                say(
                    f"{title}  train loss {record['train_loss']:.3f} "
                    f"top-1 {record['train_top1']:.1%}  test loss {record['test_loss']:.3f} "
                    f"top-1 {record['test_top1']:.1%} top-5 {record['test_top5']:.1%}  "
                    f"{rate:.0f} images/s"
                )
                totals = Totals(together)
                save()
                if main:
                    try:
                        plot_curves(log_path, args.out / "curves.png", title=args.model)
                    except ImportError as error:
                        say(error)
            if stopped.anywhere():
                say(f"stopped after step {optimizer.steps}; --resume continues from there")
                return stopped.status
    distributed.on_main(lambda: net.save_states(args.out / "model.safetensors"), "save_states")
    say(f"weights, curves and log are in {args.out}")
    return 0


def own_sums(saved: list[dict[str, float]] | dict[str, float]) -> dict[str, float]:
    """This rank's part of the sums that a checkpoint holds for each rank. Of another number of
    ranks, rank 0 has all."""
    if isinstance(saved, dict):  # of an older version
        saved = [saved]
    if len(saved) == distributed.world_size():
        return saved[distributed.rank()]
    together = {name: sum(sums[name] for sums in saved) for name in saved[0]}
    return together if distributed.is_main() else {}


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Runs the program; returns the exit status."""
    return reporting_errors(prog, lambda: train(parse(argv, prog)))


if __name__ == "__main__":
    sys.exit(main())
