"""`MemoryPlan.plot`: what lies where in the arena."""

import re

import numpy as np
import pytest
from html_page import Page
from singa import models, opt, tensor
from singa.graph.memory_picture import Value, values

TEXT = """\
segment 0: 4 operations, arena 4096 bytes
  0 ConvForward [a.conv] by winograd F(4x4, 3x3): input0(1, 3, 4, 4) kept0(8, 3, 3, 3) -> @0(1, 3, 4, 4)nChw16c
  1 BatchNormForwardTraining [a.bn] by cpu batch norm + relu: @0(1, 3, 4, 4)nChw16c - -> @1024(1, 3, 4, 4) @1216(3,)
  2 ReLU by reference: @1024(1, 3, 4, 4) -> @1024(1, 3, 4, 4)
  3 LinearForward [fc] by onednn brg:avx512_core: @1024(1, 48) @1216(3,) -> output0(1, 2)
"""  # noqa: E501 - lines as the graph writes them


def test_values_of_a_text() -> None:
    """Blocks of 16 channels are whole; a result in place begins where the other one ends."""
    assert values(TEXT) == [
        Value("ConvForward", "a.conv", 0, 4 * 16 * 16, 0, 1),
        Value("BatchNormForwardTraining", "a.bn", 1024, 4 * 48, 1, 1),
        Value("BatchNormForwardTraining", "a.bn", 1216, 4 * 3, 1, 3),
        Value("ReLU", "", 1024, 4 * 48, 2, 3),
    ]
    narrow = TEXT.replace("@1216", "@1100")  # as if elements had 16 bits
    assert [value.bytes for value in values(narrow)] == [1024, 76, 12, 76]


def plan_of(dtype):
    net = models.create("resnet20_cifar", num_classes=3)
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    x = tensor.from_numpy(np.zeros((2, 3, 32, 32), np.float32))
    y = tensor.from_numpy(np.zeros(2, np.int32))
    net.compile([x], use_graph=True, dtype=dtype)
    for _ in range(3):
        net(x, y)
    return net.memory_plan()


@pytest.fixture(scope="module")
def plan():
    return plan_of("float32")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_of_a_step(dtype) -> None:
    """Results that are needed at the same time do not overlap, and fit what the planner says."""
    plan = plan_of(dtype)
    (graph,) = plan["graphs"]
    found = values(plan.operations)
    steps = [[v for v in found if v.first <= i <= v.last] for i in range(graph["nodes"])]
    for alive in steps:
        alive.sort(key=lambda value: value.offset)
        ends = [value.offset + value.bytes for value in alive]
        assert all(end <= after.offset for end, after in zip(ends, alive[1:], strict=False))
    assert max(value.offset + value.bytes for value in found) <= graph["arena"]
    if dtype == "float32":
        peak = max(sum(value.bytes for value in alive) for alive in steps)
        # The rest is workspace, of which each thread needs some.
        assert 0.5 * graph["peak"] < peak <= graph["peak"]


def test_picture(plan, tmp_path) -> None:
    picture = plan.plot(tmp_path / "memory.svg")
    text = (tmp_path / "memory.svg").read_text()
    assert text == f"{picture}\n"
    Page(text)
    assert f"{plan['planned_bytes'] / 2**20:.1f} MiB planned" in text
    assert f">arena {plan['arena_bytes'] / 2**20:.2f}<" in text
    boxes = re.findall(r"<title>(\w+\S*) (\S+): ([\d.]+) MiB, operations (\d+) to (\d+)", text)
    first = next(value for value in values(plan.operations) if value.layer == "conv1")
    expected = f"{first.bytes / 2**20:.3f}", str(first.first), str(first.last)
    assert ("ConvForward", "conv1", *expected) in boxes
    with pytest.raises(ValueError, match=r"memory.png: expected a name ending in .svg"):
        plan.plot("memory.png")
