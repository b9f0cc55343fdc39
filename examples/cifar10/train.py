#!/usr/bin/env python3
"""Trains a ResNet, VGG or LeNet on CIFAR-10, or on a generated set of ten classes.

    python train.py --quick                      a small run on the generated set, to see it work
    python train.py --data cifar-10 --download   CIFAR-10 into that folder, then ResNet-20 on it
    python train.py --model vgg16 --epochs 60 --out runs/vgg16
    python train.py --model resnet50 --device cuda --dtype bfloat16       on an NVIDIA GPU
    python train.py --out runs/vgg16 --resume    goes on after Ctrl-C, a crash or a reboot

The run's folder (--out) holds log.jsonl, one record an epoch; curves.png, drawn from it;
checkpoint.safetensors, from which --resume continues to the same bits as a run never stopped; and
at the end model.safetensors, for `Model.load_states`. Ctrl-C saves a checkpoint first; a second
one does not wait for it.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import singa
from singa import data, device, metric, models, opt, tensor
from singa.training import JsonLinesLog, checkpoint, plot_curves
from singa.training.progress import Progress

PROG = "python train.py"
SETTINGS = (
    *("model", "data", "images", "epochs", "batch_size", "lr", "schedule", "warmup", "momentum"),
    *("weight_decay", "label_smoothing", "no_augment", "seed", "dtype"),
)
METRICS = ("loss", "top1", "top5")
MODELS = {
    "lenet": "lenet",
    "resnet18": "resnet18_cifar",
    "resnet20": "resnet20_cifar",
    "resnet50": "resnet50_cifar",
    "vgg16": "vgg16_cifar",
}


def at_least(low: float, kind: Callable[[str], float]) -> Callable[[str], float]:
    """An argument's type: a finite number of that kind, not below `low`."""

    def number(text: str) -> float:
        value = kind(text)
        if not low <= value < math.inf:
            raise argparse.ArgumentTypeError(f"must be {low} or more, got {text}")
        return value

    return number


def parse(argv: Sequence[str] | None = None, prog: str = PROG) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s [options]",
        description=__doc__.replace(PROG, prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    count, natural, amount = at_least(1, int), at_least(0, int), at_least(0, float)
    # What the weights depend on: a resumed run has to keep it.
    run = parser.add_argument_group("the run")
    run.add_argument("--model", choices=MODELS, default="resnet20", help="[%(default)s]")
    run.add_argument("--data", metavar="DIR", help="CIFAR-10 folder [the generated set]")
    run.add_argument("--images", type=count, metavar="N", help="only the first N training images")
    run.add_argument("--epochs", type=count, default=15, metavar="N", help="[%(default)s]")
    run.add_argument("--batch-size", type=count, default=128, metavar="N", help="[%(default)s]")
    run.add_argument(
        "--lr", type=amount, default=0.1, metavar="X", help="highest learning rate [%(default)s]"
    )
    run.add_argument(
        "--schedule",
        choices=("onecycle", "cosine", "step", "constant"),
        default="onecycle",
        help="of the learning rate; 'step' divides it by 10 at 1/2 and 3/4 [%(default)s]",
    )
    run.add_argument("--warmup", type=amount, default=0, metavar="EPOCHS", help="[%(default)s]")
    run.add_argument("--momentum", type=amount, default=0.9, metavar="X", help="[%(default)s]")
    run.add_argument("--weight-decay", type=amount, default=5e-4, metavar="X", help="[%(default)s]")
    run.add_argument("--label-smoothing", type=amount, default=0, metavar="X", help="[%(default)s]")
    run.add_argument("--no-augment", action="store_true", help="no random crop and flip")
    run.add_argument("--seed", type=natural, default=0, metavar="N", help="[%(default)s]")
    run.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="of convolutions and products; parameters are float32 always [%(default)s]",
    )

    parser.add_argument("--quick", action="store_true", help="5 epochs on 5,000 images")
    parser.add_argument("--download", action="store_true", help="fetch CIFAR-10 if --data lacks it")
    parser.add_argument("--out", type=Path, metavar="DIR", help="[runs/MODEL]")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    again.add_argument("--overwrite", action="store_true", help="forget the run that --out holds")
    parser.add_argument(
        "--checkpoint-steps", type=natural, default=0, metavar="N", help="also every N steps [0]"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="[%(default)s]")
    parser.add_argument("--threads", type=natural, default=0, metavar="N", help="[all cores]")

    args = parser.parse_args(argv)
    if args.quick:
        parser.set_defaults(epochs=5, images=5000)
        args = parser.parse_args(argv)
    args.out = args.out or Path("runs") / args.model
    args.checkpoint = args.out / "checkpoint.safetensors"
    if args.resume and not args.checkpoint.exists():
        parser.error(f"--resume: {args.out} holds no checkpoint")
    if args.resume:
        try:
            saved = checkpoint.read_progress(args.checkpoint)["settings"]
        except (OSError, ValueError, KeyError) as error:
            parser.error(f"--resume: {error}")
        parser.set_defaults(**saved)
        given = parser.parse_args(argv)
        for name in SETTINGS:
            value = saved.get(name, parser.get_default(name))  # one that an older run did not have
            if getattr(given, name) != value:
                option = "--" + name.replace("_", "-")
                parser.error(f"{option} was {value} when the run in {args.out} started")
            setattr(args, name, value)
    elif args.checkpoint.exists() and not args.overwrite:
        parser.error(
            f"{args.out} holds a run: --resume it, --overwrite it, or choose another --out"
        )
    if args.download and not args.data:
        parser.error("--download needs --data, the folder to fetch CIFAR-10 into")
    args.settings = {name: getattr(args, name) for name in SETTINGS}
    return args


