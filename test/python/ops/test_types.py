"""Element types of results, and integers that a float does not hold, as in PyTorch."""

import itertools
import operator

import numpy as np
import pytest
from singa import autograd, compat, model, singa_wrap, tensor
from singa.tensor import Tensor
from typed_tensors import INTEGERS, TYPES, elements, of

BEYOND = (1 << 53) + 1  # the first integer that a float64 does not hold


# The rule.

#: (whether it has axes, type); or a Python number.
OPERANDS = [*itertools.product([True, False], TYPES), True, 3, 2.5]


def pairs():
    for first, second in itertools.product(OPERANDS, repeat=2):
        if isinstance(first, tuple) or isinstance(second, tuple):
            yield first, second


def ours(operand):
    if not isinstance(operand, tuple):
        return operand
    axes, dtype = operand
    return of([1] if axes else 1, dtype)


def theirs(torch, operand):
    if not isinstance(operand, tuple):
        return operand
    axes, dtype = operand
    return torch.tensor([1] if axes else 1).to(getattr(torch, dtype))


def named(dtype):
    """PyTorch's type as ours, which have no int16."""
    return str(dtype).removeprefix("torch.").replace("int16", "int32")


def test_result_type_is_pytorch(torch):
    for first, second in pairs():
        expected = torch.result_type(theirs(torch, first), theirs(torch, second))
        found = tensor.result_type(ours(first), ours(second))
        assert found.name == named(expected), (first, second)


def test_every_type_is_true():
    assert all(tensor.DType)  # for `dtype or default`; the value of float32 is 0
    assert (tensor.float32 or tensor.float64) is tensor.float32


def test_result_type_of_several():
    assert tensor.result_type(of([1], "int8"), of(1, "int64"), 3) == tensor.int8
    assert tensor.result_type(of([1], "int8"), of([1], "int64"), 2.5) == tensor.float32
    assert tensor.result_type(of([1], "bool"), of(1.0, "float16"), 2) == tensor.float16
    assert tensor.result_type(1, 2.5) == tensor.float32
    with pytest.raises(TypeError, match="result_type"):
        tensor.result_type()


def test_result_type_of_types_arrays_and_numbers_of_numpy(torch):
    for first, second in itertools.product(TYPES, repeat=2):
        truth = named(torch.promote_types(getattr(torch, first), getattr(torch, second)))
        one, other = tensor.as_dtype(first), tensor.as_dtype(second)
        assert tensor.result_type(one, other).name == truth
        assert tensor.result_type(first, of([1], second)).name == truth
        assert tensor.result_type(one, 1).name == tensor.result_type(of([1], first), 1).name
    assert tensor.result_type(np.int8([1]), np.int32(7)) == tensor.int8
    assert tensor.result_type(np.dtype("float16"), np.float64(0.5)) == tensor.float16
    assert tensor.result_type(np.array(1.0), of([1], "float16")) == tensor.float16
    assert tensor.result_type(np.int64(2), np.bool_(True)) == tensor.int64
    for other in (None, "text", [1.0], object()):
        with pytest.raises(TypeError):
            tensor.result_type(of([1]), other)


@pytest.mark.parametrize("dtype", TYPES)
def test_sums_have_the_type_that_is_asked_for(torch, dtype):
    for source in TYPES:
        x, t = of([1, 0, 3, 2], source), torch.tensor([1, 0, 3, 2]).to(getattr(torch, source))
        for name in ("sum", "prod"):
            found = getattr(x, name)(dtype=dtype)
            assert found.dtype.name == dtype
            truth = getattr(t, name)(dtype=getattr(torch, dtype))
            assert float(found) == float(truth)
    for name in ("mean", "var", "std"):
        method = getattr(of([1.0, 2.0], "float32"), name)
        if "float" in dtype:
            assert method(dtype=dtype).dtype.name == dtype
        else:
            with pytest.raises(TypeError, match="float type"):
                method(dtype=dtype)
    assert elements(of([100, 100], "int8").sum(dtype="int8")) == [-56]  # wraps around


