"""Types of elementwise operators: every row of the table on operands of several types, beside
PyTorch."""

import itertools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import singa
from singa.torch_networks.operators import registry

#: Operands: three elements of a type, or one without axes, whose type decides less.
_FORMS = {
    "float32": (3,),
    "int64": (3,),
    "bool": (3,),
    "float64": (),
}
_NUMBERS = (3, 2.5)
#: Rows that are no functions of operands alone.
_OTHERS = ("div.Scalar_mode", "div.Tensor_mode", "_to_copy", "bernoulli.p")


def _operand(torch: ModuleType, kind: str, i: int) -> Any:
    x = torch.tensor([1.0, 2.0, 3.0]) if i % 2 else torch.tensor([2.0, 3.0, 1.0])
    x = x if _FORMS[kind] else x[0]
    return (x > 1 if kind == "bool" else x).to(getattr(torch, kind))


def _calls(torch: ModuleType, name: str, inputs: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Calls of an operator that PyTorch takes, and what they are. `inputs` are the tensors."""
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    if torch.Tag.pointwise not in op.tags or name in _OTHERS:
        return
    arguments = [each for each in op._schema.arguments if not each.has_default_value()]
    choices: list[Any] = []
    for i, argument in enumerate(arguments):
        if str(argument.type) != "Tensor":
            choices.append(_NUMBERS)
        elif argument.name in ("condition", "mask"):
            choices.append([("bool", i)])
        else:
            choices.append([(kind, i) for kind in _FORMS])
    limits = [{"min": 2}, {"max": 2.5}] if name == "clamp" else [{}]
    for given, options in itertools.product(itertools.product(*choices), limits):
        keys = [x for x in given if isinstance(x, tuple)]
        for key in keys:
            inputs.setdefault(key, _operand(torch, *key))

        def call(xs: dict[Any, Any], given: Any = given, options: Any = options) -> Any:
            return op(*[xs[x] if isinstance(x, tuple) else x for x in given], **options)

        try:
            call(inputs)
        except (RuntimeError, TypeError, ZeroDivisionError, NotImplementedError):
            continue  # PyTorch does not take these types
        yield f"{name}{given}{options or ''}", call


def test_options_are_no_operands(torch: ModuleType) -> None:
    class Copies(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any, b: Any) -> Any:
            mask = (a > 0).clone(memory_format=torch.contiguous_format)
            return torch.cartesian_prod(mask, b), mask.logical_not() & b[0]

    x, y = torch.tensor([1.0, -1.0]), torch.tensor([True, False])
    for found, wanted in zip(singa.accelerate(Copies())(x, y), Copies()(x, y), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.slow
def test_results_have_the_types_and_values_of_pytorch(torch: ModuleType) -> None:
    inputs: dict[Any, Any] = {}
    calls: dict[str, Callable[[Any], Any]] = {}
    for name in registry.names():
        calls.update(_calls(torch, name, inputs))
    # Export refuses bools to be shifted by numbers.
    calls = {
        what: each for what, each in calls.items() if not ("shift__" in what and "bool" in what)
    }
    assert len(calls) > 700

    class Calls(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *xs: Any) -> list[Any]:
            given = dict(zip(inputs, xs, strict=True))
            return [call(given) for call in calls.values()]

    found = singa.accelerate(Calls())(*inputs.values())
    wrong = []
    for (what, call), y in zip(calls.items(), found, strict=True):
        wanted = call(inputs)
        same = y.dtype == wanted.dtype and y.shape == wanted.shape
        if not (same and torch.allclose(y.double(), wanted.double(), 2e-6, 1e-7, equal_nan=True)):
            wrong.append(f"{what}: {y}, wanted {wanted}")
    assert wrong == []
