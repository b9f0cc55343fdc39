"""Methods of Tensor under NumPy's and PyTorch's names."""

import ast
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensor_stub
from arrays import A, of, same
from singa import autograd, ops, tensor
from singa.tensor import Tensor

# Calls that mean the same for a tensor of ours and of PyTorch's, of shape (2, 3, 4).
SAME: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "sum, axis": lambda x: x.sum(1),
    "sum, dim and keepdim": lambda x: x.sum(dim=(0, 2), keepdim=True),
    "sum, NumPy's names": lambda x: x.sum(axis=-1, keepdims=True),
    "mean": lambda x: x.mean(),
    "mean, dim": lambda x: x.mean(dim=(1, 2)),
    "prod": lambda x: x.prod(1),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "var": lambda x: x.var(),
    "var, correction": lambda x: x.var(1, correction=0),
    "std": lambda x: x.std(dim=(0, 2), keepdim=True),
    "view": lambda x: x.view(2, -1),
    "view, sequence": lambda x: x.view((6, 4)),
    "reshape": lambda x: x.reshape(4, 6),
    "permute": lambda x: x.permute(2, 0, 1),
    "permute, sequence": lambda x: x.permute((1, 0, 2)),
    "flatten": lambda x: x.flatten(start_dim=0),
    "flatten, end": lambda x: x.flatten(end_dim=1),
    "flatten, start": lambda x: x.flatten(1),
    "flatten, both": lambda x: x.flatten(0, -2),
    "squeeze": lambda x: x[:, 1:2].squeeze(),
    "squeeze, dim": lambda x: x[0:1].squeeze(dim=0),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "mT": lambda x: x.mT * 1.0,
    "abs": lambda x: x.abs(),
    "exp": lambda x: x.exp(),
    "log": lambda x: (x * x).log(),
    "sqrt": lambda x: (x * x).sqrt(),
    "square": lambda x: x.square(),
    "pow": lambda x: x.pow(3),
    "relu": lambda x: x.relu(),
    "sigmoid": lambda x: x.sigmoid(),
    "tanh": lambda x: x.tanh(),
    "softmax": lambda x: x.softmax(-1),
    "softmax, dim": lambda x: x.softmax(dim=1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "clip": lambda x: x.clip(-0.5, 0.5),
    "clamp": lambda x: x.clamp(min=0.1),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, -7.0),
    "matmul": lambda x: x.matmul(x.mT),
    "to": lambda x: x.half().float() * 2.0,
    "double": lambda x: x.double(),
    "to, tensor": lambda x: (x * 1.0).to(x),
}
_VALUES = np.random.default_rng(3).uniform(-1.5, 1.5, (2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("name", SAME)
def test_values_and_gradients_are_pytorch(name: str, torch: ModuleType, training: None) -> None:
    x, theirs = of(_VALUES), torch.tensor(_VALUES).requires_grad_()
    x.stores_grad = True
    y, truth = SAME[name](x), SAME[name](theirs)
    assert y.shape == tuple(truth.shape)
    assert y.dtype.name == str(truth.dtype).removeprefix("torch.")
    np.testing.assert_allclose(y.numpy(), truth.detach().numpy(), rtol=2e-6, atol=2e-6)
    dy = np.random.default_rng(4).standard_normal(y.shape).astype(y.numpy().dtype)
    truth.backward(torch.tensor(dy))
    gradient = autograd.gradients(y, dy)[x].numpy()
    np.testing.assert_allclose(gradient, theirs.grad.numpy(), rtol=2e-5, atol=2e-5)


def test_positions_and_conditions(torch: ModuleType) -> None:
    values = np.round(_VALUES)
    x, theirs = of(values), torch.tensor(values)
    for call in (
        lambda t: t.argmax(),
        lambda t: t.argmin(-1),
        lambda t: t.argmax(dim=1, keepdim=True),
        lambda t: t.argmax(keepdim=True) if isinstance(t, Tensor) else t.argmax().view(1, 1, 1),
        lambda t: (t > 0).any(),
        lambda t: (t > 0).any(1),
        lambda t: t.all(dim=-1, keepdim=True),
        lambda t: t.bool(),
        lambda t: t.int(),
        lambda t: t.long(),
        lambda t: (t > 0).sum(0),
        lambda t: (t > 0).sum(dtype=tensor.float32 if isinstance(t, Tensor) else torch.float32),
    ):
        y, truth = call(x), call(theirs)
        assert y.dtype.name == str(truth.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(y.numpy(), truth.numpy())


def test_empty_and_odd_reductions() -> None:
    empty = Tensor((0, 3))
    assert (empty.any().item(), empty.all().item()) == (False, True)
    same(empty.all(0), [True] * 3)
    assert math.isnan(of([2.0]).var().item())
    assert of([2.0]).var(correction=0).item() == 0
    assert of([np.nan]).any().item()
    assert of([1, 2]).mean().item() == 1.5
    assert of([True, False]).var(correction=0).item() == 0.25


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_spread_of_many_halves(torch: ModuleType, dtype: str) -> None:
    """A sum of squares beyond the largest number of the type."""
    values = 30 * np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    x = of(values).as_type(dtype)
    wide = torch.tensor(x.as_type("float64").numpy())
    for name in ("var", "std"):
        y = getattr(x, name)()
        assert y.dtype.name == dtype
        np.testing.assert_allclose(y.item(), getattr(wide, name)().item(), rtol=2.0**-8)


def test_a_spread_of_0_has_no_slope(training: None) -> None:
    x = Tensor(data=np.ones(4), stores_grad=True)
    same(autograd.gradients(x.std())[x], [0, 0, 0, 0])
    for value in ([3.0], 3.0):  # no standard deviation, and no slope of one
        one = Tensor(data=value, stores_grad=True)
        assert np.isnan(one.std().item())
        assert np.isnan(autograd.gradients(one.std())[one].item())
        assert autograd.gradients(one.std(correction=0))[one].item() == 0


def test_numpys_functions_take_tensors() -> None:
    x = of(A)
    for function in (np.sum, np.mean, np.max, np.min, np.prod, np.std, np.var, np.argmax, np.any):
        np.testing.assert_allclose(np.asarray(function(x)), function(A), rtol=1e-5)
        np.testing.assert_allclose(np.asarray(function(x, axis=1)), function(A, axis=1), rtol=1e-5)


def test_extrema_over_axes_are_values() -> None:
    same(of(A).max(0), A.max(0))
    same(of(A).min(axis=(1, 2), keepdims=True), A.min((1, 2), keepdims=True))


def test_lists_and_formats() -> None:
    assert of([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert of(2.5).tolist() == 2.5
    assert of([True]).tolist() == [True]
    assert f"{of([0.12345]):.3f} {of(7):4d}|{of([1.0, 2.0])}" == (f"0.123    7|{of([1.0, 2.0])!r}")


def test_sizes_and_names_of_singa_stay() -> None:
    x = of(A)
    assert (x.size(), x.numel(), x.ndim(), x.dim()) == (A.size, A.size, A.ndim, A.ndim)
    same(x.T(), A.T)
    same(x.transpose((1, 0, 2)), A.transpose(1, 0, 2))


def test_to_returns_itself_or_another_tensor() -> None:
    x = of(A)
    assert x.to(x.device) is x.to("float32") is x.to(x) is x.float() is x
    assert x.to("cpu").device.name() == x.cpu().device.name() == "cpu"
    half = x.to(x.device, "float16")
    assert (half.dtype, x.dtype) == (tensor.float16, tensor.float32)
    assert x.to(dtype=np.float64).dtype == tensor.float64
    assert x.astype("int8").dtype == tensor.int8


@pytest.mark.cpu("needs several CPU devices")
def test_gradients_come_back_to_the_device(training: None) -> None:
    from singa import device

    apart = device.create_cpu_device(separate=True)
    x = of(A)
    x.stores_grad = True
    y = x.to(apart) * 2.0
    assert y.device.name() == apart.name()
    gradient = autograd.gradients(y.sum())[x]
    assert gradient.device.name() == "cpu"
    same(gradient, np.full_like(A, 2))


@pytest.mark.cpu("needs several CPU devices")
def test_a_device_is_equal_to_itself_alone() -> None:
    from singa import device

    apart = device.create_cpu_device(separate=True)
    x, y = of(A), of(A)
    assert x.device == y.device == device.get_default_device()
    assert {x.device, y.device, x.to(apart).device} == {apart, device.create_cpu_device()}
    assert x.device != apart
    assert x.device != "cpu"
    assert repr(x.device) == "Device('cpu')"


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_one_tensor_is_reduced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By autograd.mean(x); with SINGA's behaviour, it is a list of one."""
    function = getattr(autograd, name)
    assert function(of(A)).item() == pytest.approx(getattr(A, name)(), rel=1e-6)
    same(function([of(A)]), A)
    same(autograd.add_all(of(A)), A)
    if name == "mean":
        assert function(of([1, 2])).item() == 1.5
    monkeypatch.setattr("singa.compat.enabled", True)
    same(getattr(autograd, name)(of(A)), A)
    assert getattr(of(A), name)().item() == pytest.approx(getattr(A, name)(), rel=1e-6)


def test_type_checkers_see_the_methods_that_there_are() -> None:
    for name, method in ops.METHODS.items():
        assert vars(Tensor)[name] is method
    written = ast.parse(tensor_stub.PATH.read_text())
    message = f"run {tensor_stub.__file__}"
    assert ast.dump(written) == ast.dump(ast.parse(tensor_stub.stub())), message


def test_log_sum_exp_of_nothing(training: None) -> None:
    for axis, expected in ((1, [-np.inf, -np.inf]), (0, []), (None, -np.inf)):
        x = Tensor((2, 0), stores_grad=True)
        y = autograd.reduce_log_sum_exp(x, axis, keepdims=False)
        same(y, expected)
        assert autograd.gradients(y, np.ones(y.shape))[x].shape == (2, 0)
