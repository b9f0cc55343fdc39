"""The Python tensor: making, reading, copying, arithmetic."""

import copy
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from arrays import A, of, same
from singa import autograd, device, tensor
from singa import singa_wrap as wrap
from singa.tensor import Tensor

DTYPES = ["float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool"]


# Making and describing.


def test_a_new_tensor_holds_zeros() -> None:
    t = Tensor((2, 3))
    assert t.shape == (2, 3)
    assert t.dtype == tensor.float32
    assert (t.requires_grad, t.stores_grad, t.name, t.grad) == (True, False, None, None)
    assert t.is_dummy()
    t += 1.23  # as in SINGA's scripts, without filling it first
    np.testing.assert_allclose(t.numpy(), np.full((2, 3), 1.23, np.float32))


def test_facts() -> None:
    t = Tensor((2, 3))
    assert (t.ndim(), t.size(), t.memsize(), len(t)) == (2, 6, 6 * tensor.sizeof(t.dtype), 2)
    assert not t.is_transpose()
    assert t.T().is_transpose()
    assert not t.is_empty()
    assert Tensor().is_empty()
    assert Tensor((0, 3)).is_empty()
    assert tensor.product((2, 3, 4)) == 24
    assert t.device.name() == device.get_default_device().name()


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_and_back(dtype: str) -> None:
    values = np.array([[0, 1, 2], [3, 0, 1]]).astype(dtype)
    t = tensor.from_numpy(values, dtype=dtype)
    assert t.dtype.name == dtype
    assert t.dtype == getattr(tensor, dtype if dtype != "bool" else "bool_")
    assert t.numpy().dtype == dtype
    same(t, values)
    same(tensor.from_numpy(values.T, dtype=dtype), values.T)
    same(tensor.from_numpy(values[:, ::-2], dtype=dtype), values[:, ::-2])


def test_from_numpy_narrows_as_singa_does() -> None:
    assert of(np.ones(3)).dtype == tensor.float32
    assert of(np.ones(3, np.int64)).dtype == tensor.int32
    assert of(np.ones(3), dtype="float64").dtype == tensor.float64
    with pytest.raises(ValueError, match="int32"):
        of(np.array([2**40]))
    assert of(np.array([2**40]), dtype="int64").item() == 2**40


def test_data_may_be_an_array_or_a_raw_tensor() -> None:
    t = Tensor(data=np.array([[0, 1], [9, 8]]))
    assert (t.shape, t.dtype) == ((2, 2), tensor.float32)
    assert Tensor((4,), data=np.eye(2)).shape == (4,)
    shared = Tensor(data=t.data)
    t += 1.0
    same(shared, [[1, 2], [10, 9]])
    assert tensor.from_raw_tensor(t.data).shape == (2, 2)
    assert len(tensor.from_raw_tensors([t.data, t.data])) == 2


def test_filled_tensors() -> None:
    same(tensor.zeros((2,)), [0, 0])
    same(tensor.ones((2,), dtype="int32"), [1, 1])
    t = of(A)
    same(tensor.zeros_like(t), np.zeros_like(A))
    same(tensor.ones_like(t), np.ones_like(A))
    assert tensor.random((50,)).numpy().max() < 1.0


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(0, "float32"), ("int8", "int8"), (np.float64, "float64"), (tensor.uint8, "uint8"),
     (np.dtype("bool"), "bool")],
)  # fmt: skip
def test_ways_to_name_a_type(value: Any, dtype: str) -> None:
    assert Tensor((1,), dtype=value).dtype.name == dtype


@pytest.mark.parametrize("value", [None, "float8", 99, -1, np.complex64, True, object])
def test_wrong_types(value: Any) -> None:
    with pytest.raises(TypeError, match="float32"):
        Tensor((1,), dtype=value)


def test_wrong_shapes() -> None:
    for shape in [(-1,), (2**40, 2**40), (1,) * 13]:
        with pytest.raises((ValueError, MemoryError)):
            Tensor(shape)
    with pytest.raises(TypeError):
        Tensor((1.5,))  # type: ignore[arg-type]


# Types and devices.


def test_as_type_makes_another_and_to_type_changes_itself() -> None:
    t = of([1.7, -1.7])
    same(t.as_type(tensor.int32), [1, -1])
    assert t.dtype == tensor.float32
    t.to_type("float16")
    assert t.dtype == tensor.float16


