#!/usr/bin/env python3
"""Compares training steps of PyTorch's networks: by PyTorch, by `singa.accelerate` in PyTorch's
loop, and by `singa.from_torch` with singa's optimizer, in turn, each time in a new process.

    python benchmark/torch_zoo.py --tcmalloc --out results/        # resumable: a file per case
    python benchmark/torch_zoo.py --models resnet50 timm/convnext_atto --batches 8
    python benchmark/torch_zoo.py --sides from-torch singa --models alexnet

A name is one of singa.models, whose module lies with the tests, or timm/NAME. For the former there
is one more side, the hand-written network. All train on random images with SGD (momentum 0.9,
weight decay 5e-4), after four steps that are not timed. Prints milliseconds per step (median over
the steps, minimum over the processes), the best of PyTorch / from_torch, accelerate / from_torch
and from_torch / singa. The side torch is eager with row-major images, for networks that PyTorch
cannot train in channels_last.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import harness
import step as steps

#: PyTorch at its best: channels_last, the better of eager and torch.compile; the other on request.
TORCH = ("torch-channels-last", "torch-compile", "torch")
SIDES = (*TORCH, "accelerate", "from-torch", "singa")
DEFAULT_SIDES = [side for side in SIDES if side != "torch"]
#: The networks of singa.models whose hand-written form from_torch is held against, then others of
#: convolutions, attention and both.
NETWORKS = """
    alexnet resnet50 vgg16 mobilenet_v2 densenet121 resnext50_32x4d convnext_tiny
    timm/resnet18 timm/resnetv2_18 timm/regnetx_002 timm/regnety_004 timm/efficientnet_b0
    timm/mobilenetv3_small_100 timm/mobilenetv4_conv_small timm/ghostnet_050 timm/convnext_atto
    timm/repvgg_a0 timm/hgnetv2_b0 timm/ese_vovnet19b_dw timm/cs3darknet_s timm/dla46_c
    timm/mixnet_s timm/fastvit_t8 timm/edgenext_xx_small timm/mobilevit_xxs
    timm/deit_tiny_patch16_224 timm/pit_ti_224 timm/mixer_s32_224 timm/poolformer_s12
    timm/swin_tiny_patch4_window7_224
"""


def module(name: str) -> tuple[Any, tuple[int, ...], int]:
    """The network in training mode, and the shape of an image and the number of classes."""
    import torch_models

    package, _, own = name.rpartition("/")
    if package == "timm":
        network = torch_models.imported("timm").create_model(own)
        return network.train(), network.pretrained_cfg["input_size"], network.num_classes
    from singa import models

    written = models.create(name)
    network = torch_models.create(name, written.num_classes)
    return network, written.image_shape, written.num_classes


def singa_step(net: Any, x: Any, y: Any) -> Callable[[], object]:
    """A recorded step of a Model, with the optimizer of `harness.torch_step`."""
    from singa import opt, tensor

    images, labels = tensor.from_numpy(x.numpy()), tensor.from_numpy(y.int().numpy())
    net.set_optimizer(opt.SGD(lr=0.01, momentum=0.9, weight_decay=5e-4))
    net.compile([images], is_train=True, use_graph=True)
    return lambda: net(images, labels)


def child(args: argparse.Namespace) -> dict:
    """Measures a side. args: side, model, batch, threads, steps, warmup."""
    import singa
    import torch
    from singa import bench, models

    torch.set_num_threads(args.threads)
    singa.set_num_threads(args.threads)
    torch.manual_seed(0)
    network, shape, classes = module(args.model)
    x, y = torch.randn(args.batch, *shape), torch.randint(0, classes, (args.batch,))
    base = bench.resident_mib("VmRSS")
    bench.reset_high_water()
    if args.side == "singa":
        step = singa_step(models.create(args.model), x, y)
    elif args.side == "from-torch":
        step = singa_step(singa.from_torch(network, (x[:2],)), x, y)
    elif args.side == "accelerate":
        step = harness.torch_step(singa.accelerate(network), x, y)
    elif args.side == "torch":
        step = harness.torch_step(network, x, y)
    else:
        network = network.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
        called = torch.compile(network) if args.side == "torch-compile" else None
        step = harness.torch_step(network, x, y, called)
    figures = steps.measured(bench, step, args)
    return {**figures, "peak_mib": bench.resident_mib() - base, "cpu": harness.cpu_name()}


def compare(model: str, batch: int, args: argparse.Namespace) -> dict[str, dict]:
    given = {name: getattr(args, name) for name in ("threads", "steps", "warmup")}
    sides = {}
    for side in args.sides:
        if side == "singa" and "/" in model:
            continue
        preloaded = args.preload if side in (*TORCH, "accelerate") else None
        sides[side] = harness.Side(
            harness.command(__file__, side=side, model=model, batch=batch, **given),
            {"LD_PRELOAD": preloaded} if preloaded else None,
            args.limit,
        )
    name = f"torch_zoo-{model.replace('/', '-')}-{batch}.json"
    return harness.alternate(
        sides,
        args.rounds,
        lambda text: print(f"  {model} {batch} {text}", file=sys.stderr),
        args.out and args.out / name,
    )


def row(model: str, batch: int, best: dict[str, dict], sides: list[str]) -> dict[str, str]:
    def ratio(above: list[str], below: str) -> str:
        times = [best[side]["ms"] for side in above if side in best]
        return f"{min(times) / best[below]['ms']:.2f}" if times and below in best else ""

    times = {side: f"{best[side]['ms']:.1f}" if side in best else "" for side in sides}
    return {
        "network": model,
        "batch": str(batch),
        **times,
        "PyTorch / from_torch": ratio([*TORCH], "from-torch"),
        "PyTorch / accelerate": ratio([*TORCH], "accelerate"),
        "accelerate / from_torch": ratio(["accelerate"], "from-torch"),
        "from_torch / singa": ratio(["from-torch"], "singa"),
    }


def main() -> None:
    parser = harness.steps_parser(__doc__, models=NETWORKS.split(), warmup=4)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=DEFAULT_SIDES)
    parser.add_argument("--tcmalloc", action="store_true", help="preload tcmalloc for PyTorch")
    parser.add_argument(
        "--limit", type=float, default=1200, metavar="S", help="seconds of a process [%(default)s]"
    )
    args = parser.parse_args()
    args.preload = steps.tcmalloc(parser) if args.tcmalloc else None
    print(f"{harness.cpu_name()}, {args.threads} threads")
    rows = [
        row(name, batch or 32, compare(name, batch or 32, args), args.sides)
        for name in args.models
        for batch in args.batches
    ]
    print(harness.table(rows))


if __name__ == "__main__":
    harness.main(main, child)
