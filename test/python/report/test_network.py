"""`Model.plot`: layers, their connections, times and folded blocks."""

import re

import numpy as np
import pytest
import singa
from html_page import Page
from singa import autograd, layer, model, models, tensor
from singa.report import network
from singa.report.profiling import Record, typical


class Block(layer.Layer):
    """x + relu(fc(x)), where fc is a block of its own"""

    def __init__(self):
        super().__init__()
        self.inner = layer.Sequential(layer.Linear(6))

    def forward(self, x):
        return x + autograd.relu(self.inner(x))


class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.first = layer.Linear(6)
        self.drop = layer.Dropout()
        self.blocks = layer.Sequential(Block(), Block(), Block())
        self.last = layer.Linear(2)

    def forward(self, x):
        return self.last(self.blocks(self.drop(self.first(x))))


@pytest.fixture(scope="module")
def net():
    made = Net()
    made.compile([tensor.from_numpy(np.zeros((5, 4), np.float32))], is_train=False)
    return made


def test_trace(net):
    root = network.trace(net)
    assert (root.kind, root.output, root.all_params()) == ("Net", "5 x 2", 30 + 3 * 42 + 14)
    first, drop, blocks, last = root.parts
    assert (first.name, first.kind, first.output) == ("first", "Linear", "5 x 6")
    assert (first.params, first.bytes, first.parts) == (30, 5 * 6 * 4, [])
    assert drop.sources == [first]
    assert [block.name for block in blocks.parts] == ["blocks.0", "blocks.1", "blocks.2"]
    inner, relu, add = blocks.parts[0].parts
    (fc,) = inner.parts
    assert [node.operator for node in (fc, relu, add)] == [False, True, True]
    assert (fc.sources, relu.sources) == ([drop], [fc])
    assert set(map(id, add.sources)) == {id(drop), id(relu)}
    assert last.sources == [blocks.parts[2].parts[2]]


def test_costs_of_layers():
    def record(op, name, ms, how="fast"):
        return Record(op, name, how, "", 0.0, ms, 0)

    records = [record("A", "x", 1.0), record("A", "x", 2.0, "slow"), record("Reorder", "x", 0.5)]
    records += [record("ABackward", "x", 4.0), record("SgdUpdate", "", 8.0)]
    found = network.costs(records)
    assert (found["x"].forward, found["x"].backward) == (3.5, 4.0)
    assert found["x"].implementations == ("fast", "slow", "Reorder")
    assert found[""].ms == 8.0


def test_equal_blocks_are_drawn_once(net, tmp_path):
    picture = net.plot(tmp_path / "net.svg")
    text = (tmp_path / "net.svg").read_text()
    assert text == f"{picture}\n"
    Page(text)
    assert "Net: 170 parameters, inference, batch of 5" in text
    assert re.search(r">blocks\.0 … 2<tspan[^>]*> Block, 3 times<", text)
    assert re.search(r">blocks\.0\.inner<tspan[^>]*> Sequential<", text)
    assert "blocks.1.inner" not in text
    assert ">126<" in text  # parameters of all three
    assert text.count("stroke-width") == 6  # five to the next layer, one around the first block


def test_times_are_those_of_the_profile(net):
    root = network.trace(net)
    records = [Record("LinearForward", "first", "a", "", 0.0, 1.0, 0)]
    records += [
        Record("LinearForward", f"blocks.{i}.inner.0", "b", "", 0.0, 10.0, 0) for i in range(3)
    ]
    records += [Record("ReLU", "blocks.1", "c", "", 0.0, 0.25, 0)]
    records += [Record("SgdUpdate", "", "d", "", 0.0, 100.0, 0)]
    for picture in (network.network_picture, network.narrow_picture):
        text = str(picture(root, records))
        for shown in (">1.00<", ">30.00<", ">30.25<", ">100.00<", ">131.25<", "in no layer"):
            assert shown in text
    rows = {row[0]: row[5:8] for row in network.layer_rows(root, records)}
    assert rows["blocks.2.inner.0"] == ("10.000", "0.000", "7.6 %")
    assert rows["in no layer"] == ("100.000", "0.000", "76.2 %")
    assert rows["blocks.1"] == ("0.250", "0.000", "0.2 %")


@pytest.mark.parametrize("name", ["resnet20_cifar", "googlenet", "vit_tiny_cifar"])
def test_networks(name):
    made = models.create(name)
    shape = (1, 3, 32, 32) if "cifar" in name else (1, 3, 64, 64)
    made.compile([tensor.from_numpy(np.zeros(shape, np.float32))], is_train=False)
    root = network.trace(made)
    assert root.all_params() == sum(p.size() for p in made.get_params().values())
    Page(str(network.network_picture(root)))
    narrow = network.narrow_picture(root)
    assert narrow.width == 358
    Page(str(narrow))
    assert f">{root.all_params():,}<" in str(narrow)


def test_before_compile():
    with pytest.raises(RuntimeError, match=r"\[plot\] call compile\(\) first"):
        Net().plot()


def test_typical_times():
    x = tensor.from_numpy(np.ones((4, 4), np.float32))
    calls = []

    def run():
        calls.append(1)
        if len(calls) == 2:  # does more than the others
            autograd.relu(x)
        autograd.sigmoid(x)

    (record,) = typical(run, 3)
    assert (record.op, len(calls)) == ("Sigmoid", 3)
    with singa.profile(), pytest.raises(RuntimeError, match="running already"):
        typical(run)
