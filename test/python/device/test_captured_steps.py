"""Recorded steps on a GPU, captured as CUDA graphs, give the bits of executed ones, whatever
happens between them."""

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from singa import layer, model, opt, tensor
from singa.training import checkpoint

if TYPE_CHECKING:
    from singa.singa_wrap import Device


class Network(model.Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = layer.Conv2d(4, 3, padding=1)
        self.norm = layer.BatchNorm2d()
        self.relu = layer.ReLU()
        self.pool = layer.MaxPool2d(2)
        self.dropout = layer.Dropout(0.25)
        self.flatten = layer.Flatten()
        self.fc = layer.Linear(3)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        y = self.pool(self.relu(self.norm(self.conv(x))))
        return self.fc(self.flatten(self.dropout(y)))


def optimizer(name: str) -> opt.Optimizer:
    rate = opt.ExponentialDecay(0.1, 4, 0.7)
    return opt.Adam(lr=rate) if name == "adam" else opt.SGD(lr=rate, momentum=0.9)


def trained(dev: "Device", use_graph: bool, name: str) -> tuple[str, str, int]:
    """Digests of training (results and weights) and evaluation, and the number of captured kinds of
    steps. Epochs have falling learning rates and a shorter last batch; a checkpoint is loaded and
    the weight decay changes in between."""
    dev.SetRandSeed(5)
    random = np.random.default_rng(3)
    data = [random.standard_normal((n, 2, 6, 6), np.float32) for n in (6, 6, 4)]
    targets = [random.integers(0, 3, len(x)).astype(np.int32) for x in data]
    training, evaluation = hashlib.sha256(), hashlib.sha256()
    net = Network()
    net.set_optimizer(optimizer(name))
    net.compile([tensor.from_numpy(data[0], dev)], is_train=True, use_graph=use_graph)
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "saved.safetensors"
        for epoch in range(14):
            net.train()
            if epoch == 9:
                net.optimizer.weight_decay = opt.Constant(0.05)
            for x, y in zip(data, targets, strict=True):
                for result in net(tensor.from_numpy(x, dev), tensor.from_numpy(y, dev)):
                    training.update(result.numpy().tobytes())
            net.eval()
            evaluation.update(net(tensor.from_numpy(data[0], dev)).numpy().tobytes())
            if epoch == 3:
                checkpoint.save(saved, net, net.optimizer)
            if epoch == 6:
                checkpoint.load(saved, net, net.optimizer)
    for state in net.get_states().values():
        training.update(state.numpy().tobytes())
    graphs = net.memory_plan()["graphs"] if use_graph else []
    captured = sum(graph["fixed"] > 0 for graph in graphs)
    return training.hexdigest(), evaluation.hexdigest(), captured


def in_a_process(name: str, **environment: str) -> list[str]:
    program = f"""
import runpy
from singa import device
test = runpy.run_path({__file__!r})
print(*test["trained"](device.create_cuda_gpu(), use_graph=True, name={name!r}))
"""
    from own_process import printed_by  # missing where this file runs as a program

    return printed_by(program, **environment).split()


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_captured_steps_have_the_bits_of_executed_ones(gpu: "Device", name: str) -> None:
    executed, *_ = trained(gpu, use_graph=False, name=name)
    *captured, count = in_a_process(name, SINGA_CUDA_GRAPHS="1")
    assert count == "3"  # training, a short batch, evaluation; loading keeps them
    *queued, none = in_a_process(name, SINGA_CUDA_GRAPHS="0")
    assert none == "0"
    assert captured == queued
    assert captured[0] == executed
