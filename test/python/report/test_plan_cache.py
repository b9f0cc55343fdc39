"""The plan cache: alternating batches find their plans again, 5,000 shapes stay within the limit,
results do not depend on the cache, and a warning names what keeps changing."""

import gc
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
import singa
from resident import resident
from singa import autograd, device, layer, model, opt, plan_cache, tensor
from singa import singa_wrap as wrap

MIB = 1 << 20


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    before = plan_cache.stats()
    threads = singa.get_num_threads()
    singa.set_num_threads(1)
    plan_cache.clear()
    yield
    plan_cache.enable(True)
    plan_cache.set_limit(before["max_bytes"], before["max_entries"])
    plan_cache.clear()
    singa.set_num_threads(threads)


class Net(model.Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = layer.Conv2d(6, 3, padding=1)
        self.norm = layer.BatchNorm2d()
        self.pool = layer.MaxPool2d(2)
        self.fc = layer.Linear(5)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        y = self.pool(autograd.relu(self.norm(self.conv(x))))
        return self.fc(autograd.flatten(y))


def batch(size: int, seed: int) -> tuple[tensor.Tensor, tensor.Tensor]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((size, 3, 8, 8), np.float32)
    return tensor.from_numpy(x), tensor.from_numpy(random.integers(0, 5, size).astype(np.int32))


def network() -> Net:
    singa.seed(5)
    net = Net()
    net.set_optimizer(opt.SGD(lr=0.05, momentum=0.9, weight_decay=1e-4))
    net.compile([batch(8, 0)[0]], is_train=True)
    return net


def an_epoch(net: Net) -> None:
    """Whole batches, a shorter last one, then an evaluation with another batch size."""
    net.train()
    for size in (8, 8, 3):
        net(*batch(size, size))
    net.eval()
    for size in (16, 16, 7):
        net(batch(size, size)[0])


def test_batches_that_alternate_find_their_plans_again() -> None:
    net = network()
    an_epoch(net)
    rounds = [plan_cache.stats()]
    for _ in range(4):
        an_epoch(net)
        rounds.append(plan_cache.stats())
    first, last = rounds[0], rounds[-1]
    for each in rounds:
        assert each["misses"] == first["misses"] == each["entries"]
        assert each["evictions"] == 0
        misses = {op: counts["misses"] for op, counts in each["by_op"].items()}
        assert misses == {op: counts["misses"] for op, counts in first["by_op"].items()}
    # All later rounds find all plans.
    asked = [after["hits"] - before["hits"] for before, after in pairwise(rounds)]
    assert len(set(asked)) == 1
    assert asked[0] > first["misses"] / 2
    for op in ("ConvForward", "BatchNormForwardTraining", "PoolingForward", "PoolingBackward"):
        found = last["by_op"][op]["hits"] - first["by_op"][op]["hits"]
        assert found > 0, op
        assert last["by_op"][op]["misses"] > 1, op  # one for each batch size


def test_results_are_the_same_bits_without_it() -> None:
    def weights(kept: bool) -> dict[str, np.ndarray]:
        plan_cache.enable(kept)
        assert plan_cache.enabled() == kept
        net = network()
        for _ in range(3):
            an_epoch(net)
        return {name: value.numpy() for name, value in net.get_states().items()}

    with_plans = weights(True)
    entries = plan_cache.stats()["entries"]
    plan_cache.clear()
    without = weights(False)
    assert entries > 0
    assert plan_cache.stats()["entries"] == plan_cache.stats()["hits"] == 0
    assert with_plans.keys() == without.keys()
    for name, value in with_plans.items():
        np.testing.assert_array_equal(value, without[name], err_msg=name)


def random_shapes(count: int) -> Iterator[None]:
    """Runs small convolutions and poolings forward and backward, each with another geometry."""
    random = np.random.default_rng(3)
    seen = set()
    while len(seen) < count:
        n, c, out = (int(v) for v in random.integers(1, 9, 3))
        h, w = (int(v) for v in random.integers(3, 12, 2))
        k, s, p = (int(v) for v in random.integers(1, 4, 3))
        convolution = bool(random.integers(2))
        p = min(p, k - 1)
        geometry = (n, c, out if convolution else 0, h, w, k, s, p)
        if geometry in seen:
            continue
        seen.add(geometry)
        x = wrap.Full((n, c, h, w), 1.0, device.get_default_device(), wrap.kFloat32)
        if convolution:
            handle = wrap.ConvHandle(x, (k, k), (s, s), (p, p), c, out, False)
            weight = wrap.Full((out, c, k, k), 0.5, device.get_default_device(), wrap.kFloat32)
            y = wrap.ConvForward(x, weight, None, handle)
            wrap.ConvBackward(y, x, weight, handle, True, True, False)
        else:
            pool = wrap.PoolingHandle(x, (k, k), (s, s), (p, p), True)
            y, saved = wrap.PoolingForward(pool, x, True)
            wrap.PoolingBackward(pool, y, x, y, saved)
        yield


@pytest.mark.slow
@pytest.mark.skipif(not resident(), reason="no /proc/self/statm")
def test_5000_shapes_stay_within_the_limit() -> None:
    limit = 8 * MIB
    plan_cache.set_limit(bytes=limit, entries=1 << 20)
    # The constant covers memory other than plans: fragments of the C heap, NumPy, pytest. In a
    # process of many tests the heap grows now and then for reasons of its own, so one good run of
    # three is enough.
    assert any(growth_over_5000_shapes(limit) <= 1.25 * limit + 4 * MIB for _ in range(3))


def growth_over_5000_shapes(limit: int) -> int:
    """The largest growth of resident memory while plans of 5,000 shapes are made and evicted."""
    shapes = random_shapes(5000)
    for _ in range(200):  # costs of any process: code, buffers, first blocks of the allocator
        next(shapes)
    plan_cache.clear()
    gc.collect()
    before = resident()
    evictions = plan_cache.stats()["evictions"]
    largest = 0
    for i, _ in enumerate(shapes):
        stats = plan_cache.stats()
        assert stats["bytes"] <= limit
        if i % 100 == 0:
            largest = max(largest, resident())
    assert plan_cache.stats()["evictions"] - evictions > 4000
    assert plan_cache.stats()["bytes"] > 0.9 * limit
    return largest - before


def test_thrashing_warns_once_and_names_what_changes(capfd: pytest.CaptureFixture[str]) -> None:
    plan_cache.set_limit(entries=8)
    for height in range(4, 140):
        x = wrap.Full((1, 1, height, 4), 1.0, device.get_default_device(), wrap.kFloat32)
        handle = wrap.PoolingHandle(x, (2, 2), (2, 2), (0, 0), False)
        wrap.PoolingForward(handle, x, False)
    stats = plan_cache.stats()
    assert stats["evictions"] >= 128
    assert stats["entries"] == 8
    warnings = [line for line in capfd.readouterr().err.splitlines() if "plan cache" in line]
    assert len(warnings) == 1
    assert "'height' of PoolingForward keeps changing" in warnings[0]
    assert "limit 8 entries" in warnings[0]
    assert "set_limit" in warnings[0]


def test_the_least_recently_used_goes_first() -> None:
    def run(height: int) -> None:
        x = wrap.Full((1, 1, height, 4), 1.0, device.get_default_device(), wrap.kFloat32)
        wrap.PoolingForward(wrap.PoolingHandle(x, (2, 2), (2, 2), (0, 0), False), x, False)

    def misses() -> int:
        return plan_cache.stats()["misses"]

    plan_cache.set_limit(entries=3)
    for height in (10, 11, 12):
        run(height)
    made = misses()
    run(10)  # 11 is now the oldest
    run(13)
    assert misses() == made + 1
    run(10)
    run(12)
    assert misses() == made + 1
    run(11)
    assert misses() == made + 2


def test_a_smaller_limit_holds_at_once() -> None:
    net = network()
    an_epoch(net)
    assert plan_cache.stats()["entries"] > 4
    plan_cache.set_limit(entries=4)
    assert plan_cache.stats()["entries"] == 4
    plan_cache.set_limit(bytes=1)
    assert plan_cache.stats()["entries"] == 0
    assert plan_cache.stats()["bytes"] == 0
    plan_cache.set_limit()  # 0 keeps the current limits
    assert plan_cache.stats()["max_bytes"] == 1
    an_epoch(net)  # all operations still run
