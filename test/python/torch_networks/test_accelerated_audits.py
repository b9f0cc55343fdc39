"""Audits of accelerated modules: now and then a step is recorded once more, and the module exported
once more, and both are compared with what is used."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import accelerated
import pytest
import singa
from singa import plan_cache
from singa.graph import GraphWarning, audits
from singa.torch_networks import replays
from singa.torch_networks.accelerate import _Runner

pytestmark = pytest.mark.cpu("PyTorch computes with memory of the CPU")


def _step(torch: Any, net: Any, seed: int = 0) -> Any:
    loss = accelerated.loss(torch, net, *accelerated.batch(torch, seed=seed))
    loss.backward()
    return loss.detach()


def _dropping(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5),
        nn.Linear(144, 5),
    )  # fmt: skip


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Its length is how often a step was recorded."""
    found: list[int] = []
    record = replays._recording

    def counted(*args: Any) -> Any:
        found.append(1)
        return record(*args)

    monkeypatch.setattr(replays, "_recording", counted)
    return found


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Its length is how often a module was exported. Much time passes between looks at the clock
    of audits."""
    found: list[int] = []
    export = _Runner._exported

    def counted(*args: Any) -> Any:
        found.append(1)
        return export(*args)

    monkeypatch.setattr(_Runner, "_exported", counted)
    monkeypatch.setattr(audits, "perf_counter", itertools.count(0.0, 1e6).__next__)
    return found


def _warned(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphWarning)
        call()
    return [str(each.message) for each in caught if each.category is GraphWarning]


def test_audits_leave_no_trace(
    torch: ModuleType, recordings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    first = _dropping(torch)
    losses: list[list[Any]] = []
    counts, nets = [], []
    for value in "01":
        monkeypatch.setenv("SINGA_AUDIT", value)
        net = singa.accelerate(copy.deepcopy(first))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        singa.seed(5)
        losses.append([])
        before = len(recordings)
        for step in range(20):
            optimizer.zero_grad()
            losses[-1].append(_step(torch, net, step))
            optimizer.step()
        net.eval()
        with torch.no_grad():
            losses[-1] += [net(accelerated.batch(torch, seed=i)[0]) for i in range(20)]
        assert net._runner.replays.replayed == 38
        counts.append(len(recordings) - before)
        nets.append(net)
    assert all(itertools.starmap(torch.equal, zip(*losses, strict=True)))
    accelerated.same_states(torch, *nets, 0.0)
    assert counts == [4, 8]  # the 4th and the 16th replay of two steps


def test_a_step_that_computes_something_else_is_found(torch: ModuleType) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: Any) -> Any:
            return (x * self.w) * 2.0

    net, x = singa.accelerate(Scaled()), torch.ones(2, 3)
    found = []

    def run() -> None:
        for call in range(12):
            if call == 3:
                (graph,) = itertools.chain(*net._runner.graphs.values())
                (node,) = [each for each in graph.exported.graph.nodes if 2.0 in _numbers(each)]
                node.attributes["arguments"][1] = 5.0
            y = net(x)
            y.sum().backward()
            found.append(y.sum().item())

    (message,) = _warned(run)
    assert "an audit in call 5 found" in message
    assert "2.000000 to 5.000000" in message
    assert "calls 3 to 4 of the step may have missed a change" in message
    assert found == [12.0] * 4 + [30.0] * 8
    assert net._runner.replays.replayed == 11


def _numbers(node: Any) -> list[Any]:
    return [each for each in node.attributes["arguments"] if isinstance(each, float)]


def test_plans_that_have_left_the_cache_are_no_change(torch: ModuleType) -> None:
    net, _ = accelerated.pair(torch, fresh=True)

    def run() -> None:
        for step in range(8):
            if step == 3:
                plan_cache.clear()
            _step(torch, net)

    assert not _warned(run)
    assert net._runner.replays.replayed == 7


FACTOR = 2.0


def _of_a_variable(torch: Any) -> Any:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: Any) -> Any:
            return x * self.w * FACTOR

    return Scaled()


@pytest.mark.parametrize("grad", [True, False])
def test_a_variable_that_the_module_reads(
    torch: ModuleType, exports: list[int], monkeypatch: pytest.MonkeyPatch, grad: bool
) -> None:
    net, x = singa.accelerate(_of_a_variable(torch)), torch.ones(2, 3)
    net.train(grad)
    found = []

    def run() -> None:
        for call in range(24):
            monkeypatch.setitem(globals(), "FACTOR", 3.0 if call >= 5 else 2.0)
            with torch.set_grad_enabled(grad):
                y = net(x)
                found.append(y.sum().item())
                if grad:
                    net.w.grad = None
                    y.sum().backward()
                    assert net.w.grad.tolist() == [found[-1] / 3] * 3

    (message,) = _warned(run)
    assert "an audit in call 16 found" in message
    assert "arguments (…, 3.0), which were (…, 2.0)" in message
    assert "test_accelerated_audits.py line" in message
    assert "calls 5 to 15 of the step may have missed a change" in message
    assert found == [12.0] * 15 + [18.0] * 9
    assert len(exports) == 5  # the first, two audits, the new one, and its audit


def test_a_module_that_is_as_it_was(torch: ModuleType, exports: list[int]) -> None:
    nets = [
        (accelerated.pair(torch, fresh=True)[0], accelerated.batch(torch)[0]),
        (singa.accelerate(_attention(torch)), torch.randn(3, 6, 8)),
    ]

    def run() -> None:
        for net, x in nets:
            for rows in (3, 2, 1):
                for _ in range(5):
                    net(x[:rows]).sum().backward()

    assert not _warned(run)
    assert len(exports) >= 2 * 2


def _attention(torch: Any) -> Any:
    nn = torch.nn

    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(6.0)[:, None], persistent=False)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True)

        def forward(self, x: Any) -> Any:
            places = torch.arange(x.shape[1], dtype=x.dtype)[:, None] / 6
            return self.layer(x + places.sin() + self.table, is_causal=False)

    return Attending()


def test_they_can_be_turned_off(
    torch: ModuleType,
    recordings: list[int],
    exports: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SINGA_AUDIT", "0")
    net, x = singa.accelerate(_of_a_variable(torch)), torch.ones(2, 3)
    for _ in range(20):
        net(x).sum().backward()
    assert (len(recordings), len(exports)) == (2, 1)


def test_exports_wait_until_they_take_little_of_the_time(
    torch: ModuleType, exports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(audits, "perf_counter", lambda: now[0])
    net, x = singa.accelerate(_of_a_variable(torch)), torch.ones(2, 3)
    for _ in range(20):
        net(x)
    assert len(exports) == 1
    now[0] = 1e6
    net(x)
    assert len(exports) == 2
