"""Memory does not grow: over 1,000 steps, after errors, in evaluation, and after a model is
deleted."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import singa
from resident import resident
from singa import autograd, device, layer, model, models, opt, tensor

KIB = 1 << 10
pytestmark = [
    pytest.mark.skipif(not resident(), reason="no /proc/self/statm"),
    # Sanitizers keep freed memory, to detect late reads.
    pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="address sanitizer"),
]


def resident_growth(step: Callable[[], None], steps: int, limit: int) -> int:
    """The growth of resident memory over `steps` calls, measured up to three times while it
    reaches `limit`.

    A leak shows each time. Resident memory also grows once for other reasons: the heap gets
    another arena, or the system joins pages to huge pages of 2 MiB."""
    growth = limit
    for _ in range(3):
        before = resident()
        for _ in range(steps):
            step()
        gc.collect()
        growth = min(growth, resident() - before)
        if growth < limit:
            break
    return growth


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = singa.get_num_threads()
    singa.set_num_threads(1)
    yield
    singa.set_num_threads(before)


class Net(model.Model):
    """A small network like LeNet. With `fails`, every tenth step raises in the middle; `where` is
    the part that raises."""

    def __init__(self, where: str = "") -> None:
        super().__init__()
        self.conv1 = layer.Conv2d(6, 5, padding=2)
        self.norm = layer.BatchNorm2d()
        self.pool = layer.MaxPool2d(2)
        self.conv2 = layer.Conv2d(8, 3)
        self.drop = layer.Dropout(0.2)
        self.fc = layer.Linear(10)
        self.loss = layer.SoftMaxCrossEntropy()
        self.where = where
        self.calls = 0

    def _fail(self, where: str) -> None:
        if self.where == where and self.calls % 10 == 9:
            raise RuntimeError(f"stopped in {where}")

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        y = self.pool(autograd.relu(self.norm(self.conv1(x))))
        self._fail("forward")
        return self.fc(self.drop(autograd.flatten(autograd.relu(self.conv2(y)))))

    def train_one_batch(self, x: tensor.Tensor, y: tensor.Tensor) -> tuple[tensor.Tensor, ...]:
        self.calls += 1
        out = self.forward(x)
        loss = self.loss(out, y)
        for param, gradient in autograd.backward(loss):
            self._fail("backward")
            self.optimizer.update(param, gradient)
        self.optimizer.step()
        return out, loss


def batch(size: int = 8) -> tuple[tensor.Tensor, tensor.Tensor]:
    random = np.random.default_rng(size)
    x = tensor.from_numpy(random.standard_normal((size, 1, 16, 16), np.float32))
    return x, tensor.from_numpy(random.integers(0, 10, size).astype(np.int32))


def network(where: str = "") -> Net:
    singa.seed(1)
    net = Net(where)
    net.set_optimizer(opt.SGD(lr=0.01, momentum=0.9))
    net.compile([batch()[0]], is_train=True)
    return net


def training(net: Net) -> Callable[[], None]:
    """A training step as in a script, which reads the batch and the loss."""
    images = np.random.default_rng(0).standard_normal((8, 1, 16, 16), np.float32)
    labels = np.arange(8, dtype=np.int32)

    def step() -> None:
        _, loss = net(tensor.from_numpy(images), tensor.from_numpy(labels))
        assert np.isfinite(loss.numpy()).all()

    return step


def failing(net: Net) -> Callable[[], None]:
    train = training(net)

    def step() -> None:
        if net.where and net.calls % 10 == 8:
            with pytest.raises(RuntimeError, match=f"stopped in {net.where}"):
                train()
        else:
            train()

    return step


def evaluation(net: Net) -> Callable[[], None]:
    net.eval()
    x, _ = batch()

    def step() -> None:
        with autograd.no_grad():
            assert np.isfinite(net(x).numpy()).all()

    return step


def alternating(net: Net) -> Callable[[], None]:
    """A whole batch, a shorter one, and an evaluation."""
    whole, short = batch(8), batch(3)

    def step() -> None:
        net.train()
        net(*whole)
        net(*short)
        net.eval()
        net(whole[0])

    return step


def unused(net: Net) -> Callable[[], None]:
    """Forward with recording, but without backward."""
    x, _ = batch()

    def step() -> None:
        with autograd.enable_grad():
            net.forward(x)

    return step


@pytest.mark.parametrize(
    ("make", "where"),
    [
        pytest.param(training, "", id="training"),
        pytest.param(failing, "forward", id="stopped in forward"),
        pytest.param(failing, "backward", id="stopped in backward"),
        pytest.param(evaluation, "", id="evaluation"),
        pytest.param(alternating, "", id="batch sizes alternate"),
        pytest.param(unused, "", id="never walked"),
    ],
)
def test_a_thousand_steps(make: Callable[[Net], Callable[[], None]], where: str) -> None:
    net = network(where)
    step = make(net)
    for _ in range(200):
        step()
    gc.collect()
    memory, objects = singa.device_memory(), len(gc.get_objects())
    limit = 4096 * KIB  # a leak of 5 KiB in each step would exceed it
    growth = resident_growth(step, 800, limit)
    after = singa.device_memory()
    assert growth < limit
    assert after["live"] == memory["live"]
    assert after["peak"] == memory["peak"]
    assert after["reserved"] == memory["reserved"]
    assert after["system_allocations"] == memory["system_allocations"]
    assert after["allocations"] > memory["allocations"]  # the steps did allocate
    assert len(gc.get_objects()) - objects < 50
    assert net.where == "" or net.calls >= 1000


@pytest.mark.parametrize("use_graph", [False, True])
def test_a_step_faults_no_page(use_graph: bool) -> None:
    net = models.create("lenet")
    net.set_optimizer(opt.SGD(lr=0.01, momentum=0.9))
    images = np.random.default_rng(0).standard_normal((128, *net.image_shape), np.float32)
    x, y = tensor.from_numpy(images), tensor.from_numpy(np.arange(128, dtype=np.int32) % 10)
    net.compile([x], is_train=True, use_graph=use_graph)
    faults = []
    for _ in range(20):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        net(x, y)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert min(faults[10:]) <= 2, faults  # in some steps the system may have reclaimed pages


def living() -> int:
    """All live Python tensors, including raw ones."""
    kinds = (tensor.Tensor, tensor.CTensor)
    # type() is used because isinstance() reads __class__, which warns for some objects of PyTorch.
    return sum(1 for each in gc.get_objects() if issubclass(type(each), kinds))


@pytest.mark.parametrize("where", ["", "forward", "backward"])
def test_a_model_that_goes_takes_all_with_it(where: str) -> None:
    def use() -> None:
        net = network(where)
        step = failing(net)
        for _ in range(20):
            step()
        net.eval()
        net(batch()[0])

    use()  # creates what exists once: plans, the default device
    gc.collect()
    memory, tensors = singa.device_memory(), living()
    use()
    gc.collect()
    assert living() == tensors
    assert singa.device_memory()["live"] == memory["live"]


def test_without_the_collector_a_step_leaves_nothing() -> None:
    """Reference counts alone free a step, without the garbage collector."""
    net = network()
    step = training(net)
    for _ in range(3):
        step()
    gc.collect()
    gc.disable()
    try:
        memory = singa.device_memory()
        for _ in range(5):
            step()
            assert singa.device_memory()["live"] == memory["live"]
            assert singa.device_memory()["peak"] == memory["peak"]
    finally:
        gc.enable()


def test_a_device_of_its_own_gives_all_back() -> None:
    def use() -> None:
        own = device.create_cpu_device(separate=True)
        filled = tensor.ones((1024, 1024), device=own)  # 4 MiB that are written
        assert singa.device_memory(own)["live"] >= 4 << 20
        del filled
        assert singa.device_memory(own)["live"] == 0
        own.Close()
        assert singa.device_memory(own)["reserved"] == 0

    limit = 16 << 20
    assert resident_growth(use, 20, limit) < limit  # 80 MiB are allocated in total
