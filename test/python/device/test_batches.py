"""Batches that a loader copies to a GPU while the GPU computes."""

import gc
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import singa
from singa import data, device, layer, models, opt, tensor

if TYPE_CHECKING:
    from singa.singa_wrap import Device


def loader(dev: "Device | None", **arguments: int) -> data.DataLoader:
    random = np.random.default_rng(3)
    images = random.integers(0, 256, (37, 2, 5, 5), np.uint8)
    labels = random.integers(0, 4, 37).astype(np.int32)
    return data.DataLoader((images, labels), 5, True, 1, device=dev, **arguments)


def trained(gpu: "Device", dev: "Device | None", epochs: int = 4) -> list[float]:
    """Losses of training on a GPU, none of which is read before the end."""
    gpu.SetRandSeed(5)
    net = models.Sequential(layer.Flatten(), layer.Linear(8), layer.ReLU(), layer.Linear(4))
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    net.compile([tensor.zeros((5, 2, 5, 5), gpu)], use_graph=True)
    losses = []
    batches = loader(dev, num_workers=2, prefetch=4)
    for _ in range(epochs):
        for x, y in batches:
            if dev is None:
                x, y = tensor.from_numpy(x, gpu), tensor.from_numpy(y, gpu)
            losses.append(net(x, y)[1])
    return [loss.numpy().item() for loss in losses]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_are_those_of_the_host(gpu: "Device", workers: int) -> None:
    arrays, sent = loader(None), loader(gpu, num_workers=workers)
    for (images, labels), (x, y) in zip(arrays, sent, strict=True):
        assert x.device.name() == y.device.name() == "cuda:0"
        np.testing.assert_array_equal(x.numpy(), images)
        np.testing.assert_array_equal(y.numpy(), labels)
        assert (x.dtype, y.dtype) == (tensor.float32, tensor.int32)
        assert sent.state_dict() == arrays.state_dict()


def test_training_on_batches_sent_ahead_is_the_same(gpu: "Device") -> None:
    assert trained(gpu, gpu) == trained(gpu, None)


@pytest.mark.parametrize("order", ["early", "shuffled"])
def test_whatever_streams_do_training_is_the_same(gpu: "Device", order: str) -> None:
    if "emulated" not in device.device_query(0):
        pytest.skip("the order of streams is a GPU's own")
    program = f"""
import runpy
from singa import device
gpu = device.create_cuda_gpu()
print(runpy.run_path({__file__!r})["trained"](gpu, gpu))
"""
    from own_process import printed_by  # missing where this file runs as a program

    printed = printed_by(program, SINGA_CUDA_EMULATED_STREAMS=order)
    assert json.loads(printed) == trained(gpu, None)


def test_memory_does_not_grow_from_epoch_to_epoch(gpu: "Device") -> None:
    gc.collect()  # removes what other tests left
    used = []
    for _ in range(2):
        trained(gpu, gpu)
        gc.collect()
        used.append(singa.device_memory(gpu))
    assert used[0]["live"] == used[1]["live"]
    assert used[0]["reserved"] >= used[1]["reserved"]  # it may return memory that others used


def test_what_is_sent_was_read(gpu: "Device") -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    sent = tensor.from_numpy(a, gpu)
    converted = tensor.from_numpy(a, gpu, dtype="int64")
    kept = tensor.zeros((3, 4), gpu)
    kept.copy_from_numpy(a[::-1])
    expected = a.copy()
    a.fill(-1)
    np.testing.assert_array_equal(sent.numpy(), expected)
    np.testing.assert_array_equal(converted.numpy(), expected)
    np.testing.assert_array_equal(kept.numpy(), expected[::-1])
    frozen = expected.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(tensor.from_numpy(frozen, gpu).numpy(), expected)
