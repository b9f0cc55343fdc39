"""Recorded steps of accelerated modules, beside executed ones and PyTorch."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import accelerated
import pytest
import singa

pytestmark = pytest.mark.cpu("PyTorch computes with memory of the CPU")


def _replayed(net: Any) -> int:
    return net._runner.replays.replayed  # type: ignore[no-any-return]


def _step(torch: Any, net: Any, seed: int = 0) -> Any:
    """The loss of a batch, whose gradients are added."""
    loss = accelerated.loss(torch, net, *accelerated.batch(torch, seed=seed))
    loss.backward()
    return loss.detach()


def _recorded(torch: Any, make: Callable[[Any], Any] = accelerated.network) -> tuple[Any, Any]:
    """An accelerated module whose next training step is replayed, and the same in PyTorch."""
    pair = accelerated.pair(torch, make)
    for each in pair:
        _step(torch, each)
        _step(torch, each)
        each.zero_grad()
    return pair


def _smooth(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.GELU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 16),
        nn.Sigmoid(),
        nn.Dropout(0.5),
        nn.Linear(16, 5),
        nn.Sigmoid(),
    )


@pytest.mark.parametrize("make", [accelerated.network, _smooth], ids=["relu", "smooth"])
def test_replays_have_the_bits_of_executed_steps(
    torch: ModuleType, make: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    nets = [singa.accelerate(make(torch))]
    nets.append(copy.deepcopy(nets[0]))
    monkeypatch.setattr(nets[1]._runner.replays, "forward", lambda run: None)
    losses: list[list[Any]] = [[], []]
    for net, found in zip(nets, losses, strict=True):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        singa.seed(5)
        for step in range(5):
            optimizer.zero_grad()
            found.append(_step(torch, net, step))
            optimizer.step()
    assert _replayed(nets[0]) == 4
    assert losses[0] == losses[1]
    for one, other in zip(*[net.state_dict().values() for net in nets], strict=True):
        assert torch.equal(one, other)


def test_training_and_inference_in_turn(torch: ModuleType) -> None:
    pair = _recorded(torch)
    before = _replayed(pair[0])
    for step in range(3):
        x, y = accelerated.batch(torch, seed=step)
        results = []
        for net in pair:
            loss = accelerated.loss(torch, net, x, y)
            net.eval()
            with torch.no_grad():
                results.append(net(x))
            net.train()
            loss.backward()
            with torch.no_grad():
                for p in net.parameters():
                    p.sub_(p.grad, alpha=0.1)
            net.zero_grad()
        accelerated.same(torch, *results, 1e-4)
    assert _replayed(pair[0]) - before >= 5


def test_a_second_forward_is_executed(torch: ModuleType) -> None:
    net, plain = _recorded(torch)
    before = _replayed(net)
    for each in (net, plain):
        losses = [
            accelerated.loss(torch, each, *accelerated.batch(torch, seed=seed)) for seed in range(3)
        ]
        for loss in (losses[1], losses[0], losses[2]):
            loss.backward()
    assert _replayed(net) == before + 1
    accelerated.same_gradients(torch, net, plain)
    accelerated.same_states(torch, net, plain)


def test_a_forward_without_backward_frees_the_memory(torch: ModuleType) -> None:
    net, plain = _recorded(torch)
    for _ in range(3):
        before = _replayed(net)
        for each in (net, plain):
            each.zero_grad()
            loss = accelerated.loss(torch, each, *accelerated.batch(torch, seed=7))
            del loss
            gc.collect()
            _step(torch, each, 8)
        assert _replayed(net) == before + 2
        accelerated.same_gradients(torch, net, plain)
    accelerated.same_states(torch, net, plain)


def _several(torch: Any) -> Any:
    class Several(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
            self.drop = torch.nn.Dropout(0.5)
            self.norm = torch.nn.BatchNorm1d(3)

        def forward(self, x: Any) -> Any:
            return self.norm(self.a(x)), self.drop(self.b(x)).relu(), x, self.a(x).argmax(1)

    return Several()


def test_a_loss_of_other_results_than_before(torch: ModuleType) -> None:
    net, plain = accelerated.pair(torch, _several)
    for each in (net, plain):
        each.drop.p = 0.0
    x = torch.randn(6, 4)
    for used in ((0,), (0,), (0,), (1,), (0, 1), (0,), (0, 1), (0, 1, 2), (1,), (2,)):
        given = x.clone().requires_grad_()
        found = []
        for each in (net, plain):
            each.zero_grad()
            given.grad = None
            sum((each(given)[i] ** 2).sum() for i in used).backward()
            found.append(given.grad)
        accelerated.same(torch, *found)
        accelerated.same_gradients(torch, net, plain)
        accelerated.same_states(torch, net, plain)


def test_recording_leaves_buffers_of_a_forward_that_waits(torch: ModuleType) -> None:
    net, plain = (each.eval() for each in accelerated.pair(torch, fresh=True))
    (x, y), (other, labels) = (accelerated.batch(torch, n, seed=n) for n in (3, 4))
    found = []
    for each in (net, plain):
        given = other.clone().requires_grad_()
        accelerated.loss(torch, each, x, y).backward()
        waits = accelerated.loss(torch, each, given, labels)
        accelerated.loss(torch, each, x, y).backward()  # recorded
        waits.backward()
        found.append(given.grad)
    assert net._runner.replays.replayed == 1
    accelerated.same(torch, *found)
    accelerated.same_gradients(torch, net, plain)


def test_random_numbers_stay_when_the_loss_is_of_other_results(torch: ModuleType) -> None:
    net = singa.accelerate(_several(torch))
    x = torch.ones(50, 4, requires_grad=True)
    singa.seed(1)
    for i in (0, 0, 0, 1, 1):
        x.grad = None
        dropped = net(x)[1]
        (dropped if i else net(x)[0] + 0 * dropped).sum().backward()
    kept = (dropped != 0).float()
    wanted = 2 * kept @ net.b.weight.detach()
    torch.testing.assert_close(x.grad, wanted)


def test_parameters_may_lie_elsewhere(torch: ModuleType) -> None:
    pair = _recorded(torch)
    start = copy.deepcopy(pair[0].state_dict())
    before = _replayed(pair[0])

    def swap(net: Any) -> None:
        for p in net.parameters():
            p.data = p.data * 1.25

    def assign(net: Any) -> None:
        net.load_state_dict({k: v.clone() for k, v in start.items()}, assign=True)

    def reorder(net: Any) -> None:
        net.to(memory_format=torch.channels_last)

    def write(net: Any) -> None:
        net[5].weight.data.mul_(0.5)
        net[0].weight.data.numpy()[:] *= 2

    for change in (swap, assign, write, reorder, swap, write):
        found = []
        for net in pair:
            change(net)
            net.zero_grad()
            net.train()
            _step(torch, net, 3)
            net.eval()
            with torch.no_grad():
                found.append(net(accelerated.batch(torch)[0]))
        accelerated.same(torch, *found, 1e-4)
        accelerated.same_gradients(torch, *pair, 1e-4)
    assert _replayed(pair[0]) - before >= 6


def test_inference_sees_each_write(torch: ModuleType) -> None:
    net, plain = (each.eval() for each in accelerated.pair(torch))
    x, _ = accelerated.batch(torch)
    for step in range(5):
        for each in (net, plain):
            with torch.no_grad():
                each[0].weight.mul_(1.5)
                each[1].running_mean.add_(0.25 * step)
            each[5].bias.data.numpy()[:] += 1
        with torch.no_grad():
            accelerated.same(torch, net(x), plain(x), 1e-4)


def test_results_have_memory_of_their_own(torch: ModuleType) -> None:
    class Handing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: Any, y: Any) -> Any:
            return x, self.w, (x + y + self.w).relu(), torch.ones(2)

    net = singa.accelerate(Handing())
    x = torch.ones(2, 3)
    for grad in (True, False):
        net.train(grad)
        for _ in range(4):
            with torch.set_grad_enabled(grad):
                results = net(x, x)
                for each in results:
                    each.mul_(3)
            if grad:
                net.w.grad = None
                (results[2].sum() + results[1].sum()).backward()
                assert net.w.grad.tolist() == [9.0] * 3
            assert results[2].tolist() == [[9.0] * 3] * 2
            assert x.tolist() == [[1.0] * 3] * 2
            assert net.w.tolist() == [1.0] * 3
    assert _replayed(net) == 6


def test_autocast(torch: ModuleType) -> None:
    net, plain = accelerated.pair(torch)
    before = _replayed(net)
    for _ in range(3):
        for each in (net, plain):
            each.zero_grad()
            x, y = accelerated.batch(torch)
            with torch.autocast("cpu", torch.bfloat16):
                out = each(x)
                assert out.dtype == torch.bfloat16
                torch.nn.functional.cross_entropy(out, y).backward()
        for p, q in zip(net.parameters(), plain.parameters(), strict=True):
            assert (p.grad - q.grad).norm() < 0.05 * max(q.grad.norm(), 0.05)
    assert _replayed(net) >= before + 2
    accelerated.same(torch, _step(torch, net), _step(torch, plain))


def test_threads_that_train(torch: ModuleType) -> None:
    """Each adds its gradients; those that another one keeps from the recorded step are executed."""
    pair = _recorded(torch, _without_statistics)
    found: list[Any] = []
    for net in pair:

        def run(seed: int, net: Any = net) -> None:
            for _ in range(5):
                loss = accelerated.loss(torch, net, *accelerated.batch(torch, seed=seed))
                gradients = torch.autograd.grad(loss, list(net.parameters()))
            found.append((seed, gradients))

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 8
    for seed in range(4):
        for one, other in zip(*[g for s, g in found if s == seed], strict=True):
            accelerated.same(torch, one, other)


def _without_statistics(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 5))


def test_state_that_a_call_changes_and_reads(torch: ModuleType) -> None:
    class Remembering(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.seen.mul_(0.5).add_(x.detach().sum(0))
            return x * self.w + self.seen

    net, plain = singa.accelerate(Remembering()), Remembering()
    for step in range(4):
        x = torch.full((2, 3), float(step))
        found = [each(x) for each in (net, plain)]
        accelerated.same(torch, *found)
        for out in found:
            (out**2).sum().backward()
        accelerated.same_gradients(torch, net, plain)
        accelerated.same_states(torch, net, plain)
    assert _replayed(net) == 0


def test_another_choice_of_kernels(torch: ModuleType) -> None:
    net, plain = _recorded(torch)
    before = _replayed(net)
    was = singa.singa_wrap.IsDeterministic()
    try:
        for mode in (not was, was, not was):
            singa.singa_wrap.SetDeterministic(mode)
            for each in (net, plain):
                _step(torch, each)
    finally:
        singa.singa_wrap.SetDeterministic(was)
    accelerated.same_gradients(torch, net, plain)
    assert before < _replayed(net) < before + 3


def test_what_is_refused_of_a_replay(torch: ModuleType) -> None:
    net, plain = _recorded(torch)
    loss = accelerated.loss(torch, net, *accelerated.batch(torch))
    with pytest.raises(NotImplementedError, match="create_graph"):
        torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    loss = accelerated.loss(torch, net, *accelerated.batch(torch))
    loss.backward(retain_graph=True)
    with pytest.raises(NotImplementedError, match="second backward"):
        loss.backward()
    loss = accelerated.loss(torch, net, *accelerated.batch(torch))
    with torch.no_grad():
        net[5].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    del loss
    net.zero_grad()
    plain.load_state_dict(net.state_dict())
    before = _replayed(net)
    for each in (net, plain):
        _step(torch, each)
    assert _replayed(net) == before + 1
    accelerated.same_gradients(torch, net, plain)
