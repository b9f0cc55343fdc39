"""Products, convolutions and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import autograd, singa_wrap
from ...dtypes import is_float
from ...networks.errors import Refused
from ...tensor import Tensor
from .registry import Call, computes, of_floats

_CONV: Any = (autograd.conv1d, autograd.conv2d, autograd.conv3d)
_TRANSPOSED: Any = (
    autograd.conv_transpose1d,
    autograd.conv_transpose2d,
    autograd.conv_transpose3d,
)


@computes("linear")
def linear(call: Call, x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """x·Wᵀ + b."""
    if not is_float(x.dtype):
        product = autograd.matmul(x, autograd.transpose(W, [1, 0]) if len(W.shape) > 1 else W)
        return product if b is None else product + b
    if len(x.shape) == 1:
        y = autograd.linear(autograd.reshape(x, (1, -1)), W, b, True)
        return autograd.reshape(y, (-1,))
    return autograd.linear(x, W, b, True)


@computes("matmul", "mm", "bmm")
def matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """Products of matrices."""
    return autograd.matmul(a, b)


@computes("addmm", "addmv", "baddbmm")
def addmm(call: Call, c: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta·c + alpha·a·b."""
    return _joined(c, autograd.matmul(a, b), beta, alpha)


@computes("addbmm")
def addbmm(
    call: Call, c: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta·c + alpha·(the sum of the products of all matrices of a and b)."""
    return _joined(c, autograd.reduce_sum(autograd.matmul(a, b), [0], 0), beta, alpha)


def _joined(c: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """beta·c + alpha·product, without c where beta is 0."""
    if not is_float(product.dtype):  # PyTorch's factors, too, are integers then
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (c if beta == 1 else c * beta)


@computes("_trilinear")
def trilinear(
    call: Call,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    new_of_a: Sequence[int],
    new_of_b: Sequence[int],
    new_of_c: Sequence[int],
    summed: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """The sum over axes of a·b·c, where each of them has new axes."""

    def with_axes(x: Tensor, axes: Sequence[int]) -> Tensor:
        shape = list(x.shape)
        for axis in sorted(axes):
            shape.insert(axis, 1)
        return autograd.reshape(x, tuple(shape))

    product = with_axes(a, new_of_a) * with_axes(b, new_of_b) * with_axes(c, new_of_c)
    return autograd.reduce_sum(product, list(summed), 0)


def _each(values: int | Sequence[int], axes: int) -> tuple[int, ...]:
    """A number for each axis."""
    given = (values,) if isinstance(values, int) else tuple(values)
    return given * axes if len(given) == 1 else given


def _batched(x: Tensor, axes: int) -> tuple[Tensor, bool]:
    """x with a batch, and whether it had none."""
    alone = len(x.shape) == axes + 1
    return (autograd.reshape(x, (1, *x.shape)) if alone else x), alone


@computes(*(f"conv{n}d" for n in (1, 2, 3)), *(f"conv{n}d.padding" for n in (1, 2, 3)))
@of_floats
def conv(
    call: Call,
    x: Tensor,
    W: Tensor,
    b: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over one to three axes."""
    axes = len(W.shape) - 2
    x, alone = _batched(x, axes)
    strides, dilations = _each(stride, axes), _each(dilation, axes)
    kernel = tuple(W.shape[2:])
    if isinstance(padding, str):
        pairs = zip(kernel, dilations, strict=True)
        total = [(k - 1) * d if padding == "same" else 0 for k, d in pairs]
        pads = (*(n // 2 for n in total), *(n - n // 2 for n in total))
    else:
        pads = _each(padding, axes) * 2
    key = (x.shape[1], pads)
    handle = call.kept.get(key)
    if handle is None:
        handle = call.kept[key] = singa_wrap.ConvHandle(
            x.data,
            kernel,
            strides,
            pads,
            x.shape[1],
            W.shape[0],
            b is not None,
            groups,
            dilations,
        )
    y: Tensor = _CONV[axes - 1](handle, x, W, b)
    return autograd.reshape(y, tuple(y.shape[1:])) if alone else y


@computes("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
@of_floats
def conv_transpose(
    call: Call,
    x: Tensor,
    W: Tensor,
    b: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution over one to three axes."""
    axes = len(W.shape) - 2
    x, alone = _batched(x, axes)
    handle = call.kept.get(x.shape[1])
    if handle is None:
        handle = call.kept[x.shape[1]] = singa_wrap.ConvTransposeHandle(
            x.data,
            tuple(W.shape[2:]),
            _each(stride, axes),
            _each(padding, axes) * 2,
            list(_each(output_padding, axes)),
            x.shape[1],
            W.shape[1] * groups,
            b is not None,
            groups,
            _each(dilation, axes),
        )
    y: Tensor = _TRANSPOSED[axes - 1](handle, x, W, b)
    return autograd.reshape(y, tuple(y.shape[1:])) if alone else y


@computes("convolution")
def convolution(
    call: Call,
    x: Tensor,
    W: Tensor,
    b: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """Convolution, or a transposed one."""
    if transposed:
        return conv_transpose(call, x, W, b, stride, padding, output_padding, groups, dilation)
    return conv(call, x, W, b, stride, padding, dilation, groups)


@computes("scaled_dot_product_attention")
def attention(
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query·keyᵀ·scale + mask)·value."""
    if dropout_p and call.forced:
        raise Refused(
            "dropout of attention in inference: give dropout_p if self.training, else 0.0"
        )
    ranks = [len(x.shape) for x in (query, key, value)]
    rank = ranks[0]
    if {*ranks} != {rank}:
        raise Refused(
            "query, key and value with {}, {} and {} axes: expand them to the same number".format(
                *ranks
            )
        )

    def four(x: Tensor) -> Tensor:
        if rank == 4:
            return x
        outer = x.shape[:-2]
        lead = (outer[0], -1) if rank > 4 else (1, *(outer or (1,)))
        return autograd.reshape(x, (*lead, *x.shape[-2:]))

    if rank > 4 and attn_mask is not None and len(attn_mask.shape) > 2:
        attn_mask = four(autograd.expand(attn_mask, (*query.shape[:-2], *attn_mask.shape[-2:])))
    y = autograd.scaled_dot_product_attention(
        four(query),
        four(key),
        four(value),
        attn_mask,
        dropout_p=dropout_p,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
    )
    return y if rank == 4 else autograd.reshape(y, (*query.shape[:-1], value.shape[-1]))
