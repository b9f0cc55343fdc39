# Names that scripts written for Apache SINGA call on raw tensors. Part of the module singa_wrap.

import operator as _operator


class VecTensor(list):
    """A list of raw tensors; functions take any sequence."""


def _unary(op, doc):
    def function(t):
        return Unary(op, t)

    function.__doc__ = doc
    return function


def _binary(op, doc):
    def function(a, b):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return Binary(op, a, b)
        if isinstance(a, Tensor):
            return Binary(op, a, _scalar_like(b, a))
        return Binary(op, _scalar_like(a, b), b)

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
    "EltwiseMult": BinaryOp_kMul,
    "Div": BinaryOp_kDiv,
    "Pow": BinaryOp_kPow,
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

del _name, _op


def Mult(a, b, c=None, alpha=1.0, beta=0.0):
    """Matrix product of a and b; with `c`, writes alpha·a·b + beta·c into it."""
    if c is None:
        return MatMul(a, b)
    c.CopyFrom(Gemm(a, b, c if beta else None, alpha, beta))
    return None


def SoftMax(t, axis=1):
    """Softmax along `axis`."""
    return Softmax(t, axis)


def SumAll(t):
    """Sum of all elements, as a number."""
    return Reduce(ReduceOp_kSum, t).Item()


def Sum(t, axis=None):
    """Sum along `axis`; without it, of all elements as a number."""
    return SumAll(t) if axis is None else Reduce(ReduceOp_kSum, t, (axis,))


def Average(t, axis):
    """Mean along `axis`."""
    return Reduce(ReduceOp_kMean, t, (axis,))


def SumRows(t):
    """Sum over the rows of a matrix: one value per column."""
    return Reduce(ReduceOp_kSum, t, (0,))


def SumColumns(t):
    """Sum over the columns of a matrix: one value per row."""
    return Reduce(ReduceOp_kSum, t, (1,))


def _row(op):
    def function(v, m):
        BinaryInto(op, m, v, m)

    function.__doc__ = "Combines each row of matrix m with vector v, in place."
    return function


def _column(op):
    def function(v, m):
        BinaryInto(op, m, v.Unsqueeze((1,)), m)

    function.__doc__ = "Combines each column of matrix m with vector v, in place."
    return function


AddRow, SubRow, MultRow, DivRow = map(
    _row, (BinaryOp_kAdd, BinaryOp_kSub, BinaryOp_kMul, BinaryOp_kDiv)
)
AddColumn, SubColumn, MultColumn, DivColumn = map(
    _column, (BinaryOp_kAdd, BinaryOp_kSub, BinaryOp_kMul, BinaryOp_kDiv)
)


def ConcatOn(tensors, axis):
    """Joins tensors along `axis`."""
    return Concat(tensors, axis)


def ConcatRows(tensors):
    """Joins tensors along axis 0."""
    return Concat(tensors, 0)


def ConcatColumns(tensors):
    """Joins tensors along axis 1."""
    return Concat(tensors, 1)


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


def _range(function, t, size, offset=0):
    """The end of `size` elements from `offset` on. Raises ValueError outside t."""
    end = _operator.index(offset) + _operator.index(size)
    if size < 0 or offset < 0 or end > t.size():
        raise ValueError(f"[{function}] {size} elements at {offset} of {t.ToString()}")
    return end


def CopyDataToFrom(dst, src, size, dst_offset=0, src_offset=0):
    """Copies `size` elements of flat src to flat dst. Raises ValueError outside either."""
    _range("CopyDataToFrom", dst, size, dst_offset)
    _range("CopyDataToFrom", src, size, src_offset)
    dst.Reshape((-1,)).SliceAxis(0, dst_offset, dst_offset + size).CopyFrom(
        src.Reshape((-1,)).SliceAxis(0, src_offset, src_offset + size)
    )


def _values(t, dtype):
    return _numpy.array(Exporter(t.AsType(dtype).ToHost())).reshape(-1)


def _get_float_value(self, size):
    """The first `size` elements as a list of floats. Raises ValueError when there are fewer."""
    _range("GetFloatValue", self, size)
    return _values(self, kFloat32)[:size].tolist()


def _get_int_value(self, size):
    """The first `size` elements as a list of ints. Raises ValueError when there are fewer."""
    _range("GetIntValue", self, size)
    return _values(self, kInt)[:size].tolist()


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
Tensor.GetFloatValue = _get_float_value
Tensor.GetIntValue = _get_int_value
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


Device.host = _host
Device.Reset = _reset


def __getattr__(name):
    # Asking opens the CUDA backend, so it is not done before somebody wants to know.
    if name == "USE_CUDA":
        return NumGpus() > 0
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Platform:
    """Finds and makes devices. What asks for a GPU raises RuntimeError where none can be used, and
    says what is missing."""

    @staticmethod
    def GetDefaultDevice():
        """The CPU that everything uses unless told otherwise."""
        return DefaultDevice()

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
