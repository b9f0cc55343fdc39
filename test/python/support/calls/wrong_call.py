"""Tables of wrong calls, and checks after each call.

A row is `CALL -> ERROR: NAMES`. The call must raise this error, and its message must have each of
the names as often as the row: the operation in brackets, arguments, shapes and numbers, but not the
words between them. An indented line continues a row. A call may use shared names (see `shared`) and
names of its module. It must take little memory and change none of these tensors, and later training
must give the same bits as in a fresh process (wrong_calls/conftest.py).
"""

from __future__ import annotations

import builtins
import functools
import re
from collections.abc import Callable
from typing import Any

import device_under_test
import numpy as np
import pytest
import singa
from resident import resident
from singa import autograd, data, device, initializer, layer, model, models, opt, tensor
from singa import singa_wrap as wrap

#: Memory that a rejected call may take, in bytes.
_ROOM = 64 << 20

_ROW = re.compile(r"(?P<call>.+) -> (?P<errors>[\w|]+): (?P<names>.+)")

#: One name: an operation or an interval, a shape, a word or a number.
_NAME = re.compile(r"\[[^][()]*[])]|\([^()]*\)|\S+")


def table(text: str, cpu: str = "") -> Callable[..., None]:
    """The test of all rows of a table. `cpu` is the reason if they are for the CPU only."""
    lines = re.sub(r"\n +", " ", text).splitlines()
    rows = [_ROW.fullmatch(line) or line for line in lines if line and not line.startswith("#")]
    assert not (bad := [row for row in rows if isinstance(row, str)]), f"no rows: {bad}"
    calls = [row["call"] for row in rows]
    assert len(set(calls)) == len(calls), sorted(c for c in calls if calls.count(c) > 1)

    @pytest.mark.parametrize("row", rows, ids=calls)
    def test(row: re.Match[str], request: pytest.FixtureRequest) -> None:
        check(row, shared() | vars(request.module))

    return pytest.mark.cpu(cpu)(test) if cpu else test


def check(row: re.Match[str], scope: dict[str, Any]) -> None:
    """Makes the call: right exception, right names, little memory, nothing changed."""
    tensors = {name: value for name, value in scope.items() if isinstance(value, tensor.Tensor)}
    values = {name: value.numpy().copy() for name, value in tensors.items()}
    before = resident()
    with pytest.raises(tuple(getattr(builtins, name) for name in row["errors"].split("|"))) as info:
        _to_its_end(row["call"], scope)
    assert resident() - before < _ROOM, f"took {resident() - before} bytes"
    assert not (lacks := missing(row["names"], str(info.value))), f"no {lacks} in: {info.value}"
    for name, value in values.items():
        np.testing.assert_array_equal(tensors[name].numpy(), value, f"{name} was changed")


def _to_its_end(call: str, scope: dict[str, Any]) -> None:
    """Makes the call and waits for the GPU, which detects wrong values later."""
    eval(call, scope)
    device.get_default_device().Sync()


def missing(names: str, message: str) -> list[str]:
    """The names that the message does not have, or not often enough."""
    wanted = _NAME.findall(names)
    return [name for name in set(wanted) if _count(name, message) < wanted.count(name)]


def _count(name: str, message: str) -> int:
    """Number of occurrences of a name, not as part of a longer word or number."""
    begin = r"(?<![\w-])(?<!\d\.)" if re.match(r"\w", name) else ""
    end = r"(?!\w|\.\d)" if re.search(r"\w$", name) else ""
    return len(re.findall(begin + re.escape(name) + end, message))


def make(*shape: int, dtype: str = "float32") -> tensor.Tensor:
    """A tensor of ones."""
    return tensor.Tensor(data=np.ones(shape, dtype), dtype=dtype)


def labels(values: list[float], dtype: str = "int32") -> tensor.Tensor:
    """Class indices, right or wrong."""
    return tensor.Tensor(data=np.array(values), dtype=dtype)


class Net(model.Model):
    """One Linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = layer.Linear(4)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        return self.fc(x)

    def train_one_batch(self, x: tensor.Tensor, y: tensor.Tensor) -> Any:
        out = self.forward(x)
        loss = self.loss(out, y)
        self.optimizer(loss)
        return out, loss


def net(compiled: bool = True, optimizer: opt.Optimizer | None = None) -> Net:
    """A model for MATRIX and LABELS."""
    made = Net()
    if optimizer:
        made.set_optimizer(optimizer)
    if compiled:
        made.compile([make(2, 3)], is_train=True)
    return made


@functools.cache
def shared() -> dict[str, Any]:
    """Names that all rows may use, on the device under test."""
    return {
        "np": np, "singa": singa, "autograd": autograd, "data": data, "device": device,
        "initializer": initializer, "layer": layer, "opt": opt, "tensor": tensor, "wrap": wrap,
        "make": make, "labels": labels, "net": net,
        "NAN": float("nan"), "INF": float("inf"), "BIG": 1 << 40,
        "MATRIX": make(2, 3), "CUBE": make(2, 3, 4), "IMAGES": make(2, 3, 8, 8),
        "INTEGERS": make(2, 3, dtype="int32"), "LABELS": labels([0, 1]),
    }  # fmt: skip


def trained() -> list[str]:
    """Losses of three steps and the output of the trained network, as bits."""
    singa.seed(11)
    random = np.random.default_rng(12)
    x = tensor.from_numpy(random.standard_normal((6, 2, 6, 6), np.float32))
    y = tensor.from_numpy(random.integers(0, 3, 6).astype(np.int32))
    net = models.Sequential(  # with operations of each kind that keeps something
        *(layer.Conv2d(4, 3, padding=1), layer.BatchNorm2d(), layer.ReLU(), layer.MaxPool2d(2)),
        *(layer.Flatten(), layer.Dropout(0.25), layer.Linear(3)),
    )
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    net.compile([x], is_train=True)
    losses = [float(net(x, y)[1].numpy()[0]).hex() for _ in range(3)]
    net.eval()
    return [*losses, float(np.abs(net(x).numpy()).sum(dtype=np.float64)).hex()]


if __name__ == "__main__":
    device_under_test.make_default()
    print(*trained())