def test_bfloat16_reads_as_float32() -> None:
    t = of([1.0, 1.0 + 2**-9]).as_type("bfloat16")
    assert t.dtype == tensor.bfloat16
    assert t.numpy().dtype == np.float32
    same(t, [1.0, 1.0])
    assert t.memsize() == 4


def test_layouts() -> None:
    t = of(A)
    assert not t.is_blocked
    assert t.to_plain() is t
    same(t, A)
    same(t.to_blocked(), A)  # not an image, so nothing changes
    assert not t.is_blocked


@pytest.mark.cpu("needs several CPU devices")
def test_devices() -> None:
    cpu = device.create_cpu_device()
    t = of(A)
    t.to_device(cpu)
    t.to_host()
    same(t + of(A, dev=cpu), A + A)
    apart = device.create_cpu_device(separate=True)
    u = of(A).to_device(apart)
    with pytest.raises(ValueError, match="cpu-"):
        t + u
    same(tensor.to_host(u) + t, A + A)
    with pytest.raises(RuntimeError, match="backend"):
        device.create_opencl_device()


# Sharing and copying.


def test_copy_shares_and_clone_does_not() -> None:
    t = Tensor((2, 3), name="t", stores_grad=True)
    t.set_value(1.0)
    shared, clone, deep = t.copy(), t.clone(), t.deepcopy()
    t += 1.0
    assert shared.numpy()[0, 0] == 2.0
    assert clone.numpy()[0, 0] == deep.numpy()[0, 0] == 1.0
    assert (clone.name, clone.stores_grad) == ("t", True)