@pytest.mark.parametrize("dtype", TYPES)
def test_masked_fill_keeps_the_type(torch, dtype):
    x, mask = of([1, 0], dtype), np.array([True, False])
    t = torch.tensor([1, 0]).to(getattr(torch, dtype))
    for value in (2.5, True, -1.0, 7, np.float32(3.5), np.int64(4)):
        for given in (value, of(value, "float64"), np.array(value)):
            if dtype == "uint8" and value == -1.0:
                continue  # refused below
            found = x.masked_fill(mask, given)
            assert found.dtype.name == dtype
            truth = t.masked_fill(torch.tensor(mask), torch.tensor(value).item())
            assert elements(found) == truth.double().tolist()
    if "int" in dtype:
        for value in (np.nan, np.inf, 1e30, 1 << 70, *([-1] if dtype == "uint8" else [])):
            with pytest.raises(ValueError, match=r"do not fit|64 bits"):
                x.masked_fill(mask, value)
    assert x.masked_fill(np.zeros((3, 2), bool), 1).shape == (3, 2)


OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@pytest.mark.parametrize("sign", OPERATORS)
def test_operators_have_pytorch_types_and_values(torch, sign):
    compute = OPERATORS[sign]
    for first, second in pairs():
        try:
            expected = compute(theirs(torch, first), theirs(torch, second))
        except (RuntimeError, NotImplementedError):
            continue  # of bools: see test_bools_have_no_difference; PyTorch has no //, % and **
        found = compute(ours(first), ours(second))
        assert found.dtype.name == named(expected.dtype), (first, second)
        assert elements(found) == pytest.approx(np.ravel(expected.double()).tolist(), rel=4e-3)


def test_functions_of_several_tensors_promote(torch):
    both = [operand for operand in OPERANDS if isinstance(operand, tuple) and operand[0]]
    mask = np.array([True])
    for first, second in itertools.product(both, repeat=2):
        a, b = ours(first), ours(second)
        x, y = theirs(torch, first), theirs(torch, second)
        results = [
            (autograd.max(a, b), torch.maximum(x, y)),
            (autograd.min(a, b), torch.minimum(x, y)),
            (autograd.sum(a, b), x + y),
            (autograd.cat([a, b], 0), torch.cat([x, y])),
            (tensor.concatenate([a, b], 0), torch.cat([x, y])),
            (autograd.where(a, b, mask), torch.where(torch.tensor(mask), x, y)),
        ]
        for found, expected in results:
            assert found.dtype.name == named(expected.dtype), (first, second)
            assert elements(found) == np.ravel(expected.double()).tolist()


@pytest.mark.parametrize("number", [True, 3, 2.5])
@pytest.mark.parametrize("dtype", TYPES)
def test_where_of_a_number(torch, dtype, number):
    mask = np.array([True, False])
    x = torch.tensor([1, 1]).to(getattr(torch, dtype))
    expected = torch.where(torch.tensor(mask), x, number)
    for found in (
        autograd.where(of([1, 1], dtype), number, mask),
        autograd.where(number, of([1, 1], dtype), ~mask),
    ):
        assert found.dtype.name == named(expected.dtype)
        assert elements(found) == expected.double().tolist()


def test_lists_and_numpy_numbers_count_as_numbers():
    t, mask = of([1, 2]), of([True, False], "bool")
    halves, numbers = [0.5, 0.5], [1, 2]
    for found, dtype, values in [
        (t + halves, "float32", [1.5, 2.5]),
        (mask + numbers, "int64", [2, 2]),
        (mask * np.int64(255), "int64", [255, 0]),
        (of([1], "int8") + np.int64(5), "int8", [6]),
        (of([1.0], "float16") * np.float32(2.5), "float16", [2.5]),
        (t * np.float64(0.5), "float32", [0.5, 1.0]),
    ]:
        assert (found.dtype.name, elements(found)) == (dtype, values)


