"""Makes a replay file of each family of operations, to test and fuzz the code that reads them.

OPCHECK saves a call whose result is wrong, so this makes all kernels wrong. Call `save` in a
process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import singa
from singa import autograd, layer, model, opt, plan_cache, tensor
from singa import singa_wrap as wrap

LIBRARY = Path(singa.__file__).parents[2] / "lib" / "libsinga_wrong_kernels.so"
ALWAYS, WHERE_OPAQUE, NEVER = range(3)  # test/wrong_kernels/wrong_kernel.h


def add_wrong_kernels(spec: str = "", wrong: int = ALWAYS) -> int:
    """Makes the kernels of one Spec or of all Specs wrong. Returns their number."""
    plan_cache.clear()
    return ctypes.CDLL(str(LIBRARY)).singa_add_wrong_kernels(spec.encode(), wrong)


def make(*shape: int, dtype: str = "float32", seed: int = 0) -> wrap.Tensor:
    values = np.random.default_rng(seed).uniform(0.1, 0.9, shape)
    return wrap.from_buffer(np.ascontiguousarray(values.astype(dtype)))


def integers(*shape: int, most: int = 2, dtype: str = "int64") -> wrap.Tensor:
    values = np.arange(int(np.prod(shape))).reshape(shape) % most
    return wrap.from_buffer(values.astype(dtype))


def bfloat16(*shape: int) -> wrap.Tensor:
    return make(*shape).AsType(wrap.kBFloat16)


def convolutions() -> None:
    for group, bias in ((1, True), (2, False)):
        x, w = make(2, 4, 5, 5), make(6, 4 // group, 3, 3)
        b = make(6) if bias else None
        handle = wrap.ConvHandle(x, [3, 3], [2, 1], [1, 1], 4, 6, bias, group)
        y = wrap.ConvForward(x, w, b, handle)
        wrap.ConvForward(x, w, b, handle, y, True)
        wrap.ConvBackward(y, x, w, handle, True, True, bias)
        wrap.ConvBackwardB(y, handle)
        w = make(4, 6 // group, 3, 3)
        handle = wrap.ConvTransposeHandle(
            x, [3, 3], [2, 2], [1, 1], [1, 1], 4, 6, bias, group, [1, 1]
        )
        y = wrap.ConvTransposeForward(x, w, b, handle)
        wrap.ConvTransposeBackward(y, x, w, handle, True, True, bias)
        if bias:
            wrap.ConvTransposeBackward(y, x, w, handle, False, False, True)
    for size in ((9,), (3, 4, 5)):
        x, ones = make(2, 4, *size), [1] * len(size)
        w = make(6, 4, *(2 for _ in size))
        handle = wrap.ConvHandle(x, w.shape()[2:], ones, ones, 4, 6, False)
        y = wrap.ConvForward(x, w, None, handle)
        wrap.ConvBackward(y, x, w, handle, True, True, False)


def quantized() -> None:
    x, w = integers(2, 4, 5, 5, most=200, dtype="uint8"), integers(6, 4, 3, 3, dtype="int8")
    zero, scale, b = integers(1, dtype="int32"), make(6), make(6)
    handle = wrap.ConvHandle(x, [3, 3], [1, 1], [1, 1], 4, 6)
    y = wrap.QuantizedConv(x, w, zero, scale, b, zero, handle, wrap.kUInt8, True)
    wrap.QuantizedConv(x, w, None, None, None, None, handle, wrap.kInt32)
    rows, w = integers(3, 4, most=200, dtype="uint8"), integers(4, 6, dtype="int8")
    wrap.QuantizedMatMul(rows, w, zero, scale, None, None, wrap.kFloat32)
    wrap.QuantizedSum([y, y], [make(1)] * 2, [zero, None], make(1), zero, wrap.kInt8, True)
    wrap.QuantizedSum([y], [None], [None], None, None, wrap.kFloat32)


def images() -> None:
    x = make(2, 16, 6, 6)
    for is_max in (True, False):
        for kept in (x, wrap.ToBlocked(x)):
            handle = wrap.PoolingHandle(x, [3, 3], [2, 2], [1, 1], is_max)
            y, saved = wrap.PoolingForward(handle, kept, True)
            wrap.PoolingBackward(handle, make(*y.shape()), kept, y, saved)
    wrap.GlobalAveragePoolForward(x)
    for is_max in (True, False):
        y, saved = wrap.AdaptivePoolForward(x, [4, 2], is_max, True)
        wrap.AdaptivePoolBackward(y, x.shape(), is_max, x, saved)
    for kept in (x, wrap.ToBlocked(x)):
        y, saved = wrap.LrnForward(kept, 5, 1e-4, 0.75, 1.0, True)
        wrap.LrnBackward(y, kept, y, saved, 5, 1e-4, 0.75, 1.0)
        handle = wrap.BatchNormHandle(0.1, x)
        scale, bias, mean, var = (make(16, seed=i) for i in range(4))
        y, _, _ = wrap.BatchNormForwardTraining(handle, kept, scale, bias, mean, var, kept, True)
        wrap.BatchNormForwardTraining(handle, kept, None, None, None, None)
        wrap.BatchNormForwardInference(handle, kept, scale, None, mean, var)
        for back in (wrap.BatchNormBackward, wrap.BatchNormBackwardInference):
            back(handle, y, kept, scale, mean, var, True, True)
            back(handle, y, kept, scale, mean, var, True, True, True, bias, kept, True)
        weight = make(16, seed=4)
        y, mean, inv_std = wrap.ChannelNormForward(kept, weight, weight)
        wrap.ChannelNormBackward(y, kept, weight, mean, inv_std)
        y, mean, inv_std = wrap.GroupNormForward(kept, 4, weight, weight)
        wrap.GroupNormBackward(y, kept, 4, weight, mean, inv_std)
    y, _, inv_std = wrap.LayerNormForward(x, None, None, 2, 1e-5, False)
    wrap.LayerNormBackward(y, x, None, None, inv_std, 2, True, False, False)
    wrap.FoldBatchNorm(make(4, 3, 2, 2), make(4), None, make(4), make(4), make(4))
    joined = wrap.Concat([wrap.ToBlocked(x), wrap.ToBlocked(x)], 1)
    wrap.Split(joined, 1, [16, 16])
    wrap.Concat([x, x], 2)
    wrap.DropoutForward(wrap.ToBlocked(x), 0.5)
    linear = wrap.InterpolationHandle(wrap.InterpolationMode_kLinear)
    cubic = wrap.InterpolationHandle(
        wrap.InterpolationMode_kCubic, wrap.CoordinateMode_kAlignCorners, 0, -0.5, True
    )
    area = wrap.InterpolationHandle(wrap.InterpolationMode_kArea)
    for kept in (x, wrap.ToBlocked(x)):
        for handle, scales in ((linear, [1.4, 2.0]), (cubic, []), (area, [])):
            y = wrap.Interpolate(handle, kept, [2, 3], [8, 12], scales)
            wrap.InterpolateBackward(handle, y, x.shape(), [2, 3], scales)
    gates = make(2, 16, 1, 1)
    y = wrap.Binary(wrap.BinaryOp_kMul, wrap.ToBlocked(x), gates)
    wrap.BinaryBackward(wrap.BinaryOp_kMul, y, wrap.ToBlocked(x), gates, None, True, True)


def products() -> None:
    a, b = make(2, 1, 3, 4), make(5, 4, 6)
    wrap.MatMul(a, b)
    wrap.MatMul(bfloat16(3, 4), bfloat16(4, 5))
    wrap.Gemm(make(3, 4), make(4, 5), make(1, 5), 0.5, 2.0)
    wrap.LinearForward(make(3, 4), make(4, 5), make(5), False, True)
    wrap.LinearBackward(make(3, 5), make(3, 4), make(4, 5), False, True, True, True)


def attention() -> None:
    q, k, v = make(2, 4, 5, 8), make(2, 2, 7, 8, seed=1), make(2, 2, 7, 6, seed=2)
    mask = wrap.from_buffer(np.arange(35).reshape(5, 7) % 3 > 0)
    for extra in ((mask, 0.3), (None, 0.5, True, 2, 0.25)):
        y, logsumexp, draw = wrap.AttentionForward(q, k, v, *extra)
        wrap.AttentionBackward(y, q, k, v, extra[0], y, logsumexp, draw, *extra[1:])
    many = make(4, 2, 5, 8)
    repeats = make(2, 1, 5, 5)
    y, logsumexp, draw = wrap.AttentionForward(many, many, many, repeats, 1.0)
    wrap.AttentionBackward(
        y, many, many, many, repeats, y, logsumexp, draw, 1.0, False, 0, 0.0, *[True] * 4
    )
    turned = make(2, 5, 4, 8).Transpose((0, 2, 1, 3))
    y, logsumexp, draw = wrap.AttentionForward(turned, k, v, make(2, 1, 1, 7), 1.0)
    wrap.AttentionBackward(
        y, turned, k, v, make(2, 1, 1, 7), y, logsumexp, draw, 1.0, False, 0, 0.0, False, True
    )
    wanted = (False, False, False, True)
    wrap.AttentionBackward(
        y, turned, k, v, make(2, 1, 1, 7), y, logsumexp, draw, 1.0, False, 0, 0.0, *wanted
    )


def rotary() -> None:
    cos, sin = make(5, 3), make(5, 3, seed=1)
    for x in (make(2, 3, 5, 8), make(2, 5, 3, 8).Transpose((0, 2, 1, 3)), bfloat16(2, 3, 5, 8)):
        for interleaved in (False, True):
            y = wrap.Rotary(x, cos, sin, interleaved)
            wrap.RotaryBackward(y, cos, sin, interleaved)
    wrap.Rotary(make(2, 3, 5, 6), make(2, 5, 3), make(2, 5, 3, seed=1))


def elementwise() -> None:
    x, y = make(3, 4), make(3, 4, seed=1)
    for t in (x, make(2, 2, dtype="float64"), bfloat16(3), make(3, dtype="float16")):
        wrap.Unary(wrap.UnaryOp_kTanh, t)
    wrap.Unary(wrap.UnaryOp_kMulScalar, integers(4), 3.0)
    wrap.Unary(wrap.UnaryOp_kElu, x.Transpose(), 0.5)
    wrap.Unary(wrap.UnaryOp_kRelu, wrap.ToBlocked(make(2, 20, 3, 3)))
    wrap.UnaryInto(wrap.UnaryOp_kMulScalar, x, x, 0.5)
    wrap.UnaryBackward(wrap.UnaryOp_kTanh, x, None, y)
    for t in (y, make(4), integers(3, 1), integers(3, 4, dtype="uint8")):
        wrap.Binary(wrap.BinaryOp_kMul, x, t)
    wrap.Binary(wrap.BinaryOp_kLess, integers(3, dtype="int8"), integers(1, dtype="int32"))
    wrap.BinaryBackward(wrap.BinaryOp_kPow, x, x, y, None, True, True)
    wrap.Where(integers(3, 1), x, y)
    wrap.Axpy(0.5, x, y)
    wrap.Softmax(x, 1)
    wrap.LogSoftmaxBackward(x, y, 0)
    wrap.SoftmaxBackward(make(2, 3, 4), make(2, 3, 4), 1)


def reductions() -> None:
    x = make(3, 4, 5)
    for op in (wrap.ReduceOp_kSum, wrap.ReduceOp_kMax, wrap.ReduceOp_kL2):
        y = wrap.Reduce(op, x, [1], False)
        wrap.ReduceBackward(op, make(*y.shape()), x, make(*y.shape()), [1], False)
    wrap.Reduce(wrap.ReduceOp_kProd, integers(3, 4), [0], True)
    wrap.ArgMax(x.Transpose(), 1)
    wrap.CountTopK(make(4, 3), integers(4), 2)
    wrap.SumsOfSquares([x, bfloat16(3)])


def indexing() -> None:
    x, picks = make(4, 3), integers(2, 5, most=4)
    wrap.Gather(x, 0, picks)
    wrap.GatherBackward(make(2, 5, 3), (4, 3), 0, picks)
    wrap.EmbeddingForward(integers(5, most=4, dtype="int32"), x)
    wrap.EmbeddingBackward(make(5, 3), integers(5, most=4, dtype="int32"), (4, 3))
    places = integers(2, 3)
    wrap.GatherElementsBackward(wrap.GatherElements(x, places, 0), (4, 3), places, 0)
    wrap.GatherNDBackward(wrap.GatherND(x, integers(2, 1)), (4, 3), integers(2, 1))
    for reduction in (wrap.ScatterReduction_kNone, wrap.ScatterReduction_kMul):
        updates = make(2, 3)
        wrap.ScatterElements(x, places, updates, 0, reduction)
        wrap.ScatterElementsBackward(x, places, 0, reduction, x, updates)
    wrap.ScatterND(x, integers(2, 1), make(2, 3), wrap.ScatterReduction_kAdd)
    rows = make(2, 3)
    wrap.ScatterNDBackward(x, integers(2, 1), wrap.ScatterReduction_kMax, x, rows, x)
    wrap.Roll(x, [1, -1], [0, 1])
    wrap.ChannelShuffle(make(2, 6, 3, 4), 3)
    wrap.TopK(x, 2, 0)
    wrap.CumSum(x, 0, True)
    wrap.CumSum(integers(2, 3), 1, False, True)
    wrap.OneHot(picks, 5, 0.0, 1.0, -1, wrap.kFloat32)
    wrap.NonZero(integers(3, 4))
    wrap.SliceBackward(make(2, 2), (4, 3), [1, -1], [3, -4], [0, 1], [1, -2])
    wrap.Tile(x, [2, 1, 3])
    wrap.TileBackward(make(8, 3), (4, 3), [2, 1])
    wrap.Repeat(x, [2], 1)
    wrap.Upsample(x, [2, 1])
    wrap.UpsampleBackward(make(8, 3), [2, 1])
    for mode in ("constant", "reflect", "edge"):
        wrap.Pad(x, mode, [1, -1, 2, 0], 0.5)
        wrap.PadBackward(make(7, 2), (4, 3), mode, [1, -1, 2, 0])


def losses() -> None:
    x, p = make(4, 3), make(4, 3, seed=1)
    for t in (integers(4), integers(4, 1, dtype="int32"), p):
        wrap.SoftmaxCrossEntropyForward(x, t, 0.1)
        wrap.SoftmaxCrossEntropyBackward(make(1), p, t, 0.1)
    wrap.MeanSquareErrorForward(x, p)
    wrap.RankingLossBackward(make(), x, p, 0.2)
    wrap.BinaryCrossEntropyBackward(make(1), x, integers(4, 3))


def recurrent() -> None:
    x, lengths = make(3, 2, 4), wrap.from_buffer(np.array([3, 1], np.int32))
    for mode, layers, dropout, both in (
        (wrap.RnnMode_kLstm, 2, 0.5, True),
        (wrap.RnnMode_kGru, 1, 0.0, False),
        (wrap.RnnMode_kGruResetBefore, 2, 0.0, True),
        (wrap.RnnMode_kTanh, 1, 0.0, True),
    ):
        handle = wrap.RnnHandle(x, 3, mode, layers, True, dropout, both)
        w = make(handle.weights_size)
        state = make(layers * (1 + both), 2, 3)
        cells = state if mode == wrap.RnnMode_kLstm else None
        wrap.RnnForward(handle, x, None, None, w, None, False)
        y, hy, _, saved = wrap.RnnForward(handle, x, state, cells, w, lengths, True)
        wrap.RnnBackward(handle, y, hy, None, x, state, cells, w, y, lengths, saved)


def updates() -> None:
    def tensors(seed: int) -> list[wrap.Tensor]:
        return [make(3, 4, seed=seed), make(5, seed=seed)]

    conditions = wrap.UpdateConditions()
    conditions.squares = make(2, dtype="float64")
    conditions.loss_scale = wrap.from_buffer(np.array([2.0, 1.0, 1.0, 0.0]))
    conditions.scalars = make(3, 8, dtype="float64")
    conditions.clip_norm = 0.5
    decay = [0.1, 0.1]
    wrap.SgdUpdate(tensors(0), tensors(1), [], decay, 0.1, 0.0, 0.0, False, False)
    wrap.SgdUpdate(tensors(0), tensors(1), tensors(2), decay, 0.1, 0.9, 0.0, True, True)
    wrap.RmsPropUpdate(tensors(0), tensors(1), tensors(2), decay, 0.1, 0.9, 1e-8)
    wrap.AdaGradUpdate([bfloat16(4)], [bfloat16(4)], [make(4)], [0.0], 0.1, 1e-8)
    wrap.AdamUpdate(
        *(tensors(seed) for seed in range(4)),
        *(decay, 0.1, 0.9, 0.99, 1e-8, 3, True, None, conditions),
    )
    wrap.UpdateLossScale(conditions.squares, conditions.loss_scale, 2.0, 0.5, 10)


def random() -> None:
    out = make(3, 4)
    wrap.Uniform(-1.0, 1.0, out)
    wrap.Gaussian(0.0, 1.0, make(5, dtype="float64"))
    wrap.Bernoulli(0.5, out)
    _, mask = wrap.DropoutForward(out, 0.5)
    wrap.DropoutBackward(out, mask, 0.5)


class Separable(model.Model):
    """A depthwise convolution that computes the batch norm in front of it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = layer.BatchNorm2d()
        self.depthwise = layer.Conv2d(16, 3, padding=1, group=16)

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        return self.depthwise(self.norm(x, relu=True))

    def train_one_batch(self, x: tensor.Tensor) -> tensor.Tensor:
        loss = autograd.reduce_sum(self.forward(x))
        self.optimizer(loss)
        return loss


