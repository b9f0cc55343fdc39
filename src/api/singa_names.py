# Names that scripts written for Apache SINGA call on raw tensors. Part of the module singa_wrap.

import functools as _functools
import math as _math
import operator as _operator


class VecTensor(list):
    """A list of raw tensors; functions take any sequence."""


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
    raise TypeError(f"[Binary] one of the operands has to be a Tensor, got {kinds}")


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
    dtype = t.data_type()
    if isinstance(value, float) and not IsFloat(dtype):
        dtype = kFloat32
    return Full((), value, t.device(), dtype)


for _name, _op in {
    "Abs": UnaryOp_kAbs,
    "Ceil": UnaryOp_kCeil,
    "Floor": UnaryOp_kFloor,
    "Round": UnaryOp_kRound,
    "RoundE": UnaryOp_kRoundE,
    "Exp": UnaryOp_kExp,
    "Erf": UnaryOp_kErf,
    "Log": UnaryOp_kLog,
    "ReLU": UnaryOp_kRelu,
    "Sigmoid": UnaryOp_kSigmoid,
    "Sign": UnaryOp_kSign,
    "Sqrt": UnaryOp_kSqrt,
    "Square": UnaryOp_kSquare,
    "Tanh": UnaryOp_kTanh,
    "Cos": UnaryOp_kCos,
    "Cosh": UnaryOp_kCosh,
    "Acos": UnaryOp_kAcos,
    "Acosh": UnaryOp_kAcosh,
    "Sin": UnaryOp_kSin,
    "Sinh": UnaryOp_kSinh,
    "Asin": UnaryOp_kAsin,
    "Asinh": UnaryOp_kAsinh,
    "Tan": UnaryOp_kTan,
    "Atan": UnaryOp_kAtan,
    "Atanh": UnaryOp_kAtanh,
    "SoftPlus": UnaryOp_kSoftPlus,
    "SoftSign": UnaryOp_kSoftSign,
}.items():
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
    "LTTensor": BinaryOp_kLess,
    "LETensor": BinaryOp_kLessEqual,
    "GTTensor": BinaryOp_kGreater,
    "GETensor": BinaryOp_kGreaterEqual,
    "EQTensor": BinaryOp_kEqual,
    "MinTensor": BinaryOp_kMin,
    "MaxTensor": BinaryOp_kMax,
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
    "PowFloatWitRet": BinaryOp_kPow,  # SINGA's tensor.pow calls it so
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
    """Matrix product of a and b; with `c`, writes alpha·a·b + beta·c into it."""
    if c is None:
        return MatMul(a, b)
    c.CopyFrom(Gemm(a, b, c if beta else None, alpha, beta))
    return None


MultWithRet = Mult


def MultWithScale(alpha, a, b, beta, c):
    """c = alpha·a·b + beta·c."""
    Mult(a, b, c, alpha, beta)


def _rows(function, t, axis):
    """t as a matrix: the axes before `axis`, and those from it on."""
    shape = t.shape()
    place = _operator.index(axis)
    if not -len(shape) <= place < len(shape):
        raise ValueError(f"[{function}] axis {place} is outside {t.ToString()}")
    place %= len(shape)
    return t.Reshape((_math.prod(shape[:place]), _math.prod(shape[place:])))


def SoftMax(t, out=None, axis=None):
    """SINGA's softmax, of all elements from `axis` on together: SoftMax(t, 1) of shape (2, 3, 4) is
    that of two rows of 12. (`Softmax` goes along one axis.) The default of `axis` is 1, or 0 for a
    vector.

    Called as SoftMax(t) or SoftMax(t, axis); SoftMax(t, out) and SoftMax(t, out, axis) write into
    `out`."""
    if out is not None and not isinstance(out, Tensor):
        out, axis = None, out
    rows = _rows("SoftMax", t, min(1, t.rank() - 1) if axis is None else axis)
    y = Softmax(rows).Reshape(t.shape())
    if out is None:
        return y
    out.CopyFrom(y)
    return None


def SoftMaxBackward(dy, axis, y):
    """The gradient for t of y = SoftMax(t, axis)."""
    rows = [_rows("SoftMaxBackward", t, axis) for t in (dy, y)]
    return SoftmaxBackward(*rows).Reshape(y.shape())


