"""A public name has one meaning, wherever it is reached from."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from singa import autograd, layer, opt, tensor
from singa.compat.names import ALIASES
from singa.tensor import Tensor

X = np.random.default_rng(0).uniform(0.2, 0.9, (2, 3, 4)).astype(np.float32)

PLACES = {"autograd": autograd, "tensor": tensor, "Tensor": Tensor, "layer": layer, "opt": opt}

#: Names that mean something else in one place, with the reason.
EXCEPTIONS: dict[str, str] = {
    # SINGA's forms that write to an argument, or fill one
    **dict.fromkeys(["add", "div", "pow", "sub"], "tensor's write to `ret` or `out`"),
    **dict.fromkeys(["softmax", "sum"], "tensor's write to `out`; without it they ask for an axis"),
    **dict.fromkeys(["add_column", "add_row"], "tensor's scale both, the method's do not"),
    **dict.fromkeys(["bernoulli", "gaussian", "uniform"], "tensor's take the tensor last"),
    "copy_from_numpy": "the method takes an offset",
    # SINGA's others
    "backward": "autograd's yields gradients, the method adds them up",
    "shape": "autograd's gives a tensor, the attribute a tuple",
    "to_host": "tensor's copies, the method moves the tensor",
    # our own
    "bfloat16": "a type, and the conversion to it",
    "to_blocked": "autograd's is recorded, the method moves the tensor",
}

#: Arguments with which functions and methods of a name are compared, after the tensor. A row of a
#: name has several.
CALLS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "all": [((), {}), ((1,), {}), ((), {"axis": (0, 2), "keepdims": True})],
    "any": [((), {}), ((1,), {}), ((), {"axis": (0, 2), "keepdims": True})],
    "argmax": [((1,), {}), ((-1, True), {}), ((None,), {}), ((), {"axis": None, "keepdims": True})],
    "argmin": [((1,), {}), ((-1, True), {}), ((None,), {}), ((), {"axis": None, "keepdims": True})],
    "clip": [((0.3, 0.5), {}), ((), {"min": 0.4}), ((), {"max": 0.4})],
    "contiguous": [((), {})],
    "flatten": [((1,), {}), ((), {"axis": 2}), ((), {"start_dim": 0}), ((), {"end_dim": 1})],
    "log_softmax": [((1,), {}), ((-1,), {}), ((), {"axis": 0})],
    "matmul": [((tensor.from_numpy(X[0].T),), {})],
    "max": [((), {}), ((), {"axis": 1}), ((), {"axis": (0, 2), "keepdims": True})],
    "mean": [((), {}), ((), {"axis": 1}), ((), {"axis": (0, 2), "keepdims": True})],
    "min": [((), {}), ((), {"axis": 1}), ((), {"axis": (0, 2), "keepdims": True})],
    "pow": [((2,), {}), ((tensor.from_numpy(X),), {})],
    "repeat": [((2,), {}), ((2, 1), {}), (([1, 2], 0), {})],
    "reshape": [(((4, 6),), {}), (((-1,),), {})],
    "softmax": [((1,), {}), ((-1,), {}), ((), {"axis": 0})],
    "squeeze": [((), {}), (((),), {})],
    "std": [((), {}), ((1,), {}), ((), {"axis": (0, 2), "keepdims": True, "correction": 0})],
    "sum": [((), {}), ((), {"axis": 1}), ((), {"axis": (0, 2), "keepdims": True})],
    "transpose": [((), {}), (((2, 0, 1),), {})],
    "unsqueeze": [((), {}), ((1,), {}), ((-2,), {})],
    "var": [((), {}), ((1,), {}), ((), {"axis": (0, 2), "keepdims": True, "correction": 0})],
    **{
        name: [((), {})]
        for name in ("abs", "exp", "log", "relu", "sigmoid", "sqrt", "square", "tanh")
    },
}  # fmt: skip


def _named(place: Any) -> Iterator[str]:
    """The public names of a place that are no classes: an operator and its layer share a name."""
    if place is not Tensor:
        yield from (n for n in place.__all__ if not isinstance(getattr(place, n), type))
        return
    for name in dir(Tensor):
        value = inspect.getattr_static(Tensor, name)
        if name[0] != "_" and isinstance(value, FunctionType | property):
            yield name


def _places() -> dict[str, dict[str, Any]]:
    """The values by place of the names that several places have."""
    found: dict[str, dict[str, Any]] = {}
    for title, place in PLACES.items():
        for name in _named(place):
            found.setdefault(name, {})[title] = inspect.getattr_static(place, name)
    return {name: values for name, values in found.items() if len(values) > 1}


SHARED = _places()


@pytest.mark.parametrize("name", sorted(SHARED.keys() - EXCEPTIONS.keys()))
def test_functions_of_a_name_are_one_object(name: str) -> None:
    functions = [value for title, value in SHARED[name].items() if title != "Tensor"]
    assert all(value is functions[0] for value in functions)


def test_exceptions_are_shared_names() -> None:
    assert EXCEPTIONS.keys() <= SHARED.keys()


def _functions(name: str) -> Iterator[Callable[..., Any]]:
    for title, value in SHARED[name].items():
        if title == "Tensor" or (title == "tensor" and name in EXCEPTIONS):
            continue
        assert isinstance(value, FunctionType)
        yield value


METHODS = sorted(name for name, values in SHARED.items() if "Tensor" in values)


@pytest.mark.usefixtures("training")
@pytest.mark.parametrize("name", [n for n in METHODS if n in CALLS or n not in EXCEPTIONS])
def test_a_method_computes_what_the_function_does(name: str) -> None:
    for args, options in CALLS[name]:
        parameter = tensor.Tensor(data=X, stores_grad=True)
        for function in _functions(name):
            y = getattr(parameter, name)(*args, **options)
            same = function(parameter, *args, **options)
            assert (same.shape, same.dtype) == (y.shape, y.dtype)
            np.testing.assert_array_equal(same.numpy(), y.numpy())
            if y.creator.differentiable and not y.is_dummy():
                dy = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
                ours, theirs = (autograd.gradients(t, dy)[parameter].numpy() for t in (y, same))
                np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["argmax", "argmin", "flatten", "log_softmax", "softmax", "sum"])
def test_what_is_left_out_means_one_thing_or_is_refused(name: str) -> None:
    """Where defaults differed, one of the forms says what to write."""
    x = tensor.from_numpy(X)
    found = []
    for call in (*_functions(name), getattr(tensor, name, None), getattr(Tensor, name)):
        if call is not None:
            try:
                found.append(call(x).numpy())
            except ValueError as error:
                assert "axis" in str(error) or "t.sum()" in str(error)  # noqa: PT017
    for y in found:
        np.testing.assert_array_equal(y, found[0])
    assert found


@pytest.mark.parametrize("name", [n for n in autograd.__all__ if n.startswith("reduce_")])
def test_axes_of_reductions_have_two_names(name: str) -> None:
    function, x = getattr(autograd, name), tensor.from_numpy(X)
    assert function(x).shape == (1, 1, 1)
    for axes in (1, (0, 2)):
        y = function(x, axes)
        np.testing.assert_array_equal(function(x, axis=axes).numpy(), y.numpy())
        assert function(x, axis=axes, keepdims=0).shape == x.sum(axes).shape


def test_other_reductions_take_an_axis_and_remove_it() -> None:
    for name in ("all", "any", "argmax", "argmin", "max", "mean", "min", "std", "sum", "var"):
        for where in (autograd, Tensor):
            parameters = inspect.signature(getattr(where, name)).parameters
            assert "axis" in parameters
            assert parameters["keepdims"].default is False


@pytest.mark.usefixtures("training")
def test_methods_are_recorded_towards_a_parameter_alone() -> None:
    """A running average by methods keeps no history."""
    constant = tensor.from_numpy(X)
    parameter = tensor.Tensor(data=X, stores_grad=True)
    for name in ("exp", "sum", "mean", "max", "log_softmax", "reshape", "flatten", "transpose"):
        args = {"log_softmax": (1,), "reshape": ((24,),), "flatten": (1,)}.get(name, ())
        assert getattr(constant, name)(*args).is_dummy()
        assert not getattr(parameter, name)(*args).is_dummy()
        assert autograd.is_recording()


def test_functions_of_two_of_singas_modules_take_the_names_of_both() -> None:
    x = tensor.from_numpy(X)
    np.testing.assert_array_equal(tensor.exp(t=x).numpy(), autograd.exp(a=x).numpy())
    np.testing.assert_array_equal(tensor.log(t=x).numpy(), autograd.log(x=x).numpy())
    assert tensor.reshape(tensor=x, shape=(4, 6)).shape == (4, 6)
    assert tensor.transpose(t=x, axes=(2, 0, 1)).shape == (4, 2, 3)
    assert autograd.transpose(x=x, shape=(2, 0, 1)).shape == (4, 2, 3)
    with pytest.raises(TypeError, match=r"\[transpose\] axes and shape are the same argument"):
        tensor.transpose(x, axes=(2, 0, 1), shape=(2, 0, 1))


def test_names_of_singa_for_the_same_are_one_object() -> None:
    """Also where a program takes all names of a module."""
    names: dict[str, Any] = {}
    exec("from singa.layer import *", names)
    assert names["MeanSquareError"] is layer.MeanSquareError is layer.MSELoss
    for module, aliases in ALIASES.items():
        for name, place in aliases.items():
            home, _, own = place.partition(":")
            found = getattr(importlib.import_module(module), name)
            assert found is getattr(importlib.import_module(home), own)
            assert name not in vars(importlib.import_module(module))


def test_words_for_one_argument() -> None:
    """One attribute, whichever word the constructor gets; not both."""
    for kind in (layer.Conv1d, layer.Conv3d, layer.ConvTranspose1d, layer.ConvTranspose2d):
        for words in ({"group": 2}, {"groups": 2}):
            assert kind(4, 6, 3, **words).group == 2
        with pytest.raises(TypeError, match=rf"\[{kind.__name__}\] group and groups are the same"):
            kind(4, 6, 3, group=2, groups=2)
    assert layer.Conv2d(6, 3, groups=2).group == layer.Conv2d(6, 3, group=2).group == 2
    x = tensor.from_numpy(X)
    for axis in (0, 1, 2):
        want = layer.Softmax(axis)(x).numpy()
        np.testing.assert_array_equal(layer.SoftMax(axis)(x).numpy(), want)
        np.testing.assert_array_equal(layer.SoftMax(dim=axis)(x).numpy(), want)
    np.testing.assert_array_equal(layer.SoftMax()(x).numpy(), layer.Softmax(1)(x).numpy())
