#!/usr/bin/env python3
"""Fine-tunes a network from an ONNX file on images of ten classes, and exports it again.

    python finetune.py                           a ResNet, on generated images
    python finetune.py --data cifar-10           on the binary files of CIFAR-10
    python finetune.py --model net.onnx --freeze 'layer1.*' --freeze conv1.weight
    python finetune.py --quick                   a short run

The network takes images (N, 3, 32, 32) with N left open, and its last layer is a fully connected
one or a 1x1 convolution, which gets ten outputs. Without --model, PyTorch and torchvision make and
export a ResNet-18 with random weights; where they are not installed, singa exports a ResNet-20.

The output folder (--out) gets these files:

    imported.onnx   the network that was made, without --model
    log.jsonl       one record per epoch
    curves.png      plots of loss and accuracy
    finetuned.onnx  the trained network
    table.md        its loss and accuracy in singa and in ONNX Runtime, and how far they differ
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import singa
import singa.onnx
from singa import data, metric, models, opt, tensor
from singa.onnx.inspect import inspect
from singa.training import JsonLinesLog, Trainer, plot_curves
from singa.training.program import at_least, choose_device, reporting_errors
from singa.training.progress import Progress

PROG = "python finetune.py"
Scores = Callable[[np.ndarray], np.ndarray]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(
        prog=PROG, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    count, natural, amount = at_least(1, int), at_least(0, int), at_least(0, float)
    parser.add_argument("--model", type=Path, metavar="FILE", help="an ONNX file [a ResNet]")
    parser.add_argument(
        "--maker",
        choices=("torch", "singa"),
        help="what makes the ResNet [torch where it is installed]",
    )
    parser.add_argument("--data", metavar="DIR", help="folder with CIFAR-10 [generated images]")
    parser.add_argument(
        "--images", type=count, metavar="N", help="use only the first N training images [all]"
    )
    parser.add_argument(
        "--freeze",
        action="append",
        default=[],
        metavar="PATTERN",
        help="parameters that are not trained; may be given several times [none]",
    )
    parser.add_argument("--epochs", type=count, default=5, metavar="N", help="[%(default)s]")
    parser.add_argument("--batch-size", type=count, default=64, metavar="N", help="[%(default)s]")
    parser.add_argument(
        "--lr", type=amount, default=0.05, metavar="X", help="peak learning rate [%(default)s]"
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="[%(default)s]")
    parser.add_argument(
        "--quick", action="store_true", help="set --epochs 2 and --images 1000, unless given"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/onnx"), metavar="DIR")
    parser.add_argument(
        "--threads", type=natural, default=0, metavar="N", help="CPU threads; 0: all cores [0]"
    )
    if parser.parse_args(argv).quick:
        parser.set_defaults(epochs=2, images=1000)
    args = parser.parse_args(argv)
    if args.model and args.maker:
        parser.error("--maker makes a network, and --model names one")
    return args


def make(path: Path, maker: str | None, seed: int) -> str:
    """Writes a ResNet of 1,000 classes to an ONNX file; returns what wrote it."""
    if maker != "singa":
        try:
            from_torch(path, seed)
        except (ImportError, RuntimeError) as error:  # torchvision may not fit PyTorch
            if maker:
                raise ValueError(f"--maker torch: {error}") from None
        else:
            return "PyTorch"
    net = models.create("resnet20_cifar", num_classes=1000)
    x = tensor.Tensor((2, 3, 32, 32))
    net.compile([x], is_train=False)
    singa.onnx.save(net, path, [x], dynamic_axes={"x": {0: "batch"}}, training=True)
    return "singa"


def from_torch(path: Path, seed: int) -> None:
    """Exports torchvision's ResNet-18. Batch norm is kept, and not folded into convolutions."""
    import torch
    from torchvision import models as networks

    torch.manual_seed(seed)
    module = networks.resnet18()
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():  # the exporter warns of its own future
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.train(),
            (torch.zeros(2, 3, 32, 32),),
            str(path),
            dynamo=False,
            input_names=["x"],
            output_names=["scores"],
            dynamic_axes={"x": {0: "batch"}, "scores": {0: "batch"}},
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
        )
    logging.disable(logging.NOTSET)


def load_images(args: argparse.Namespace) -> tuple[data.DataLoader, data.DataLoader]:
    """Loaders of the training and the test images."""
    if args.data:
        train, test = data.load_cifar10(args.data), data.load_cifar10(args.data, "test")
        mean, std = data.CIFAR10_MEAN, data.CIFAR10_STD
    else:
        train, test = data.shapes("train", args.images), data.shapes("test")
        mean, std = data.SHAPES_MEAN, data.SHAPES_STD
    if args.images is not None:
        train = train.head(args.images)
    print(f"{train.name}: {len(train)} images; {test.name}: {len(test)}")
    augmented = data.standard_augmentation(mean, std)
    return (
        data.DataLoader(train, args.batch_size, True, args.seed, augmented),
        data.DataLoader(test, 200, transform=data.Normalize(mean, std)),
    )


