"""Signs of raw tensors, for operators of a user's own: `x * self.a + 1` in `forward`.

They are those of Tensor, with its rules for types and shapes, and return raw tensors. `==` and `!=`
compare identities, as of any object. Importing this module installs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..singa_wrap import Tensor as RawTensor
from ..tape.grad_mode import no_grad
from ..tape.tensor import Tensor, wrap
from . import signs

_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
#: Their names. `==` and `!=` are not among them.
SIGNS = (
    *(f"__{reflected}{name}__" for name in _BINARY for reflected in ("", "r")),
    *("__neg__", "__abs__", "__lt__", "__le__", "__gt__", "__ge__"),
)


def _of_raw(name: str) -> Callable[..., Any]:
    of_tensors = signs.SIGNS[name]

    def sign(self: RawTensor, *others: Any) -> Any:
        if any([isinstance(other, Tensor) for other in others]):
            return NotImplemented  # Tensor's own sign takes both
        with no_grad():
            operands = [wrap(x, False) if isinstance(x, RawTensor) else x for x in others]
            result = of_tensors(wrap(self, False), *operands)
        return result.data if isinstance(result, Tensor) else result

    sign.__name__ = name
    return sign


RawTensor.__array_ufunc__ = None  # an array leaves its signs to the tensor beside it
for _name in SIGNS:
    setattr(RawTensor, _name, _of_raw(_name))
