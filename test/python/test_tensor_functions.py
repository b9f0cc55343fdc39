"""SINGA's functions on tensors."""

import inspect
import re
from typing import Any

import numpy as np
import pytest
import singa
from arrays import A, of, same
from singa import autograd, tensor
from singa import singa_wrap as wrap
from singa.tensor import Tensor


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
        tensor.softmax(of(A[0])).numpy(), (e / e.sum(-1, keepdims=True))[0], rtol=1e-6
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
    total = tensor.zeros((1,))
    assert tensor.sum(t, out=total) is total
    assert tensor.to_numpy(total)[0] == pytest.approx(A.sum())
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
     ("ij,jk", [(3, 4), (4, 5)]), ("i,i->", [(4,), (4,)]), ("iji->ji", [(3, 4, 3)]),
     ("iii->i", [(3, 3, 3)]), ("ii", [(3, 3)]), ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
     ("...ij->...ji", [(2, 3, 4)]), ("i...,i->...", [(3, 2, 4), (3,)]), ("...,...", [(2, 3), (3,)]),
     ("...i->...", [(2, 3)]), ("...->...", [(2, 3)]), ("i...i->...i", [(3, 2, 3)]),
     ("b...h,h->b...", [(2, 3, 4, 5), (5,)]), ("ij,k->j", [(3, 4), (5,)]),
     ("...i,...i->...i", [(1, 3), (1, 3)])],
)  # fmt: skip
def test_einsum(ops: str, shapes: list[tuple[int, ...]]) -> None:
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(shape) for shape in shapes]
    got = tensor.einsum(ops, *[of(array, dtype="float64") for array in arrays]).numpy()
    truth = np.einsum(ops, *arrays)
    np.testing.assert_allclose(got, truth.reshape(truth.shape or (1,)), rtol=1e-13, atol=1e-13)


def test_einsum_sums_an_ellipsis_that_the_result_lacks() -> None:
    a, b = np.arange(3.0).reshape(1, 3), np.arange(6.0).reshape(2, 3)
    got = tensor.einsum("...i,...i->i", of(a), of(b)).numpy()
    np.testing.assert_array_equal(got, (a * b).sum(0))


def test_gradient_of_einsum() -> None:
    rng = np.random.default_rng(2)
    operands = [of(rng.standard_normal(shape)) for shape in [(2, 3, 3), (1, 3, 4), (4, 2)]]
    for ops in ("bii,...ij,jk->b...k", "...ij,...jk,kl->...il"):
        assert autograd.gradcheck(lambda *ts, ops=ops: tensor.einsum(ops, *ts), operands)


@pytest.mark.parametrize(
    ("ops", "shapes"),
    [("ij,jk->ik", [(3, 4), (5, 6)]), ("ij,jk->ik", [(3, 4)]), ("ij->ik", [(3, 4)]),
     ("ij->ii", [(3, 4)]), ("i.->i", [(3, 4)]), ("ijk->i", [(3, 4)]), ("i->...i", [(3,)]),
     ("......i->i", [(3,)]), ("...ij->ij", [(3,)]), ("...i,...i->i", [(2, 3), (4, 3)])],
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
        y = tensor.sum(tensor.einsum("ij,kj->ik", w, of(A[0][:, :3])).reshape((6,))[1:], 0)
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


# Arguments.


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
    "n": 2,
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