def passes() -> None:
    """What only recorded steps call."""
    net = Separable()
    net.set_optimizer(opt.SGD(lr=0.1))
    x = tensor.from_raw_tensor(make(2, 16, 6, 6))
    net.compile([x], is_train=True, use_graph=True)
    singa.set_layout("plain")  # kernels of all CPUs then agree on where images lie
    try:
        net(x)
    finally:
        singa.set_layout("auto")


#: The calls that `save` makes.
CALLS: tuple[Callable[[], None], ...] = (
    convolutions,
    quantized,
    images,
    products,
    attention,
    rotary,
    elementwise,
    reductions,
    indexing,
    losses,
    recurrent,
    updates,
    random,
    passes,
)


def save(folder: str | os.PathLike[str]) -> None:
    """Writes the files to a folder."""
    add_wrong_kernels()
    add_wrong_kernels("CountNonZeroSpec", NEVER)  # the second step of NonZero uses its result
    with singa.opcheck(action="warn", directory=folder):
        for call in CALLS:
            call()
    add_wrong_kernels("CountNonZeroSpec")
    add_wrong_kernels("NonZeroSpec", NEVER)
    with (
        singa.opcheck(action="warn", directory=folder, ops=["CountNonZero"]),
        contextlib.suppress(ValueError, RuntimeError),  # the second step finds the wrong count
    ):
        wrap.NonZero(integers(3, 4))


if __name__ == "__main__":
    import sys

    save(sys.argv[1])
