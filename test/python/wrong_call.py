"""Rows of wrong calls, and what has to hold after each: the exception says what is wrong, little
memory was taken for it, and training gives the same bits as in a fresh process."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import device_under_test
import numpy as np
import pytest
import singa
from singa import autograd, device, layer, model, opt, tensor

NAN, INF = float("nan"), float("inf")

#: What a call that only refuses may take, in bytes.
_ROOM = 64 << 20


@dataclass(frozen=True)
class Row:
    """`call()` has to raise `error` with a message in which the regular expression is found."""

    name: str
    call: Callable[..., Any]
    error: type[BaseException] | tuple[type[BaseException], ...]
    message: str
    cpu: str = ""  # why it is about the CPU alone, if it is


def parametrize(rows: Sequence[Row]) -> pytest.MarkDecorator:
    """One test for each row, under its name; names have to differ."""
    names = [row.name for row in rows]
    assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)
    marked = [pytest.param(r, marks=[pytest.mark.cpu(r.cpu)] if r.cpu else []) for r in rows]
    return pytest.mark.parametrize("row", marked, ids=names)


def check(row: Row, *arguments: Any) -> None:
    """Runs a row: right exception, right message, little memory."""
    before = resident()
    # Rows are written for the CPU.
    message = re.sub("on cpu(?!-)", f"on {device.get_default_device().name()}", row.message)
    with pytest.raises(row.error, match=message):
        _to_its_end(row, *arguments)
    assert resident() - before < _ROOM, f"{row.name}: took {resident() - before} bytes"


def _to_its_end(row: Row, *arguments: Any) -> None:
    """A GPU sees wrong values when it comes to them."""
    row.call(*arguments)
    device.get_default_device().Sync()


def resident() -> int:
    """Bytes of this process that are in memory; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def make(*shape: int, dtype: str = "float32") -> tensor.Tensor:
    """A tensor of ones."""
    return tensor.Tensor(data=np.ones(shape, dtype), dtype=dtype)


class _Net(model.Model):
    """Each kind of operation that keeps something: plans, running statistics, positions, masks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = layer.Conv2d(4, 3, padding=1)
        self.norm = layer.BatchNorm2d()
        self.pool = layer.MaxPool2d(2)
        self.drop = layer.Dropout(0.25)
        self.fc = layer.Linear(3)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        y = self.pool(autograd.relu(self.norm(self.conv(x))))
        return self.fc(self.drop(autograd.flatten(y)))

    def train_one_batch(self, x: tensor.Tensor, y: tensor.Tensor) -> Any:
        out = self.forward(x)
        loss = self.loss(out, y)
        self.optimizer(loss)
        return out, loss


def trained() -> list[str]:
    """The losses of three steps and the output of the trained network, to the last bit."""
    singa.seed(11)
    random = np.random.default_rng(12)
    x = tensor.from_numpy(random.standard_normal((6, 2, 6, 6), np.float32))
    y = tensor.from_numpy(random.integers(0, 3, 6).astype(np.int32))
    net = _Net()
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    net.compile([x], is_train=True)
    losses = [float(net(x, y)[1].numpy()[0]).hex() for _ in range(3)]
    net.eval()
    return [*losses, float(np.abs(net(x).numpy()).sum(dtype=np.float64)).hex()]


if __name__ == "__main__":
    device_under_test.make_default()
    print(*trained())
