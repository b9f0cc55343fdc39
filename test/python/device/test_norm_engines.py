"""Each of cuDNN's implementations of batch norm trains like singa's own kernels. Run this first on
a GPU."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
import singa
from singa import autograd, layer, model, opt, tensor
from singa import singa_wrap as wrap

if TYPE_CHECKING:
    from singa.singa_wrap import Device

pytestmark = pytest.mark.cudnn

Choices = list[dict[str, str]]


class Net(model.Model):
    """Batch norm, batch norm with ReLU, and batch norm with addition and ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = [layer.Conv2d(8, 3, padding=1, bias=False) for _ in range(3)]
        self.norms = [layer.BatchNorm2d() for _ in range(3)]
        self.fc = layer.Linear(4)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        shortcut = self.norms[0](self.convs[0](x))
        y = self.norms[1](self.convs[1](shortcut), relu=True)
        y = self.norms[2](self.convs[2](y), add=shortcut, relu=True)
        return self.fc(autograd.flatten(autograd.globalaveragepool(y)))


@pytest.fixture(autouse=True)
def _no_choices() -> Iterator[None]:
    singa.tuning.clear()
    yield
    singa.tuning.clear()


def train(gpu: "Device", dtype: str) -> dict[str, np.ndarray]:
    """The loss of the last step, and all states after it."""
    gpu.SetRandSeed(1)
    random = np.random.default_rng(2)
    x = tensor.from_numpy(random.standard_normal((3, 3, 5, 4), dtype=np.float32), gpu)
    y = tensor.from_numpy(random.integers(0, 4, 3).astype(np.int32), gpu)
    net = Net()
    net.set_optimizer(opt.SGD(lr=0.05))
    net.compile([x], use_graph=False, dtype=None if dtype == "float32" else dtype)
    for _ in range(2):
        _, loss = net(x, y)
    return {"loss": tensor.to_numpy(loss)} | {
        name: tensor.to_numpy(value) for name, value in net.get_states().items()
    }


def measured(gpu: "Device", dtype: str) -> Choices:
    """The measurements of autotune for batch norm."""
    before = wrap.GetPreference()
    wrap.SetPreference(wrap.Preference_kAutotune)
    try:
        train(gpu, dtype)
    finally:
        wrap.SetPreference(before)
    found = [c for c in singa.tuning.choices() if "training=1" in c["signature"]]
    return [c for c in found if c["signature"].startswith("BatchNorm")]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_all_train_alike(gpu: "Device", dtype: str) -> None:
    choices = measured(gpu, dtype)
    assert len(choices) == 6  # three in each direction
    ways = {
        c["signature"]: re.findall(r" ms (cudnn [^,]*)", c["measured"])
        for c in choices
        if "cudnn" in c["measured"]
    }
    assert len(ways) == 5, "only the gradient through ReLU uses singa's own kernels"
    singa.tuning.clear()
    ours = train(gpu, dtype)
    for i in range(max(len(names) for names in ways.values())):
        singa.tuning.clear()
        chosen = [
            c | {"candidate": ways[c["signature"]][i % len(ways[c["signature"]])]}
            for c in choices
            if c["signature"] in ways
        ]
        singa.tuning.add(chosen)
        with singa.explain() as operations:
            theirs = train(gpu, dtype)
        ran = {
            op["op"] + op["implementation"] for op in operations if op["op"].startswith("BatchNorm")
        }
        assert sum("cudnn" in name for name in ran) >= 2, ran
        for name, want in ours.items():
            limit = (2e-4 if dtype == "float32" else 2e-2) * max(1.0, np.abs(want).max())
            np.testing.assert_allclose(theirs[name], want, rtol=0, atol=limit, err_msg=name)
