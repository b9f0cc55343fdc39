"""Signs of raw tensors, beside those of Tensor."""

import operator

import numpy as np
import pytest
from singa import autograd, tensor
from singa import singa_wrap as wrap

ARRAY = np.array([[1.5, -2.0, 0.5], [3.0, 0.25, -1.0]], np.float32)
BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "le", "gt", "ge")


def raw(array):
    return tensor.from_numpy(array).data


def array(t):
    assert isinstance(t, wrap.Tensor)
    return tensor.from_raw_tensor(t).numpy()


@pytest.mark.parametrize("sign", BINARY)
@pytest.mark.parametrize("other", [raw(ARRAY[0]), 2, 0.5], ids=["raw", "int", "float"])
def test_like_numpy(sign, other):
    function = getattr(operator, sign)
    value = array(other) if isinstance(other, wrap.Tensor) else np.float32(other)
    np.testing.assert_allclose(array(function(raw(ARRAY), other)), function(ARRAY, value))
    np.testing.assert_allclose(array(function(other, raw(ARRAY))), function(value, ARRAY))


def test_powers_products_and_signs_of_one():
    x = raw(ARRAY)
    np.testing.assert_allclose(array(x**2), ARRAY**2)
    np.testing.assert_allclose(array(2**x), 2**ARRAY, rtol=1e-6)
    np.testing.assert_allclose(array(x @ raw(ARRAY.T)), ARRAY @ ARRAY.T, rtol=1e-6)
    np.testing.assert_array_equal(array(-x), -ARRAY)
    np.testing.assert_array_equal(array(abs(x)), np.abs(ARRAY))


def test_types_follow_those_of_tensors():
    whole = raw(np.array([1, 2], np.int32))
    assert (whole + 1).data_type() == tensor.int32
    assert (whole / 2).data_type() == tensor.float32


def test_beside_a_tensor_the_result_is_a_tensor():
    t = tensor.from_numpy(ARRAY)
    for result in (t * t.data, t.data * t):
        assert isinstance(result, tensor.Tensor)
        np.testing.assert_array_equal(result.numpy(), ARRAY * ARRAY)


def test_beside_an_array():
    np.testing.assert_array_equal(array(raw(ARRAY) - ARRAY[0]), ARRAY - ARRAY[0])
    np.testing.assert_array_equal(array(ARRAY[0] - raw(ARRAY)), ARRAY[0] - ARRAY)
    np.testing.assert_array_equal(array(np.float32(2) * raw(ARRAY)), 2 * ARRAY)


def test_identity_stays_equality():
    x = raw(ARRAY)
    assert x == x
    assert x != raw(ARRAY)
    assert x in {x}


class Cubic(autograd.Operator):
    """x³ - 2x, written with signs alone."""

    def forward(self, x):
        self.x = x
        return x**3 - 2 * x

    def backward(self, dy):
        return dy * (3 * self.x**2 - 2)


def test_an_operator_written_with_signs():
    x = tensor.Tensor(data=ARRAY.astype(np.float64), dtype="float64", stores_grad=True)
    autograd.gradcheck(lambda x: Cubic()(x)[0], x)
    with autograd.enable_grad():
        y = Cubic()(x)[0].sum()
    (gradient,) = [dx for _, dx in autograd.backward(y)]
    np.testing.assert_allclose(gradient.numpy(), 3 * x.numpy() ** 2 - 2)


def test_functions_of_autograd_say_that_they_take_tensors():
    with pytest.raises(TypeError, match=r"\[exp\] a must be a Tensor, got a raw tensor"):
        autograd.exp(raw(ARRAY))
    with pytest.raises(TypeError, match=r"\[Sin\] inputs must be Tensors, got a raw tensor"):
        autograd.sin(raw(ARRAY))