@pytest.mark.parametrize("recording", [True, False])
@pytest.mark.parametrize("singas", [False, True])
def test_a_clone_stays_on_the_tape_and_other_copies_do_not(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch, singas: bool, recording: bool
) -> None:
    """Of a parameter, of what was computed from one, and of a constant."""
    monkeypatch.setattr("singa.compat.enabled", singas)
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    leaf, theirs = of(a), torch.from_numpy(a).requires_grad_()
    leaf.stores_grad, leaf.name = True, "w"
    cut = singas or not recording

    with autograd.enable_grad() if recording else autograd.no_grad():
        computed = leaf * leaf
        for x, copied in ((leaf, leaf.clone()), (computed, computed.clone())):
            same(copied, x.numpy())
            assert not copied.data.SharesMemory(x.data)
            assert copied.is_dummy() == cut
        constant = of(a).clone()
        assert (constant.is_dummy(), constant.requires_grad) == (True, True)
        for x in (leaf.deepcopy(), copy.deepcopy(computed), computed.detach().clone()):
            assert x.is_dummy()
        if cut:
            assert (leaf.clone().name, leaf.clone().stores_grad) == ("w", True)
            return
        # In place, which must not reach the original.
        changed = leaf.clone()
        changed.data.Fill(5.0)
        same(leaf, a)
        y = leaf.clone() * 3.0 + computed.clone() * leaf
        gradients = {x.name: grad for x, grad in autograd.backward(y, np.ones((2, 3)))}
    (theirs.clone() * 3.0 + (theirs * theirs).clone() * theirs).sum().backward()
    assert list(gradients) == ["w"]
    np.testing.assert_allclose(gradients["w"].numpy(), theirs.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_deepcopy_and_pickle(dtype: str) -> None:
    t = of(np.array([[0, 1, 1], [1, 0, 1]])).as_type(dtype)
    t.stores_grad, t.requires_grad, t.name = True, False, "w"
    t.note = "kept"  # type: ignore[attr-defined]
    for new in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        same(new, t.numpy())
        assert new.dtype == t.dtype
        assert (new.stores_grad, new.requires_grad, new.name) == (True, False, "w")
        assert new.note == "kept"
        new.set_value(0)
        assert t.numpy().any()


@pytest.mark.cpu("NumPy and PyTorch read memory of the CPU")
def test_numpy_copies_and_asarray_shares() -> None:
    t = of(A)
    copied, view = t.numpy(), np.asarray(t)
    t += 1.0
    np.testing.assert_array_equal(copied, A)
    np.testing.assert_array_equal(view, A + 1)
    del t
    np.testing.assert_array_equal(view, A + 1)  # the view keeps the memory alive
    t = of(A)
    assert np.array(t, dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.asarray(t.transpose()), A.T)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(t, dtype=np.int32, copy=False)


def test_elements_are_copied_into_memory_of_their_kind() -> None:
    t = of(A)
    array = np.empty(A.shape, np.float32)
    wrap.to_buffer(t.transpose((2, 0, 1)).data, array.reshape(4, 2, 3))
    np.testing.assert_array_equal(array.reshape(4, 2, 3), A.transpose(2, 0, 1))
    with pytest.raises(TypeError, match=r"to_buffer.*float64"):
        wrap.to_buffer(t.data, A.astype(np.float64))
    with pytest.raises(ValueError, match="92 bytes"):
        wrap.to_buffer(t.data, np.empty(23, np.float32))
    fixed = A.copy()
    fixed.flags.writeable = False
    for no_room in (fixed, np.empty((2, 3, 8), np.float32)[..., ::2], "text"):
        with pytest.raises(ValueError, match="no row-major memory"):
            wrap.to_buffer(t.data, no_room)


def test_numpy_leaves_arithmetic_to_us() -> None:
    t = of(A)
    for result in (A + t, np.float32(2.0) * t, t - A):
        assert isinstance(result, Tensor)
    same(A + t, A + A)
    same(np.float32(2.0) * t, 2 * A)
    np.testing.assert_array_equal(np.sqrt(t * t), np.abs(A))


@pytest.mark.cpu("NumPy and PyTorch read memory of the CPU")
def test_dlpack_shares_both_ways(torch: ModuleType) -> None:
    t = of(A)
    theirs = torch.from_dlpack(t)
    theirs += 1
    same(t, A + 1)
    ours = tensor.from_dlpack(torch.arange(6.0).reshape(2, 3).T)
    same(ours, np.arange(6).reshape(2, 3).T)
    ours += 1.0
    brain = tensor.from_dlpack(torch.ones(3, dtype=torch.bfloat16))
    assert brain.dtype == tensor.bfloat16
    with pytest.raises(TypeError):
        tensor.from_dlpack(torch.ones(3, dtype=torch.complex64))


@pytest.mark.cpu("NumPy and PyTorch read memory of the CPU")
def test_dlpack_with_numpy() -> None:
    t = of(A)
    array = np.from_dlpack(t)
    t *= 2.0
    np.testing.assert_array_equal(array, 2 * A)
    del t
    np.testing.assert_array_equal(array, 2 * A)


@pytest.mark.cpu("NumPy and PyTorch read memory of the CPU")
def test_dlpack_copies_when_asked(torch: ModuleType) -> None:
    t = of(A)
    copies = [
        torch.from_dlpack(t, copy=True),
        torch.from_dlpack(t, copy=True, device="cpu"),
        np.from_dlpack(t, copy=True),
        np.array(t),
        np.array(t, copy=True),
        tensor.from_dlpack(t, copy=True),
        tensor.from_dlpack(t.__dlpack__(copy=True)),
        tensor.from_dlpack(t.__dlpack__(dl_device=(1, 0), copy=True)),
    ]
    views = [
        torch.from_dlpack(t, copy=False),
        torch.from_dlpack(t, device="cpu"),
        np.from_dlpack(t, copy=False, device="cpu"),
        np.asarray(t, copy=False),
        tensor.from_dlpack(t, copy=False, device=t.device),
        tensor.from_dlpack(t.__dlpack__(dl_device=(1, 0), copy=False, stream=None)),
    ]
    t *= 2.0
    for theirs in copies:
        np.testing.assert_array_equal(np.asarray(theirs), A)
    for theirs in views:
        np.testing.assert_array_equal(np.asarray(theirs), 2 * A)


@pytest.mark.cpu("NumPy and PyTorch read memory of the CPU")
def test_dlpack_copies_of_views_and_blocked_tensors(torch: ModuleType) -> None:
    images = np.arange(2 * 16 * 3 * 3, dtype=np.float32).reshape(2, 16, 3, 3)
    blocked = of(images).to_blocked()
    view = of(images)[:, 3:5]
    theirs = torch.from_dlpack(blocked, copy=True), torch.from_dlpack(view, copy=True)
    blocked *= 2.0
    view *= 2.0
    np.testing.assert_array_equal(theirs[0].numpy(), images)
    np.testing.assert_array_equal(theirs[1].numpy(), images[:, 3:5])
    np.testing.assert_array_equal(blocked.numpy(), 2 * images)


# Copying into tensors.


def test_set_value() -> None:
    t = Tensor((2, 2))
    assert t.set_value(3) is t
    same(t, np.full((2, 2), 3))
    other = t.set_value(4.0, inplace=False)
    same(t, np.full((2, 2), 3))
    same(other, np.full((2, 2), 4))
    same(t.set_value(np.array([1.0, 2.0])), [[1, 2], [1, 2]])


def test_copy_from_numpy() -> None:
    t = Tensor((2, 3))
    t.copy_from_numpy(np.arange(6))
    same(t, [[0, 1, 2], [3, 4, 5]])
    t.copy_from_numpy(np.array([9.0, 8.0]), offset=3)
    same(t, [[0, 1, 2], [9, 8, 5]])
    tensor.copy_from_numpy(t.data, np.zeros((2, 3)))
    same(t, np.zeros((2, 3)))
    for array, offset in [(np.zeros(5), 0), (np.zeros(3), 4), (np.zeros(1), -1)]:
        with pytest.raises(ValueError, match="copy_from_numpy"):
            t.copy_from_numpy(array, offset)
    with pytest.raises(ValueError, match="row-major"):
        t.T().copy_from_numpy(np.zeros(6))


def test_copy_between_tensors() -> None:
    t, s = Tensor((2, 3)), Tensor((2, 3))
    t += 1.0
    s += 5.0
    tensor.copy_data_to_from(t, s, 2)
    same(t, [[5, 5, 1], [1, 1, 1]])
    tensor.copy_data_to_from(t, of([7.0, 8.0, 9.0]), 2, 4, 1)
    same(t, [[5, 5, 1], [1, 8, 9]])
    t.copy_data(s)
    same(t, s.numpy())
    t.copy_from(of(np.arange(6.0)))
    same(t, [[0, 1, 2], [3, 4, 5]])
    t.copy_from(np.array([6.0]), 5)
    assert t.numpy()[1, 2] == 6
    with pytest.raises(ValueError, match="sizes"):
        t.copy_data(Tensor((5,)))
    for size, to, source in [(7, 0, 0), (1, 6, 0), (1, 0, 6), (-1, 0, 0)]:
        with pytest.raises(ValueError, match="copy_data_to_from"):
            tensor.copy_data_to_from(t, s, size, to, source)


def test_reset_like() -> None:
    t = of([1.0])
    t.reset_like(tensor.ones((2, 2), dtype="int32"))
    assert (t.shape, t.dtype) == ((2, 2), tensor.int32)
    same(t, np.zeros((2, 2)))


def test_scalars() -> None:
    t = of([3.5])
    assert (t.item(), float(t), int(t), bool(t), round(t, 1)) == (3.5, 3.5, 3, True, 3.5)
    assert type(of([3]).item()) is int
    assert of([True]).item() is True
    assert [10, 20, 30][of([1])[0]] == 20
    with pytest.raises(TypeError, match="index"):
        [10][of([0.0])]
    with pytest.raises(ValueError, match="neither"):
        bool(of([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"[Ii]tem|element"):
        of([1.0, 2.0]).item()
    with pytest.raises(TypeError, match="length"):
        len(of(1.0))


@pytest.mark.cpu("the text of a GPU tensor names the device")
def test_it_prints_its_values() -> None:
    assert repr(of([[1.5, 2.0]])) == "Tensor([[1.5, 2. ]], dtype=float32)"
    assert str(of([1, 2])) == "Tensor([1, 2], dtype=int32)"
    assert "..." in repr(tensor.zeros((2000,)))
    assert f"{tensor.float32} {tensor.float32!r}" == "float32 singa.float32"


# Arithmetic.

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: abs(a) ** b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


@pytest.mark.parametrize("sign", BINARY)
@pytest.mark.parametrize("b", [2.5, 2, -0.5], ids=str)
def test_with_numbers(sign: str, b: float) -> None:
    f = BINARY[sign]
    np.testing.assert_allclose(f(of(A), b).numpy(), f(A, np.float32(b)), rtol=1e-5)
    if sign in "+-*/":
        np.testing.assert_allclose(f(b, of(A)).numpy(), f(np.float32(b), A), rtol=1e-6)


@pytest.mark.parametrize("sign", BINARY)
def test_of_tensors_that_broadcast(sign: str) -> None:
    b = np.array([[0.5], [-1.5], [2.0]], np.float32)
    f = BINARY[sign]
    np.testing.assert_allclose(f(of(A), of(b)).numpy(), f(A, b), rtol=2e-5)


@pytest.mark.parametrize(
    "f",
    [lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b,
     lambda a, b: a == b, lambda a, b: a != b],
)  # fmt: skip
def test_comparisons_give_bools(f: Callable[[Any, Any], Any]) -> None:
    b = A[::-1].copy()
    b[0, 0] = A[0, 0]
    for other in (b, 1.5, 2):
        got = f(of(A), of(other) if isinstance(other, np.ndarray) else other)
        assert got.dtype == tensor.bool_
        same(got, f(A, other))


def test_the_transpose_needs_no_brackets() -> None:
    x = of(A)
    for t in (x.T, x.T(), x.T.T.T()):
        same(t, A.T)
        assert (isinstance(t, tensor.Tensor), t.shape, t.is_transpose()) == (True, A.T.shape, True)
    same(x.T + 1, A.T + 1)
    same((x.T * 2)[0], A.T[0] * 2)
    assert type(x) is type(x.T + 1)
    assert not callable(x)


def test_gradients_flow_through_the_transpose() -> None:
    w = tensor.Tensor(data=np.array([[1.0, 2.0], [3.0, 4.0]]), stores_grad=True)
    with autograd.enable_grad():
        gradients = autograd.gradients((w.T @ np.array([[1.0], [10.0]])).sum())
    same(gradients[w], np.array([[1.0, 1.0], [10.0, 10.0]], np.float64))


def test_comparison_with_what_is_no_number() -> None:
    t = of(A)
    same(t == None, A == None)  # noqa: E711
    same(t != None, A != None)  # noqa: E711
    with pytest.raises(ValueError, match="neither true nor false"):
        assert t == None  # noqa: E711
    assert (of([[2.0]]) != None).item() is True  # noqa: E711
    assert (t != "x") is True
    assert t in ["x", t]
    assert {t: 1}[t] == 1
    with pytest.raises(TypeError):
        t < None  # noqa: B015
    with pytest.raises(TypeError):
        t + "x"


def test_integers() -> None:
    t = of([1, 2, 3])
    for result, values, dtype in [
        (t + 1, [2, 3, 4], "int32"),
        (t * 2, [2, 4, 6], "int32"),
        (2 - t, [1, 0, -1], "int32"),
        (t + 0.5, [1.5, 2.5, 3.5], "float32"),
        (t / 2, [0.5, 1.0, 1.5], "float32"),
        (t / t, [1.0, 1.0, 1.0], "float32"),
        (t > 1.5, [False, True, True], "bool"),
    ]:
        same(result, values)
        assert result.dtype.name == dtype
    with pytest.raises(TypeError, match="int32"):
        t += 0.5
    with pytest.raises(TypeError, match="int32"):
        t /= 2
    t += 1
    same(t, [2, 3, 4])


def test_in_place() -> None:
    t = Tensor((2, 3))
    view = t[0]
    t += 1.2
    t -= 0.2
    t *= 2.5
    t /= 2.0
    t **= 2
    np.testing.assert_allclose(t.numpy(), np.full((2, 3), 1.5625), rtol=1e-6)
    same(view, t.numpy()[0])
    t += of([1.0, 2.0, 3.0])
    t *= np.array([[1.0], [2.0]])
    np.testing.assert_allclose(t.numpy(), (1.5625 + np.array([1, 2, 3])) * [[1], [2]], rtol=1e-6)
    with pytest.raises(ValueError, match="shape"):
        view += of(np.ones((4, 3)))


def test_matrix_products() -> None:
    a, b = A[0], A[1]
    np.testing.assert_allclose((of(a) @ of(b).T()).numpy(), a @ b.T, rtol=1e-6)
    np.testing.assert_allclose((of(a) @ b.T).numpy(), a @ b.T, rtol=1e-6)
    np.testing.assert_allclose(tensor.mult(of(a.T), of(b)).numpy(), a.T @ b, rtol=1e-6)
    c = tensor.ones((3, 3))
    assert tensor.mult(of(a), of(b.T), c, 2.0, 3.0) is c
    np.testing.assert_allclose(c.numpy(), 2 * a @ b.T + 3, rtol=1e-6)


def test_a_copied_raw_tensor_shares_the_memory() -> None:
    raw = tensor.from_numpy(np.ones(2, np.float32)).data
    other = copy.copy(raw)
    assert other is not raw
    raw.Fill(3.0)
    assert np.asarray(tensor.Tensor(data=other)).tolist() == [3.0, 3.0]