def _targets(function, p, t):
    """Probabilities p, and one row of targets for each of p's rows, which adds up to 1: t has
    class numbers, one for each row, or numbers of p's shape."""
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
            f"[{function}] t has to hold a class number for each row of p {p.ToString()}, or "
            f"numbers of its shape, got {t.ToString()}"
        )
    targets = t.AsType(p.data_type()).Reshape((n, classes))
    return rows, Binary(BinaryOp_kDiv, targets, Reduce(ReduceOp_kSum, targets, (1,), True))


def CrossEntropyFwd(p, t):
    """-Σ t·log p of each row of probabilities p (N, C), shape (N). t holds class numbers (N), or
    numbers (N, C), whose rows are divided by their sums."""
    rows, targets = _targets("CrossEntropyFwd", p, t)
    logs = Unary(UnaryOp_kLog, Unary(UnaryOp_kClip, rows, _LEAST, _math.inf))
    products = Reduce(ReduceOp_kSum, Binary(BinaryOp_kMul, targets, logs), (1,))
    return Unary(UnaryOp_kNegative, products)


_LEAST = 2.0**-126  # the least normal float32


def SoftmaxCrossEntropyBwd(p, t):
    """p - t: the gradient, for scores whose softmax is p, of the sum of CrossEntropyFwd(p, t)."""
    rows, targets = _targets("SoftmaxCrossEntropyBwd", p, t)
    return Binary(BinaryOp_kSub, rows, targets).Reshape(p.shape())


def SumAll(t):
    """Sum of all elements, as a tensor of shape (1,)."""
    return Reduce(ReduceOp_kSum, t).Reshape((1,))


def SumAsFloat(t):
    """Sum of all elements, as a number."""
    return Reduce(ReduceOp_kSum, t).Item()


def Sum(t, axis=None):
    """Sum along `axis`; without it, of all elements as a number."""
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
            f"[{function}] v has to hold {y.size()} elements for {t.ToString()}, got {v.ToString()}"
        )
    v.CopyFrom(y.Reshape(v.shape()))
    return None


def SumRows(t, v=None):
    """Sum over the rows of a matrix: one value per column; with `v`, written into it."""
    return _sum("SumRows", t, 0, v)


def SumColumns(t, v=None):
    """Sum over the columns of a matrix: one value per row; with `v`, written into it."""
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
    """m = alpha·v + beta·m in place, v added to each row."""
    _add_scaled(alpha, beta, v.Reshape((-1,)), m)


def AddColumnWithScale(alpha, beta, v, m):
    """m = alpha·v + beta·m in place, v added to each column."""
    _add_scaled(alpha, beta, v.Reshape((-1, 1)), m)


def _add_scaled(alpha, beta, v, m):
    scaled = Unary(UnaryOp_kMulScalar, m, beta)
    BinaryInto(BinaryOp_kAdd, scaled, Unary(UnaryOp_kMulScalar, v, alpha), m)


def ConcatOn(tensors, axis):
    """Joins tensors along `axis`."""
    return Concat(tensors, axis)


def ConcatRows(tensors):
    """Joins tensors along axis 0."""
    return Concat(tensors, 0)


def ConcatColumns(tensors):
    """Joins tensors along axis 1."""
    return Concat(tensors, 1)


def SliceOn(t, start, end, axis):
    """A copy of what lies from start to end - 1 along `axis`. Raises ValueError outside t."""
    shape = t.shape()
    start, end, place = map(_operator.index, (start, end, axis))
    inside = -len(shape) <= place < len(shape)
    if not inside or not 0 <= start <= end <= shape[place]:
        raise ValueError(f"[SliceOn] {start} to {end} along axis {place} of {t.ToString()}")
    return t.SliceAxis(place, start, end).Clone()


def SliceRows(t, start, end):
    """A copy of rows start to end."""
    return t.SliceAxis(0, start, end).Clone()


CopyRows = SliceRows


def SliceColumns(t, start, end):
    """A copy of columns start to end."""
    return t.SliceAxis(1, start, end).Clone()


CopyColumns = SliceColumns


def Reshape(t, shape):
    """The elements of t in another shape."""
    return t.Reshape(shape)


def Transpose(t, axes=()):
    """A view with axes permuted (default: reversed)."""
    return t.Transpose(axes)


def DefaultTranspose(t):
    """A view with the axes reversed."""
    return t.Transpose()


