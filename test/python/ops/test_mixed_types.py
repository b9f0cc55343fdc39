"""Operands of two float types, as autocast makes them: the result has the type to which they
promote, and each operand gets a gradient of its own type, as in PyTorch."""

import numpy as np
import pytest
from bits import check_replays, trained
from singa import autograd, layer, model, opt, tensor

pytestmark = pytest.mark.usefixtures("training")

A = np.random.default_rng(0).standard_normal((4, 4))
B = np.random.default_rng(1).uniform(0.5, 1.5, (4, 4))
MASK = A > 0

PAIRS = [
    ("bfloat16", "float32"),
    ("float32", "bfloat16"),
    ("float16", "float32"),
    ("float32", "float64"),
    ("bfloat16", "float16"),
]

#: name: (singa's form, PyTorch's form for operands of one type)
OPERATORS = {
    "cat": (lambda a, b: autograd.cat([a, b], 1), lambda torch, a, b: torch.cat([a, b], 1)),
    "where": (
        lambda a, b: autograd.where(a, b, MASK),
        lambda torch, a, b: torch.where(torch.tensor(MASK), a, b),
    ),
    "sum": (autograd.sum, lambda torch, a, b: a + b),
    "mean": (autograd.mean, lambda torch, a, b: (a + b) / 2),
    "max": (autograd.max, lambda torch, a, b: torch.maximum(a, b)),
    "matmul": (autograd.matmul, lambda torch, a, b: a @ b),
    "@": (lambda a, b: a @ b, lambda torch, a, b: a @ b),
    "tensordot": (lambda a, b: tensor.tensordot(a, b, 1), lambda torch, a, b: a @ b),
    "einsum": (
        lambda a, b: tensor.einsum("ij,kj->ik", a, b),
        lambda torch, a, b: a @ b.T,
    ),
    "linear": (autograd.linear, lambda torch, a, b: a @ b),
    "gemm": (
        lambda a, b: autograd.gemm(a, b, None, 0.5, 0.0, 1),
        lambda torch, a, b: 0.5 * a.T @ b,
    ),
    "add": (lambda a, b: a + b, lambda torch, a, b: a + b),
    "mul": (lambda a, b: a * b, lambda torch, a, b: a * b),
}


@pytest.mark.parametrize("types", PAIRS, ids="-".join)
@pytest.mark.parametrize("name", OPERATORS)
def test_each_gradient_has_the_type_of_its_operand(torch, name, types):
    function, torch_function = OPERATORS[name]
    a, b = (
        tensor.Tensor(data=values, dtype=dtype, stores_grad=True)
        for values, dtype in zip((A, B), types, strict=True)
    )
    y = function(a, b)
    wide = torch.promote_types(*[getattr(torch, dtype) for dtype in types])
    assert str(y.dtype) == str(wide).removeprefix("torch.")
    theirs = [torch.tensor(v.numpy().astype(np.float64), requires_grad=True) for v in (a, b)]
    expected = torch_function(torch, *theirs)
    expected.sum().backward()
    # Sums of four products of numbers of 16 bits.
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if "16" in "".join(types) else {"rtol": 1e-5}
    np.testing.assert_allclose(y.as_type("float64").numpy(), expected.detach().numpy(), **tolerance)
    gradients = dict(autograd.backward(autograd.reduce_sum(y)))
    for operand, other, dtype in zip((a, b), theirs, types, strict=True):
        assert str(gradients[operand].dtype) == dtype
        found = gradients[operand].as_type("float64").numpy()
        np.testing.assert_allclose(found, other.grad.numpy(), **tolerance)


class Net(model.Model):
    """A convolution in 16 bits beside its float32 input."""

    def __init__(self, join):
        super().__init__()
        self.join = join
        self.first = layer.Conv2d(4, 3, padding=1)
        self.second = layer.Conv2d(4, 3, padding=1)
        self.classify = layer.Linear(3)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x):
        h = self.join(self.first(x), x)
        return self.classify(autograd.flatten(autograd.relu(self.second(h))))


JOINS = {
    "cat": lambda h, x: autograd.cat([h, x], 1),
    "where": lambda h, x: autograd.where(h, x, h > 0.0),
    "sum": autograd.sum,
    "mean": autograd.mean,
    "max": autograd.max,
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("join", JOINS)
def test_under_autocast_as_in_float32(join, dtype):
    draw = np.random.default_rng(0)
    batch = draw.standard_normal((4, 4, 6, 6)).astype(np.float32), np.array([0, 1, 2, 1], np.int32)
    make = lambda: Net(JOINS[join])  # noqa: E731
    options = {"batches": [batch] * 6, "optimizer": lambda: opt.SGD(lr=0.01)}
    executed = check_replays(make, dtype=dtype, **options)
    np.testing.assert_allclose(executed, trained(make, **options)[0], rtol=0.05)
    assert executed[-1] < executed[0]
