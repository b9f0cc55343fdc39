#!/usr/bin/env python3
"""Times single operators of networks' layers in singa, in its strict mode, and in PyTorch.

    python benchmark/operators.py                               # all cases
    python benchmark/operators.py conv product --threads 2      # those whose name contains a word
    python benchmark/operators.py conv --dtype bfloat16 --no-torch
    python benchmark/operators.py small --threads 1             # the overhead of a call

Strict mode has oneDNN's direct convolutions and plain float32 products, normal mode also
Winograd's method and AMX. Images are blocked in singa and channels-last in PyTorch. Prints for each
pass the milliseconds of all three (the minimum of several runs, in turn), how many times as fast as
both others singa is, and GFLOP/s, or for passes that are bound by memory GB/s. Nothing else should
run on the machine.

The small cases have a few elements and many calls: "forward" without the tape, "recorded" with it,
"and backward" also with the gradients of all operands. counts.py counts their instructions, and
dispatch.cc has the part of C++.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads of one side must not wait on a core

import harness
import numpy as np
import singa
from singa import autograd, layer, tensor
from singa import singa_wrap as raw

Pass = Callable[[], Any]
Passes = dict[str, Pass]
SIDES = ("singa", "strict", "torch")


class Case(NamedTuple):
    """An operator of a layer: the passes of both libraries, and the work of each pass."""

    singa: Callable[[str], Passes]
    torch: Callable[[str], Passes]
    work: float = 0  # floating point operations, or bytes of float32; 0: nobody asks
    unit: str = "GFLOP/s"
    calls: int = 1  # in a pass


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def of_torch(array: np.ndarray, dtype: str, like: Any = None) -> Any:
    import torch

    made = torch.from_numpy(array).to(getattr(torch, dtype))
    return made if like is None else made.contiguous(memory_format=like)


def of_singa(array: np.ndarray, dtype: str) -> raw.Tensor:
    return tensor.from_numpy(array).as_type(dtype).data


def conv(
    n: int, c: int, size: int, k: int, kernel: int = 3, stride: int = 1, group: int = 1
) -> Case:
    """n images of c channels, size x size, by k filters, padded to keep their size."""
    side, pad = (size - 1) // stride + 1, kernel // 2
    x, w, dy = (
        values(n, c, size, size),
        values(k, c // group, kernel, kernel),
        values(n, k, side, side),
    )
    w /= np.sqrt(w[0].size)

    def by_singa(dtype: str) -> Passes:
        image, weights, gradient = (of_singa(a, dtype) for a in (x, w, dy))
        image, gradient = raw.ToBlocked(image), raw.ToBlocked(gradient)
        sides = [kernel] * 2, [stride] * 2, [pad] * 2
        handle = raw.ConvHandle(image, *sides, c, k, False, group)

        def backward(*wanted: bool) -> Pass:
            return lambda: raw.ConvBackward(gradient, image, weights, handle, *wanted, False)

        return {
            "y": lambda: raw.ConvForward(image, weights, None, handle),
            "dx": backward(True, False),
            "dW": backward(False, True),
        }

    def by_torch(dtype: str) -> Passes:
        import torch

        image, gradient = (of_torch(a, dtype, torch.channels_last) for a in (x, dy))
        weights = of_torch(w, dtype, torch.channels_last)
        sides = [stride] * 2, [pad] * 2, [1, 1]

        def backward(*wanted: bool) -> Pass:
            return lambda: torch.ops.aten.convolution_backward(
                gradient, image, weights, None, *sides, False, [0, 0], group, [*wanted, False]
            )

        return {
            "y": lambda: torch.conv2d(image, weights, None, *sides, group),
            "dx": backward(True, False),
            "dW": backward(False, True),
        }

    if group == c:
        return Case(by_singa, by_torch, 4.0 * (x.size + dy.size), "GB/s")
    return Case(by_singa, by_torch, 2.0 * dy.size * w[0].size)


def product(rows: int, columns: int, terms: int, trans: str = "") -> Case:
    """(rows, terms) by (terms, columns); trans: the factors that are stored the other way round."""
    a = values(*((terms, rows) if "a" in trans else (rows, terms)))
    b = values(*((columns, terms) if "b" in trans else (terms, columns)))

    def by_singa(dtype: str) -> Passes:
        left, right = of_singa(a, dtype), of_singa(b, dtype)
        return {"": lambda: raw.MatMul(left, right, "a" in trans, "b" in trans)}

    def by_torch(dtype: str) -> Passes:
        left, right = of_torch(a, dtype), of_torch(b, dtype)
        left, right = left.T if "a" in trans else left, right.T if "b" in trans else right
        return {"": lambda: left @ right}

    return Case(by_singa, by_torch, 2.0 * rows * columns * terms)


def attention(batch: int, heads: int, length: int, dim: int) -> Case:
    """Scaled dot products, forward, and forward with backward."""
    made = [values(batch, heads, length, dim) for _ in range(4)]

    def by_singa(dtype: str) -> Passes:
        *operands, dy = (tensor.Tensor(data=of_singa(a, dtype), stores_grad=True) for a in made)

        def forward() -> Any:
            return autograd.scaled_dot_product_attention(*operands)

        return trained(forward, lambda: autograd.gradients(forward(), dy), autograd.no_grad)

    def by_torch(dtype: str) -> Passes:
        import torch

        *operands, dy = (of_torch(a, dtype) for a in made)
        for operand in operands:
            operand.requires_grad_()

        def forward() -> Any:
            return torch.nn.functional.scaled_dot_product_attention(*operands)

        return trained(forward, lambda: torch.autograd.grad(forward(), operands, dy), torch.no_grad)

    return Case(by_singa, by_torch, 4.0 * batch * heads * length * length * dim)


def recurrent(mode: str, steps: int, batch: int, inputs: int, hidden: int, layers: int) -> Case:
    """A network of LSTM or GRU layers, forward, and forward with backward."""
    x, dy = values(steps, batch, inputs), values(steps, batch, hidden)

    def by_singa(dtype: str) -> Passes:
        given = tensor.Tensor(data=of_singa(x, dtype), stores_grad=True)
        gradient = tensor.Tensor(data=of_singa(dy, dtype))
        network = layer.CudnnRNN(hidden, num_layers=layers, rnn_mode=mode, batch_first=False)
        both = lambda: autograd.gradients(network(given), gradient)  # noqa: E731
        return trained(lambda: network(given), both, autograd.no_grad)

    def by_torch(dtype: str) -> Passes:
        import torch

        given, gradient = of_torch(x, dtype).requires_grad_(), of_torch(dy, dtype)
        network = getattr(torch.nn, mode.upper())(inputs, hidden, num_layers=layers)
        network = network.to(given.dtype)
        wanted = [given, *network.parameters()]
        both = lambda: torch.autograd.grad(network(given)[0], wanted, gradient)  # noqa: E731
        return trained(lambda: network(given), both, torch.no_grad)

    width = [inputs, *[hidden] * (layers - 1)]
    gates = {"lstm": 4, "gru": 3}[mode]
    return Case(
        by_singa, by_torch, 2.0 * steps * batch * gates * hidden * sum(w + hidden for w in width)
    )


def trained(forward: Pass, both: Pass, no_grad: Callable[[], Any]) -> Passes:
    """Inference, and forward with backward."""

    def inference() -> None:
        with no_grad():
            forward()

    def training() -> None:
        with autograd.enable_grad():
            both()

    return {"forward": inference, "with backward": training}


#: Operands of the small cases: two numbers, an image with two channels, a row and weights.
SMALL = {"a": (1,), "b": (1,), "x": (1, 2, 4, 4), "r": (1, 4), "v": (4, 4)}
CALLS = 200


class Framework(NamedTuple):
    """The small cases in one framework, and its functions for no_grad and backward."""

    cases: dict[str, Pass]
    no_grad: Callable[[], AbstractContextManager[Any]]
    backward: Callable[[Any, Any], object]  # of a result and its gradient


def small_of_singa() -> Framework:
    t = {name: tensor.from_numpy(values(*shape)) for name, shape in SMALL.items()}
    for operand in t.values():
        operand.requires_grad = operand.stores_grad = True
    autograd.training = True
    conv, norm = layer.Conv2d(2, 3, padding=1, bias=False), layer.BatchNorm2d()
    cases = {
        "add": lambda: autograd.add(t["a"], t["b"]),
        "mul, add, sum": lambda: autograd.reduce_sum(t["a"] * t["b"] + t["a"]),
        "relu": lambda: autograd.relu(t["a"]),
        "matrix product": lambda: autograd.matmul(t["r"], t["v"]),
        "convolution": lambda: conv(t["x"]),
        "batch norm": lambda: norm(t["x"]),
    }
    return Framework(cases, autograd.no_grad, lambda y, dy: list(autograd.backward(y, dy)))


def small_of_torch() -> Framework:
    import torch

    t = {name: torch.from_numpy(values(*s)).requires_grad_() for name, s in SMALL.items()}
    conv, norm = torch.nn.Conv2d(2, 2, 3, padding=1, bias=False), torch.nn.BatchNorm2d(2)
    cases = {
        "add": lambda: t["a"] + t["b"],
        "mul, add, sum": lambda: (t["a"] * t["b"] + t["a"]).sum(),
        "relu": lambda: torch.relu(t["a"]),
        "matrix product": lambda: t["r"] @ t["v"],
        "convolution": lambda: conv(t["x"]),
        "batch norm": lambda: norm(t["x"]),
    }
    operands = [*t.values(), *conv.parameters(), *norm.parameters()]

    def backward(y: Any, dy: Any) -> None:
        for operand in operands:
            operand.grad = None  # new gradients instead of sums, as in singa
        y.backward(dy)

    return Framework(cases, torch.no_grad, backward)


def _forward_and_backward(framework: Framework, case: Pass, dy: Any) -> None:
    framework.backward(case(), dy)


def small_passes(
    framework: Framework, case: Pass
) -> dict[str, tuple[AbstractContextManager[Any], Pass]]:
    """A context and a call in it for each pass."""
    with framework.no_grad():
        dy = case()
    both = functools.partial(_forward_and_backward, framework, case, dy)
    return {
        "forward": (framework.no_grad(), case),
        "recorded": (contextlib.nullcontext(), case),
        "and backward": (contextlib.nullcontext(), both),
    }


def small(name: str) -> Case:
    """A case of a few elements. Both frameworks ignore the element type."""

    def many(context: AbstractContextManager[Any], call: Pass) -> None:
        with context:
            for _ in range(CALLS):
                call()

    def passes(framework: Framework) -> Passes:
        made = small_passes(framework, framework.cases[name])
        return {key: functools.partial(many, *each) for key, each in made.items()}

    return Case(lambda _: passes(small_of_singa()), lambda _: passes(small_of_torch()), calls=CALLS)


#: Layers of networks. Cases are made when they are run.
CASES: dict[str, Callable[[], Case]] = {
    **{
        f"conv, resnet50, {c} channels": lambda c=c, size=size: conv(32, c, size, c)
        for c, size in ((64, 56), (128, 28), (256, 14), (512, 7))
    },
    **{
        f"conv, vgg16_cifar, {c} to {k}": lambda c=c, size=size, k=k: conv(128, c, size, k)
        for c, size, k in (
            (64, 32, 64),
            (128, 16, 128),
            (256, 8, 256),
            (512, 4, 512),
            (512, 2, 512),
        )
    },
    **{
        f"conv, resnet20_cifar, {c} channels": lambda c=c, size=size: conv(128, c, size, c)
        for c, size in ((16, 32), (32, 16), (64, 8))
    },
    "conv, resnet50, first": lambda: conv(32, 3, 224, 64, 7, 2),
    "conv, resnet50, 1 x 1 in": lambda: conv(32, 256, 56, 64, 1),
    "conv, resnet50, 1 x 1 out": lambda: conv(32, 64, 56, 256, 1),
    "conv, alexnet, 5 x 5": lambda: conv(32, 64, 27, 192, 5),
    "conv, densenet121, 14 x 14": lambda: conv(32, 128, 14, 32),
    "conv, unet, 128 x 128": lambda: conv(8, 128, 128, 128),
    "conv, resnext50, groups of 4": lambda: conv(32, 128, 56, 128, 3, 1, 32),
    **{
        f"depthwise conv {kernel} x {kernel} / {stride}": lambda k=kernel, s=stride: conv(
            16, 96, 112, 96, k, s, 96
        )
        for kernel in (3, 5, 7)
        for stride in (1, 2)
    },
    "product, square": lambda: product(1024, 1024, 1024),
    "product, convnext_tiny, 14 x 14": lambda: product(6272, 1536, 384, "b"),
    "product, its gradient of x": lambda: product(6272, 384, 1536),
    "product, its gradient of W": lambda: product(1536, 384, 6272, "a"),
    "product, alexnet, 128 images": lambda: product(128, 4096, 9216, "b"),
    **{f"attention, {n} positions": lambda n=n: attention(1, 8, n, 64) for n in (512, 2048, 8192)},
    **{
        f"{mode}, batch {batch}": lambda mode=mode, batch=batch: recurrent(
            mode, 64, batch, 128, 256, 2
        )
        for mode in ("lstm", "gru")
        for batch in (1, 32)
    },
    **{
        f"small, {name}": lambda name=name: small(name)
        for name in ("add", "mul, add, sum", "relu", "matrix product", "convolution", "batch norm")
    },
}


def compare(
    case: Case, sides: tuple[str, ...], dtype: str, repeats: int
) -> Iterator[dict[str, str]]:
    """A row of the table for each pass."""
    passes = {side: (case.torch if side == "torch" else case.singa)(dtype) for side in sides}
    for name in passes["singa"]:
        seconds = dict.fromkeys(sides, np.inf)
        for _ in range(repeats):
            for side in sides:
                singa.set_strict(side == "strict")
                try:
                    (took,) = harness.seconds_of(passes[side][name], 1, warmup=1)
                finally:
                    singa.set_strict(False)
                seconds[side] = min(seconds[side], took / case.calls)
        work = case.work * (0.5 if case.unit == "GB/s" and dtype != "float32" else 1.0)
        work *= 3.0 if name == "with backward" else 1.0
        yield {
            "pass": name,
            **{f"{side}, ms": f"{seconds[side] * 1e3:.4g}" for side in sides},
            **{f"{side} / singa": f"{seconds[side] / seconds['singa']:.2f}" for side in sides[1:]},
            "rate": f"{work / seconds['singa'] / 1e9:.1f} {case.unit}" if work else "",
        }


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument(
        "words", nargs="*", default=[""], help="cases whose name contains one of them"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-torch", action="store_true")
    args = parser.parse_args()
    singa.set_num_threads(args.threads)
    print(f"{harness.cpu_name()}, {args.threads} threads, {args.dtype}")
    sides = SIDES[:2] if args.no_torch else SIDES
    if not args.no_torch:
        import torch

        torch.set_num_threads(args.threads)
    chosen = [name for name in CASES if any(word in name for word in args.words)]
    if not chosen:
        parser.error(f"no case has such a name; there are: {'; '.join(CASES)}")
    rows = []
    for name in chosen:
        print(f"{name} ...", flush=True)
        rows += [
            {"case": name, **row} for row in compare(CASES[name](), sides, args.dtype, args.repeats)
        ]
    print(harness.table(rows))


if __name__ == "__main__":
    main()