def Contiguous(t):
    """t when its elements lie in row-major order, else a copy that does."""
    return t.Contiguous()


def Product(shape, start=0, len=0):
    """Number of elements of a shape; of `len` axes (0: all others) from `start` on."""
    return _math.prod(shape[start : start + len] if len else shape[start:])


_missing = object()  # the call itself will say so
# Parameters of these names are tensors.
_TENSORS = frozenset(("dst", "dy", "m", "p", "src", "t", "v", "y"))


def _checked(name, function):
    """`function`, where a tensor that is none raises a TypeError that names it."""
    code = function.__code__
    needed = code.co_varnames[: code.co_argcount - len(function.__defaults__ or ())]
    places = [(place, word) for place, word in enumerate(needed) if word in _TENSORS]

    @_functools.wraps(function)
    def checked(*args, **kwargs):
        for place, word in places:
            given = args[place] if place < len(args) else kwargs.get(word, _missing)
            if given is not _missing and not isinstance(given, Tensor):
                kind = type(given).__name__
                raise TypeError(f"[{name}] {word} has to be a Tensor, got {kind}")
        return function(*args, **kwargs)

    return checked


def _range(function, t, size, offset=0):
    """The end of `size` elements from `offset` on. Raises ValueError outside t."""
    end = _operator.index(offset) + _operator.index(size)
    if size < 0 or offset < 0 or end > Tensor.size(t):  # t may be None
        raise ValueError(f"[{function}] {size} elements at {offset} of {t.ToString()}")
    return end


def CopyDataToFrom(dst, src, size, dst_offset=0, src_offset=0):
    """Copies `size` elements of flat src to flat dst. Raises ValueError outside either."""
    _range("CopyDataToFrom", dst, size, dst_offset)
    _range("CopyDataToFrom", src, size, src_offset)
    dst.Reshape((-1,)).SliceAxis(0, dst_offset, dst_offset + size).CopyFrom(
        src.Reshape((-1,)).SliceAxis(0, src_offset, src_offset + size)
    )


for _name in (
    *("AddRow", "SubRow", "MultRow", "DivRow", "AddColumn", "SubColumn", "MultColumn", "DivColumn"),
    *("AddRowWithScale", "AddColumnWithScale", "SoftMax", "SoftMaxBackward", "CrossEntropyFwd"),
    *("SoftmaxCrossEntropyBwd", "SliceOn", "SliceRows", "CopyRows", "SliceColumns", "CopyColumns"),
    *("Reshape", "Transpose", "DefaultTranspose", "Contiguous", "CopyDataToFrom"),
):
    globals()[_name] = _checked(_name, globals()[_name])

del _name


def _values(t, dtype):
    return _numpy.array(Exporter(t.AsType(dtype).ToHost())).reshape(-1)


def _get_value(function, dtype):
    def value(self, size):
        _range(function, self, size)
        return _values(self, dtype)[:size]

    value.__doc__ = "The first `size` elements as an array. Raises ValueError when there are fewer."
    return value


def _repeat(self, repeats, axis):
    """Each element several times: one number, or one for each along `axis`; flattened where `axis`
    is 9999, which is SINGA's "no axis", or None."""
    whole = -1000 if axis is None or axis == 9999 else axis  # Repeat's "no axis"
    return Repeat(self, repeats, whole)


def _copy_from_array(dtype):
    def function(self, values, offset=0):
        given = _numpy.asarray(values)
        if given.dtype.kind not in "biuf":
            raise TypeError(f"[CopyFromHostPtr] expected numbers, got {values!r:.60}")
        with _numpy.errstate(invalid="ignore", over="ignore"):
            array = _numpy.ascontiguousarray(given, dtype=dtype).reshape(-1)
        if dtype == "int32" and not _numpy.array_equal(array, _numpy.trunc(given).reshape(-1)):
            raise ValueError("[CopyIntDataFromHostPtr] values do not fit int32")
        _range("CopyFromHostPtr", self, array.size, offset)
        flat = self.Reshape((-1,))
        flat.SliceAxis(0, offset, offset + array.size).CopyFrom(from_buffer(array, False))

    function.__doc__ = f"Copies an array, as {dtype}, to the elements from `offset` on."
    return function


def _per_element(op):
    def function(self):
        total = Reduce(op, self).Item()
        return total / self.size() if self.size() else _math.nan

    function.__doc__ = "A norm of all elements, divided by their number; NaN where there is none."
    return function


