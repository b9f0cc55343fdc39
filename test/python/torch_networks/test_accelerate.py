"""A module of PyTorch that computes in singa, beside the same module in PyTorch."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import accelerated
import numpy as np
import pytest
import singa
from singa.networks.errors import UnsupportedError

pytestmark = pytest.mark.cpu("PyTorch computes with memory of the CPU")


# Training.

OPTIMIZERS: dict[str, Callable[[Any, Any], Any]] = {
    "SGD": lambda torch, p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "AdamW": lambda torch, p: torch.optim.AdamW(p, lr=1e-2),
}


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_pytorchs(torch: ModuleType, name: str, kind: str) -> None:
    tolerance = {"float32": 2e-4, "float64": 1e-8}[kind]
    pair = accelerated.pair(torch)
    optimizers = [OPTIMIZERS[name](torch, net.parameters()) for net in pair]
    for net in pair:
        net.to(getattr(torch, kind))
    for step in range(5):
        x, y = accelerated.batch(torch, seed=step)
        losses = []
        for net, optimizer in zip(pair, optimizers, strict=True):
            optimizer.zero_grad()
            losses.append(accelerated.loss(torch, net, x.to(getattr(torch, kind)), y))
            losses[-1].backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        accelerated.same(torch, *losses, tolerance)
        accelerated.same_states(torch, *pair, tolerance)
    assert int(pair[0][1].num_batches_tracked) == 5


def test_gradients_are_added(torch: ModuleType) -> None:
    net, plain = accelerated.pair(torch)
    for seed in range(3):
        for each in (net, plain):
            (accelerated.loss(torch, each, *accelerated.batch(torch, seed=seed)) / 3).backward()
        accelerated.same_gradients(torch, net, plain)


def _add_one(p: Any) -> None:
    p.grad.add_(1)


def test_hooks_of_gradients_run(torch: ModuleType) -> None:
    net, plain = accelerated.pair(torch, fresh=True)
    for each in (net, plain):
        each[0].weight.register_hook(lambda gradient: gradient * 2)
        each[5].bias.register_post_accumulate_grad_hook(_add_one)
        accelerated.loss(torch, each, *accelerated.batch(torch)).backward()
    accelerated.same_gradients(torch, net, plain)


def test_gradients_of_inputs(torch: ModuleType) -> None:
    found = []
    for each in accelerated.pair(torch):
        x, y = accelerated.batch(torch)
        x.requires_grad_()
        each.requires_grad_(False)
        accelerated.loss(torch, each, x, y).backward()
        assert each[0].weight.grad is None
        found.append(x.grad)
    accelerated.same(torch, *found)


def test_gradients_that_are_asked_for(torch: ModuleType) -> None:
    found = []
    for each in accelerated.pair(torch):
        loss = accelerated.loss(torch, each, *accelerated.batch(torch))
        found.append(torch.autograd.grad(loss, [each[5].weight, each[1].bias]))
    for pair in zip(*found, strict=True):
        accelerated.same(torch, *pair)


def test_frozen_parameters(torch: ModuleType) -> None:
    net, plain = accelerated.pair(torch)
    for frozen in (True, False):
        for each in (net, plain):
            each[0].weight.requires_grad_(not frozen)
            accelerated.loss(torch, each, *accelerated.batch(torch)).backward()
        accelerated.same_gradients(torch, net, plain)


class _Two:
    """Modules of several inputs and results."""

    @staticmethod
    def make(torch: Any) -> Any:
        class Two(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.b = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)

            def forward(self, x: Any, *, scale: Any = None, names: Any = ()) -> Any:
                h = self.a(x).tanh()
                h = h if scale is None else h * scale
                return {"h": h, "rest": [self.b(x) + h, h.argmax(1), None], "names": names}

        return Two()


@pytest.mark.parametrize("used", ["both", "one"])
def test_several_inputs_and_results(torch: ModuleType, used: str) -> None:
    pair = accelerated.pair(torch, _Two.make)
    x, scale = torch.randn(6, 4), torch.rand(6, 3, requires_grad=True)
    results, scales = [], []
    for each in pair:
        scale.grad = None
        out = each(x, scale=scale, names=("n",))
        assert out["names"] == ("n",)
        assert out["rest"][2] is None
        loss = (out["h"] ** 2).sum()
        (loss + out["rest"][0].mean() if used == "both" else loss).backward()
        results.append((out["h"], out["rest"][0], out["rest"][1]))
        scales.append(scale.grad)
    for found, wanted in zip(*results, strict=True):
        accelerated.same(torch, found, wanted)
    accelerated.same(torch, *scales)
    accelerated.same_gradients(torch, *pair)
    assert not results[0][2].requires_grad
    for each in pair:
        results.append(each(x)["h"])
    accelerated.same(torch, *results[2:])


def test_numbers_among_arguments_have_types(torch: ModuleType) -> None:
    class Choosing(torch.nn.Module):
        def forward(self, x: Any, twice: Any) -> Any:
            return x * 2 if twice is True else x + twice

    net = singa.accelerate(Choosing())
    found = [net(torch.full((2,), 3.0), n).tolist() for n in (True, 1, 2, 1.0, True)]
    assert found == [[6.0] * 2, [4.0] * 2, [5.0] * 2, [4.0] * 2, [6.0] * 2]


def test_a_result_may_be_written_to(torch: ModuleType) -> None:
    def make(torch: Any) -> Any:
        return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())

    pair = accelerated.pair(torch, make)
    for each in pair:
        # PyTorch's own ReLU keeps its result for backward.
        y = each(torch.ones(2, 3)) if each is pair[0] else each(torch.ones(2, 3)).clone()
        y.mul_(3).sum().backward()
    accelerated.same_gradients(torch, *pair)


# What else happens in a loop.


def _twice(torch: Any, net: Any) -> None:
    first = accelerated.loss(torch, net, *accelerated.batch(torch))
    second = accelerated.loss(torch, net, *accelerated.batch(torch, seed=1))
    (first + 2 * second).backward()


def _in_reverse(torch: Any, net: Any) -> None:
    first = accelerated.loss(torch, net, *accelerated.batch(torch))
    second = accelerated.loss(torch, net, *accelerated.batch(torch, seed=1))
    second.backward()
    first.backward()


def _eval_between(torch: Any, net: Any) -> None:
    loss = accelerated.loss(torch, net, *accelerated.batch(torch))
    net.eval()
    with torch.no_grad():
        net(accelerated.batch(torch, seed=2)[0])
    net.train()
    loss.backward()


def _two_batch_sizes(torch: Any, net: Any) -> None:
    for rows in (4, 7, 4, 2, 7):
        accelerated.loss(torch, net, *accelerated.batch(torch, rows)).backward()


def _forward_alone(torch: Any, net: Any) -> None:
    net(accelerated.batch(torch, seed=3)[0])
    accelerated.loss(torch, net, *accelerated.batch(torch)).backward()
    net(accelerated.batch(torch, seed=4)[0])


def _no_grad_in_training(torch: Any, net: Any) -> None:
    with torch.no_grad():
        assert not net(accelerated.batch(torch, seed=3)[0]).requires_grad
    with torch.inference_mode():
        net(accelerated.batch(torch, seed=4)[0])
    accelerated.loss(torch, net, *accelerated.batch(torch)).backward()


def _gradients_in_eval(torch: Any, net: Any) -> None:
    net.eval()
    accelerated.loss(torch, net, *accelerated.batch(torch)).backward()


def _frozen_statistics(torch: Any, net: Any) -> None:
    net[1].eval()
    accelerated.loss(torch, net, *accelerated.batch(torch)).backward()
    net.train()
    accelerated.loss(torch, net, *accelerated.batch(torch)).backward()


LOOPS = (
    *(_twice, _in_reverse, _eval_between, _two_batch_sizes, _forward_alone),
    *(_no_grad_in_training, _gradients_in_eval, _frozen_statistics),
)


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__.strip("_"))
def test_what_happens_in_a_loop(torch: ModuleType, loop: Callable[[Any, Any], None]) -> None:
    net, plain = accelerated.pair(torch)
    for _ in range(2):
        for each in (net, plain):
            each.train()
            loop(torch, each)
        accelerated.same_gradients(torch, net, plain, 1e-4)
        accelerated.same_states(torch, net, plain)
        for each in (net, plain):
            with torch.no_grad():
                for p in each.parameters():
                    p.sub_(p.grad, alpha=0.01)
            each.zero_grad()


def test_a_batch_of_one(torch: ModuleType) -> None:
    net, plain = (each.eval() for each in accelerated.pair(torch))
    for rows in (1, 3, 1):
        x, _ = accelerated.batch(torch, rows)
        accelerated.same(torch, net(x), plain(x))


# Parameters and buffers are PyTorch's.


def test_a_first_axis_of_one_that_is_no_batch(torch: ModuleType) -> None:
    class Spread(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.expand(5, 3) * 2

    x = torch.randn(1, 3)
    torch.testing.assert_close(singa.accelerate(Spread())(x), x.expand(5, 3) * 2)


def test_the_module_shares_everything(torch: ModuleType) -> None:
    module = accelerated.network(torch)
    net = singa.accelerate(module)
    assert [*net.named_modules()][1:] == [*module.named_modules()][1:]
    assert all(a is b for a, b in zip(net.parameters(), module.parameters(), strict=True))
    net.train()
    net(accelerated.batch(torch)[0])
    assert int(module[1].num_batches_tracked) == 1
    net.eval()
    assert not any(part.training for part in net.modules())
    accelerated.same(
        torch, net(accelerated.batch(torch)[0]), module.eval()(accelerated.batch(torch)[0])
    )
    assert singa.accelerate(net) is net
    assert "singa, Sequential" in repr(net)


def test_it_passes_for_the_modules_own_class(torch: ModuleType) -> None:
    class Named(torch.nn.Linear):
        def forward(self, pixels: Any, labels: Any = None) -> Any:
            return super().forward(pixels)

    net = singa.accelerate(Named(3, 2))
    assert isinstance(net, Named)
    assert isinstance(net, torch.nn.Module)
    assert list(inspect.signature(net.__class__.forward).parameters)[1:] == ["pixels", "labels"]
    assert list(inspect.signature(net.forward).parameters) == ["pixels", "labels"]
    accelerated.same(torch, net(pixels=torch.ones(2, 3)), net._module(torch.ones(2, 3)))


def test_a_first_call_in_inference_mode(torch: ModuleType) -> None:
    net = singa.accelerate(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())).eval()
    for _ in range(3):
        with torch.inference_mode():
            x = torch.ones(2, 3) * 2
            accelerated.same(torch, net(x), net._module(x))
    net(torch.ones(2, 3)).sum().backward()
    assert net[0].weight.grad is not None


def test_averages_of_weights(torch: ModuleType) -> None:
    pair = accelerated.pair(torch)
    averages = [
        torch.optim.swa_utils.AveragedModel(
            net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5), use_buffers=True
        )
        for net in pair
    ]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in pair]
    for step in range(3):
        for net, average, optimizer in zip(pair, averages, optimizers, strict=True):
            optimizer.zero_grad()
            accelerated.loss(torch, net, *accelerated.batch(torch, seed=step)).backward()
            optimizer.step()
            average.update_parameters(net)
            average.eval()
        x, _ = accelerated.batch(torch, seed=9)
        accelerated.same(torch, averages[0](x), averages[1](x), 1e-4)


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save"])
def test_copies(torch: ModuleType, way: str) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    net = singa.accelerate(module)
    x = torch.randn(5, 3)
    before = net(x)
    if way == "deepcopy":
        other = copy.deepcopy(net)
    elif way == "pickle":
        other = pickle.loads(pickle.dumps(net))
    else:
        file = io.BytesIO()
        torch.save(net, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    assert type(other) is type(net)
    accelerated.same(torch, other(x), before)
    with torch.no_grad():
        other[0].weight.zero_()
    assert (other(x) - before).abs().max() > 1e-3
    accelerated.same(torch, net(x), before)


def test_threads(torch: ModuleType) -> None:
    net, plain = accelerated.pair(torch)
    net.eval()
    plain.eval()
    batches = [accelerated.batch(torch, 2 + i, seed=i) for i in range(4)]
    found: dict[int, Any] = {}

    def run(i: int) -> None:
        x = batches[i][0].clone().requires_grad_()
        for _ in range(5):
            (gradient,) = torch.autograd.grad(accelerated.loss(torch, net, x, batches[i][1]), x)
        found[i] = net(x).detach(), gradient

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, (x, y) in enumerate(batches):
        x = x.clone().requires_grad_()
        accelerated.same(torch, found[i][0], plain(x))
        accelerated.same(
            torch, found[i][1], torch.autograd.grad(accelerated.loss(torch, plain, x, y), x)[0]
        )


def test_autocast(torch: ModuleType) -> None:
    net, plain = accelerated.pair(torch)
    losses = []
    for each in (net, plain):
        x, y = accelerated.batch(torch)
        with torch.autocast("cpu", torch.bfloat16):
            out = each(x)
            assert out.dtype == torch.bfloat16
            losses.append(torch.nn.functional.cross_entropy(out, y))
        losses[-1].backward()
    accelerated.same(torch, *losses, 3e-2)
    for p, q in zip(net.parameters(), plain.parameters(), strict=True):
        assert p.grad.dtype == torch.float32
        assert (p.grad - q.grad).norm() < 0.05 * max(q.grad.norm(), 0.05)
    exact = accelerated.loss(torch, net, x, y)
    assert exact.dtype == torch.float32


def test_dropout_follows_singas_seed(torch: ModuleType) -> None:
    net = singa.accelerate(torch.nn.Sequential(torch.nn.Dropout(0.25)))
    x = torch.ones(400, 100, requires_grad=True)
    drawn = []
    for _ in range(2):
        singa.seed(3)
        drawn.append(net(x))
    assert torch.equal(*drawn)
    assert not torch.equal(net(x), drawn[0])
    assert drawn[0].detach().unique().tolist() == [0.0, np.float32(4 / 3)]
    assert abs((drawn[0] == 0).float().mean().item() - 0.25) < 0.01
    drawn[0].sum().backward()
    accelerated.same(torch, x.grad, drawn[0].detach())
    assert torch.equal(net.eval()(x), x)


# Refusals.


def _ddp(torch: Any) -> None:
    net, _ = accelerated.pair(torch, fresh=True)
    parallel = torch.nn.parallel.DistributedDataParallel
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    try:
        parallel(net)(accelerated.batch(torch)[0])
    finally:
        torch.distributed.destroy_process_group()


def _checkpoint(torch: Any, reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    net, _ = accelerated.pair(torch)
    checkpoint(net, accelerated.batch(torch)[0].requires_grad_(), use_reentrant=reentrant)


def _again(torch: Any) -> None:
    net, _ = accelerated.pair(torch)
    loss = accelerated.loss(torch, net, *accelerated.batch(torch))
    loss.backward(retain_graph=True)
    loss.backward()


def _again_without(torch: Any) -> None:
    net, _ = accelerated.pair(torch)
    loss = accelerated.loss(torch, net, *accelerated.batch(torch))
    loss.backward()
    loss.backward()


def _second_derivative(torch: Any) -> None:
    net, _ = accelerated.pair(torch)
    x, y = accelerated.batch(torch)
    torch.autograd.grad(accelerated.loss(torch, net, x.requires_grad_(), y), x, create_graph=True)


def _changed_weight(torch: Any) -> None:
    net, _ = accelerated.pair(torch)
    loss = accelerated.loss(torch, net, *accelerated.batch(torch))
    with torch.no_grad():
        net[5].weight.mul_(2)
    loss.backward()


def _branches(torch: Any) -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if x.sum() > 0 else x

    singa.accelerate(Branching())(torch.ones(2, 2))


def _returns_a_length(torch: Any) -> None:
    class Measuring(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2, x.shape[0]

    singa.accelerate(Measuring())(torch.ones(2, 2))


def _no_module(torch: Any) -> None:
    singa.accelerate(torch.relu)


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "ddp": (_ddp, NotImplementedError, "DistributedDataParallel.*opt.DistOpt"),
    "checkpoint": (lambda t: _checkpoint(t, False), NotImplementedError, "checkpoint.*recompute"),
    "reentrant": (lambda t: _checkpoint(t, True), NotImplementedError, "checkpoint.*recompute"),
    "retain": (_again, NotImplementedError, "second backward.*retain_graph"),
    "again": (_again_without, RuntimeError, "backward through the graph a second time"),
    "second": (_second_derivative, NotImplementedError, "create_graph"),
    "changed": (_changed_weight, RuntimeError, "modified by an inplace operation"),
    "branches": (_branches, UnsupportedError, r"\[accelerate\]"),
    "length": (_returns_a_length, UnsupportedError, "a result is a length"),
    "no module": (_no_module, TypeError, "expected a torch.nn.Module"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(torch: ModuleType, name: str) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call(torch)


def test_a_refused_backward_leaves_the_module_usable(torch: ModuleType) -> None:
    net, plain = accelerated.pair(torch)
    loss = accelerated.loss(torch, net, *accelerated.batch(torch))
    with pytest.raises(NotImplementedError):
        torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    accelerated.loss(torch, plain, *accelerated.batch(torch))
    for each in (net, plain):
        accelerated.loss(torch, each, *accelerated.batch(torch)).backward()
    accelerated.same_gradients(torch, net, plain)
    accelerated.same_states(torch, net, plain)