def evaluate(scores_of: Scores, loader: data.DataLoader) -> tuple[dict[str, float], np.ndarray]:
    """Loss and accuracy on the test images, and all scores."""
    parts, labels = [], []
    with Progress(len(loader), "test") as bar:
        for x, y in loader:
            parts.append(scores_of(x))
            labels.append(y)
            bar.step()
    scores, wanted = np.concatenate(parts), np.concatenate(labels)
    shifted = scores.astype(np.float64) - scores.max(1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(wanted)), wanted]
    right = scores.argmax(1) == wanted
    return {"test_loss": float(losses.mean()), "test_top1": float(right.mean())}, scores


def in_singa(net: Any) -> Scores:
    """The scores of a network in singa."""
    return lambda x: net(tensor.from_numpy(x)).numpy()


def in_runtime(path: Path) -> Scores:
    """The scores of a file in ONNX Runtime. Raises ImportError if it is not installed."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x})[0]


def train(net: Any, args: argparse.Namespace, loader: Any, test_loader: Any) -> None:
    """Trains, logs each epoch, and plots them."""
    net.set_optimizer(opt.SGD(opt.OneCycle(args.lr, args.epochs * len(loader)), 0.9))
    net.compile([tensor.Tensor((args.batch_size, 3, 32, 32))], is_train=True, use_graph=True)
    with JsonLinesLog(args.out / "log.jsonl", lambda record: False) as log:
        metrics = {"top1": metric.count_top_k}
        trainer = Trainer(net, metrics=metrics, loggers=[log], validation_name="test")
        trainer.fit(loader, args.epochs, test_loader)
    try:
        plot_curves(log.path, args.out / "curves.png", title="fine-tuning")
    except ImportError as error:
        print(error)


def table(path: Path, net: Any, test_loader: data.DataLoader) -> str:
    """Results of the exported file: in singa before and after import, and in ONNX Runtime."""
    figures, scores = evaluate(in_singa(net), test_loader)
    rows = [("singa, trained", figures, "")]

    def loaded() -> Scores:
        back = singa.onnx.load(path)
        back.compile([tensor.Tensor((2, 3, 32, 32))], is_train=False, use_graph=True)
        return in_singa(back)

    others: list[tuple[str, Callable[[], Scores]]] = [
        ("singa, loaded from the file", loaded),
        ("ONNX Runtime", lambda: in_runtime(path)),
    ]
    for name, make_scores in others:
        try:
            figures, found = evaluate(make_scores(), test_loader)
        except ImportError:
            print(f"{name} is not installed")
            continue
        difference = np.abs(found - scores).max() / np.abs(scores).max()
        rows.append((name, figures, f"{difference:.1e}"))
    lines = ["| | test loss | test top-1 | largest difference of scores |", "|---|---|---|---|"]
    for name, figures, gap in rows:
        lines.append(
            f"| {name} | {figures['test_loss']:.4f} | {figures['test_top1']:.2%} | {gap} |"
        )
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Fine-tunes a network; returns the exit status."""
    choose_device("cpu", args.threads)
    singa.seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.model
    if path is None:
        path = args.out / "imported.onnx"
        print(f"{make(path, args.maker, args.seed)} wrote {path}")
    print(f"\n{inspect(path)}\n")
    net = singa.onnx.load(path)
    print(f"new head: {', '.join(net.replace_head(10))}")
    for pattern in args.freeze:
        net.freeze(pattern)
    trained = sum(p.size() for p in net.get_params().values() if p.requires_grad)
    print(f"{trained:,} of {sum(p.size() for p in net.get_params().values()):,} parameters train")
    loader, test_loader = load_images(args)
    train(net, args, loader, test_loader)
    net.eval()
    example = tensor.Tensor((2, 3, 32, 32))
    name = net.input_names[0]
    path = args.out / "finetuned.onnx"
    singa.onnx.save(net, path, [example], dynamic_axes={name: {0: "batch"}})
    result = table(path, net, test_loader)
    (args.out / "table.md").write_text(result + "\n")
    print(f"\n{path}:\n{result}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns the exit status."""
    args = parse(argv)

    def program() -> int:
        try:
            return run(args)
        except (NotImplementedError, ImportError) as error:  # nodes that singa cannot compute
            raise ValueError(error) from None

    return reporting_errors(PROG, program)


if __name__ == "__main__":
    sys.exit(main())