def _in_place(op):
    def function(self, other):
        other = other if isinstance(other, Tensor) else _scalar_like(other, self)
        BinaryInto(op, self, other, self)
        return self

    function.__doc__ = "Changes its elements, by a tensor's or a number."
    return function


Tensor.__iadd__ = _in_place(BinaryOp_kAdd)
Tensor.__isub__ = _in_place(BinaryOp_kSub)
Tensor.__imul__ = _in_place(BinaryOp_kMul)
Tensor.__itruediv__ = _in_place(BinaryOp_kDiv)
Tensor.GetFloatValue = _get_value("GetFloatValue", kFloat32)
Tensor.GetHalfFloatValue = _get_value("GetHalfFloatValue", kFloat16)
Tensor.GetIntValue = _get_value("GetIntValue", kInt)
Tensor.Repeat = _repeat
Tensor.L1 = _per_element(ReduceOp_kL1)
Tensor.L2 = _per_element(ReduceOp_kL2)
Tensor.CopyFloatDataFromHostPtr = _copy_from_array("float32")
Tensor.CopyHalfFloatDataFromHostPtr = _copy_from_array("float16")
Tensor.CopyIntDataFromHostPtr = _copy_from_array("int32")
Tensor.Exporter = property(lambda self: Exporter(self))
Tensor.__repr__ = lambda self: f"<singa_wrap.Tensor {self.ToString()}>"
Device.PrintTimeProfiling = lambda self: None


def _host(self):
    """The device of the host: the default CPU."""
    return DefaultDevice()


def _reset(self):
    """Stops recording and drops what was recorded."""
    self.EnableGraph(False)
    self.ResetGraph()


def _of_recorder(kind, **names):
    for name, field in names.items():
        setattr(kind, name, property(lambda self, field=field: getattr(self.recorder, field)))


_WINDOW = {
    "batchsize": "batchsize",
    **{f"{what}_{side}": f"{what}_{side}" for what in ("kernel", "stride") for side in "hw"},
    "pad_h": "pad_top",
    "pad_w": "pad_left",
}
_of_recorder(
    ConvHandle,
    **_WINDOW,
    channels="in_channels",
    num_filters="out_channels",
    group="group",
    bias_term="bias",
)
_of_recorder(PoolingHandle, **_WINDOW, pooled_height="conv_height", pooled_width="conv_width")
PoolingHandle.is_max_pooling = property(lambda self: self.mode == PoolMode_kMax)

Device.host = _host
Device.Reset = _reset
Device.EnableLazyAlloc = staticmethod(lambda enable: None)  # memory comes from a cache anyway

# Version and build options.

SINGA_MAJOR_VERSION, SINGA_MINOR_VERSION, SINGA_PATCH_VERSION = 5, 0, 0
#: The version of Apache SINGA whose interface this is.
SINGA_VERSION = 1000 * SINGA_MAJOR_VERSION + 100 * SINGA_MINOR_VERSION + SINGA_PATCH_VERSION
USE_PYTHON = USE_DNNL = True
USE_JAVA = USE_OPENCL = USE_DIST = False


def __getattr__(name):
    # Asking opens the CUDA backend, so it is not done before somebody wants to know.
    if name in ("USE_CUDA", "USE_CUDNN"):
        return NumGpus() > 0
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def InitLogging(argv=""):
    """Accepted and ignored: errors are exceptions, and nothing is logged."""


class Snapshot:
    """Named raw tensors in a file; see `singa.snapshot`, on which it stands.

    prefix         name of the file
    mode           kWrite or kRead
    max_param_size accepted for SINGA's sake; nothing depends on it
    """

    kRead, kWrite = 0, 1

    def __init__(self, prefix, mode, max_param_size=10):
        from .snapshot import Snapshot as File

        self._file = File(_os.fsdecode(prefix), bool(mode), max_param_size)

    def Write(self, key, param):
        """Adds a tensor as it is now."""
        from .tensor import from_raw_tensor

        name = key.decode() if isinstance(key, bytes) else key
        self._file.write(name, from_raw_tensor(param))

    def Read(self):
        """All names and tensors, in the order written."""
        values = self._file.read()
        return [(name, value.data) for name, value in dict(values).items()]

    def Close(self):
        """Writes the file, as deleting the snapshot does."""
        self._file.close()


