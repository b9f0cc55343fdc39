"""Writers of elementwise operators, reductions and products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd as ag
from ... import ops
from ... import singa_wrap as _c
from ...dtypes import BY_VALUE, is_float
from ...ops.elementwise import Scalar
from ...ops.movement import Clone, Contiguous
from ..data_types import NUMBERS
from ..functions import ARITHMETIC, COMPARISONS, FUNCTIONS, LOGIC, OF_LISTS, Function
from .registry import writes

if TYPE_CHECKING:
    from ..node_writer import Call


def _write(row: Function) -> None:
    arguments = " ".join(argument for _, argument, _ in row.attributes.values())

    @writes(row.operator, reads=arguments)
    def write(call: Call) -> None:
        row.write(call, call.inputs[0])


for _row in FUNCTIONS.values():
    _write(_row)


@writes(ag.Identity, Clone, Contiguous, ag.ToBlocked)
def identity(call: Call) -> None:
    """Files have no layouts."""
    call.node("Identity", call.inputs)


@writes(ag.ToDevice, reads="device")
def to_device(call: Call) -> None:
    """Files name no devices."""
    call.node("Identity", call.inputs)


def _named(cls: type, op: str, arguments: str, **attributes: str) -> None:
    """A writer of an operator that ONNX has: its attributes, and where the operator keeps them."""

    @writes(cls, reads=arguments)
    def write(call: Call) -> None:
        given = {name: getattr(call.op, kept) for name, kept in attributes.items()}
        call.node(op, call.inputs, **given)


_named(ag.SeLU, "Selu", "alpha gamma", alpha="a", gamma="b")
_named(ag.Flatten, "Flatten", "axis", axis="axis")
_named(ag.Concat, "Concat", "axis", axis="axis")
_named(ag.DepthToSpace, "DepthToSpace", "blocksize mode", blocksize="blocksize", mode="mode")


@writes(ag.SoftPlus, reads="beta threshold")
def softplus(call: Call) -> None:
    """Softplus(beta·x) / beta, or x above the threshold."""
    (x,), op = call.inputs, call.op
    scaled = x if op.beta == 1 else call.step("Mul", [x, call.constant(op.beta)])
    y = call.step("Softplus", [scaled])
    if op.beta != 1:
        y = call.step("Mul", [y, call.constant(1 / op.beta)])
    if op.threshold is not None:
        above = call.step("Greater", [scaled, call.constant(op.threshold)])
        y = call.step("Where", [above, x, y])
    call.finish(y)


@writes(ag.Erfc)
def erfc(call: Call) -> None:
    """1 - Erf(x), which is 0 where erfc(x) is less than a rounding of 1."""
    call.node("Sub", [call.constant(1.0), call.step("Erf", call.inputs)])


@writes(ag.Expm1)
def expm1(call: Call) -> None:
    """Tanh(x / 2)·(Exp(x) + 1), which keeps its digits near 0."""
    half = call.step("Tanh", [call.step("Mul", [call.inputs[0], call.constant(0.5)])])
    call.node("Mul", [half, call.step("Add", [call.step("Exp", call.inputs), call.constant(1.0)])])


@writes(ag.Log1p)
def log1p(call: Call) -> None:
    """2·Atanh(x / (2 + x)) near 0, where it keeps its digits, elsewhere Log(1 + x)."""
    (x,) = call.inputs
    quotient = call.step("Div", [x, call.step("Add", [x, call.constant(2.0)])])
    near = call.step("Mul", [call.step("Atanh", [quotient]), call.constant(2.0)])
    far = call.step("Log", [call.step("Add", [x, call.constant(1.0)])])
    call.node("Where", [call.step("Less", [call.step("Abs", [x]), call.constant(0.5)]), near, far])


@writes(ag.Atan2)
def atan2(call: Call) -> None:
    """Atan(|y| / |x|) with the signs of x and y, those of zeros included, as the operator."""
    y, x = call.inputs
    zero, one = call.constant(0.0), call.constant(1.0)
    height, width = (call.step("Abs", [each]) for each in (y, x))
    same, slope = call.step("Equal", [height, width]), call.step("Div", [height, width])
    slope = call.step("Where", [same, call.step("Sign", [height]), slope])
    angle = call.step("Atan", [slope])

    def has_sign(number: str) -> str:
        inverse = call.step("Div", [one, number])
        return call.step("Or", [call.step("Less", [each, zero]) for each in (number, inverse)])

    behind = call.step("Sub", [call.constant(math.pi), angle])
    angle = call.step("Where", [has_sign(x), behind, angle])
    call.node("Where", [has_sign(y), call.step("Neg", [angle]), angle])


@writes(ag.Square)
def square(call: Call) -> None:
    """x·x."""
    call.node("Mul", [call.inputs[0], call.inputs[0]])


@writes(ag.Round)
def round_(call: Call) -> None:
    """sign(x)·(floor |x|, plus 1 where |x| is at least 0.5 above it). |x| + 0.5 might be rounded to
    the next whole number."""
    (x,) = call.inputs
    size = call.step("Abs", [x])
    whole = call.step("Floor", [size])
    below = call.step("Less", [call.step("Sub", [size, whole]), call.constant(0.5)])
    rounded = call.step("Where", [below, whole, call.step("Ceil", [size])])
    call.node("Mul", [call.step("Sign", [x]), rounded])


@writes(ag.Trunc)
def trunc(call: Call) -> None:
    """sign(x)·floor(|x|)."""
    (x,) = call.inputs
    call.node("Mul", [call.step("Sign", [x]), call.step("Floor", [call.step("Abs", [x])])])


_BASES: dict[Any, float] = {ag.Log2: 2.0, ag.Log10: 10.0}


@writes(*_BASES)
def log_of_base(call: Call) -> None:
    """Log(x) / log(base)."""
    scale = call.constant(1.0 / math.log(_BASES[call.op.__class__]))
    call.node("Mul", [call.step("Log", call.inputs), scale])


@writes(ag.Exp2)
def exp2(call: Call) -> None:
    """Pow(2, x)."""
    call.node("Pow", [call.constant(2.0), *call.inputs])


@writes(ag.Celu, reads="alpha")
def celu(call: Call) -> None:
    """Celu, from opset 12 on; before, alpha·Elu(x / alpha)."""
    if call.opset >= 12:
        call.node("Celu", call.inputs, alpha=call.op.a)
        return
    alpha = call.constant(call.op.a)
    scaled = call.step("Elu", [call.step("Div", [*call.inputs, alpha])])
    call.node("Mul", [scaled, alpha])


@writes(ag.LogSigmoid)
def log_sigmoid(call: Call) -> None:
    """-Softplus(-x)."""
    call.node("Neg", [call.step("Softplus", [call.step("Neg", call.inputs)])])


@writes(ag.Gelu, ag.GeluTanh)
def gelu(call: Call) -> None:
    """Gelu, from opset 20 on."""
    (x,) = call.inputs
    tanh = isinstance(call.op, ag.GeluTanh)
    if call.opset >= 20:
        call.node("Gelu", [x], approximate="tanh" if tanh else "none")
        return
    if tanh:
        cube = call.step("Mul", [call.step("Mul", [x, x]), x])
        inner = call.step("Add", [x, call.step("Mul", [cube, call.constant(0.044715)])])
        scaled = call.step("Mul", [inner, call.constant(math.sqrt(2 / math.pi))])
        spread = call.step("Tanh", [scaled])
    else:
        spread = call.step("Erf", [call.step("Mul", [x, call.constant(math.sqrt(0.5))])])
    more = call.step("Add", [spread, call.constant(1.0)])
    call.node("Mul", [call.step("Mul", [x, call.constant(0.5)]), more])


@writes(ag.Silu)
def silu(call: Call) -> None:
    """Swish, from opset 24 on."""
    write_silu(call, call.inputs[0])


def write_silu(call: Call, x: str) -> None:
    """The result of `call`, from its argument."""
    if call.opset >= 24:
        call.node("Swish", [x])
    else:
        call.node("Mul", [x, call.step("Sigmoid", [x])])


@writes(ag.Glu, reads="axis")
def glu(call: Call) -> None:
    """The first half, times the sigmoid of the second."""
    axis = call.op.axis
    halves = [(shape[axis],) * 2 for shape in call.out_shapes()]
    parts = call.writer.integers(halves, "lengths of halves")
    a, b = call.writer.node("Split", [call.inputs[0], parts], 2, axis=axis)
    call.node("Mul", [a, call.step("Sigmoid", [b])])


@writes(ag.Clip, reads="min max")
def clip(call: Call) -> None:
    """Clip, with limits as inputs."""
    write_clip(call, call.inputs[0], call.op.a, call.op.b)


def write_clip(call: Call, x: str, low: float, high: float) -> None:
    """The result of `call`, from its argument."""
    limits = [
        "" if math.isinf(v) else call.constant(float(v) if _is_float(call) else int(v))
        for v in (low, high)
    ]
    call.node("Clip", [x, *limits])


def _is_float(call: Call) -> bool:
    return is_float(call.x[0].data_type())


@writes(ag.ReLU6)
@writes(ag.HardTanh, reads="a b")
def relu6(call: Call) -> None:
    """Clip to [0, 6], or other limits."""
    write_clip(call, call.inputs[0], call.op.a, call.op.b)


_WITH_NUMBER = {
    _c.UnaryOp_kAddScalar: ("Add", False),
    _c.UnaryOp_kMulScalar: ("Mul", False),
    _c.UnaryOp_kScalarSub: ("Sub", True),
    _c.UnaryOp_kScalarDiv: ("Div", True),
    _c.UnaryOp_kPowScalar: ("Pow", False),
    _c.UnaryOp_kScalarPow: ("Pow", True),
}


@writes(Scalar, reads="code value")
def scalar(call: Call) -> None:
    """A function of x and a number."""
    if call.op.code not in _WITH_NUMBER:
        raise call.refuse(f"function {call.op.code} of a tensor and a number")
    op, number_first = _WITH_NUMBER[call.op.code]
    value = call.same(lambda o: o.a, "a number")
    number = call.constant(float(value) if _is_float(call) else int(value))
    (x,) = call.inputs
    call.node(op, [number, x] if number_first else [x, number])


def _operands(call: Call, wanted: str | None = None) -> list[str]:
    """The inputs in type `wanted` (default: that of the result): ONNX does not promote types."""
    wanted = wanted or call.type_of_output()
    return [call.cast(x, call.type_of_input(i), wanted) for i, x in enumerate(call.inputs)]


_BINARY: dict[Any, str] = {row.operator: row.op for row in (*ARITHMETIC, *OF_LISTS)}
_BINARY |= {ag.Div: "Div", ag.Pow: "Pow", ag.PRelu: "PRelu", ag.Matmul: "MatMul"}


@writes(*_BINARY)
def binary(call: Call) -> None:
    """Arithmetic, and products of matrices."""
    call.node(_BINARY[call.op.__class__], _operands(call))


@writes(ag.Mod)
def mod(call: Call) -> None:
    """The remainder with the sign of b."""
    call.finish(_remainder(call, *_operands(call)))


def _remainder(call: Call, a: str, b: str) -> str:
    """a - floor(a / b)·b: Mod of floats comes with opset 28."""
    if not is_float(call.y[0].data_type()) or call.opset >= 28:
        return call.step("Mod", [a, b])
    rest = call.step("Mod", [a, b], fmod=1)
    zero = call.constant(0.0, call.type_of_output())
    opposite = call.step("Less", [call.step("Mul", [rest, b]), zero])
    return call.step("Where", [opposite, call.step("Add", [rest, b]), rest])


@writes(ag.Fmod)
def fmod(call: Call) -> None:
    """Mod with the sign of a."""
    call.node("Mod", _operands(call), fmod=1)


@writes(ag.Hypot)
def hypot(call: Call) -> None:
    """m·sqrt(1 + (n / m)²), with m the larger one of |a| and |b| and n the smaller, which does not
    overflow on the way."""
    sizes = [call.step("Abs", [x]) for x in _operands(call)]
    larger, smaller = call.step("Max", sizes), call.step("Min", sizes)
    one, zero = (call.constant(v, call.type_of_output()) for v in (1.0, 0.0))
    same = call.step("Equal", [smaller, larger])  # also 0 and 0, and infinities
    ratio = call.step("Where", [same, one, call.step("Div", [smaller, larger])])
    square = call.step("Add", [call.step("Mul", [ratio, ratio]), one])
    finite = call.step("Equal", [call.step("Mul", [larger, zero]), zero])
    rooted = call.step("Mul", [larger, call.step("Sqrt", [square])])
    call.node("Where", [finite, rooted, larger])


@writes(ag.CopySign)
def copysign(call: Call) -> None:
    """|a|, or -|a| where b or 1 / b is below 0."""
    a, b = _operands(call)
    size, zero = call.step("Abs", [a]), call.constant(0.0, call.type_of_output())
    inverse = call.step("Reciprocal", [b])
    below = call.step("Or", [call.step("Less", [each, zero]) for each in (b, inverse)])
    call.node("Where", [below, call.step("Neg", [size]), size])


@writes(ag.LogAddExp)
def log_add_exp(call: Call) -> None:
    """Max(a, b) + Softplus(-|a - b|), where 0 is the difference of equal ones."""
    a, b = _operands(call)
    zero = call.constant(0.0, call.type_of_output())
    distance = call.step("Abs", [call.step("Sub", [a, b])])
    distance = call.step("Where", [call.step("Equal", [a, b]), zero, distance])
    more = call.step("Softplus", [call.step("Neg", [distance])])
    call.node("Add", [call.step("Max", [a, b]), more])


_BITS: dict[Any, str] = {
    ag.BitAnd: "BitwiseAnd",
    ag.BitOr: "BitwiseOr",
    ag.BitXor: "BitwiseXor",
}


@writes(*_BITS)
def bits(call: Call) -> None:
    """Functions of bits, from opset 18 on."""
    if call.opset < 18:
        raise call.refuse("functions of bits need opset 18")
    call.node(_BITS[call.op.__class__], _operands(call))


@writes(ag.FloorDiv)
def floor_div(call: Call) -> None:
    """The quotient of what the remainder leaves: a / b itself would be rounded before the floor."""
    a, b = _operands(call)
    whole = call.step("Div", [call.step("Sub", [a, _remainder(call, a, b)]), b])
    if not is_float(call.y[0].data_type()):
        call.finish(whole)
        return
    zero = call.constant(0.0, call.type_of_output())
    by_zero = call.step("Equal", [b, zero])
    call.node("Where", [by_zero, call.step("Div", [a, b]), call.step("Round", [whole])])


_COMPARISONS: dict[Any, str] = {row.operator: row.op for row in COMPARISONS}


@writes(*_COMPARISONS, ag.NotEqual)
def comparison(call: Call) -> None:
    """Comparisons, whose results are bool in ONNX."""
    op = _COMPARISONS.get(call.op.__class__)
    a, b = call.x
    compared = _c.ResultType(a, b)
    if not is_float(compared):
        compared = _c.Promote(a.data_type(), b.data_type())
    operands = _operands(call, BY_VALUE[compared].name)
    if op is None:
        result = call.step("Not", [call.step("Equal", operands)])
    else:
        result = call.step(op, operands)
    call.finish(result, "bool")


_LOGIC: dict[Any, str] = {row.operator: row.op for row in LOGIC} | {ag.Not: "Not"}


@writes(*_LOGIC)
def logic(call: Call) -> None:
    """Logical functions, which take bool in ONNX."""
    inputs = [call.cast(x, call.type_of_input(i), "bool") for i, x in enumerate(call.inputs)]
    call.finish(call.step(_LOGIC[call.op.__class__], inputs), "bool")


# Reductions.

_REDUCTIONS: dict[Any, str] = {
    getattr(ag, f"Reduce{name}"): f"Reduce{name}"
    for name in ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare"]
}


@writes(*_REDUCTIONS, reads="axes keepdims")
def reduction(call: Call) -> None:
    """Reductions."""
    op = _REDUCTIONS[call.op.__class__]
    axes, keep = list(call.op.axes), int(call.op.keepdims)
    x = call.cast(call.inputs[0], call.type_of_input(), call.type_of_output())
    if axes:
        call.finish(call.reduced(op, x, axes, keep))
    else:
        call.node(op, [x], keepdims=keep)


@writes(ag.ArgMax, ag.ArgMin, reads="axis keepdims select_last_index")
def arg(call: Call) -> None:
    """Positions of extrema."""
    name = "ArgMin" if isinstance(call.op, ag.ArgMin) else "ArgMax"
    op = call.op
    last = 1 if op.select_last_index else None
    call.node(name, call.inputs, axis=op.axis, keepdims=int(op.keepdims), select_last_index=last)


@writes(ag.SoftMax, ag.LogSoftMax, reads="axis")
def softmax(call: Call) -> None:
    """Softmax along an axis, or over all axes from one on."""
    name = "LogSoftmax" if isinstance(call.op, ag.LogSoftMax) else "Softmax"
    if not call.op.flattens:
        call.node(name, call.inputs, axis=call.op.axis)
        return
    rows = call.step("Flatten", call.inputs, axis=call.op.axis)
    shape = call.step("Shape", call.inputs)
    call.node("Reshape", [call.step(name, [rows], axis=1), shape])


@writes(ag.CosSim)
def cosine(call: Call) -> None:
    """Σ a / |a| · b / |b| along the last axis."""
    unit = [call.step("Div", [x, call.reduced("ReduceL2", x, [-1])]) for x in call.inputs]
    call.finish(call.reduced("ReduceSum", call.step("Mul", unit), [-1], keepdims=0))


# Products.


@writes(ag.Gemm, reads="alpha beta transA transB")
def gemm(call: Call) -> None:
    """Gemm."""
    op, turned = call.op, {"transA": int(call.op.transA), "transB": int(call.op.transB)}
    call.node("Gemm", call.inputs, alpha=op.alpha, beta=op.beta, **turned)


@writes(ops.Linear, reads="transposed")
def linear(call: Call) -> None:
    """A Gemm for matrices; MatMul and Add for more axes."""
    x, W, *b = call.inputs
    transposed = bool(call.op.transposed)
    if len(call.x[0].shape()) == 2:
        call.node("Gemm", [x, W, *b], transB=int(transposed))
        return
    W = call.step("Transpose", [W], perm=[1, 0]) if transposed else W
    if not b:
        call.node("MatMul", [x, W])
        return
    call.node("Add", [call.step("MatMul", [x, W]), b[0]])


@writes(ag.AddBias, reads="axis")
def add_bias(call: Call) -> None:
    """Add of a vector to rows or columns."""
    x, b = _operands(call)
    if call.op.axis == 1:
        b = call.step("Reshape", [b, call.constant(np.array([-1, 1], np.int64))])
    call.node("Add", [x, b])


@writes(ag.Cast, reads="to")
def cast(call: Call) -> None:
    """Cast."""
    call.node("Cast", call.inputs, to=NUMBERS[call.type_of_output()])
