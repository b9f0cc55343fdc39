"""Memory of other libraries: it stays where it is, and what they write is seen."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from recorded import graphs
from singa import autograd, layer, model, opt, tensor

pytestmark = pytest.mark.cpu("NumPy and PyTorch read memory of the CPU")

SHAPES = {"conv.W": (8, 8, 3, 3), "norm.scale": (8,), "norm.running_var": (8,), "fc.W": (392, 3)}


class Net(model.Model):
    """A network whose parameters lie in memory of others."""

    def __init__(self, update: bool = True) -> None:
        super().__init__()
        self.conv = layer.Conv2d(8, 3, padding=1, bias=False)
        self.norm, self.fc = layer.BatchNorm2d(momentum=0.1), layer.Linear(3)
        self.update = update

    def forward(self, x: Any) -> Any:
        return self.fc(autograd.flatten(self.norm(self.conv(x), relu=True)))

    def train_one_batch(self, x: Any, y: Any) -> Any:
        loss = autograd.softmax_cross_entropy(self.forward(x), y)
        if self.update:
            self.optimizer(loss)
            return loss
        found = autograd.gradients(loss)
        return [loss, *[found[p] for p in self.get_params().values()]]


def _batch() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 8, 7, 7)).astype(np.float32)
    return tensor.from_numpy(x), tensor.from_numpy(np.int32([0, 2]))


def _arrays() -> dict[str, Any]:
    random = np.random.default_rng(1)
    return {n: random.uniform(0.5, 1.5, s).astype(np.float32) for n, s in SHAPES.items()}


def _net(share: Callable[[Any], Any] | None, is_train: bool, use_graph: bool, **arguments: Any):
    """A network, and by name what shares the memory of its parameters. Without `share`, they have
    memory of their own."""
    net = Net(**arguments)
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    net.compile([_batch()[0]], is_train=is_train, use_graph=use_graph)
    states, theirs = net.get_states(), {}
    for name, t in states.items():
        random = np.random.default_rng(len(name))
        t.copy_from_numpy(random.uniform(0.5, 1.5, t.shape).astype(np.float32) / 10)
    for name, array in _arrays().items():
        states[name].copy_from_numpy(array / 10)
        if share is not None:
            theirs[name] = share(states[name].numpy())
            states[name].data = tensor.from_dlpack(theirs[name]).data
    return net, theirs


def _of_numpy(array: Any) -> Any:
    return array.copy()


def _of_torch(array: Any) -> Any:
    return pytest.importorskip("torch").from_numpy(array.copy())


@pytest.mark.parametrize("share", [_of_numpy, _of_torch])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("use_graph", [False, True], ids=["executed", "recorded"])
def test_inference_sees_what_others_write(
    share: Callable[[Any], Any], name: str, use_graph: bool
) -> None:
    net, theirs = _net(share, False, use_graph)
    x, _ = _batch()
    for _ in range(5):
        before = net(x).numpy()
    for factor in (2.0, 0.25):
        theirs[name][...] *= factor
        own, _ = _net(None, False, False)
        for each, value in theirs.items():
            own.get_states()[each].copy_from_numpy(np.asarray(value))
        found = net(x).numpy()
        np.testing.assert_allclose(found, own(x).numpy(), rtol=1e-4, atol=1e-5)
        assert np.abs(found - before).max() > 1e-3
        before = found
    assert len(graphs(net)) == use_graph


@pytest.mark.parametrize("share", [_of_numpy, _of_torch])
@pytest.mark.parametrize("use_graph", [False, True], ids=["executed", "recorded"])
def test_training_by_singa_writes_to_it(share: Callable[[Any], Any], use_graph: bool) -> None:
    net, theirs = _net(share, True, use_graph)
    own, _ = _net(None, True, False)
    where = {name: np.asarray(value).ctypes.data for name, value in theirs.items()}
    for step in range(6):
        assert float(net(*_batch())) == pytest.approx(float(own(*_batch())), rel=1e-5)
        for name, value in theirs.items():
            wanted = own.get_states()[name].numpy()
            np.testing.assert_allclose(np.asarray(value), wanted, rtol=1e-4, atol=1e-5)
            assert np.asarray(net.get_states()[name]).ctypes.data == where[name]
        if step == 3:  # and others write meanwhile
            theirs["fc.W"][...] *= 0.5
            own.fc.W *= 0.5
    assert len(graphs(net)) == use_graph


@pytest.mark.parametrize("share", [_of_numpy, _of_torch])
@pytest.mark.parametrize("use_graph", [False, True], ids=["executed", "recorded"])
def test_training_by_others_is_seen(share: Callable[[Any], Any], use_graph: bool) -> None:
    net, theirs = _net(share, True, use_graph, update=False)
    own, _ = _net(None, True, False, update=False)
    for _ in range(6):
        loss, *found = net(*_batch())
        wanted_loss, *wanted = own(*_batch())
        assert float(loss) == pytest.approx(float(wanted_loss), rel=1e-5)
        names = zip(net.get_params(), found, wanted, strict=True)
        for name, gradient, its in names:
            np.testing.assert_allclose(gradient.numpy(), its.numpy(), rtol=1e-4, atol=1e-5)
            if name in theirs:
                np.asarray(theirs[name])[...] -= 0.1 * gradient.numpy()
                p = own.get_params()[name]
                p.copy_from_numpy(p.numpy() - 0.1 * its.numpy())
    assert len(graphs(net)) == use_graph


def test_it_never_moves(torch: ModuleType) -> None:
    theirs = torch.ones(2, 16, 3, 3)
    x = tensor.from_dlpack(theirs)
    assert not x.to_blocked().is_blocked
    with autograd.enable_grad():
        x.copy_data(tensor.Tensor(data=np.full((2, 16, 3, 3), 3.0, np.float32)))
    assert theirs.mean().item() == 3.0
    theirs.mul_(2)
    np.testing.assert_array_equal(x.numpy(), theirs.numpy())
    copied = tensor.from_dlpack(theirs, copy=True)
    assert copied.to_blocked().numpy().mean() == 6.0


def test_what_others_have_the_address_of_never_moves() -> None:
    x = tensor.Tensor(data=np.ones((2, 16, 3, 3), np.float32))
    array = np.asarray(x)
    assert not x.to_blocked().is_blocked
    array *= 2
    assert x.numpy().mean() == 2.0
    del array


def test_it_is_released() -> None:
    array = np.ones(4, np.float32)
    freed = []

    class Owner(np.ndarray):
        def __del__(self) -> None:
            freed.append(True)

    x = tensor.from_dlpack(array.view(Owner))
    del x
    assert freed
