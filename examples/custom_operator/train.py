#!/usr/bin/env python3
"""Defines an operator in Python, checks its gradient with gradcheck, and trains a network with it.

The operator is Snake, x + sin²(a·x) / a, an activation with which networks learn and extrapolate
periodic functions (Ziyin, Hartwig and Ueda 2020). The network is trained on two periods of a sine,
on [-1, 1], and tested on the next one, on [1, 2]. With --relu it does not extrapolate.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np
import singa
from singa import autograd, layer, model, opt, tensor
from singa import singa_wrap as raw


class Snake(autograd.Operator):
    """x + sin²(a·x) / a."""

    def __init__(self, a: float) -> None:
        super().__init__()
        self.a = a

    def forward(self, x: raw.Tensor) -> raw.Tensor:
        self.x = x  # for backward, after which it is released
        return x + raw.Sin(self.a * x) ** 2 / self.a

    def backward(self, dy: raw.Tensor) -> raw.Tensor:
        # The derivative of sin²(a·x) / a is 2·sin(a·x)·cos(a·x) = sin(2·a·x).
        return dy * (1 + raw.Sin(2 * self.a * self.x))


def snake(x: tensor.Tensor, a: float = 6.0) -> tensor.Tensor:
    return Snake(a)(x)[0]


class Net(model.Model):
    def __init__(self, activation: Callable[[tensor.Tensor], tensor.Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.hidden = layer.Linear(48)
        self.out = layer.Linear(1)

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        return self.out(self.activation(self.hidden(x)))

    def train_one_batch(
        self, x: tensor.Tensor, y: tensor.Tensor
    ) -> tuple[tensor.Tensor, tensor.Tensor]:
        out = self.forward(x)
        loss = autograd.mse_loss(out, y)
        self.optimizer(loss)
        return out, loss


def wave(start: float, end: float) -> tuple[tensor.Tensor, tensor.Tensor]:
    x = np.linspace(start, end, 128, dtype=np.float32)[:, None]
    return tensor.from_numpy(x), tensor.from_numpy(np.sin(2 * np.pi * x))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--relu", action="store_true", help="use ReLU instead of Snake")
    parser.add_argument(
        "--steps", type=int, default=400, metavar="N", help="training steps [%(default)s]"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="[%(default)s]")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error("--steps must be 1 or more")

    # Raises GradientError if backward is not the derivative of forward.
    autograd.gradcheck(snake, tensor.from_numpy(np.linspace(-2, 2, 12)))
    print("gradcheck: the gradient of Snake is correct")

    singa.seed(args.seed)
    net = Net(autograd.relu if args.relu else snake)
    net.set_optimizer(opt.Adam(lr=0.01))
    x, y = wave(-1, 1)
    net.compile([x])
    for step in range(args.steps):
        _, loss = net(x, y)
        if step % 100 == 0 or step == args.steps - 1:
            print(f"step {step:4}  loss {float(loss):.5f}", flush=True)
    net.eval()
    beyond, expected = wave(1, 2)
    error = float(autograd.mse_loss(net(beyond), expected))
    print(f"on [1, 2]: mean squared error {error:.3f} (0.500 for a constant 0)")


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(f"train.py: {error}")