class _Distributed:
    def __init__(self, *args, **kwargs):
        raise NotImplementedError(
            f"[{type(self).__name__}] data-parallel training is not there yet; an optimizer such "
            "as opt.SGD trains in one process (USE_DIST is False)"
        )


class NcclIdHolder(_Distributed):
    """SINGA's identifier of a group of processes. Making one raises NotImplementedError."""


class Communicator(_Distributed):
    """SINGA's messages between processes. Making one raises NotImplementedError."""


class Platform:
    """Finds and makes devices. What asks for a GPU raises RuntimeError where none can be used, and
    says what is missing."""

    @staticmethod
    def GetDefaultDevice():
        """The CPU that everything uses unless told otherwise."""
        return DefaultDevice()

    @staticmethod
    def GetNumOpenclPlatforms():
        """Always 0: singa has no OpenCL backend."""
        return 0

    @staticmethod
    def GetNumOpenclDevices():
        """Always 0: singa has no OpenCL backend."""
        return 0

    @staticmethod
    def GetDefaultOpenclDevice():
        """Raises RuntimeError: singa has no OpenCL backend."""
        raise RuntimeError("[GetDefaultOpenclDevice] singa has no OpenCL backend; use the CPU")

    @staticmethod
    def GetNumGPUs():
        """CUDA GPUs that can be used."""
        return NumGpus()

    @staticmethod
    def GetGPUIDs():
        """Identifiers of the CUDA GPUs that can be used."""
        return tuple(range(NumGpus()))

    @staticmethod
    def GetGPUMemSize(device_id):
        """Free and total bytes of a GPU."""
        gpu = GetGpuProperties(device_id)
        return gpu.free_memory, gpu.total_memory

    @staticmethod
    def DeviceQuery(device_id, verbose=False):
        """Description of a GPU."""
        gpu = GetGpuProperties(device_id)
        text = f"GPU {device_id}: {gpu.name}, {gpu.total_memory >> 20} MiB"
        if verbose:
            text += (
                f", {gpu.free_memory >> 20} MiB free, compute capability {gpu.major}.{gpu.minor}, "
                f"{gpu.multiprocessors} multiprocessors"
            )
        return text

    @staticmethod
    def CreateCudaGPUs(num_devices, init_size=0):
        """The first `num_devices` GPUs."""
        return Platform.CreateCudaGPUsOn(range(num_devices), init_size)

    @staticmethod
    def CreateCudaGPUsOn(devices, init_size=0):
        """The GPUs of these identifiers."""
        return [CreateCudaDevice(device) for device in devices]


def _needs_cudnn(function):
    raise RuntimeError(
        f"[{function}] the CUDA backend has no recurrent networks yet: RnnHandle, RnnForward and "
        "RnnBackward compute on the CPU"
    )


class CudnnRNNHandle(RnnHandle):
    """A RnnHandle for a tensor on a CUDA device; RuntimeError elsewhere. `RnnHandle`, RnnForward
    and RnnBackward, on which layer.CudnnRNN stands, compute on the CPU too."""

    def __init__(self, x, hidden_size, mode=0, num_layers=1, bias=1, dropout=0.0, bidirectional=0):
        _needs_cudnn("CudnnRNNHandle")


def _gpu_rnn(name, arguments):
    def function(*args):
        _needs_cudnn(name)

    function.__name__ = name
    function.__doc__ = (
        f"{name}({arguments}) of cuDNN; RuntimeError: the CUDA backend does not have it yet."
    )
    return function


for _name, _arguments in {
    "GpuRNNForwardTraining": "x, hx, cx, W, handle",
    "GpuRNNForwardInference": "x, hx, cx, W, handle",
    "GpuRNNBackwardx": "y, dy, dhy, dcy, W, hx, cx, handle",
    "GpuRNNBackwardW": "x, hx, y, handle",
    "GpuRNNForwardTrainingEx": "x, hx, cx, W, seq_lengths, handle",
    "GpuRNNForwardInferenceEx": "x, hx, cx, W, seq_lengths, handle",
    "GpuRNNBackwardxEx": "y, dy, dhy, dcy, W, hx, cx, seq_lengths, handle",
    "GpuRNNBackwardWEx": "x, hx, y, seq_lengths, handle",
}.items():
    globals()[_name] = _gpu_rnn(_name, _arguments)

del _name, _arguments
