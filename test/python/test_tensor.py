"""The Python tensor: making, reading, indexing, arithmetic, and SINGA's functions on it."""

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa import autograd, device, tensor
from singa import singa_wrap as wrap
from singa.tensor import Tensor

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7.5
DTYPES = ["float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool"]


def of(values: Any, **kwargs: Any) -> Tensor:
    return tensor.from_numpy(np.asarray(values), **kwargs)


def same(t: Tensor, values: Any) -> None:
    np.testing.assert_array_equal(t.numpy(), values)


# Making and describing.


def test_a_new_tensor_holds_zeros() -> None:
    t = Tensor((2, 3))
    assert t.shape == (2, 3)
    assert t.dtype == tensor.float32
    assert (t.requires_grad, t.stores_grad, t.name, t.grad) == (True, False, None, None)
    assert t.is_dummy()
    t += 1.23  # as SINGA's scripts do, without filling it first
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


# Types and places.


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
    same(t.to_blocked(), A)  # no image: nothing happens
    assert not t.is_blocked


@pytest.mark.cpu("several CPUs")
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


@pytest.mark.cpu("memory that others read")
def test_numpy_copies_and_asarray_shares() -> None:
    t = of(A)
    copied, view = t.numpy(), np.asarray(t)
    t += 1.0
    np.testing.assert_array_equal(copied, A)
    np.testing.assert_array_equal(view, A + 1)
    del t
    np.testing.assert_array_equal(view, A + 1)  # the view keeps the memory
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


@pytest.mark.cpu("memory that others read")
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


@pytest.mark.cpu("memory that others read")
def test_dlpack_with_numpy() -> None:
    t = of(A)
    array = np.from_dlpack(t)
    t *= 2.0
    np.testing.assert_array_equal(array, 2 * A)
    del t
    np.testing.assert_array_equal(array, 2 * A)


# Copying in.


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


# Elements.

BASIC: list[Any] = [
    0, -1, (1, 2), (1, 2, 3), slice(None), slice(1, None), slice(None, None, -1), slice(5, 0, -2),
    slice(0, 0), (slice(None), slice(1, 3)), (slice(None), 1, slice(0, 4, 2)), ..., (..., 0),
    (0, ..., 1), None, (None, 0, None), (slice(None), None, 1), (slice(-1, -3, -1), 0), np.int64(1),
    slice(-9, 1, -1), slice(-9, None, -1), slice(9, -9, -1), (slice(None), slice(-5, -9, -2)),
]  # fmt: skip
ADVANCED: list[Any] = [
    [1, 0, 0], np.array([[1], [0]]), (slice(None), [2, 0]), (0, [2, 0]), ([1, 0], 0),
    (None, [1, 0]), A > 0, (A > 0).any(axis=(1, 2)), (slice(0, 1), [-1]),
]  # fmt: skip


@pytest.mark.parametrize("key", BASIC + ADVANCED, ids=str)
def test_getitem_is_numpys(key: Any) -> None:
    got = of(A)[key]
    np.testing.assert_array_equal(got.numpy(), A[key])
    assert got.shape == A[key].shape


@pytest.mark.parametrize("key", BASIC, ids=str)
def test_setitem_is_numpys(key: Any) -> None:
    t, array = of(A), A.copy()
    t[key] = 5
    array[key] = 5
    same(t, array)
    t[key] = of(A)[key] * 2.0
    array[key] = A[key] * 2
    same(t, array)


def test_setitem_by_a_mask() -> None:
    t, array = of(A), A.copy()
    t[t > 0] = 0.0
    array[array > 0] = 0
    same(t, array)


