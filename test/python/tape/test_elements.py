"""Elements of the Python tensor: indices as NumPy's, to read and to write."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from arrays import A, of, same
from singa.tensor import Tensor

BASIC: list[Any] = [
    0, -1, (1, 2), (1, 2, 3), slice(None), slice(1, None), slice(None, None, -1), slice(5, 0, -2),
    slice(0, 0), (slice(None), slice(1, 3)), (slice(None), 1, slice(0, 4, 2)), ..., (..., 0),
    (0, ..., 1), None, (None, 0, None), (slice(None), None, 1), (slice(-1, -3, -1), 0), np.int64(1),
    slice(-9, 1, -1), slice(-9, None, -1), slice(9, -9, -1), (slice(None), slice(-5, -9, -2)),
]  # fmt: skip
ADVANCED: list[Any] = [
    [1, 0, 0], np.array([[1], [0]]), (slice(None), [2, 0]), (0, [2, 0]), ([1, 0], 0),
    (None, [1, 0]), A > 0, (A > 0).any(axis=(1, 2)), (slice(0, 1), [-1]), [], [True, False],
    (A > 0).any(axis=2), A < -1e9, (slice(None), [True, False, True]), (1, A[1, :, 0] > 0),
    (..., A[0, 0] > 0), (None, A[:, :, 0] > 0, 1), ((1, 0),), np.uint8([1, 1]),
    ([0, 1], [2, 0]), ([[0], [1]], slice(None), [3, -1]), (slice(None), [0, 2], [[1], [3]]),
    ([1, 0], None, [2, 0]), ([0, 1, 1], [True, True, True]), ([0, -1], 1, [2, 3]), ([], [], [0]),
    ([0], slice(1, 3), [True, False, True, True]), (0, [0, 2], [1, 3]),
    True, False, np.True_, np.array(False), (slice(None), True), (0, False, 1), (..., True, None),
]  # fmt: skip


@pytest.mark.parametrize("key", BASIC + ADVANCED, ids=str)
def test_getitem_is_numpys(key: Any) -> None:
    got = of(A)[key]
    np.testing.assert_array_equal(got.numpy(), A[key])
    assert got.shape == A[key].shape


@pytest.mark.parametrize("key", BASIC + ADVANCED, ids=str)
def test_setitem_is_numpys(key: Any) -> None:
    """Assignment writes to what reading reads: a number, one value for each element, a tensor, and
    values that are broadcast."""
    chosen = A[key]
    values: list[Any] = [5, chosen * 2, of(chosen * 3)]
    if chosen.ndim and chosen.size:
        values += [chosen[:1], chosen[..., :1], chosen[0], chosen[-1].tolist()]
    for value in values:
        t, array = of(A), A.copy()
        t[key] = value
        array[key] = value.numpy() if isinstance(value, Tensor) else value
        same(t, array)


def test_tensors_are_indices_as_arrays_are() -> None:
    masks = [(A > 0), (A > 0).any(axis=2), np.array(True), np.array(False)]
    for key in [*masks, np.array([1, 0, 1]), np.array([[1], [0]]), np.array(1)]:
        index = of(key, dtype="bool" if key.dtype == np.bool_ else "int64")
        same(of(A)[index], A[key])
        same(of(A)[(index,)], A[key])
        t, array = of(A), A.copy()
        t[index] = array[key] = 5.0
        same(t, array)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_float_tensor_is_no_index(dtype: str) -> None:
    t = of(A)
    for key in (of([1.0, 0.0], dtype=dtype), of(1.0, dtype=dtype), of(np.zeros(0), dtype=dtype)):
        for entry in (key, (slice(None), key)):
            with pytest.raises(TypeError, match=f"a {dtype} tensor is not an index"):
                t[entry]
            with pytest.raises(TypeError, match=f"a {dtype} tensor is not an index"):
                t[entry] = 1.0
    same(t, A)


def test_an_array_stays_in_its_place_as_pytorchs(torch: ModuleType) -> None:
    """NumPy puts the array's axes first where a slice or None lies between it and an integer."""
    for key in [(0, slice(None), [1, 0]), (0, None, [1, 0]), (1, slice(0, 2), True)]:
        theirs = torch.tensor(A)
        same(of(A)[key], theirs[key].numpy())
        t = of(A)
        t[key] = theirs[key].numpy() * 2
        theirs[key] *= 2
        same(t, theirs.numpy())


def test_setitem_in_place_and_of_equal_indices() -> None:
    t, array = of(A), A.copy()
    t[[1, 0, 1]] = [[[1.0]], [[2.0]], [[3.0]]]
    array[[1, 0, 1]] = np.float32([[[1.0]], [[2.0]], [[3.0]]])
    same(t, array)
    t[t > 2] += 1.0
    array[array > 2] += 1
    same(t, array)
    t[:, [2, 0]] = t[:, [0, 2]]
    array[:, [2, 0]] = array[:, [0, 2]]
    same(t, array)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64"])
def test_setitem_converts_to_the_type(dtype: str) -> None:
    t = of(np.zeros((2, 2)), dtype=dtype)
    t[[True, False]] = [1.0, 0.0]
    t[[1], 1] = 1
    t[1, 0] = np.float64(1.0)
    assert t.dtype.name == dtype
    same(t.as_type("float32"), [[1, 0], [1, 1]])


@pytest.mark.parametrize(
    ("key", "value"),
    [(A > 0, np.ones(3)), ([0, 1], np.ones((3, 3, 4))), ((A > 0).any(axis=2), np.ones(5)),
     (np.array([True, False]), np.ones((2, 3, 4))), (0, np.ones((2, 3, 4))), (False, np.ones(9))],
    ids=str,
)  # fmt: skip
def test_values_that_do_not_broadcast(key: Any, value: Any) -> None:
    t = of(A)
    with pytest.raises(ValueError, match="broadcast"):
        t[key] = value
    same(t, A)


@pytest.mark.parametrize(
    ("key", "error"),
    [(2, IndexError), (-3, IndexError), ((0, 0, 0, 0), IndexError), ("a", TypeError),
     (1.5, TypeError), ((slice(None), np.array([True, False])), IndexError),
     (np.array([True, False, True]), IndexError), ([5], IndexError),
     (A[:, :1] > 0, IndexError), ((A > 0, 0), IndexError), ((0, 0, 0, True, 0), IndexError),
     ([0.5], TypeError), (np.array([]), TypeError), (["a"], TypeError), ([[0], [0, 1]], TypeError),
     (([0], [9]), IndexError), (([0, 1], [0, 1, 2]), IndexError), ((True, [1]), IndexError)],
)  # fmt: skip
def test_wrong_indices(key: Any, error: type[Exception]) -> None:
    t = of(A)

    def write() -> None:
        t[key] = 1.0
        t.numpy()  # a GPU detects wrong indices later

    for use in (write, lambda: t[key].numpy()):
        with pytest.raises(error):
            use()


def test_views_share_memory() -> None:
    t = of(A)
    t[0, 1:] += 100.0
    array = A.copy()
    array[0, 1:] += 100
    same(t, array)
    for row, values in zip(t, array, strict=True):
        same(row, values)
