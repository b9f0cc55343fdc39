"""Types of parameters: which inputs go with them, and their conversion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from ..dtypes import DType, as_dtype, is_float, wide_type
from ..tape import autocast
from ..tensor import Tensor
from .hooks import hooked_forward


class Typed:
    """The type of a layer's parameters. They keep the one that they were given: an input of another
    type is refused, or computed by operators that promote."""

    #: Which float types of inputs the layer computes with its parameters: "own" is theirs, "narrow"
    #: is theirs and 16 bits if they have 32, "any" leaves it to the operators, "fixed" is for
    #: layers that check inputs themselves, and whose parameters `to_type` must not convert.
    input_types: ClassVar[str] = "any"

    def dtype_check(self: Any, *inputs: Tensor) -> None:
        """Raises TypeError if a tensor has another type than the first, unless both are types that
        `autocast` computes with. With SINGA's behaviour (`singa.compat`) it converts the others to
        the type of the first, in place.

        >>> linear = layer.Linear(2)
        >>> linear.dtype_check(tensor.ones((1,)), tensor.zeros((2,)))
        """
        first = inputs[0].dtype
        fit = autocast.go_together(first)
        for other in inputs[1:]:
            if other.dtype in fit:
                continue
            self._refuse_type(first, other)

    def _refuse_type(self: Any, first: DType, other: Tensor) -> None:
        raise TypeError(
            f"[{self.title}] the input is {first}, but the parameters are {other.dtype}: cast the "
            f"input, as with x.as_type({other.dtype.name!r}), or convert the model, "
            f"net.to_type({first.name!r}); for products in 16 bits keep both float32 and use "
            "autograd.autocast or compile(dtype=...)"
        )

    def _check_type(self: Any, x: Tensor, own: Sequence[Tensor]) -> None:
        """`dtype_check` of a call's first input and the parameters and states."""
        if self.input_types not in ("own", "narrow") or not is_float(x.dtype):
            return
        if hooked_forward(self) is not None:  # a hook may still convert the input
            return
        wide = wide_type(x.dtype) if self.input_types == "narrow" else x.dtype
        self.dtype_check(x, *[t for t in own if is_float(t.dtype) and t.dtype != wide])

    def to_type(self, dtype: Any) -> Self:
        """Converts the float parameters and states of this layer and its sublayers, in place.

        For a 16-bit type, norms keep float32, in which they compute. Parameters that do not exist
        yet take the type of the first input. Set the optimizer anew afterwards: its state belongs
        to parameters of the old type.

        Raises TypeError for what is no float type, and for a network from a file, whose types
        `onnx.load` decides; ValueError if there are no parameters yet. Nothing is changed then.

        >>> linear = layer.Linear(2)
        >>> y = linear(tensor.ones((1, 3)))
        >>> linear.to_type("float64").W.dtype
        singa.float64
        """
        target = as_dtype(dtype)
        if not is_float(target):
            raise TypeError(f"[to_type] expected a float type, got {target}")
        layer: Any = self
        layers = [layer, *layer.sublayers()]
        for each in layers:
            if each.input_types == "fixed":
                raise TypeError(f"[to_type] {each.title} has the types of {each.types_from}")
        kept = [(each, value) for each in layers for value in each._own_tensors()]
        if not kept and any(each._creates_parameters() for each in layers):
            raise ValueError(
                f"[to_type] {layer.title} has no parameters yet; its first call, or compile(), "
                f"creates them in the type of the input: give it one of type {target}"
            )
        for each, value in kept:
            wanted = wide_type(target) if each.input_types == "narrow" else target
            if is_float(value.dtype) and value.dtype != wanted:
                value.to_type(wanted)
        return self
