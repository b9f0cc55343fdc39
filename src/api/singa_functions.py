# Apache SINGA's functions on raw tensors, for scripts written for it. Part of the module
# singa_wrap.

import functools as _functools
import math as _math
import operator as _operator

# SWIG's functions in Python only pass their arguments on.
globals().update(
    (name, function)
    for name, function in vars(_singa_wrap).items()
    if callable(function) and not isinstance(function, type) and name in globals()
)


class VecTensor(list):
    """A list of raw tensors. Functions accept any sequence."""


def _unary(op, doc):
    def function(t):
        return Unary(op, t)

    function.__doc__ = doc
    return function


def _operands(a, b):
    if isinstance(a, Tensor):
        return a, b if isinstance(b, Tensor) else _scalar_like(b, a)
    if isinstance(b, Tensor):
        return _scalar_like(a, b), b
    kinds = f"{type(a).__name__} and {type(b).__name__}"
    raise TypeError(f"[Binary] one of the operands must be a Tensor, got {kinds}")


def _binary(op, doc):
    def function(a, b):
        return Binary(op, *_operands(a, b))

    function.__doc__ = doc
    return function


def _binary_into(op, doc):
    def function(a, b, ret=None):
        if ret is None:
            return Binary(op, *_operands(a, b))
        BinaryInto(op, *_operands(a, b), ret)
        return None

    function.__doc__ = doc
    return function


def _scalar_like(value, t):
    kind = kFloat32
    if hasattr(value, "__index__"):
        kind = kBool if isinstance(value, bool) else kInt64
    return Full((), value, t.device(), PromoteNumber(t.data_type(), kind))


for _name in (
    *("Abs", "Ceil", "Floor", "Round", "RoundE", "Exp", "Erf", "Log", "ReLU", "Sigmoid", "Sign"),
    *("Sqrt", "Square", "Tanh", "Cos", "Cosh", "Acos", "Acosh", "Sin", "Sinh", "Asin", "Asinh"),
    *("Tan", "Atan", "Atanh", "SoftPlus", "SoftSign"),
):
    _op = globals()["UnaryOp_k" + _name.replace("ReLU", "Relu")]
    globals()[_name] = _unary(_op, f"{_name} of each element.")

for _name, _op in {
    "__add__": BinaryOp_kAdd,
    "__sub__": BinaryOp_kSub,
    "__mul__": BinaryOp_kMul,
    "__div__": BinaryOp_kDiv,
    "__lt__": BinaryOp_kLess,
    "__le__": BinaryOp_kLessEqual,
    "__gt__": BinaryOp_kGreater,
    "__ge__": BinaryOp_kGreaterEqual,
    "__eq__": BinaryOp_kEqual,
    "AddFloat": BinaryOp_kAdd,
    "SubFloat": BinaryOp_kSub,
    "MultFloat": BinaryOp_kMul,
    "DivFloat": BinaryOp_kDiv,
    "PowFloat": BinaryOp_kPow,
    "LTFloat": BinaryOp_kLess,
    "LEFloat": BinaryOp_kLessEqual,
    "GTFloat": BinaryOp_kGreater,
    "GEFloat": BinaryOp_kGreaterEqual,
    "EQFloat": BinaryOp_kEqual,
}.items():
    globals()[_name] = _binary(
        _op, f"{_name.strip('_')} of two tensors, or of a tensor and a number, elementwise."
    )

for _name, _op in {
    "Add": BinaryOp_kAdd,
    "Sub": BinaryOp_kSub,
    "EltwiseMult": BinaryOp_kMul,
    "Div": BinaryOp_kDiv,
    "Pow": BinaryOp_kPow,
    "AddFloatWithRet": BinaryOp_kAdd,
    "SubFloatWithRet": BinaryOp_kSub,
    "EltwiseMultFloatWithRet": BinaryOp_kMul,
    "DivFloatWithRet": BinaryOp_kDiv,
    "PowWithRet": BinaryOp_kPow,
    "PowFloatWithRet": BinaryOp_kPow,
    "PowFloatWitRet": BinaryOp_kPow,  # spelt so in SINGA's tensor.pow
}.items():
    globals()[_name] = _binary_into(
        _op,
        f"{_name} of two tensors, or of a tensor and a number, elementwise; with `ret`, written "
        "into it.",
    )

del _name, _op


def ReLUBackward(dy, x):
    """dy where x > 0, else 0."""
    return UnaryBackward(UnaryOp_kRelu, dy, x, None)


def Mult(a, b, c=None, alpha=1.0, beta=0.0):
    """Matrix product of a and b. With `c`, writes alpha·a·b + beta·c to it."""
    if c is None:
        return MatMul(a, b)
    c.CopyFrom(Gemm(a, b, c if beta else None, alpha, beta))
    return None


MultWithRet = Mult


def MultWithScale(alpha, a, b, beta, c):
    """c = alpha·a·b + beta·c."""
    Mult(a, b, c, alpha, beta)