def test_raw_functions_of_singa_follow_the_rule():
    mask, t = of([True, False], "bool").data, of([1, 2]).data
    for raw, dtype, values in [
        (singa_wrap.__add__(mask, 2), "int64", [3, 2]),
        (singa_wrap.MultFloat(mask, 2.5), "float32", [2.5, 0.0]),
        (singa_wrap.__add__(mask, True), "bool", [True, True]),
        (singa_wrap.SubFloat(t, np.float32(0.5)), "float32", [0.5, 1.5]),
        (singa_wrap.__add__(t, np.int64(3)), "int32", [4, 5]),
    ]:
        found = tensor.from_raw_tensor(raw)
        assert (found.dtype.name, elements(found)) == (dtype, values)


_GRADIENTS = {
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "*": (operator.mul, operator.mul),
    "/": (operator.truediv, operator.truediv),
    "**": (operator.pow, operator.pow),
    "mod": (autograd.mod, "remainder"),
    "max": (autograd.max, "maximum"),
    "min": (autograd.min, "minimum"),
    "sum": (autograd.sum, operator.add),
}


@pytest.mark.usefixtures("training")
@pytest.mark.parametrize("name", _GRADIENTS)
def test_an_operand_without_axes_gets_a_gradient_of_its_type(torch, name):
    compute, theirs = _GRADIENTS[name]
    theirs = getattr(torch, theirs) if isinstance(theirs, str) else theirs
    values = [([1.0, 2.0, 3.5], "float32"), (1.5, "float64")]
    for operands in (values, values[::-1]):
        xs = [Tensor(data=np.array(v), dtype=dtype, stores_grad=True) for v, dtype in operands]
        ts = [torch.tensor(v, dtype=getattr(torch, d), requires_grad=True) for v, d in operands]
        y, expected = compute(*xs), theirs(*ts)
        assert y.dtype == tensor.float32
        expected.sum().backward()
        gradients = dict(autograd.backward(autograd.reduce_sum(y)))
        for x, t in zip(xs, ts, strict=True):
            assert gradients[x].dtype == x.dtype
            np.testing.assert_allclose(gradients[x].numpy(), t.grad.numpy(), rtol=1e-5)


# Bools.


