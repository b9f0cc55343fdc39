"""Several threads at once give the bits of one thread, even while the plan cache is emptied."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import singa
from random_geometry import IMPLEMENTATIONS, preference
from singa import autograd, layer, models, opt, plan_cache, tensor
from singa import singa_wrap as wrap

THREADS = 8


@pytest.fixture(autouse=True)
def _limits() -> Iterator[None]:
    before = plan_cache.stats()
    yield
    plan_cache.set_limit(before["max_bytes"], before["max_entries"])


def _images(batch: int, seed: int, size: int = 32) -> np.ndarray[Any, Any]:
    shape = (batch, 3, size, size)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _at_once(work: Callable[[int], Any], meanwhile: Callable[[int], None] | None = None) -> Any:
    """Runs work(0), work(1), … in one thread each, and raises their exceptions."""
    done = threading.Event()

    def disturb() -> None:
        number = 0
        while meanwhile is not None and not done.is_set():
            meanwhile(number)
            number += 1

    with ThreadPoolExecutor(THREADS + 1) as pool:
        disturber = pool.submit(disturb)
        try:
            return list(pool.map(work, range(THREADS)))
        finally:
            done.set()
            disturber.result()


def _disturb(number: int) -> None:
    plan_cache.clear() if number % 2 else plan_cache.set_limit(entries=1 + number % 30)
    plan_cache.stats()
    singa.device_memory()


@pytest.mark.parametrize("meanwhile", [None, _disturb], ids=["calm", "cache emptied"])
@pytest.mark.parametrize("code", IMPLEMENTATIONS, ids=wrap.PreferenceName)
def test_threads_infer_as_one_alone(code: int, meanwhile: Callable[[int], None] | None) -> None:
    """Threads share a model. Half of the calls have one shape, the others have a different shape
    each."""
    singa.seed(4)
    net = models.create("resnet20_cifar")
    xs = [tensor.from_numpy(_images(1 + i % 3, i, 8 + 4 * (i // 3))) for i in range(THREADS)]
    net.compile([xs[0]], is_train=False)
    net.eval()

    with preference(code):
        alone = [net(x).numpy() for x in xs]
        plan_cache.clear()

        def infer(thread: int) -> list[tuple[int, np.ndarray[Any, Any]]]:
            chosen = [0 if i % 2 else (thread + i) % THREADS for i in range(6)]
            assert not autograd.training
            return [(i, net(xs[i]).numpy()) for i in chosen]

        results = _at_once(infer, meanwhile)
    assert len({y.tobytes() for y in alone}) == THREADS
    for result in results:
        for i, y in result:
            np.testing.assert_array_equal(y, alone[i])


def _small() -> models.Sequential:
    return models.Sequential(
        *(layer.Conv2d(3, 9, 3, padding=1), layer.BatchNorm2d(9), layer.ReLU()),
        *(layer.MaxPool2d(2, 2), layer.Flatten(), layer.Linear(5)),
    )


def test_threads_train_their_own_models_as_one_alone() -> None:
    def made() -> list[models.Sequential]:
        singa.seed(6)
        nets = []
        for i in range(THREADS):
            net = _small()
            net.set_optimizer(opt.SGD(lr=0.05, momentum=0.9))
            net.compile([tensor.from_numpy(_images(2 + i % 2, i, 8))], is_train=True)
            nets.append(net)
        return nets

    def train(net: models.Sequential, number: int) -> dict[str, np.ndarray[Any, Any]]:
        net.train()
        for step in range(4):
            x = tensor.from_numpy(_images(2 + number % 2, 10 * number + step, 8))
            net(x, tensor.from_numpy(np.arange(2 + number % 2, dtype=np.int32)))
        return {name: t.numpy() for name, t in net.get_states().items()}

    first = made()
    untrained = first[0][0].W.numpy()
    alone = [train(net, i) for i, net in enumerate(first)]
    assert not np.array_equal(first[0][0].W.numpy(), untrained)
    nets = made()
    together = _at_once(lambda i: train(nets[i], i), _disturb)
    for expected, got in zip(alone, together, strict=True):
        assert expected.keys() == got.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(got[name], value, err_msg=name)
