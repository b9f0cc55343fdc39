"""Bits and matrix products of integers, as NumPy's and PyTorch's."""

import operator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from singa import tensor

TYPES = ("int8", "uint8", "int32", "int64")
_SIGNS = (operator.and_, operator.or_, operator.xor)


def _drawn(dtype: str, *shape: int, seed: int = 0) -> Any:
    """Integers of the whole range of a type."""
    limits = np.iinfo(dtype)
    random = np.random.default_rng(seed)
    return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def _of(array: Any) -> tensor.Tensor:
    return tensor.from_numpy(array, dtype=array.dtype.name)


def _same(got: tensor.Tensor, expected: Any) -> None:
    assert got.dtype.name == expected.dtype.name
    np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "shapes",
    [((4, 6), (6, 3)), ((2, 1, 5, 3), (4, 3, 2)), ((7,), (7, 2)), ((5, 7), (7,)), ((9,), (9,)),
     ((3, 0), (0, 2))],
    ids=str,
)  # fmt: skip
def test_products_wrap_around(dtype: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (_drawn(dtype, *shape, seed=i) for i, shape in enumerate(shapes))
    _same(_of(a) @ _of(b), np.asarray(a @ b))
    _same(_of(a) @ b, np.asarray(a @ b))


def test_products_of_two_types_and_of_long_sums() -> None:
    a, b = _drawn("int32", 3, 5), _drawn("int64", 5, 2)
    _same(_of(a) @ _of(b), a @ b)
    a, b = _drawn("int8", 3, 5), _drawn("uint8", 5, 2)
    _same(_of(a) @ _of(b), a.astype(np.int32) @ b.astype(np.int32))
    a = np.full((1, 1 << 20), -(1 << 31), np.int32)
    _same(_of(a) @ _of(a.T - 1), a @ (a.T - 1))
    a, b = _drawn("int32", 2, 3, 4), _drawn("int32", 4, 3, 2)
    _same(tensor.einsum("ijk,kjl->il", _of(a), _of(b)), np.einsum("ijk,kjl->il", a, b))


def test_products_with_other_types_are_refused() -> None:
    integers = tensor.ones((2, 2), dtype="int32")
    for other in ("bool", "float32"):
        with pytest.raises(TypeError, match="MatMul"):
            integers @ tensor.ones((2, 2), dtype=other)


def test_products_do_not_truncate_arrays() -> None:
    integers = tensor.ones((2, 2), dtype="int32")
    for halves in (np.full((2, 2), 0.5), [[0.5, 0.5], [0.5, 0.5]]):
        with pytest.raises(TypeError, match="MatMul"):
            integers @ halves
        with pytest.raises(TypeError, match="MatMul"):
            halves @ integers
    wide = np.full((2, 2), 1 << 40)
    _same(integers @ wide, np.full((2, 2), 1 << 41))
    _same(integers @ [[1, 2], [3, 4]], np.array([[4, 6], [4, 6]], np.int32))


@pytest.mark.parametrize("dtype", TYPES)
def test_signs_between_bits(dtype: str) -> None:
    a, b = _drawn(dtype, 3, 4), _drawn(dtype, 4, seed=1)
    for sign in _SIGNS:
        _same(sign(_of(a), _of(b)), sign(a, b))
        _same(sign(_of(a), b), sign(a, b))
        _same(sign(_of(a), 5), sign(a, np.asarray(5, dtype)))
        _same(sign(5, _of(a)), sign(a, np.asarray(5, dtype)))
        t = _of(a)
        t = sign(t, _of(b))
        _same(t, sign(a, b))
    _same(~_of(a), ~a)


def test_signs_between_bools_and_integers() -> None:
    a, b = np.array([True, False, True]), np.array([6, 3, 2], np.int32)
    for sign in _SIGNS:
        _same(sign(_of(a), _of(b)), sign(a, b).astype(np.int32))
        _same(sign(_of(a), _of(a[::-1].copy())), sign(a, a[::-1]))
    _same(_of(a) | 2, a | np.int64(2))


@pytest.mark.parametrize("dtype", TYPES)
def test_shifts(dtype: str, torch: ModuleType) -> None:
    a = _drawn(dtype, 5, 6)
    b = np.tile(np.arange(6, dtype=dtype), (5, 1))
    _same(_of(a) << _of(b), a << b)
    _same(_of(a) >> _of(b), a >> b)
    _same(_of(a) << 3, a << np.asarray(3, dtype))
    _same(1 << _of(b), np.asarray(1, dtype) << b)
    bits = 8 * a.itemsize
    for count in (bits - 1, bits, bits + 5, *(() if dtype == "uint8" else (-1,))):
        far = np.full(a.shape, count, dtype)
        _same(_of(a) << _of(far), (torch.tensor(a) << torch.tensor(far)).numpy())
        _same(_of(a) >> _of(far), (torch.tensor(a) >> torch.tensor(far)).numpy())
