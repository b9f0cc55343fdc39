"""Operators as SINGA's users write them: raw tensors inside, and `dx *= dy` in backward."""

from collections.abc import Iterator

import numpy as np
import pytest
from singa import autograd, tensor
from singa import singa_wrap as singa
from singa.autograd import Operator


class Cube(Operator):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        if autograd.training:
            self.input = x
        return singa.PowFloat(x, 3.0)

    def backward(self, dy):
        dx = singa.Square(self.input)
        dx *= 3.0
        dx *= dy
        return dx


class SquashedDifference(Operator):
    """tanh(a - b), with two inputs and its own name."""

    def __init__(self, name=None):
        super().__init__(name)

    def forward(self, a, b):
        self.output = singa.Tanh(singa.__sub__(a, b))
        return self.output

    def backward(self, dy):
        da = singa.Square(self.output)
        da -= 1.0
        da *= dy
        da /= -1.0
        db = da.Clone()
        db *= -1.0
        return da, db


@pytest.fixture(autouse=True)
def _training() -> Iterator[None]:
    autograd.training = True
    yield
    autograd.training = False


def test_one_input() -> None:
    values = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)
    x = tensor.Tensor(data=values, requires_grad=True, stores_grad=True)
    y = autograd.mean(Cube()(x)[0], x)
    ((parameter, gradient),) = autograd.backward(y, tensor.ones((2, 2)).data)
    assert parameter is x
    np.testing.assert_allclose(tensor.to_numpy(y), (values**3 + values) / 2, rtol=1e-6)
    np.testing.assert_allclose(tensor.to_numpy(gradient), (3 * values**2 + 1) / 2, rtol=1e-6)


def test_two_inputs() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 4)).astype(np.float32)
    x, y = tensor.Tensor(data=a, stores_grad=True), tensor.Tensor(data=b, stores_grad=True)
    operator = SquashedDifference("difference")
    z = operator(x, y)[0]
    assert z.creator is operator
    assert operator.name.startswith("difference")
    gradients = autograd.gradients(z, tensor.ones((3, 4)))
    truth = 1 - np.tanh(a.astype(np.float64) - b) ** 2
    np.testing.assert_allclose(tensor.to_numpy(gradients[x]), truth, atol=1e-6)
    np.testing.assert_allclose(tensor.to_numpy(gradients[y]), -truth, atol=1e-6)


def test_raw_tensors_change_in_place() -> None:
    raw = tensor.from_numpy(np.array([1.0, 2.0, 4.0], np.float32)).data
    before = raw
    raw += raw
    raw -= 1.0
    raw *= 2
    raw /= tensor.from_numpy(np.array([1.0, 2.0, 7.0], np.float32)).data
    assert raw is before
    assert raw.GetFloatValue(3).tolist() == [2.0, 3.0, 2.0]


def test_names_of_outputs_and_gradients() -> None:
    x = tensor.Tensor(data=np.ones((2,), np.float32), stores_grad=True)
    x.name = "x"
    op = SquashedDifference("squash")
    op(x, x)
    assert (op.output_name(0), op.grad_name(1)) == ("squash:0", "squash:1_g")
    cube = Cube()(x)[0].creator
    assert cube.output_name(0) == f"{cube.name}:0"
    assert (x.creator.output_name(0), x.creator.grad_name(0)) == ("x", "x_g")
