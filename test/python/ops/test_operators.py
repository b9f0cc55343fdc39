"""The operator table, compared with PyTorch and with finite differences."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from ops.table import CASES, LARGE, Case
from singa import autograd, ops, tensor
from trials import TRIALS

pytestmark = pytest.mark.usefixtures("training")

# Operators with random results, or without a simple oracle, have tests of their own.
ELSEWHERE = {"Dropout", "RNN", "_RNN"}

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
_DIFFERENTIABLE = [case for case in CASES if case.differentiable]
every_differentiable = pytest.mark.parametrize("case", _DIFFERENTIABLE, ids=lambda case: case.name)


def _apply(case: Case, dtype: str) -> tuple[list[tensor.Tensor], list[tensor.Tensor]]:
    """Inputs and outputs."""
    xs = []
    for i, x in enumerate(case.inputs):
        if i in case.constants:
            xs.append(tensor.from_numpy(x))
        else:
            xs.append(tensor.Tensor(data=x, dtype=dtype, stores_grad=True))
    ys = case.apply(*xs)
    return xs, list(ys) if isinstance(ys, tuple) else [ys]


def _oracle(torch: ModuleType, case: Case, dtype: str) -> tuple[list[Any], list[Any]]:
    """The same in PyTorch in float64, on inputs rounded to `dtype`."""
    xs = []
    for i, x in enumerate(case.inputs):
        constant = i in case.constants
        values = torch.tensor(x if constant else x.astype(dtype).astype(np.float64))
        xs.append(values.requires_grad_(case.differentiable and not constant))
    ys = case.theirs(*xs)
    return xs, list(ys) if isinstance(ys, (tuple, list)) else [ys]


def _assert_close(got: np.ndarray, truth: np.ndarray, dtype: str, units: float) -> None:
    scale = max(1.0, float(np.abs(truth).max(initial=0.0)))
    assert got.shape == truth.shape
    np.testing.assert_allclose(got, truth, rtol=0, atol=units * np.finfo(dtype).eps * scale)


def test_table_has_every_operator() -> None:
    classes = {
        name
        for name in dir(ops)
        if isinstance(cls := getattr(ops, name), type)
        and issubclass(cls, autograd.Operator)
        and cls is not ops.BuiltinOperator
    }
    assert classes - {name for case in CASES for name in case.covers} - ELSEWHERE == set()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@every_case
def test_forward_is_pytorch(case: Case, dtype: str, torch: ModuleType) -> None:
    _, ys = _apply(case, dtype)
    _, truths = _oracle(torch, case, dtype)
    assert len(ys) == len(truths)
    for y, truth in zip(ys, truths, strict=True):
        _assert_close(y.numpy().astype(np.float64), truth.detach().numpy(), dtype, case.tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@every_differentiable
def test_backward_is_pytorch(case: Case, dtype: str, torch: ModuleType) -> None:
    _check_backward(case, dtype, torch, *_apply(case, dtype))


def _check_backward(
    case: Case, dtype: str, torch: ModuleType, xs: list[Any], ys: list[Any], sums: float = 1
) -> None:
    """`sums` is the factor of the tolerance for gradients that are long sums."""
    truth_xs, truth_ys = _oracle(torch, case, dtype)
    random = np.random.default_rng(11)
    got: dict[int, np.ndarray] = {}
    for y, truth in zip(ys, truth_ys, strict=True):
        dy = random.standard_normal(y.shape).astype(dtype)
        for x, gradient in autograd.backward(y, dy, retain_graph=True):
            assert gradient.dtype == x.dtype
            got[id(x)] = got.get(id(x), 0.0) + gradient.numpy().astype(np.float64)
        truth.backward(torch.tensor(dy.astype(np.float64)), retain_graph=True)
    for x, truth in zip(xs, truth_xs, strict=True):
        if truth.grad is not None:
            _assert_close(got[id(x)], truth.grad.numpy(), dtype, 4 * sums * case.tolerance)


#: The emulated GPU takes seconds for some.
_LARGE = LARGE if TRIALS > 10 else LARGE[::10]
every_large = pytest.mark.parametrize("case", _LARGE, ids=lambda case: case.name)


def _fill_free_memory() -> None:
    """Blocks that the allocator may reuse hold large numbers, which must not matter."""
    sizes, size = [], 64
    while size < 1 << 20:
        sizes.append(size)
        size += size // 8
    for dtype in ("float32", "bfloat16"):
        blocks = [tensor.Tensor((size,), dtype=dtype) for size in sizes]
        for block in blocks:
            block.set_value(3e4)


@every_large
def test_large_inputs_are_pytorch(case: Case, torch: ModuleType, tmp_path: Path) -> None:
    """Results and gradients in float32; those of every kernel are compared with `reference`, but
    for convolutions, which have too many."""
    _fill_free_memory()
    every_kernel = not case.name.startswith("conv")
    with singa.opcheck(directory=tmp_path, every_kernel=every_kernel) as check:
        xs, ys = _apply(case, "float32")
        if case.differentiable:
            _check_backward(case, "float32", torch, xs, ys, sums=8)
    assert not [row for row in check.kernels() if row["failed"] and not row["refused"]]
    _, truths = _oracle(torch, case, "float32")
    for y, truth in zip(ys, truths, strict=True):
        _assert_close(y.numpy().astype(float), truth.detach().numpy(), "float32", case.tolerance)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "case",
    # Batch norms have parameters of float32.
    [case for case in _DIFFERENTIABLE if "batchnorm" not in case.name],
    ids=lambda case: case.name,
)
def test_half_types_are_pytorch_of_rounded_inputs(
    case: Case, dtype: str, torch: ModuleType
) -> None:
    _check_halves(case, dtype, torch)


@pytest.mark.parametrize(
    "case",
    [case for case in _LARGE if case.differentiable and "batchnorm" not in case.name],
    ids=lambda case: case.name,
)
def test_large_inputs_of_bfloat16(case: Case, torch: ModuleType) -> None:
    _fill_free_memory()
    _check_halves(case, "bfloat16", torch)


def _check_halves(case: Case, dtype: str, torch: ModuleType) -> None:
    """Values within 4 units of the largest one, and gradients, which have the inputs' type, within
    6."""
    unit = 2.0**-10 if dtype == "float16" else 2.0**-7
    xs, ys = _apply(case, dtype)
    their_xs = [
        torch.tensor(x if i in case.constants else xs[i].as_type("float64").numpy())
        for i, x in enumerate(case.inputs)
    ]
    for i, x in enumerate(their_xs):
        x.requires_grad_(i not in case.constants)
    truths = case.theirs(*their_xs)
    truths = list(truths) if isinstance(truths, (tuple, list)) else [truths]
    got: dict[int, Any] = {}
    for y, truth in zip(ys, truths, strict=True):
        _assert_within(y, truth.detach(), 4 * unit)
        dy = tensor.Tensor(data=np.random.default_rng(0).standard_normal(y.shape), dtype=y.dtype)
        for x, gradient in autograd.backward(y, dy, retain_graph=True):
            assert gradient.dtype == x.dtype
            got[id(x)] = got[id(x)] + gradient if id(x) in got else gradient
        truth.backward(torch.tensor(dy.as_type("float64").numpy()), retain_graph=True)
    for x, other in zip(xs, their_xs, strict=True):
        if other.grad is not None:
            _assert_within(got[id(x)], other.grad, 6 * unit)


def _assert_within(got: tensor.Tensor, truth: Any, bound: float) -> None:
    scale = max(1.0, float(truth.abs().max())) if truth.numel() else 1.0
    np.testing.assert_allclose(
        got.as_type("float64").numpy(), truth.numpy(), rtol=0, atol=bound * scale
    )


@every_differentiable
def test_gradients_are_slopes(case: Case) -> None:
    inputs = [
        tensor.from_numpy(x) if i in case.constants else tensor.Tensor(data=x, dtype="float64")
        for i, x in enumerate(case.inputs)
    ]
    assert autograd.gradcheck(case.apply, inputs)


@pytest.mark.parametrize(
    "case", [case for case in _DIFFERENTIABLE if case.one_step], ids=lambda case: case.name
)
def test_direct_backward_is_the_walk(case: Case) -> None:
    """y.creator.backward(dy), which SINGA's scripts use, gives the gradients of `backward`."""
    xs, ys = _apply(case, "float32")
    op = ys[0].creator
    assert [entry[2] for entry in op.src if entry[3]] == [x for x in xs if x.stores_grad]
    dy = np.random.default_rng(5).standard_normal(ys[0].shape).astype(np.float32)
    direct = op.backward(tensor.from_numpy(dy).data)
    direct = direct if isinstance(direct, (tuple, list)) else (direct,)
    walked = autograd.gradients(ys[0], dy)
    for x, gradient in zip(xs, direct, strict=True):
        if id(x) in walked:
            got = autograd.ctensor2numpy(gradient)
            np.testing.assert_array_equal(got, walked[x].numpy())


@pytest.mark.parametrize(
    "case", [case for case in _DIFFERENTIABLE if len(case.inputs) > 1], ids=lambda case: case.name
)
def test_only_what_is_needed(case: Case) -> None:
    """For each input alone: the others are frozen and get no gradient, and its own gradient is the
    same."""
    floats = [i for i in range(len(case.inputs)) if i not in case.constants]
    xs, ys = _apply(case, "float64")
    weights = [np.random.default_rng(6).standard_normal(y.shape) for y in ys]
    every = autograd.gradients(ys[0], weights[0])
    for own in floats:
        new = [
            tensor.Tensor(data=x, dtype="float64", stores_grad=i == own, requires_grad=i == own)
            if i in floats
            else tensor.from_numpy(x)
            for i, x in enumerate(case.inputs)
        ]
        y = case.apply(*new)
        gradients = autograd.gradients(y, weights[0])
        assert [id(new[own])] == list(gradients)
        np.testing.assert_allclose(
            gradients[new[own]].numpy(), every[xs[own]].numpy(), rtol=1e-13, atol=1e-13
        )
