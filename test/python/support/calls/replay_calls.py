"""Makes a replay file of each family of operations, to test and fuzz the code that reads them.

OPCHECK saves a call whose result is wrong, so this makes all kernels wrong. Call `save` in a
process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import singa
from singa import autograd, layer, model, opt, plan_cache, tensor
from singa import singa_wrap as wrap

LIBRARY = Path(singa.__file__).parents[2] / "lib" / "libsinga_wrong_kernels.so"
# As in test/wrong_kernels/wrong_kernel.h.
ALWAYS, WHERE_OPAQUE, NEVER, LAST_CORNER, WHERE_LARGE, NOTHING, MIDDLE, WHEN_TOLD = range(8)


def add_wrong_kernels(spec: str = "", wrong: int = ALWAYS, kind: int = wrap.DeviceKind_kCpu) -> int:
    """Makes the kernels of one Spec or of all Specs wrong, on one kind of device. Returns their
    number."""
    plan_cache.clear()
    return ctypes.CDLL(str(LIBRARY)).singa_add_wrong_kernels(spec.encode(), wrong, kind)


def add_wrong_reorders(kind: int = wrap.DeviceKind_kCpu) -> None:
    """Makes the first kernel of reorders wrong in the first element."""
    plan_cache.clear()
    ctypes.CDLL(str(LIBRARY)).singa_add_wrong_reorders(kind)


def tell_wrong_kernel() -> None:
    """The next run of a kernel that is wrong WHEN_TOLD is wrong."""
    ctypes.CDLL(str(LIBRARY)).singa_tell_wrong_kernel()


def spoil_kernels(spec: str, implementation: str = "") -> None:
    """Makes the kernels of an implementation, or of all, wrong in the last corner."""
    plan_cache.clear()
    ctypes.CDLL(str(LIBRARY)).singa_spoil_kernels(spec.encode(), implementation.encode())


def make(*shape: int, dtype: str = "float32", seed: int = 0) -> wrap.Tensor:
    values = np.random.default_rng(seed).uniform(0.1, 0.9, shape)
    return wrap.from_buffer(np.ascontiguousarray(values.astype(dtype)))


def integers(*shape: int, most: int = 2, dtype: str = "int64") -> wrap.Tensor:
    values = np.arange(int(np.prod(shape))).reshape(shape) % most
    return wrap.from_buffer(values.astype(dtype))


def bfloat16(*shape: int) -> wrap.Tensor:
    return make(*shape).AsType(wrap.kBFloat16)


def quantized() -> None:
    x, w = integers(2, 4, 5, 5, most=200, dtype="uint8"), integers(6, 4, 3, 3, dtype="int8")
    zero, scale, b = integers(1, dtype="int32"), make(6), make(6)
    handle = wrap.ConvHandle(x, [3, 3], [1, 1], [1, 1], 4, 6)
    y = wrap.QuantizedConv(x, w, zero, scale, b, zero, handle, wrap.kUInt8, True)
    wrap.QuantizedConv(x, w, None, None, None, None, handle, wrap.kInt32)
    rows, w = integers(3, 4, most=200, dtype="uint8"), integers(4, 6, dtype="int8")
    wrap.QuantizedMatMul(rows, w, zero, scale, None, None, wrap.kFloat32)
    wrap.QuantizedMatMul(rows, w, zero, scale, b, zero, wrap.kInt8, False, True, make(1))
    wrap.PoolingForward(wrap.PoolingHandle(x, [2, 2], [2, 2], [0, 0]), x)
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


def entries() -> None:
    """Calls of the table of operators, forward and backward."""
    folder = Path(__file__).parents[3]
    sys.path += [str(folder), str(folder / "python/support/jobs")]
    from ops import table

    autograd.training = True
    for case in table.CASES:
        xs = [
            tensor.from_numpy(x)
            if i in case.constants
            else tensor.Tensor(data=x, dtype="float32", stores_grad=True)
            for i, x in enumerate(case.inputs)
        ]
        # Wrong indices and counts are refused by later operations.
        with contextlib.suppress(ValueError, RuntimeError, IndexError):
            ys = case.apply(*xs)
            for y in ys if case.differentiable and isinstance(ys, tuple) else [ys]:
                if case.differentiable:
                    autograd.gradients(y, np.ones(y.shape, np.float32))
    autograd.training = False


def types() -> None:
    """What the table has in float32 alone, and what Python's operators do not call."""
    x, y = make(3, 4), make(3, 4, seed=1)
    for t in (make(2, 2, dtype="float64"), bfloat16(3), make(3, dtype="float16")):
        wrap.Unary(wrap.UnaryOp_kTanh, t)
    wrap.Unary(wrap.UnaryOp_kMulScalar, integers(4), 3.0)
    wrap.Unary(wrap.UnaryOp_kRelu, wrap.ToBlocked(make(2, 20, 3, 3)))
    wrap.UnaryInto(wrap.UnaryOp_kMulScalar, x, x, 0.5)
    for t in (integers(3, 1), integers(3, 4, dtype="uint8")):
        wrap.Binary(wrap.BinaryOp_kMul, x, t)
    wrap.Binary(wrap.BinaryOp_kLess, integers(3, dtype="int8"), integers(1, dtype="int32"))
    wrap.Axpy(0.5, x, y)
    wrap.MatMul(bfloat16(3, 4), bfloat16(4, 5))
    wrap.LinearForward(make(3, 4), make(4, 5), make(5), False, True)
    wrap.Reduce(wrap.ReduceOp_kProd, integers(3, 4), [0], True)
    wrap.CountTopK(make(4, 3), integers(4), 2)
    wrap.SumsOfSquares([x, bfloat16(3)])
    wrap.CumSum(integers(2, 3), 1, False, True)
    for extra in ((from_mask(5, 7), 0.3), (None, 0.5, True, 2, 0.25)):
        q, k, v = make(2, 4, 5, 8), make(2, 2, 7, 8, seed=1), make(2, 2, 7, 6, seed=2)
        y, logsumexp, draw = wrap.AttentionForward(q, k, v, *extra)
        wrap.AttentionBackward(y, q, k, v, extra[0], y, logsumexp, draw, *extra[1:])


def from_mask(*shape: int) -> wrap.Tensor:
    return wrap.from_buffer(np.arange(int(np.prod(shape))).reshape(shape) % 3 > 0)


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
    *(entries, types, quantized, images, recurrent, updates, random, passes),
)
#: Files that are kept of the calls of an operation by the table.
_KEPT = 1


def save(folder: str | os.PathLike[str]) -> None:
    """Writes the files to a folder."""
    add_wrong_kernels()
    add_wrong_kernels("CountNonZeroSpec", NEVER)  # the second step of NonZero uses its result
    with singa.opcheck(action="warn", directory=folder):
        for call in CALLS:
            call()
            if call is entries:
                _thin_out(Path(folder))
    add_wrong_kernels("CountNonZeroSpec")
    add_wrong_kernels("NonZeroSpec", NEVER)
    with (
        singa.opcheck(action="warn", directory=folder, ops=["CountNonZero"]),
        contextlib.suppress(ValueError, RuntimeError),  # the second step finds the wrong count
    ):
        wrap.NonZero(integers(3, 4))


def _thin_out(folder: Path) -> None:
    seen: Counter[str] = Counter()
    for file in sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns):
        op = file.name.split("-")[1]
        seen[op] += 1
        if seen[op] > _KEPT:
            file.unlink()


if __name__ == "__main__":
    save(sys.argv[1])