def _rows(function, t, axis):
    """t as a matrix, with the axes before `axis` as rows and the others as columns."""
    shape = t.shape()
    place = _operator.index(axis)
    if not -len(shape) <= place < len(shape):
        raise ValueError(f"[{function}] axis {place} is outside {t.ToString()}")
    place %= len(shape)
    return t.Reshape((_math.prod(shape[:place]), _math.prod(shape[place:])))


def SoftMax(t, out=None, axis=None):
    """SINGA's softmax over all axes from `axis` on together: for a t of shape (2, 3, 4),
    SoftMax(t, 1) is that of two rows of 12. (`Softmax` works along one axis.) `axis` is 1 by
    default, or 0 for a vector.

    SoftMax(t) and SoftMax(t, axis) return the result; SoftMax(t, out) and SoftMax(t, out, axis)
    write it to `out`."""
    if out is not None and not isinstance(out, Tensor):
        out, axis = None, out
    rows = _rows("SoftMax", t, min(1, t.rank() - 1) if axis is None else axis)
    y = Softmax(rows).Reshape(t.shape())
    if out is None:
        return y
    out.CopyFrom(y)
    return None


def SoftMaxBackward(dy, axis, y):
    """The gradient with respect to t of y = SoftMax(t, axis)."""
    rows = [_rows("SoftMaxBackward", t, axis) for t in (dy, y)]
    return SoftmaxBackward(*rows).Reshape(y.shape())


def _targets(function, p, t):
    """Returns p as a matrix, and a matrix of targets whose rows sum to 1. t has a class number for
    each row of p, or weights of p's shape."""
    rows = p if p.rank() == 2 else p.Reshape((1, -1))
    n, classes = rows.shape()
    if t.size() == n:
        labels = t.AsType(kInt64).Reshape((n,))
        for extreme in (ReduceOp_kMin, ReduceOp_kMax):
            label = Reduce(extreme, labels).Item() if n else 0
            if not 0 <= label < max(classes, 1):
                raise ValueError(
                    f"[{function}] t has the class {label:.0f}, p {classes} classes: {p.ToString()}"
                )
        return rows, OneHot(labels, classes, 0.0, 1.0, -1, p.data_type())
    if t.size() != p.size():
        raise ValueError(
            f"[{function}] t must hold a class number for each row of p {p.ToString()}, or "
            f"numbers of its shape, got {t.ToString()}"
        )
    targets = t.AsType(p.data_type()).Reshape((n, classes))
    return rows, Binary(BinaryOp_kDiv, targets, Reduce(ReduceOp_kSum, targets, (1,), True))


def CrossEntropyFwd(p, t):
    """-Σ t·log p for each row of probabilities p (N, C), with shape (N). t has class numbers (N) or
    weights (N, C); each row of weights is divided by its sum."""
    rows, targets = _targets("CrossEntropyFwd", p, t)
    logs = Unary(UnaryOp_kLog, Unary(UnaryOp_kClip, rows, _LEAST, _math.inf))
    products = Reduce(ReduceOp_kSum, Binary(BinaryOp_kMul, targets, logs), (1,))
    return Unary(UnaryOp_kNegative, products)


_LEAST = 2.0**-126  # the smallest normal float32


def SoftmaxCrossEntropyBwd(p, t):
    """p - t: the gradient of the sum of CrossEntropyFwd(p, t) with respect to scores whose softmax
    is p."""
    rows, targets = _targets("SoftmaxCrossEntropyBwd", p, t)
    return Binary(BinaryOp_kSub, rows, targets).Reshape(p.shape())


def SumAll(t):
    """Sum of all elements, as a tensor of shape (1,)."""
    return Reduce(ReduceOp_kSum, t).Reshape((1,))


def SumAsFloat(t):
    """Sum of all elements, as a number."""
    return Reduce(ReduceOp_kSum, t).Item()


def Sum(t, axis=None):
    """Sum along `axis`; without `axis`, the sum of all elements as a number."""
    return SumAsFloat(t) if axis is None else Reduce(ReduceOp_kSum, t, (axis,))


def Average(t, axis):
    """Mean along `axis`."""
    return Reduce(ReduceOp_kMean, t, (axis,))


def _sum(function, t, axis, v):
    y = Reduce(ReduceOp_kSum, t, (axis,))
    if v is None:
        return y
    if v.size() != y.size():
        raise ValueError(
            f"[{function}] v must hold {y.size()} elements for {t.ToString()}, got {v.ToString()}"
        )
    v.CopyFrom(y.Reshape(v.shape()))
    return None


def SumRows(t, v=None):
    """Sum over the rows of a matrix: one value per column. With `v`, writes the result to it."""
    return _sum("SumRows", t, 0, v)


def SumColumns(t, v=None):
    """Sum over the columns of a matrix: one value per row. With `v`, writes the result to it."""
    return _sum("SumColumns", t, 1, v)


def _row(op):
    def function(v, m):
        BinaryInto(op, m, v.Reshape((-1,)), m)

    function.__doc__ = "Combines each row of matrix m with vector v, in place."
    return function


