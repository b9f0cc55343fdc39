"""Tensors on a GPU: copies to and from it, and errors."""

from typing import TYPE_CHECKING

import numpy as np
import pytest
import singa
from own_process import printed_by
from singa import device, tensor
from singa import singa_wrap as raw

if TYPE_CHECKING:
    from singa.singa_wrap import Device

DTYPES = ["float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool"]


def array(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (np.arange(int(np.prod(shape))) % 100).reshape(shape).astype(dtype)


def test_devices_are_found_by_number(gpu: "Device") -> None:
    assert gpu.name() == "cuda:0"
    assert gpu.id() == 0
    again = device.create_cuda_gpu_on(0)
    assert (tensor.ones((2,), gpu) + tensor.ones((2,), again)).numpy().tolist() == [2, 2]
    assert device.get_gpu_ids() == tuple(range(device.get_num_gpus()))
    free, total = device.get_gpu_mem_size(0)
    assert 0 < free <= total
    assert "compute capability" in device.device_query(0, verbose=True)
    with pytest.raises(ValueError, match=r"\[gpu\] there is no GPU 99; "):
        device.create_cuda_gpu_on(99)
    assert any("cuda" in line.lower() for line in singa.doctor()["gpu"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (5, 7), (2, 3, 4, 5)])
def test_round_trips(gpu: "Device", dtype: str, shape: tuple[int, ...]) -> None:
    a = array(*shape, dtype=dtype)
    t = tensor.from_numpy(a, gpu, dtype=dtype)
    assert t.device.name() == "cuda:0"
    np.testing.assert_array_equal(t.numpy(), a)
    np.testing.assert_array_equal(tensor.to_numpy(t.clone()), a)
    there = tensor.from_numpy(a, dtype=dtype).to_device(gpu)
    np.testing.assert_array_equal(there.numpy(), a)
    assert there.to_host().device.name() == "cpu"
    np.testing.assert_array_equal(there.numpy(), a)


def test_large_copies_go_in_pieces(gpu: "Device") -> None:
    a = np.random.default_rng(0).standard_normal((5 << 20) + 3, dtype=np.float32)  # about 20 MB
    t = tensor.from_numpy(a, gpu)
    np.testing.assert_array_equal(t.numpy(), a)


def test_views_and_conversions(gpu: "Device") -> None:
    a = array(6, 4, 10)
    t = tensor.from_numpy(a, gpu)
    for view, expected in [
        (t.transpose((2, 0, 1)), a.transpose(2, 0, 1)),
        (t[1:5:2, :, ::-3], a[1:5:2, :, ::-3]),
        (t[3], a[3]),
        (t.transpose().reshape((40, 6)), a.transpose().reshape(40, 6)),
    ]:
        np.testing.assert_array_equal(view.numpy(), expected)
        np.testing.assert_array_equal(view.clone().numpy(), expected)
        np.testing.assert_array_equal(view.as_type("int32").numpy(), expected.astype("int32"))
    host = tensor.from_numpy(a)
    np.testing.assert_array_equal(host[2:, 1].to_device(gpu).numpy(), a[2:, 1])
    for dtype in DTYPES:
        np.testing.assert_array_equal(t.as_type(dtype).numpy(), a.astype(dtype))
    np.testing.assert_array_equal(t.as_type("bfloat16").as_type("float32").numpy(), a)


def test_writes_to_views(gpu: "Device") -> None:
    a = array(4, 6)
    t = tensor.from_numpy(a, gpu)
    t[1:3, ::2] = 7.0
    a[1:3, ::2] = 7.0
    t[0] = tensor.from_numpy(array(6) + 50)  # from the CPU
    a[0] = array(6) + 50
    t[:, 1:] = t[:, :-1]  # overlapping
    a[:, 1:] = a[:, :-1].copy()
    np.testing.assert_array_equal(t.numpy(), a)
    host = tensor.zeros((4, 6))
    host[:, 2:] = t[:, 2:]
    np.testing.assert_array_equal(host.numpy()[:, 2:], a[:, 2:])
    t.set_value(3)
    assert t.numpy().tolist() == np.full((4, 6), 3.0).tolist()
    assert float(t[2, 3].numpy()) == 3
    assert t[2, 3].item() == 3
    assert "cuda:0" in repr(t)


def test_memory_of_others_cannot_be_shared(gpu: "Device") -> None:
    t = tensor.ones((3,), gpu)
    with pytest.raises(TypeError, match="only CPU memory can be shared"):
        t.__dlpack__()
    with pytest.raises(ValueError, match="cuda:0"):
        t + tensor.ones((3,))


@pytest.mark.skipif(device.get_num_gpus() < 2, reason="there is one GPU")
def test_from_one_gpu_to_another() -> None:
    first, second = device.create_cuda_gpus(2)
    t = tensor.from_numpy(array(3, 5), first)
    np.testing.assert_array_equal(t[:, 1:].to_device(second).numpy(), array(3, 5)[:, 1:])


def test_memory_is_counted_and_used_again(gpu: "Device") -> None:
    start = singa.device_memory(gpu)["live"]
    t = tensor.zeros((1 << 20,), gpu)
    assert singa.device_memory(gpu)["live"] == start + (4 << 20)
    asked = singa.device_memory(gpu)["system_allocations"]
    for _ in range(5):
        t = tensor.zeros((1 << 20,), gpu)
    assert singa.device_memory(gpu)["system_allocations"] <= asked + 1
    del t
    assert singa.device_memory(gpu)["live"] == start


def test_out_of_memory_says_what_is_live(gpu: "Device") -> None:
    program = """
from singa import device, tensor
gpu = device.create_cuda_gpu()
kept = [tensor.ones((1 << 20,), gpu) for _ in range(8)]
try:
    tensor.ones((16 << 20,), gpu)
except MemoryError as error:
    print(error)
print(float(tensor.ones((4,), gpu).sum()))
"""
    if "emulated" not in device.device_query(0):
        pytest.skip("needs a GPU of 64 MiB")
    lines = printed_by(program, SINGA_CUDA_EMULATED_MEMORY=str(64 << 20)).splitlines()
    assert "a tensor of (16777216,) float32: 64 MiB asked for on cuda:0; 32 MiB in use" in lines[0]
    assert "MiB in 8 blocks" in lines[1]
    assert lines[-1] == "4.0"


def test_a_library_of_another_kind_is_refused() -> None:
    library = raw.__file__  # not a shared library
    program = """
from singa import device
try:
    device.create_cuda_gpu()
except RuntimeError as error:
    print(error)
"""
    assert "the CUDA backend cannot be loaded" in printed_by(program, SINGA_CUDA_LIBRARY=library)
    assert "/nowhere, which does not exist" in printed_by(program, SINGA_CUDA_LIBRARY="/nowhere")


def test_a_build_without_the_backend_says_how_to_get_it() -> None:
    program = """
from singa import device
try:
    device.create_cuda_gpu()
except RuntimeError as error:
    print(error)
else:
    print("there is a GPU")
"""
    error = printed_by(program, SINGA_CUDA_LIBRARY="", SINGA_DEVICE="")
    if "has no CUDA backend" not in error:
        pytest.skip("this build has the backend")
    for part in ("nvcc of CUDA 13", "scripts/cuda_headers.py", "docs/cuda.md"):
        assert part in error
