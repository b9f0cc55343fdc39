"""Mixed precision: matrix products and convolutions in 16 bits, everything that is kept in 32."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from ..dtypes import as_dtype, bfloat16, float16, float32


class _State(threading.local):
    dtype: Any = None  # to which products convert float32 operands; None: they do not


#: This thread's type, for who reads it at each step.
state: _State = _State()


def dtype() -> Any:
    """What this thread's autocast converts to; None outside of one."""
    return state.dtype


class autocast(contextlib.ContextDecorator):  # noqa: N801 (the field's spelling)
    """Context or decorator of the calling thread: convolutions, transposed convolutions, matrix
    products, attention and recurrent networks convert float32 operands to `dtype` first, so that
    what follows them is of that type.

    Parameters, their gradients, the optimizer's state, batch statistics and losses stay float32: a
    parameter is converted at each use, and its gradient back. Other operations take what comes.
    bfloat16 pays on GPUs and on CPUs that multiply it (`singa.doctor()` lists avx512_bf16 or
    amx_bf16); elsewhere it is slow. It has float32's range, so the loss needs no scaling. float16
    is for GPUs: small gradients vanish in it unless the optimizer has an `opt.GradScaler`, and on
    CPUs plain loops compute it.

        with autograd.autocast("bfloat16"):
            out = model.forward(x)
        loss = autograd.softmax_cross_entropy(out, y)

    enabled: False switches it off inside a context that has it on. Raises ValueError for another
    type than bfloat16 and float16.

    >>> x, w = tensor.ones((2, 3)), tensor.ones((3, 4))
    >>> with autograd.autocast("bfloat16"):
    ...     y = autograd.matmul(x, w)
    ...
    >>> y.dtype
    singa.bfloat16
    """

    def __init__(self, dtype: Any = "bfloat16", enabled: bool = True) -> None:
        target = as_dtype(dtype)
        if target not in (bfloat16, float16):
            raise ValueError(f"[autocast] dtype must be bfloat16 or float16, got {dtype!r}")
        self._arguments = target, bool(enabled)
        self._dtype = target if enabled else None
        self._outer: list[Any] = []

    def __enter__(self) -> None:
        self._outer.append(state.dtype)
        state.dtype = self._dtype

    def __exit__(self, *error: object) -> None:
        state.dtype = self._outer.pop()

    def _recreate_cm(self) -> autocast:
        return type(self)(*self._arguments)  # each call may be in another thread


def go_together(dtype: Any) -> tuple[Any, ...]:
    """The types that products take beside an operand of type `dtype`: its own, and under autocast
    the two that it computes with."""
    pair = float32, state.dtype
    return pair if state.dtype is not None and dtype in pair else (dtype,)


def master_dtype(dtype: Any) -> Any:
    """The type of a parameter that is made for an input of type `dtype`: under autocast the master
    copy, float32."""
    return float32 if state.dtype is not None and dtype == state.dtype else dtype
