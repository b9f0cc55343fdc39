"""What would make a network's steps quicker or smaller.

    python -m singa advise resnet20_cifar --batch 32
    python -m singa advise runs/pets

Tries other settings in turns with the step as it is, on random images, and prints those that gain,
with the lines to write. See singa.advise, which tries the steps of any model on its own data.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import layer, models, opt, tensor
from ..launcher.command_line import command_parser
from ..model import Model
from ..report.advice import advise
from ..report.bench import Case
from ..training import checkpoint
from ..training.program import add_device_arguments, at_least, choose_device, program
from ..training.task import task_of
from . import decoding, predictions
from .networks import open_network


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments."""
    epilog = f"Networks: {', '.join(models.names())}."
    parser = command_parser("advise", __doc__, "[options] MODEL", epilog=epilog)
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a network's name, see below; a file of Model.save; a run; an ONNX file",
    )
    parser.add_argument(
        "--batch",
        type=at_least(1, int),
        metavar="N",
        help="inputs of a step [32; of a name: 128, or 32 large ones]",
    )
    parser.add_argument(
        "--inference", action="store_true", help="steps of inference [those of training]"
    )
    parser.add_argument(
        "--executed", action="store_true", help="steps as without use_graph=True [recorded ones]"
    )
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="[%(default)s]"
    )
    parser.add_argument(
        "--limit",
        type=at_least(0, float),
        default=120.0,
        metavar="S",
        help="seconds after which nothing else is tried [%(default)g]",
    )
    add_device_arguments(parser)
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> int:
    """Prints the advice; returns the exit status."""
    choose_device(args.device, args.threads)
    options = {"is_train": not args.inference, "use_graph": not args.executed, "dtype": args.dtype}
    if args.model in models.names():
        case = Case(args.model, args.batch or 0)
        net: Model = case.net
        batch: tuple[Any, ...] = (case.images, case.labels)
        net.compile([case.images], **options)
    else:
        net = open_network(args.model)
        batch = _random_batch(net, args.batch or 32)
        if getattr(net, "loss", None) is None:
            net.loss = layer.CrossEntropyLoss()
        net.set_optimizer(opt.SGD(lr=0.01, momentum=0.9))
        net.compile([batch[0]], **options)
    advice = advise(net, *(batch[:1] if args.inference else batch), limit=args.limit)
    if not args.inference and (found := _decoding(Path(args.model))) is not None:
        step, count = advice.ms / 1000, len(batch[0])
        if found.is_long(step, count):
            advice.append(decoding.piece(found, step, count))
    print(advice)
    return 0


def _decoding(run: Path) -> decoding.Decoding | None:
    """What decoding takes in a run on pictures without a cache; None for other networks, and if its
    pictures are gone."""
    try:
        settings = checkpoint.read_progress(run / "checkpoint.safetensors")["settings"]
        return decoding.measure(predictions.sets_of(settings).test)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _random_batch(net: Model, count: int) -> tuple[tensor.Tensor, tensor.Tensor]:
    """Random inputs, and targets for the outputs (count, classes) of a network.

    Raises ValueError for a network of other inputs or outputs.
    """
    inputs = net._examples("advise")
    if len(inputs) != 1 or not isinstance(inputs[0], tensor.Tensor):
        raise ValueError("the network has several inputs: call singa.advise(net, x, y) on data")
    like = inputs[0]
    random = np.random.default_rng(0)
    values = random.standard_normal((count, *like.shape[1:]), dtype=np.float32)
    x = tensor.from_numpy(values, like.device)
    scores = net(x)
    if not isinstance(scores, tensor.Tensor) or len(scores.shape) != 2:
        raise ValueError("the network is no classifier: call singa.advise(net, x, y) on data")
    targets = task_of(net).drawn(random, count, scores.shape[1])
    return x, tensor.from_numpy(targets, like.device)


main = program("advise", parse, run)