@pytest.mark.parametrize(
    ("key", "error"),
    [(2, IndexError), (-3, IndexError), ((0, 0, 0, 0), IndexError), ("a", TypeError),
     (1.5, TypeError), ((slice(None), np.array([True, False])), NotImplementedError),
     (np.array([True, False, True]), IndexError), ([5], IndexError),
     (([0], [1]), NotImplementedError)],
)  # fmt: skip
def test_wrong_indices(key: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        of(A)[key].numpy()  # a GPU sees wrong indices when it comes to them


def test_views_share_memory() -> None:
    t = of(A)
    t[0, 1:] += 100.0
    array = A.copy()
    array[0, 1:] += 100
    same(t, array)
    for row, values in zip(t, array, strict=True):
        same(row, values)


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


@pytest.mark.cpu("elsewhere the device is printed, too")
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
def test_comparisons_give_ones_and_zeros(f: Callable[[Any, Any], Any]) -> None:
    b = A[::-1].copy()
    b[0, 0] = A[0, 0]
    for other in (b, 1.5, 2):
        got = f(of(A), of(other) if isinstance(other, np.ndarray) else other)
        assert got.dtype == tensor.float32
        same(got, f(A, other).astype(np.float32))


def test_comparison_with_what_is_no_number() -> None:
    t = of(A)
    assert (t == None) is False  # noqa: E711
    assert (t != "x") is True
    assert t in [None, t]
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
        (t > 1.5, [0, 1, 1], "float32"),
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


# SINGA's functions.


@pytest.mark.parametrize("name", ["abs", "exp", "ceil", "sigmoid", "sign", "square", "tanh"])
def test_elementwise_functions(name: str) -> None:
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    truth = sigmoid if name == "sigmoid" else getattr(np, name)
    np.testing.assert_allclose(getattr(tensor, name)(of(A / 4)).numpy(), truth(A / 4), rtol=1e-5)


def test_more_functions() -> None:
    positive = np.abs(A)
    for name in ("log", "sqrt"):
        got = getattr(tensor, name)(of(positive)).numpy()
        np.testing.assert_allclose(got, getattr(np, name)(positive), rtol=1e-6)
    np.testing.assert_allclose(tensor.pow(of(positive), 1.5).numpy(), positive**1.5, rtol=1e-5)
    np.testing.assert_allclose(tensor.pow(of(A), of(2 + 0 * A)).numpy(), A**2, rtol=1e-5)
    e = np.exp(A - A.max(-1, keepdims=True))
    np.testing.assert_allclose(
        tensor.softmax(of(A)).numpy(), e / e.sum(-1, keepdims=True), rtol=1e-6
    )
    for name, sign in [("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "==")]:
        same(getattr(tensor, name)(of(A), 0.5), eval(f"A {sign} 0.5").astype(np.float32))


def test_binary_functions_with_a_result() -> None:
    a, b = of(A), of(A * 2)
    for name, truth in [("add", A + A * 2), ("sub", A - A * 2), ("eltwise_mult", A * A * 2),
                        ("div", A / (A * 2))]:  # fmt: skip
        f = getattr(tensor, name)
        out = Tensor(A.shape)
        assert f(a, b, out) is out
        np.testing.assert_allclose(out.numpy(), truth, rtol=1e-6)
        np.testing.assert_allclose(f(a, b).numpy(), truth, rtol=1e-6)
    same(tensor.add(1.0, a), 1 + A)
    y = of(A)
    tensor.axpy(2.0, a, y)
    same(y, 3 * A)


def test_sums() -> None:
    t = of(A)
    assert tensor.sum(t).shape == (1,)
    assert tensor.to_numpy(tensor.sum(t))[0] == pytest.approx(A.sum())
    for axis in (0, 1, 2, -1, (0, 2)):
        np.testing.assert_allclose(tensor.sum(t, axis).numpy(), A.sum(axis), rtol=1e-6)
    out = Tensor((3, 4))
    tensor.sum(t, 0, out)
    np.testing.assert_allclose(out.numpy(), A.sum(0))
    assert tensor.average(t) == pytest.approx(A.mean())
    np.testing.assert_allclose(tensor.average(t, 1).numpy(), A.mean(1), rtol=1e-6)
    same(tensor.sum_columns(of(A[0])), A[0].sum(1))
    same(tensor.sum_rows(of(A[0])), A[0].sum(0))
    assert t.l1() == pytest.approx(np.abs(A).sum() / 24)
    assert t.l2() == pytest.approx(np.sqrt((A * A).sum()) / 24)


def test_rows_and_columns() -> None:
    m, row, column = A[0], np.array([1, 2, 3, 4], np.float32), np.array([1, 2, 4], np.float32)
    for name, truth in [
        ("add_row", m + row), ("mult_row", m * row), ("div_row", m / row),
        ("add_column", m + column[:, None]), ("mult_column", m * column[:, None]),
        ("div_column", m / column[:, None]),
    ]:  # fmt: skip
        t = of(m)
        getattr(t, name)(of(row if "row" in name else column))
        np.testing.assert_allclose(t.numpy(), truth, rtol=1e-6)
    t = of(m)
    tensor.add_row(2.0, of(row), 0.5, t)
    same(t, 2 * row + 0.5 * m)
    t = of(m)
    tensor.add_column(2.0, of(column), 0.5, t)
    same(t, 2 * column[:, None] + 0.5 * m)


def test_shapes() -> None:
    t = of(A)
    same(tensor.reshape(t, (4, -1)), A.reshape(4, -1))
    same(tensor.transpose(t), A.T)
    same(tensor.transpose(t, [0, 2, 1]), A.transpose(0, 2, 1))
    same(tensor.contiguous(t.T()), A.T)
    same(tensor.reshape(t.transpose((0, 2, 1)), (2, 12)), A.transpose(0, 2, 1).reshape(2, 12))
    same(tensor.concatenate([t, t], 1), np.concatenate([A, A], 1))
    with pytest.raises(ValueError, match="shape"):
        t.reshape((5, 5))


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_repeat(axis: int | None) -> None:
    same(tensor.repeat(of(A), 2, axis), np.repeat(A, 2, axis))
    same(of(A).repeat([1, 3, 2], 1), np.repeat(A, [1, 3, 2], 1))


@pytest.mark.parametrize(
    ("ops", "shapes"),
    [("ij,jk->ik", [(3, 4), (4, 5)]), ("ij,ij->ij", [(3, 4), (3, 4)]),
     ("kij,kij->kij", [(2, 3, 4), (2, 3, 4)]), ("kij,kih->kjh", [(2, 3, 4), (2, 3, 5)]),
     ("ij,kj->ki", [(3, 4), (5, 4)]), ("i,j->ij", [(3,), (4,)]), ("ij->ji", [(3, 4)]),
     ("ij->i", [(3, 4)]), ("ij->", [(3, 4)]), ("ii->i", [(3, 3)]), ("iij,j->i", [(3, 3, 4), (4,)]),
     ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
     ("ij,jk", [(3, 4), (4, 5)]), ("i,i->", [(4,), (4,)])],
)  # fmt: skip
def test_einsum(ops: str, shapes: list[tuple[int, ...]]) -> None:
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(shape) for shape in shapes]
    got = tensor.einsum(ops, *[of(array, dtype="float64") for array in arrays]).numpy()
    truth = np.einsum(ops, *arrays)
    np.testing.assert_allclose(got, truth.reshape(truth.shape or (1,)), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("ops", "shapes"),
    [("ij,jk->ik", [(3, 4), (5, 6)]), ("ij,jk->ik", [(3, 4)]), ("ij->ik", [(3, 4)]),
     ("ij->ii", [(3, 4)]), ("i.->i", [(3, 4)]), ("ijk->i", [(3, 4)])],
)  # fmt: skip
def test_wrong_einsum(ops: str, shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"\[einsum\]"):
        tensor.einsum(ops, *[Tensor(shape) for shape in shapes])


@pytest.mark.parametrize(
    "axes", [0, 1, 2, ([0], [1]), ([2, 0], [0, 2]), (2, 0), ([-1], [0])], ids=str
)
def test_tensordot(axes: Any) -> None:
    random = np.random.default_rng(2)
    a = random.standard_normal((4, 3, 3))
    b = random.standard_normal((3, 3, 4) if axes not in (([0], [1]),) else (5, 4, 2))
    got = tensor.tensordot(of(a, dtype="float64"), of(b, dtype="float64"), axes).numpy()
    np.testing.assert_allclose(got, np.tensordot(a, b, axes), rtol=1e-13, atol=1e-13)
    with pytest.raises(ValueError, match="tensordot"):
        tensor.tensordot(Tensor((2, 3)), Tensor((4, 5)), 1)


def test_tensor_functions_are_recorded_towards_a_parameter() -> None:
    from singa import autograd

    w = Tensor(data=np.ones((2, 3)), stores_grad=True)
    with autograd.enable_grad():
        y = tensor.sum(tensor.einsum("ij,kj->ik", w, of(A[0][:, :3])).reshape((6,))[1:])
    (gradient,) = autograd.gradients(y).values()
    truth = np.stack([A[0][1:, :3].sum(0), A[0][:, :3].sum(0)])
    np.testing.assert_allclose(gradient.numpy(), truth, rtol=1e-6)


# Random fills.


def test_random_fills() -> None:
    singa.seed(5)
    t = Tensor((20_000,))
    assert t.gaussian(1.0, 0.01) is t
    assert tensor.average(t) == pytest.approx(1.0, abs=4 * 0.01 / 20_000**0.5)
    assert t.numpy().std() == pytest.approx(0.01, rel=0.03)
    assert t.uniform(2.0, 4.0) is t
    assert 2.0 <= t.numpy().min() < 2.01
    assert 3.99 < t.numpy().max() < 4.0
    assert t.bernoulli(0.3) is t
    assert tensor.average(t) == pytest.approx(0.3, abs=4 * (0.21 / 20_000) ** 0.5)
    assert set(t.numpy().tolist()) == {0.0, 1.0}
    other = t.uniform(5.0, 6.0, inplace=False)
    assert t.numpy().max() == 1.0
    assert other.numpy().min() >= 5.0
    for fill in (tensor.gaussian(0.0, 1.0, t), tensor.uniform(0.0, 1.0, t),
                 tensor.bernoulli(0.5, t)):  # fmt: skip
        assert fill is t


def test_the_seed_decides() -> None:
    def draw() -> Any:
        singa.seed(7)
        return tensor.random((100,)).numpy(), Tensor((100,)).gaussian(0, 1).numpy()

    for first, second in zip(draw(), draw(), strict=True):
        np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match="seed"):
        singa.seed(-1)


def test_raw_tensors_of_singas_scripts() -> None:
    t = of(A)
    raw = t.data
    assert raw.shape() == (2, 3, 4)
    assert raw.data_type() == wrap.kFloat32
    assert raw.Size() == 24
    assert raw.GetFloatValue(3).tolist() == A.reshape(-1)[:3].tolist()
    same(Tensor(data=wrap.Reshape(raw, [4, 6])), A.reshape(4, 6))


# --- arguments of the functions

_SQUARE, _ROW = tensor.ones((2, 2)), tensor.ones((2,))
# By annotation: what is right.
_RIGHT = {
    "Tensor": _SQUARE,
    "Tensor | None": None,
    "_c.Tensor": _SQUARE.data,
    "_c.Tensor | Tensor": _SQUARE.clone(),
    "Sequence[_c.Tensor]": [_SQUARE.data],
    "Sequence[Tensor]": [_SQUARE, _SQUARE],
    "Device | None": None,
    "float": 0.5,
}
# By name: what others need.
_RIGHT_BY_NAME = {
    "shape": (2, 2),
    "axis": 0,
    "repeats": 2,
    "size": 1,
    "np_array": np.ones((2, 2)),
    "ops": "ij,jk->ik",
    "v": _ROW,
    "x": 1.0,
    "lhs": _SQUARE,
    "rhs": _SQUARE,
}


# They take numbers and arrays, too, or have no use for some arguments.
_LENIENT = ("eq t", "ge t", "gt t", "le t", "lt t", "pow t", "mult alpha", "mult beta")
_LENIENT += ("from_raw_tensor t", "from_raw_tensors tt")


def _functions():
    for name in tensor.__all__:
        function = getattr(tensor, name)
        if inspect.isfunction(function):
            for parameter in inspect.signature(function).parameters.values():
                if parameter.annotation in _RIGHT and f"{name} {parameter.name}" not in _LENIENT:
                    yield pytest.param(function, parameter, id=f"{name} {parameter.name}")


@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize(("function", "wrong"), list(_functions()))
def test_functions_name_an_argument_of_another_type(function, wrong, recording):
    autograd.training = recording
    try:
        for value in (3, "a", object(), [3]):
            if wrong.annotation == "float" and value == 3:
                continue
            arguments = []
            for parameter in inspect.signature(function).parameters.values():
                right = _RIGHT.get(parameter.annotation, parameter.default)
                if parameter.annotation not in _RIGHT or parameter.name == "v":
                    right = _RIGHT_BY_NAME.get(parameter.name, right)
                given = value if parameter.name == wrong.name else right
                several = parameter.kind is parameter.VAR_POSITIONAL
                arguments += [_SQUARE, given] if several else [given]
            with pytest.raises(TypeError) as caught:
                function(*arguments)
            expected = rf"\[{function.__name__}\] {wrong.name} must (be|each be) "
            assert re.match(expected, str(caught.value)), (value, str(caught.value))
    finally:
        autograd.training = False


def test_an_empty_array_may_lie_anywhere():
    array = np.frombuffer(bytearray(9), np.float32, 0, 1)
    assert array.ctypes.data % 4
    assert tensor.from_numpy(array).shape == (0,)
