"""SINGA_DEVICE=cpu: scripts that ask for a GPU get the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
from singa import device, singa_wrap, tensor

_ASKING: dict[str, Callable[[], list[Any]]] = {
    "create_cuda_gpu": lambda: [device.create_cuda_gpu()],
    "create_cuda_gpus": lambda: device.create_cuda_gpus(2),
    "create_cuda_gpu_on": lambda: [device.create_cuda_gpu_on(3)],
    "create_cuda_gpus_on": lambda: device.create_cuda_gpus_on([0, 3]),
    "create_opencl_device": lambda: [device.create_opencl_device()],
}


@pytest.fixture(params=sorted(_ASKING))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_gives_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINGA_DEVICE", "cpu")
    devices = _ASKING[name]()
    assert len(devices) == 1 + ("gpus" in name)
    for dev in devices:
        assert dev.id() == device.create_cpu_device().id()
        assert (tensor.ones((2,), dev) + tensor.ones((2,))).numpy().tolist() == [2.0, 2.0]


def test_without_it_the_error_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINGA_DEVICE", "")
    monkeypatch.setattr(device, "get_num_gpus", lambda: 0)
    monkeypatch.setattr(singa_wrap.Platform, "CreateCudaGPUsOn", _no_gpu)
    with pytest.raises(RuntimeError, match="SINGA_DEVICE=cpu") as caught:
        _ASKING[name]()
    assert f"{name}()" in str(caught.value)


def _no_gpu(*_: object) -> None:
    raise RuntimeError("[gpu] no GPU can be used")


def test_another_value_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINGA_DEVICE", "tpu")
    with pytest.raises(ValueError, match=rf"\[{name}\] SINGA_DEVICE must be cpu.*'tpu'"):
        _ASKING[name]()