def load_cifar10(folder: str, download: bool) -> tuple[data.ImageSet, data.ImageSet]:
    try:
        return data.load_cifar10(folder), data.load_cifar10(folder, "test")
    except FileNotFoundError as error:
        if not download:
            raise FileNotFoundError(f"{error}; --download fetches CIFAR-10") from None
    with Progress(170, "CIFAR-10, MB") as bar:
        data.download_cifar10(folder, progress=lambda done, _: bar.step(done // 10**6 - bar.done))
    return data.load_cifar10(folder), data.load_cifar10(folder, "test")


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
    print(f"{train.name}: {len(train)} images; {test.name}: {len(test)}")
    plain = data.Normalize(mean, std)
    augmented = plain if args.no_augment else data.standard_augmentation(mean, std)
    dev = device.get_default_device()
    return (
        data.DataLoader(train, args.batch_size, True, args.seed, augmented, device=dev),
        data.DataLoader(test, 200, transform=plain, device=dev),
    )


def make_schedule(args: argparse.Namespace, steps_per_epoch: int) -> opt.DecayScheduler:
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
    """Sums over the batches so far.

    Who asks for a result waits for all that a GPU was told to do before, and meanwhile tells it
    nothing. So results are asked for when there are those of `together` batches.
    """

    def __init__(self, together: int = 1, **sums: float) -> None:
        self.sums = {"images": 0, "loss": 0.0, "top1": 0, "top5": 0} | sums
        self.together = together
        self.batches: list[tuple[tensor.Tensor, tensor.Tensor, tensor.Tensor]] = []

    def add(self, out: tensor.Tensor, loss: tensor.Tensor, y: tensor.Tensor) -> None:
        self.batches.append((out, loss, y))
        if len(self.batches) >= self.together:
            self.settle()

    def settle(self) -> None:
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

    def means(self, prefix: str = "", *names: str) -> dict[str, float]:
        images = max(self.sums["images"], 1)
        return {prefix + name: self.sums[name] / images for name in names or METRICS}


def evaluate(net: models.Classifier, loader: data.DataLoader, together: int) -> dict[str, float]:
    net.eval()
    totals = Totals(together)
    with Progress(len(loader), "test") as bar:
        for x, y in loader:
            out = net(x)
            totals.add(out, net.loss(out, y), y)
            bar.step()
    totals.settle()
    net.train()
    return totals.means("test_")


def choose_device(args: argparse.Namespace) -> str:
    """Where tensors lie from now on; what there is, for the user."""
    if args.threads:
        singa.set_num_threads(args.threads)
    if args.device == "cpu":
        device.set_default_device(None)
        return f"{singa.get_num_threads()} threads"
    try:
        device.set_default_device(device.create_cuda_gpu())
    except RuntimeError as error:
        raise OSError(f"--device cuda: {error}") from None
    return device.device_query(0)


def train(args: argparse.Namespace) -> int:
    hardware = choose_device(args)
    together = 1 if args.device == "cpu" else 16
    singa.seed(args.seed)
    loader, test_loader = load_images(args)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.overwrite:
        args.checkpoint.unlink(missing_ok=True)
    net = models.create(MODELS[args.model], num_classes=10, label_smoothing=args.label_smoothing)
    schedule = make_schedule(args, len(loader))
    scaler = opt.GradScaler() if args.dtype == "float16" else None
    sgd = opt.SGD(schedule, args.momentum, weight_decay=args.weight_decay, scaler=scaler)
    net.set_optimizer(sgd)
    example = tensor.Tensor((args.batch_size, 3, 32, 32), device.get_default_device())
    net.compile([example], is_train=True, use_graph=True, dtype=args.dtype)
    parameters = sum(p.size() for p in net.get_params().values())
    print(f"{args.model}: {parameters:,} parameters, {args.dtype}, {hardware}")

    totals = Totals(together)
    if args.resume:
        progress = checkpoint.load(args.checkpoint, net, net.optimizer)
        loader.load_state_dict(progress["loader"])
        totals = Totals(together, **progress["totals"])
        print(f"resumed after step {net.optimizer.steps}")

    def save() -> None:
        totals.settle()
        state = {"settings": args.settings, "loader": loader.state_dict(), "totals": totals.sums}
        checkpoint.save(args.checkpoint, net, net.optimizer, **state)

    # The first Ctrl-C (or SIGTERM) lets the step or the test end and saves; a second one does not.
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)

    first_epoch = loader.epoch + 1
    with JsonLinesLog(args.out / "log.jsonl", lambda r: r["epoch"] < first_epoch) as log:
        for epoch in range(first_epoch, args.epochs + 1):
            began, seen, rate = time.monotonic(), totals.sums["images"], 0.0
            title = f"epoch {epoch}/{args.epochs}"
            with Progress(len(loader), title, start=loader.state_dict()["batch"]) as bar:
                for x, y in loader:
                    out, loss = net(x, y)
                    totals.add(out, loss, y)
                    rate = (totals.sums["images"] - seen) / (time.monotonic() - began)
                    bar.step(**totals.means("", "loss", "top1"), **{"images/s": rate})
                    every = args.checkpoint_steps
                    if stopped or (every and net.optimizer.steps % every == 0):
                        save()
                    if stopped:
                        break
            if not stopped:
                totals.settle()
                rate = (totals.sums["images"] - seen) / (time.monotonic() - began)
                record: dict[str, float] = {"epoch": epoch, "step": net.optimizer.steps}
                record |= {"lr": net.optimizer.now("lr")} | totals.means("train_", "loss", "top1")
                record |= evaluate(net, test_loader, together)
                seconds = time.monotonic() - began
                log.append(record, images_per_s=round(rate, 1), seconds=round(seconds, 3))
                print(
                    f"{title}  train loss {record['train_loss']:.3f} "
                    f"top-1 {record['train_top1']:.1%}  test loss {record['test_loss']:.3f} "
                    f"top-1 {record['test_top1']:.1%} top-5 {record['test_top5']:.1%}  "
                    f"{rate:.0f} images/s",
                    flush=True,
                )
                totals = Totals(together)
                save()
                try:
                    plot_curves(log.path, args.out / "curves.png", title=args.model)
                except ImportError as error:
                    print(error)
            if stopped:
                print(f"stopped after step {net.optimizer.steps}; --resume goes on from there")
                return 128 + stopped[0]
    net.save_states(args.out / "model.safetensors")
    print(f"weights, curves and log are in {args.out}")
    return 0


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    try:
        return train(parse(argv, prog))
    except KeyboardInterrupt:
        print(f"\n{prog}: stopped at once; the last checkpoint, if any, is whole", file=sys.stderr)
        return 128 + signal.SIGINT
    except (OSError, ValueError, MemoryError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