def test_masks_with_integers():
    mask = of([True, False], "bool")
    assert elements(mask * 255) == [255, 0]
    assert elements(mask + 1) == [2, 1]
    assert elements(mask - 1) == [0, -1]
    assert elements(1 - mask) == [0, 1]
    assert elements(mask == 2) == [False, False]
    assert elements(mask < 2) == [True, True]
    assert elements(mask // 2) == [0, 0]


def test_bools_have_no_difference():
    mask = of([True, False], "bool")
    for compute in (lambda: mask - mask, lambda: mask - True, lambda: True - mask, lambda: -mask):
        with pytest.raises(TypeError, match="bools"):
            compute()


def test_comparisons_select_elements():
    labels, x = of([2, 0, 2, 1]), of([10, 11, 12, 13])
    assert elements(x[labels == 2]) == [10, 12]
    assert elements(x[x > 11]) == [12, 13]
    assert elements(x[autograd._not(labels)]) == [11]
    x[labels == 2] = 0
    assert elements(x) == [0, 11, 0, 13]


def test_comparisons_as_in_singa(monkeypatch):
    monkeypatch.setattr(compat, "enabled", True)
    x = of([1.0, 2.0, 0.0], "float32")
    for found, values in [
        (x > 1, [0, 1, 0]),
        (x == x, [1, 1, 1]),
        (autograd._and(x, x), [1, 1, 0]),
        (autograd._not(x), [0, 0, 1]),
    ]:
        assert found.dtype == tensor.float32
        assert elements(found) == values


# Integers keep all bits.

LARGE = [BEYOND, -BEYOND, (1 << 63) - 1, -(1 << 63), -(1 << 62) + 1]


@pytest.mark.parametrize("value", LARGE)
def test_large_integers_in_and_out(value):
    t = of([0, 0], "int64")
    t.set_value(value)
    assert t.numpy().tolist() == [value, value]
    t[1] = 1
    t[0] = value
    assert t.numpy().tolist() == [value, 1]
    one = t[0]
    assert (one.item(), int(one), operator.index(one), round(one)) == (value,) * 4
    assert tensor.Tensor(data=value, dtype="int64").item() == value
    t[np.array([False, True])] = value
    assert t.numpy().tolist() == [value, value]


@pytest.mark.parametrize("sign", [s for s in OPERATORS if s not in ("/", "**")])
@pytest.mark.parametrize("value", LARGE)
def test_large_integers_in_arithmetic(sign, value):
    compute = OPERATORS[sign]
    other = np.array([value, value // 2, 7, -3], np.int64)
    for found, expected in [
        (compute(of(other, "int64"), value), compute(other, np.int64(value))),
        (compute(value, of(other, "int64")), compute(np.int64(value), other)),
        (compute(of(other, "int64"), of([value], "int64")), compute(other, np.int64(value))),
    ]:
        assert found.numpy().tolist() == expected.tolist()


def test_large_integers_in_place():
    t = of([0, 1], "int64")
    t += BEYOND
    assert t.numpy().tolist() == [BEYOND, BEYOND + 1]
    t -= BEYOND
    t *= BEYOND
    assert t.numpy().tolist() == [0, BEYOND]
    assert elements(autograd.where(t, BEYOND + 2, t == BEYOND)) == [BEYOND + 2, BEYOND]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("value", [300, -1, (1 << 31) + 5, 1 << 40, -(1 << 50)])
@pytest.mark.parametrize("sign", ["+", "-", "*"])
def test_narrow_results_wrap_around_as_in_pytorch(torch, dtype, value, sign):
    compute = OPERATORS[sign]
    x = [1, 2, 100]
    expected = torch.tensor(x, dtype=getattr(torch, dtype))
    for shape in ((3,), (3, 1)):
        t = of(x, dtype).reshape(shape)
        assert elements(compute(t, value)) == compute(expected, value).tolist()
        assert elements(compute(value, t)) == compute(value, expected).tolist()
    one = compute(of(2, dtype), value)
    assert (one.dtype.name, one.item()) == (dtype, compute(expected[1], value).item())


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_comparisons_with_numbers_that_the_type_cannot_hold(dtype):
    for t in (of([5, 1], dtype), of(5, dtype)):
        for value in (5 + (1 << 32), -251, -(1 << 40)):
            above = elements(of(0, dtype) * t + (value > 0))
            assert elements(t < value) == [bool(a) for a in above]
            assert elements(t == value) == [False] * t.size()
            assert elements(t != of(value, "int64")) == [True] * t.size()


def test_clip_of_integers(torch):
    for dtype in ("int8", "int32", "int64", "bool"):
        for low, high in [(0, 2), (0.5, None), (None, 1.5), (-1.0, 300)]:
            x = torch.tensor([0, 1, 1]).to(getattr(torch, dtype))
            found = autograd.clip(of([0, 1, 1], dtype), low, high)
            expected = torch.clamp(x, low, high)
            assert found.dtype.name == named(expected.dtype)
            assert elements(found) == expected.tolist()
    t = of([0, BEYOND, BEYOND + 1], "int64")
    assert elements(autograd.clip(t, max=BEYOND)) == [0, BEYOND, BEYOND]
    assert elements(autograd.clip(t, min=BEYOND)) == [BEYOND, BEYOND, BEYOND + 1]


def test_integers_that_a_double_would_round_are_refused():
    t = of([1, 2], "int64")
    for compute in (
        lambda: autograd.pad(t, "constant", [1, 1], BEYOND),
        lambda: autograd.onehot(-1, t, 3, np.array([0, BEYOND])),
        lambda: t.data.Fill(BEYOND),
    ):
        with pytest.raises(ValueError, match="no double holds"):
            compute()
    t.data.Fill(1 << 62)
    assert elements(t) == [1 << 62, 1 << 62]


def test_numbers_of_more_than_64_bits():
    t = of([1], "int64")
    for compute in (
        lambda: t + (1 << 63),
        lambda: t == 1 << 70,
        lambda: t.set_value(1 << 63),
        lambda: t.__setitem__(0, -(1 << 63) - 1),
    ):
        with pytest.raises(ValueError, match="64 bits"):
            compute()


# Division.


def test_floor_division_of_floats_is_not_rounded_first(torch):
    rng = np.random.default_rng(0)
    b = np.concatenate([rng.uniform(-2, 2, 500), np.repeat([0.1, -0.1, 0.7, 1e-3, 3.0], 100)])
    a = np.concatenate([b[:500] * rng.integers(-50, 50, 500), np.tile(np.arange(-50, 50), 5)])
    edges = [-np.inf, -1.0, -0.0, 0.0, 1.0, 5.5, np.inf, np.nan]
    a = np.concatenate([a, np.repeat(edges, 8)])
    b = np.concatenate([b, np.tile(edges, 8)])
    for dtype in ("float32", "float64"):
        x, y = a.astype(dtype), b.astype(dtype)
        expected = torch.tensor(x) // torch.tensor(y)
        found = of(x, dtype) // of(y, dtype)
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    assert elements(1.0 // of([0.1], "float32")) == [9]
    assert elements(of([1.0], "float32") // 0.1) == [9]
    assert elements(5 % of([-3.0], "float32")) == [-1]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_of_integers(dtype):
    low = 0 if dtype == "uint8" else -100
    a, b = np.random.default_rng(0).integers(low, 101, (2, 500))
    b[b == 0] = 1
    for compute in (operator.floordiv, operator.mod):
        for found, expected in [
            (compute(of(a, dtype), of(b, dtype)), compute(a, b)),
            (compute(of(a, dtype), 7), compute(a, 7)),
            (compute(7, of(b, dtype)), compute(7, b)),
        ]:
            assert found.dtype.name == dtype
            assert found.numpy().tolist() == expected.tolist()
    assert elements(of([33554435], "int32") // 2) == [16777217]
    low = np.iinfo("int64").min
    assert elements(of([low], "int64") // 3) == [low // 3]


@pytest.mark.cpu("kernels of a GPU cannot raise")
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_divided_by_zero(dtype):
    t, zero = of([1, 2], dtype), of([1, 0], dtype)
    for compute in (
        lambda: t // zero,
        lambda: t % zero,
        lambda: t // 0,
        lambda: t % 0,
        lambda: 5 // zero,
        lambda: 5 % zero,
        lambda: autograd.mod(t, zero),
        lambda: autograd.fmod(t, zero),
        lambda: autograd.floor_divide(t, zero),
        lambda: t.__ifloordiv__(0),
    ):
        with pytest.raises(ZeroDivisionError, match="divided by zero"):
            compute()
    assert elements(t / zero) == [1.0, np.inf]
    assert elements(of([], dtype) // 0) == []


@pytest.mark.cpu("kernels of a GPU cannot raise")
def test_integers_to_negative_powers():
    t = of([1, 2])
    for compute in (lambda: t**-1, lambda: t ** of([1, -1]), lambda: 2 ** of([-1])):
        with pytest.raises(ValueError, match="power -1"):
            compute()
    assert elements(t**-1.0) == [1.0, 0.5]
    assert elements(2 ** of([0, 3, 10])) == [1, 8, 1024]


@pytest.mark.usefixtures("training")
def test_gradient_of_the_remainder(torch):
    values = np.array([1.0, -1.0, 5.0, -5.0, 0.7]), np.array([0.1, 0.1, -3.0, 3.0, 0.1])
    a, b = (Tensor(data=v, dtype="float64", stores_grad=True) for v in values)
    gradients = dict(autograd.backward(autograd.reduce_sum(autograd.mod(a, b))))
    x, y = (torch.tensor(v, requires_grad=True) for v in values)
    torch.remainder(x, y).sum().backward()
    assert gradients[a].numpy().tolist() == x.grad.tolist()
    assert gradients[b].numpy().tolist() == y.grad.tolist()


# In place.


@pytest.mark.parametrize("sign", ["+=", "-=", "*=", "/=", "//=", "%="])
def test_in_place_as_in_pytorch(torch, sign):
    update = {
        "+=": operator.iadd,
        "-=": operator.isub,
        "*=": operator.imul,
        "/=": operator.itruediv,
        "//=": operator.ifloordiv,
        "%=": operator.imod,
    }[sign]
    for first, second in pairs():
        if not isinstance(first, tuple) or (isinstance(second, tuple) and second[0] > first[0]):
            continue
        t, x = ours(first), theirs(torch, first)
        view = t.data
        try:
            x = update(x, theirs(torch, second))
        except (RuntimeError, NotImplementedError) as error:
            if "not implemented" not in str(error) and "Subtraction" not in str(error):
                with pytest.raises(TypeError):
                    update(t, ours(second))
            continue
        t = update(t, ours(second))
        assert t.data.SharesMemory(view)
        assert (t.dtype.name, elements(t)) == (
            named(x.dtype),
            pytest.approx(np.ravel(x.double()).tolist(), rel=4e-3),
        )


# Indices.


def test_indices_in_lists_must_lie_within_the_axis(monkeypatch):
    x = of(np.arange(12).reshape(3, 4))
    assert autograd.gather(x, 0, [-3, 2]).numpy().tolist() == x.numpy()[[-3, 2]].tolist()
    for value in (-4, 3, -(1 << 32), 1 << 32, -(1 << 63)):
        with pytest.raises(IndexError):
            autograd.gather(x, 0, [value]).numpy()  # a GPU raises where it is waited for
    labels, values = of([0, -1, 2]), [0.0, 1.0]
    assert autograd.onehot(1, labels, 3, values).numpy().tolist() == np.eye(3)[[0, 2, 2]].tolist()
    for value in (3, -4):
        with pytest.raises(IndexError):
            autograd.onehot(1, of([value]), 3, values).numpy()
    monkeypatch.setattr(compat, "enabled", True)
    assert autograd.onehot(1, of([3]), 3, values).numpy().tolist() == [[0, 0, 0]]
    assert autograd.gather(x, 0, [-4]).numpy().tolist() == x.numpy()[[2]].tolist()


# Recorded steps.


class Quotients(model.Model):
    def forward(self, x, y):
        large = x * BEYOND // y % 1000
        return autograd.where(large, x - BEYOND, (x > 2) == True)  # noqa: E712


@pytest.mark.cpu("kernels of a GPU cannot raise")
def test_recorded_steps_keep_the_bits_and_raise():
    x, y = of([1, 2, 3, 4], "int64"), of([3, -7, 2, 5], "int64")
    net = Quotients()
    net.compile([x, y], is_train=False, use_graph=True)
    net.eval()
    for step in range(5):
        x.copy_from_numpy(np.arange(step, step + 4))
        a, b = x.numpy(), y.numpy()
        expected = np.where(a > 2, a * BEYOND // b % 1000, a - BEYOND)
        assert net(x, y).numpy().tolist() == expected.tolist()
    assert net.memory_plan()["graphs"]
    y.copy_from_numpy(np.array([1, 0, 1, 1]))
    with pytest.raises(ZeroDivisionError):
        net(x, y)
    y.copy_from_numpy(np.array([1, 2, 1, 1]))
    assert (
        net(x, y).numpy().tolist()
        == np.where(a > 2, a * BEYOND // y.numpy() % 1000, a - BEYOND).tolist()
    )
