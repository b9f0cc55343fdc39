"""`MemoryPlan.plot`: what lies where in the arena."""

import functools
import re

import numpy as np
import pytest
from html_page import Page
from singa import models, opt, tensor


@functools.cache
def plan_of(dtype):
    net = models.create("resnet20_cifar", num_classes=3)
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    x = tensor.from_numpy(np.zeros((2, 3, 32, 32), np.float32))
    y = tensor.from_numpy(np.zeros(2, np.int32))
    net.compile([x], use_graph=True, dtype=dtype)
    for _ in range(3):
        net(x, y)
    return net.memory_plan()


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def plan(request):
    return plan_of(request.param)


def test_uses_fill_what_is_planned(plan) -> None:
    """What is needed at the same time does not overlap, and its largest sum is the planner's."""
    (graph,) = plan["graphs"]
    uses = plan.arena_uses
    sums = []
    for i in range(graph["nodes"]):
        alive = sorted((u for u in uses if u.first <= i <= u.last), key=lambda use: use.offset)
        ends = [use.offset + use.bytes for use in alive]
        assert all(end <= after.offset for end, after in zip(ends, alive[1:], strict=False))
        sums.append(sum(-(-use.bytes // 64) * 64 for use in alive))
    assert max(sums) == graph["peak"]
    assert max(use.offset + use.bytes for use in uses) <= graph["arena"]


@pytest.mark.cpu("the layouts of its results")
def test_bytes_of_results() -> None:
    """The first convolution has 16 channels: 2 x 16 x 32 x 32 elements of 4 or 2 bytes."""
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        uses = [use for use in plan_of(dtype).arena_uses if not use.workspace]
        first = next(use for use in uses if use.layer == "conv1" and use.op == "ConvForward")
        assert first.bytes == 2 * 16 * 32 * 32 * size
        assert first.last > first.first


def test_picture(plan, tmp_path) -> None:
    picture = plan.plot(tmp_path / "memory.svg")
    text = (tmp_path / "memory.svg").read_text()
    assert text == f"{picture}\n"
    Page(text)
    assert f"{plan['planned_bytes'] / 2**20:.1f} MiB planned" in text
    assert f">arena {plan['arena_bytes'] / 2**20:.2f}<" in text
    boxes = re.findall(r"<title>(\w+\S*) (\S+): ([\d.]+) MiB, operations (\d+) to (\d+)", text)
    first = next(u for u in plan.arena_uses if u.layer == "conv1" and u.op == "ConvForward")
    expected = f"{first.bytes / 2**20:.3f}", str(first.first), str(first.last)
    assert ("ConvForward", "conv1", *expected) in boxes
    workspaces = sum(use.workspace for use in plan.arena_uses)
    assert len(re.findall(r", workspace: [\d.]+ MiB, operation \d+<", text)) == workspaces
    with pytest.raises(ValueError, match=r"memory.png: expected a name ending in .svg"):
        plan.plot("memory.png")
