"""The device of tensors that are created without one."""

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
import singa
from singa import autograd, device, layer, opt, tensor

if TYPE_CHECKING:
    from singa.singa_wrap import Device


@pytest.fixture(params=["cpu", "gpu"])
def other(request: pytest.FixtureRequest) -> Iterator["Device"]:
    """Sets another default device: a second CPU device, or a GPU."""
    separate = request.param == "cpu"
    dev = device.create_cpu_device(separate=True) if separate else request.getfixturevalue("gpu")
    device.set_default_device(dev)
    yield dev
    device.set_default_device(None)
    if separate:
        dev.Close()


def test_what_is_made_without_a_device_lies_there(other: "Device") -> None:
    assert device.get_default_device().id() == other.id()
    made = [
        tensor.Tensor((2,)),
        tensor.Tensor(data=[1.0, 2.0]),
        tensor.Tensor((2, 1), data=np.ones(2)),
        tensor.from_numpy(np.ones(3)),
        tensor.from_numpy(np.ones(3), dtype="float64"),
        tensor.zeros((2,)),
        tensor.ones((2,)),
        tensor.random((2,)),
        pickle.loads(pickle.dumps(tensor.ones((2,)))),
        autograd.mse_loss(tensor.ones((2,)), np.zeros(2, np.float32)),
        layer.Linear(3)(tensor.ones((2, 2))),
    ]
    assert {t.device.name() for t in made} == {other.name()}
    made.append(tensor.zeros((1 << 20,)))
    assert singa.device_memory()["live"] == singa.device_memory(other)["live"] >= 4 << 20


def test_what_names_a_device_or_has_one_stays(other: "Device") -> None:
    cpu = device.create_cpu_device()
    assert cpu.name() == "cpu"
    t = tensor.from_numpy(np.ones(3), cpu)
    made = [
        t,
        t + 1.0,
        2.0 * t,
        t + np.ones(3, np.float32),
        t.clone(),
        tensor.Tensor(data=t.data),
        tensor.ones_like(t),
        tensor.zeros((2,), cpu),
        tensor.ones((2,), cpu),
        tensor.to_host(tensor.ones((2,))),
        opt.SGD(lr=0.1).lr_value,  # numbers of the host
        opt.SGD(lr=0.1).step_counter,
        autograd.mse_loss(t, np.zeros(3, np.float32)),
    ]
    assert {made.device.name() for made in made} == {"cpu"}
    t[1:] = np.zeros(2, np.float32)
    t.copy_from_numpy(2 * t.numpy())
    assert t.numpy().tolist() == [2, 0, 0]
    assert autograd.gradcheck(autograd.sigmoid, t)


def test_seed_starts_its_sequence(other: "Device") -> None:
    singa.seed(3)
    first = tensor.random((5,)).numpy()
    other.SetRandSeed(3)
    np.testing.assert_array_equal(tensor.random((5,)).numpy(), first)


def test_none_is_the_cpu_again(other: "Device") -> None:
    with pytest.raises(
        TypeError, match=r"\[set_default_device\] device must be a Device, .* got 'cuda'"
    ):
        device.set_default_device("cuda")  # type: ignore[arg-type]
    assert tensor.ones((1,)).device.name() == other.name()
    device.set_default_device(None)
    assert device.get_default_device().name() == tensor.ones((1,)).device.name() == "cpu"
