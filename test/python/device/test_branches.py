"""Recorded steps that are captured in branches give the bits of executed ones, in any order of the
branches."""

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from singa import autograd, layer, model, opt, tensor

if TYPE_CHECKING:
    from singa.singa_wrap import Device

NETWORKS = 3


class Block(layer.Layer):
    """A random number of branches, which are concatenated or added."""

    def __init__(self, random: np.random.Generator, channels: int) -> None:
        super().__init__()
        self.joins = bool(random.integers(2))
        self.branches = []
        for i in range(random.integers(2, 5)):
            parts: list[layer.Layer] = []
            for _ in range(random.integers(1, 3)):
                size = int(random.choice([1, 3]))
                parts.append(layer.Conv2d(channels, size, padding=size // 2))
                parts += [[layer.BatchNorm2d(), layer.ReLU()], [layer.Dropout(0.25)], []][
                    random.integers(3)
                ]
            setattr(self, f"branch{i}", layer.Sequential(*parts))
            self.branches.append(getattr(self, f"branch{i}"))

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        results = [branch(x) for branch in self.branches]
        if self.joins:
            return autograd.cat(results, 1)
        total = results[0]
        for result in results[1:]:
            total = autograd.add(total, result)
        return total


class Network(model.Model):
    def __init__(self, random: np.random.Generator) -> None:
        super().__init__()
        self.body = layer.Sequential(Block(random, 3), Block(random, 4))
        self.flatten = layer.Flatten()
        self.fc = layer.Linear(3)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        return self.fc(self.flatten(self.body(x)))


def trained(dev: "Device", seed: int, use_graph: bool) -> tuple[str, str, int, bool]:
    """Digests of training and of evaluation (in which replays fold batch norm), the maximum number
    of branches, and whether branches reduce the dependencies of some operations."""
    random = np.random.default_rng(seed)
    dev.SetRandSeed(seed + 1)
    net = Network(random)
    images = random.standard_normal((8, 2, 2, 5, 5), np.float32)
    labels = random.integers(0, 3, (8, 2)).astype(np.int32)
    net.set_optimizer(opt.SGD(lr=opt.ExponentialDecay(0.05, 4, 0.7), momentum=0.9))
    net.compile([tensor.from_numpy(images[0], dev)], is_train=True, use_graph=use_graph)
    training, evaluation = hashlib.sha256(), hashlib.sha256()
    for x, y in zip(images, labels, strict=True):
        for result in net(tensor.from_numpy(x, dev), tensor.from_numpy(y, dev)):
            training.update(result.numpy().tobytes())
    for state in net.get_states().values():
        training.update(state.numpy().tobytes())
    net.eval()
    for x in images:
        evaluation.update(net(tensor.from_numpy(x, dev)).numpy().tobytes())
    graphs = net.memory_plan()["graphs"] if use_graph else []
    return (
        training.hexdigest(),
        evaluation.hexdigest(),
        max((graph["branches"] for graph in graphs), default=0),
        any(graph["longest"] < graph["nodes"] for graph in graphs),
    )


def in_a_process(**environment: str) -> list[list[str]]:
    program = f"""
import runpy
from singa import device
test = runpy.run_path({__file__!r})
for seed in range({NETWORKS}):
    print(*test["trained"](device.create_cuda_gpu(), seed, use_graph=True))
"""
    from own_process import printed_by  # missing where this file runs as a program

    return [line.split() for line in printed_by(program, **environment).splitlines()]


def test_branches_have_the_bits_of_executed_operations(gpu: "Device") -> None:
    executed = [trained(gpu, seed, use_graph=False)[0] for seed in range(NETWORKS)]
    chain = in_a_process(SINGA_CUDA_BRANCHES="1")
    assert [training for training, *_ in chain] == executed
    assert [facts for _, _, *facts in chain] == [["1", "False"]] * NETWORKS
    for order in ("late", "early", "shuffled"):
        found = in_a_process(SINGA_CUDA_BRANCHES="4", SINGA_CUDA_EMULATED_STREAMS=order)
        assert [digests for *digests, _, _ in found] == [digests for *digests, _, _ in chain], order
        for *_, branches, shorter in found:
            assert 1 < int(branches) <= 4
            assert shorter == "True"


@pytest.mark.parametrize("wrong", ["0", "17", "two", "3x"])
def test_a_wrong_number_is_refused(gpu: "Device", wrong: str) -> None:
    program = """
from singa import device
try:
    device.create_cuda_gpu()
except Exception as error:
    print(error)
"""
    from own_process import printed_by

    assert f"SINGA_CUDA_BRANCHES must be a number from 1 to 16, got '{wrong}'" in printed_by(
        program, SINGA_CUDA_BRANCHES=wrong
    )