def _column(op):
    def function(v, m):
        BinaryInto(op, m, v.Reshape((-1, 1)), m)

    function.__doc__ = "Combines each column of matrix m with vector v, in place."
    return function


AddRow, SubRow, MultRow, DivRow = map(
    _row, (BinaryOp_kAdd, BinaryOp_kSub, BinaryOp_kMul, BinaryOp_kDiv)
)
AddColumn, SubColumn, MultColumn, DivColumn = map(
    _column, (BinaryOp_kAdd, BinaryOp_kSub, BinaryOp_kMul, BinaryOp_kDiv)
)


def AddRowWithScale(alpha, beta, v, m):
    """m = alpha·v + beta·m in place; v is added to each row."""
    _add_scaled(alpha, beta, v.Reshape((-1,)), m)


def AddColumnWithScale(alpha, beta, v, m):
    """m = alpha·v + beta·m in place; v is added to each column."""
    _add_scaled(alpha, beta, v.Reshape((-1, 1)), m)


def _add_scaled(alpha, beta, v, m):
    scaled = Unary(UnaryOp_kMulScalar, m, beta)
    BinaryInto(BinaryOp_kAdd, scaled, Unary(UnaryOp_kMulScalar, v, alpha), m)


def ConcatOn(tensors, axis):
    """Joins tensors along `axis`."""
    return Concat(tensors, axis)


def SliceOn(t, start, end, axis):
    """A copy of positions start to end - 1 along `axis`. Raises ValueError outside of t."""
    shape = t.shape()
    start, end, place = map(_operator.index, (start, end, axis))
    inside = -len(shape) <= place < len(shape)
    if not inside or not 0 <= start <= end <= shape[place]:
        raise ValueError(f"[SliceOn] {start} to {end} along axis {place} of {t.ToString()}")
    return t.SliceAxis(place, start, end).Clone()


def Reshape(t, shape):
    """The elements of t in another shape."""
    return t.Reshape(shape)


def Transpose(t, axes=()):
    """A view with permuted axes; by default they are reversed."""
    return t.Transpose(axes)


def DefaultTranspose(t):
    """A view with the axes reversed."""
    return t.Transpose()


def Contiguous(t):
    """t if its elements are in row-major order, else a copy in that order."""
    return t.Contiguous()


def Product(shape, start=0, len=0):
    """Product of `len` dimensions of a shape from `start` on; 0 means all of them."""
    return _math.prod(shape[start : start + len] if len else shape[start:])


_missing = object()  # an argument that is missing, for which the call itself raises
# Parameters with these names are tensors.
_TENSORS = frozenset(("c", "dst", "dy", "m", "p", "src", "t", "v", "y"))


def _checked(name, function):
    """Wraps `function` so that None or another object in place of a tensor raises a TypeError that
    names the argument."""
    code = function.__code__
    needed = code.co_argcount - len(function.__defaults__ or ())
    words = code.co_varnames[: code.co_argcount]
    places = [(place, word) for place, word in enumerate(words) if word in _TENSORS]

    @_functools.wraps(function)
    def checked(*args, **kwargs):
        for place, word in places:
            given = args[place] if place < len(args) else kwargs.get(word, _missing)
            if given is _missing or (given is None and place >= needed):
                continue
            if not isinstance(given, Tensor):
                kind = type(given).__name__
                raise TypeError(f"[{name}] {word} must be a Tensor, got {kind}")
        return function(*args, **kwargs)

    return checked


def _range(function, t, size, offset=0):
    """offset + size. Raises ValueError if this range of elements is outside t."""
    end = _operator.index(offset) + _operator.index(size)
    if size < 0 or offset < 0 or end > Tensor.size(t):  # t may be None
        raise ValueError(f"[{function}] {size} elements at {offset} of {t.ToString()}")
    return end


def CopyDataToFrom(dst, src, size, dst_offset=0, src_offset=0):
    """Copies `size` elements between flattened tensors. Raises ValueError if the range is outside
    either of them."""
    _range("CopyDataToFrom", dst, size, dst_offset)
    _range("CopyDataToFrom", src, size, src_offset)
    dst.Reshape((-1,)).SliceAxis(0, dst_offset, dst_offset + size).CopyFrom(
        src.Reshape((-1,)).SliceAxis(0, src_offset, src_offset + size)
    )


for _name in (
    *("AddRow", "SubRow", "MultRow", "DivRow", "AddColumn", "SubColumn", "MultColumn", "DivColumn"),
    *("AddRowWithScale", "AddColumnWithScale", "SoftMax", "SoftMaxBackward", "CrossEntropyFwd"),
    *("SoftmaxCrossEntropyBwd", "SliceOn", "Reshape", "Transpose", "DefaultTranspose"),
    *("Contiguous", "CopyDataToFrom", "SumRows", "SumColumns", "Mult", "MultWithRet"),
):
    globals()[_name] = _checked(_name, globals()[_name])

del _name
