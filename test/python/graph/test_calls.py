"""How many Python functions a replayed step calls: few, whatever the network."""

import sys
from collections import Counter
from types import FrameType
from typing import Any

import numpy as np
import pytest
from singa import models, opt, tensor

pytestmark = pytest.mark.usefixtures("no_warning", "no_audits")

#: The most calls of a replay.
LIMIT = 40

X, Y = np.ones((2, 3, 32, 32), np.float32), np.zeros(2, np.int32)
OPTIMIZERS = {
    "sgd": lambda: opt.SGD(lr=0.1),
    "momentum": lambda: opt.SGD(lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True),
    "clipped": lambda: opt.SGD(lr=0.1, clip_norm=1.0),
    "adam": lambda: opt.Adam(0.01),
}


def calls(function: Any) -> Counter[str]:
    """The Python functions that it calls."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            found[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    del found[function.__qualname__]
    return found


@pytest.mark.parametrize("kind", ["tensors", "arrays"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_replay_makes_few_calls(name: str, kind: str) -> None:
    net = models.create("resnet20_cifar")
    net.set_optimizer(OPTIMIZERS[name]())
    net.compile([tensor.from_numpy(X)], is_train=True, use_graph=True)
    batch: tuple[Any, ...] = X, Y
    if kind == "tensors":
        batch = tensor.from_numpy(X), tensor.from_numpy(Y)
    for _ in range(4):
        net(*batch)
    steps = net.optimizer.steps
    found = calls(lambda: net(*batch))
    assert net.optimizer.steps == steps + 1
    assert found["Graph.Start"] == 1  # it was a replay
    assert found.total() <= LIMIT, found


def test_inference_makes_few_calls() -> None:
    net = models.create("resnet20_cifar")
    net.compile([tensor.from_numpy(X)], is_train=False, use_graph=True)
    for _ in range(4):
        net(X)
    found = calls(lambda: net(X))
    assert found["Graph.Replay"] == 1
    assert found.total() <= LIMIT // 2, found
